"""Kernels compile once, in worker processes; crashes are named; damage is repaired."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from core_compiler.runtime import loader
from core_compiler.runtime.compile_pool import CompilePool, Job, KernelCompileError
from core_compiler.runtime.cpu import CpuDevice
from core_compiler.runtime.kernel_cache import KernelCache, KernelSource
from core_compiler.runtime.program import Argument, Launch, Program, Ref
from core_compiler.support.errors import UserError
from tests.runtime.toy_kernels import kernel


def run(kernels, ref) -> np.ndarray:
    x = np.arange(100, dtype=np.float32)
    launch = Launch("l", ref.name, (Ref("input"), Ref("input"), Ref("output")), (), 100)
    program = Program(
        "p", (Argument("x", "f32", (100,)),), (Argument("y", "f32", (100,)),), (ref,), (launch,)
    )
    return CpuDevice(2, kernels).load(program, {})(x)[0]


def test_equal_sources_compile_once(kernels):
    seen = []
    first = kernels.compile([kernel("a"), kernel("b"), kernel("a")], lambda *p: seen.append(p))
    assert [c.cached for c in first] == [False, False, False]
    assert first[0].ref == first[2].ref and first[0].ref.key != first[1].ref.key
    assert [(done, total) for done, total, _ in seen] == [(1, 2), (2, 2)]
    again = kernels.compile([kernel("a"), kernel("b")], lambda *p: pytest.fail("compiled again"))
    assert all(c.cached and c.seconds == 0 for c in again)
    assert "define void @a" in again[0].text("kernel.ir") and again[0].text("kernel.s") == ""
    assert json.loads(again[0].text("lines.json")) == [[1, 2]]
    assert json.loads(again[0].text("about.json"))["symbol"] == "a"


def test_an_abort_names_its_kernel_and_spares_the_others(kernels):
    bad = KernelSource("conv_tile", ";abort\n", "conv_tile")
    with pytest.raises(
        KernelCompileError,
        match=r"kernel conv_tile: crashed its compiler process"
        " .signal 6: LLVM ERROR: out of registers",
    ) as failed:
        kernels.compile([kernel("a"), bad, kernel("b")])
    assert failed.value.exit_code == 3 and "out of registers" in failed.value.log
    assert pickle.loads(pickle.dumps(failed.value)).log == failed.value.log
    good = kernels.compile([kernel("a"), kernel("b")])  # the pool goes on
    assert np.array_equal(run(kernels, good[0].ref), np.arange(100.0) ** 2 + 1)


def test_an_exception_names_its_kernel_and_reason(kernels):
    with pytest.raises(
        KernelCompileError, match=r"kernel k: does not compile .ValueError: no rule"
    ):
        kernels.compile([KernelSource("k", ";raise\n", "k")])


def test_what_a_compiler_prints_does_not_disturb(kernels):
    noisy = kernel("noisy")
    (done,) = kernels.compile([KernelSource("noisy", ";print\n" + noisy.source, "noisy")])
    assert done.text("kernel.ir")


def test_interrupting_keeps_what_was_finished(kernels):
    def interrupt(done, total, name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kernels.compile([kernel("a"), kernel("b"), kernel("c")], interrupt)
    assert len(kernels.folder.keys("kernels")) == 1
    assert all(c.ref for c in kernels.compile([kernel("a"), kernel("b"), kernel("c")]))


def test_a_kernel_that_never_ends_is_given_up():
    pool = CompilePool(1, time_limit=1.0)
    with pytest.raises(KernelCompileError, match="kernel slow: did not compile in 1 s"):
        list(pool.run([Job("slow", "60", "tests.runtime.toy_compiler:sleep")]))


def test_damaged_object_code_is_found_and_made_again(kernels):
    (first,) = kernels.compile([kernel("a")])
    code = first.folder / "kernel.o"
    code.write_bytes(code.read_bytes()[:-8] + b"\xcc" * 8)
    fresh = KernelCache(kernels.folder, 2, kernels.compiler)
    assert fresh.missing([first.ref]) == [first.ref]
    (again,) = fresh.compile([kernel("a")])
    assert not again.cached and again.ref == first.ref
    assert np.array_equal(run(fresh, again.ref), np.arange(100.0) ** 2 + 1)


def test_code_that_calls_the_unknown_is_refused_by_name(kernels):
    text = """
declare void @system(i64)
define void @evil(i64 %a, i64 %lo, i64 %hi, i64 %s) {
  call void @system(i64 %a)
  ret void
}"""
    (made,) = kernels.compile([KernelSource("evil", text, "evil")])
    with pytest.raises(UserError, match="kernel evil: calls system, which generated code must not"):
        kernels.load([made.ref])


@pytest.mark.parametrize(
    "data", [b"", b"MZ", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200]
)
def test_what_is_no_object_file_is_refused(data):
    with pytest.raises(UserError, match="compile the kernel again"):
        loader.load_object(data, ("f",))


def test_a_symbol_that_is_not_there_is_refused():
    data = loader.compile_ir("define void @f() { ret void }")
    with pytest.raises(UserError, match="cannot be loaded"):
        loader.load_object(data, ("g",))


def test_two_objects_may_define_one_symbol():
    codes = [
        loader.load_object(loader.compile_ir(f"define i64 @f() {{ ret i64 {n} }}"), ("f",))
        for n in (1, 2)
    ]
    from ctypes import c_int64

    assert [code.function("f", c_int64)() for code in codes] == [1, 2]


def test_numba_kernels_load_without_numba(folder):
    """The real path: Numba compiles in a worker; this kernel runs in a process without Numba."""
    kernels = KernelCache(folder, 1, "tests.runtime.toy_compiler:python_kernel")
    source = kernel_in_python()
    (made,) = kernels.compile([source])
    code = """
import sys
from core_compiler.runtime.cpu import CpuDevice
from core_compiler.runtime.kernel_cache import KernelCache
from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.runtime.program import Argument, KernelRef, Launch, Program, Ref
import numpy as np
ref = KernelRef("double", sys.argv[2], "kernel")
launch = Launch("l", "double", (Ref("input"), Ref("output")), (), 1000)
x, y = (Argument(name, "f32", (1000,)) for name in "xy")
program = Program("p", (x,), (y,), (ref,), (launch,))
x = np.arange(1000, dtype=np.float32)
(y,) = CpuDevice(2, KernelCache(CacheFolder(sys.argv[1]))).load(program, {})(x)
assert np.array_equal(y, 2 * x)
assert "numba" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder.root), made.ref.key],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr


def kernel_in_python() -> KernelSource:
    return KernelSource(
        "double",
        """
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

def pointer(element, type_):
    @intrinsic
    def cast(typing, address):
        def code(context, builder, signature, args):
            return builder.inttoptr(args[0], element.as_pointer())
        return types.CPointer(type_)(types.int64), code
    return cast

as_f32, as_i64 = pointer(ir.FloatType(), types.float32), pointer(ir.IntType(64), types.int64)

def kernel(args, lo, hi, scratch):
    block = as_i64(args)
    x, y = as_f32(block[0]), as_f32(block[1])
    for i in range(lo, hi):
        y[i] = x[i] * np.float32(2)
""",
        "kernel",
    )


def test_the_key_does_not_depend_on_the_hash_seed():
    code = (
        "from core_compiler.runtime.kernel_cache import *;"
        "print(KernelCache().key(KernelSource('n', 's', 'f')))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
        ).stdout
        for seed in ("0", "1")
    }
    assert len(keys) == 1 and len(keys.pop().strip()) == 64
