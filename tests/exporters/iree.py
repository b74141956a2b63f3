"""IREE as the judge of exported MLIR: accept it, compile it for this CPU, run it."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core_compiler.exporters.mlir import export
from core_compiler.ir import Block, DType, Function, Module, TensorType, Value, dtype, tensor
from core_compiler.ops import Builder
from tests.ops.samples import Sample

_BIN = Path(sys.executable).parent
#: The plug-in of IREE that reads a dialect.
_INPUT = {"tosa": "tosa", "linalg": "none"}
_OPTIONS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-demote-f64-to-f32=false",
)
#: Our dtypes as IREE's runtime calls them; it takes no others as arguments or results.
_ELEMENTS = {
    "f64": "FLOAT_64",
    "f32": "FLOAT_32",
    "f16": "FLOAT_16",
    "bf16": "BFLOAT_16",
    "i1": "BOOL_8",
    "f8E4M3FN": "FLOAT_8_E4M3_FN",
    "f8E4M3FNUZ": "FLOAT_8_E4M3_FNUZ",
    "f8E5M2": "FLOAT_8_E5M2",
    "f8E5M2FNUZ": "FLOAT_8_E5M2_FNUZ",
    **{f"{sign}i{bits}": f"INT_{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")},
}
_COUNT = itertools.count()


def passed(kind: DType) -> bool:
    """Whether IREE's runtime passes tensors of a dtype."""
    return kind.name in _ELEMENTS


def of_samples(samples: Sequence[Sample]) -> Module:
    """A function ``s0, s1, ...`` for each sample: the op alone, its operands as arguments.

    A float that IREE's runtime does not pass comes out as f32, which holds it.
    """
    functions = {}
    for number, sample in enumerate(samples):
        op = sample.op()
        builder = Builder()
        outputs = []
        for value in op.results:
            kind = value.type.dtype
            passes = passed(kind) or not kind.is_float
            outputs.append(value if passes else builder.cast(value, dtype="f32"))
        body = Block(op.operands, (op, *builder.ops), tuple(outputs))
        functions[f"s{number}"] = Function(f"s{number}", body)
    return Module(functions)


def module_of(body: Block) -> Module:
    return Module({"main": Function("main", body)})


def text_of(module: Module, dialect: str, **options) -> str:
    """The exported text; arguments and results are named by number."""
    main = module.functions.get("main")
    inputs = [f"in{i}" for i, _ in enumerate(main.arguments)] if main else ()
    outputs = [f"out{i}" for i, _ in enumerate(main.outputs)] if main else ()
    return export(module, dialect=dialect, inputs=inputs, outputs=outputs, **options)


