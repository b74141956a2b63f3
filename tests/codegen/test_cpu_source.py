"""Generated CPU source: its text, its line map, and object code that needs no Numba to run."""

# ruff: noqa: E501  (a table of kernels)
from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from core_compiler.codegen.cpu import compile_source
from core_compiler.codegen.cpu.lanes import CONTRACT
from core_compiler.codegen.cpu.source import generate
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.lowering.lower import lower_group
from core_compiler.numerics.functions import FUNCTIONS
from core_compiler.runtime import loader
from core_compiler.scheduling.schedules.library import schedule
from tests.kernels.kernel_helpers import assert_same_bits, compiled, group, interpreted, normal

GOLDEN = Path(__file__).parent / "golden"

KERNELS = {
    "elementwise": group(lambda b, x, y: b.relu(b.add(x, y)), normal(4, 5), normal(4, 5)),
    "transpose": group(lambda b, x: b.transpose(x, permutation=(1, 0)), normal(33, 50)),
    "row_sum": group(lambda b, x: b.reduce_sum(x, axes=(1,)), normal(4, 70)),
    "column_sum": group(lambda b, x: b.reduce_sum(x, axes=(0,)), normal(300, 5)),
    "softmax": group(lambda b, x: b.softmax(x, axis=1), normal(4, 70)),
    "product": group(lambda b, x, w: b.relu(b.matmul(x, w)), normal(4, 70), normal(70, 5)),
    "max_pool": group(
        lambda b, x: b.max_pool(
            x, window=(3, 3), strides=(2, 2), low=(1, 1), high=(1, 1), dilations=(1, 1)
        ),
        normal(1, 2, 9, 9),
    ),
    "cumsum": group(lambda b, x: b.cumsum(x, axis=1), normal(2, 300)),
}


#: Kernels whose schedule keeps cores of their own, or has no steps.
UNSCHEDULED = ("product", "cumsum")


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, "plain") for name in KERNELS]
    + [(name, "scheduled") for name in KERNELS if name not in UNSCHEDULED],
)
def test_golden_source(name, form):
    """``UPDATE_GOLDEN=1`` writes the files anew."""
    kernel = lower_group(KERNELS[name]).function
    if form == "scheduled":
        kernel = schedule(kernel, 16).function
    text, file = generate(kernel).text, GOLDEN / f"{name}_{form}.py"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", ["softmax", "product"])
def test_what_is_remembered_changes_no_code(name, monkeypatch):
    """What Numba works out once makes the machine code, and the lines, that it makes otherwise."""
    kernel = lower_group(KERNELS[name]).function
    source = generate(kernel)
    compile_source(source)  # the answers are known now
    made = compile_source(source)
    monkeypatch.setattr("core_compiler.codegen.cpu.compile.caches_enabled", nullcontext)
    plain = compile_source(source)
    assert made.assembly == plain.assembly
    assert made.assembly_lines == plain.assembly_lines
    assert made.assembly_lines


def test_lines_map_to_kernel_ops():
    kernel = schedule(lower_group(KERNELS["softmax"]).function).function
    source = generate(kernel)
    lines, ops = source.text.splitlines(), list(kernel.body.walk())
    assert source.lines
    for line, function, number, kind in source.lines:
        assert function == kernel.name
        assert ops[number].kind == kind
        text = lines[line - 1]
        if kind == "kernel.for":
            assert text.lstrip().startswith("for ")
        if kind == "kernel.store":
            assert "store_" in text or " = " in text


def test_source_and_structure_are_deterministic():
    """The same text under two hash seeds."""
    script = textwrap.dedent("""
        from tests.codegen.test_cpu_source import KERNELS, generate, lower_group, schedule
        for name in ("softmax", "max_pool", "elementwise"):
            print(generate(schedule(lower_group(KERNELS[name]).function).function).text)
    """)
    made = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1 and "def kernel" in made.pop()