def refusal(path: Path) -> str:
    """What ``iree-opt``, which reads and verifies, says against the file; "" for nothing."""
    command = [_BIN / "iree-opt", path, "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return "" if done.returncode == 0 else _errors(done.stderr)


def canonical(text: str, *passes: str) -> str:
    """The text as MLIR itself prints it, after passes."""
    command = [_BIN / "iree-opt", "-", *passes]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{done.stderr[:2000]}\n{text}"
    return done.stdout


def compile_file(path: Path, dialect: str) -> tuple[Path | None, str]:
    """(the compiled file, or None; what ``iree-compile`` says against the program)."""
    made = path.with_name(f"{path.stem}-{next(_COUNT)}.vmfb")  # a loaded one stays mapped
    command = [
        _BIN / "iree-compile",
        path,
        "-o",
        made,
        f"--iree-input-type={_INPUT[dialect]}",
        *_OPTIONS,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode == 0:
        return made, ""
    return None, _errors(done.stderr) or f"exit code {done.returncode}"


@functools.cache
def rounds_integers_to_bf16() -> bool:
    """Whether IREE makes bf16 of integers for this processor: without an instruction for it
    (AVX512-BF16) its CPU backend calls a function that it does not link."""
    row = np.ones(4, np.int8)
    text = text_of(of_samples([Sample("core.cast", (row,), None, {"dtype": "bf16"})]), "linalg")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cast.mlir"
        path.write_text(text)
        made, problem = compile_file(path, "linalg")
    assert made is not None or "__truncsfbf2" in problem, problem
    if made is None:
        warnings.warn(
            "left out: casts of integers to bf16, which IREE does not link for this "
            "processor (undefined symbol: __truncsfbf2)",
            stacklevel=1,
        )
    return made is not None


def _errors(text: str) -> str:
    """The lines of a diagnosis that say what is wrong; others print whole programs."""
    return "\n".join(line[:300] for line in text.splitlines() if "error:" in line)[:3000]


def loaded(module: Module, dialect: str, folder: Path, **options) -> Loaded:
    """The module exported, compiled and loaded."""
    path = folder / f"{dialect}-{next(_COUNT)}.mlir"
    path.write_text(text_of(module, dialect, **options))
    made, problem = compile_file(path, dialect)
    assert made is not None, problem
    return Loaded(made)


class Loaded:
    """A compiled file, ready to run on the CPU."""

    def __init__(self, compiled: Path):
        from iree import runtime

        self._runtime = runtime
        config = runtime.Config("local-sync")
        self._device = config.device
        self._module = runtime.VmModule.mmap(config.vm_instance, str(compiled))
        self._context = runtime.SystemContext(config=config)
        self._context.add_vm_module(self._module)

    def __call__(
        self, name: str, arrays: Sequence[np.ndarray], results: Sequence[TensorType]
    ) -> list[np.ndarray]:
        """The results of a function, of these types, on arrays."""
        given = self._runtime.VmVariantList(len(arrays))
        for array in arrays:
            given.push_ref(self._buffer(array))
        made = self._runtime.VmVariantList(len(results))
        function = self._module.lookup_function(name)
        self._context.vm_context.invoke(function, given, made)
        return [self._array(made, place, type_) for place, type_ in enumerate(results)]

    def _buffer(self, array: np.ndarray):
        rt = self._runtime
        element = getattr(rt.HalElementType, _ELEMENTS[dtype(array.dtype).name])
        held = np.ascontiguousarray(array).reshape(array.shape)  # NumPy makes rank 0 rank 1
        return self._device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
            device=self._device,
            buffer=held.view(np.dtype(f"u{held.dtype.itemsize}")),
            element_type=element,
        )

    def _array(self, made, place: int, type_: TensorType) -> np.ndarray:
        view = made.get_as_object(place, self._runtime.HalBufferView)
        assert tuple(view.shape) == type_.shape
        data = bytes(view.map().asarray((view.byte_length,), np.dtype(np.uint8)))
        return np.frombuffer(data, type_.dtype.numpy).reshape(type_.shape)


def differing(got: np.ndarray, want: np.ndarray, tolerance: float) -> str:
    """How results differ: values of a dtype and shape, NaN and infinities at the same places, the
    rest within ``tolerance`` of the largest wanted; 0 asks for equal values and signs of zeros."""
    want = np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
    if not dtype(want.dtype).is_float:
        return "" if np.array_equal(got, want) else _first(got, want, got != want)
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    bound = tolerance * np.abs(want).max(initial=0, where=finite)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= bound
    same = np.where(finite, near, (got == want) | ((got != got) & (want != want)))
    if not tolerance:
        same &= (np.signbit(got) == np.signbit(want)) | (want != want)
    return "" if same.all() else _first(got, want, ~same)


def _first(got: np.ndarray, want: np.ndarray, where: np.ndarray) -> str:
    place = tuple(int(i) for i in np.argwhere(where)[0])
    return f"{int(where.sum())} of {where.size}, first {got[place]} for {want[place]} at {place}"


def values_like(type_: TensorType) -> Value:
    return Value(tensor(type_.shape, type_.dtype))