def test_object_code_calls_nothing_outside():
    made = compile_source(generate(schedule(lower_group(KERNELS["softmax"]).function).function))
    assert set(loader.undefined_symbols(made.object)) <= set(loader.ALLOWED)
    assert "define" in made.intermediate and "kernel:" in made.assembly
    assert set(made.seconds) == {"numba", "llvm", "emit"}


def test_instructions_know_their_source_line():
    source = generate(schedule(lower_group(KERNELS["softmax"]).function).function)
    made = compile_source(source)
    text, assembly = source.text.splitlines(), made.assembly.splitlines()
    lines = {line for _, line in made.assembly_lines}
    stores = {n for n, line in enumerate(text, 1) if line.strip().startswith("store_")}
    assert stores and stores <= lines
    assert all(0 < line <= len(text) for line in lines)
    moves = {line for at, line in made.assembly_lines if "mov" in assembly[at - 1]}
    assert platform.machine() != "x86_64" or stores <= moves
    assert ".debug" not in made.assembly and ".loc" not in made.assembly
    assert os.getcwd().encode() not in made.object, "the same source, the same bytes anywhere"


def test_compiled_kernels_load_without_numba(tmp_path):
    """A fresh process loads object code and runs it with llvmlite alone."""
    op = KERNELS["elementwise"]
    made = compile_source(generate(schedule(lower_group(op).function).function))
    file = tmp_path / "kernel.o"
    file.write_bytes(made.object)
    script = textwrap.dedent(f"""
        import ctypes, sys
        from pathlib import Path
        import numpy as np
        from core_compiler.runtime import loader
        code = loader.load_object(Path({str(file)!r}).read_bytes(), ("kernel",))
        kernel = code.function("kernel", None, *[ctypes.c_int64] * 4)
        x, y = np.arange(20, dtype=np.float32) - 10, np.ones(20, np.float32)
        z = np.zeros(20, np.float32)
        block = np.array([x.ctypes.data, y.ctypes.data, z.ctypes.data, 20])
        kernel(block.ctypes.data, 0, 1, 0)
        assert (z == np.maximum(x + y, 0)).all(), z
        assert "numba" not in sys.modules
        print("ran")
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "ran\n", done.stderr


def test_functions_that_decide_on_values_are_known():
    """Everything else runs on vectors; ``scalars.has_lanes`` must agree."""
    from core_compiler.ir import dtype
    from core_compiler.kernel_ir.scalars import has_lanes

    op_of = {"fmod": "rem", "remainder": "mod", "round_even": "round"}
    for name, function in FUNCTIONS.items():
        for kind in ("f32", "f64"):
            traced = CONTRACT.is_traceable(f"{name}_{kind}", (kind,) * function.arity)
            assert traced == has_lanes(op_of.get(name, name), dtype(kind)), (name, kind)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["exp", "log", "erf", "tanh", "sin"])
def test_traced_functions_have_numba_bits(name):
    """The vector code of a function, against the same source compiled by Numba (the interpreter)."""
    assert f"{name}_f32" in CONTRACT.functions
    x = np.concatenate([normal(500) * 30, np.array([0, -0.0, np.inf, -np.inf, 1e-42], np.float32)])
    op = group(lambda b, v: getattr(b, name)(v), x)
    function = schedule(lower_group(op).function).function
    assert_same_bits(compiled(op, [x], function), interpreted(op, [x]), name)


def test_a_value_that_reads_memory_is_made_before_what_writes_there():
    kb = KernelBuilder("k")
    x, y = (kb.buffer(name, ("n",), "f32", (1,)) for name in ("x", "y"))
    with kb.loop("i", 0, kb.size("n"), loop="parallel") as i:
        made = kb.add(kb.load(x, i), kb.number(1.0, "f32"))
        kb.store(kb.number(5.0, "f32"), x, i)
        kb.store(made, y, i)
    lines = [line.strip() for line in generate(kb.function()).text.splitlines()]
    read = next(n for n, line in enumerate(lines) if "x[i] + " in line)
    assert read < lines.index("x[i] = f32(5.0)")
