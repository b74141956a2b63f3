"""IREE as the judge of exported MLIR: accept it, compile it for this CPU, run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core_compiler.exporters.mlir import export
from core_compiler.ir import Block, DType, Function, Module, TensorType, dtype
from tests.ops.samples import Sample

_BIN = Path(sys.executable).parent
#: The plug-in of IREE that reads a dialect.
INPUT = {"tosa": "tosa", "linalg": "none"}
_OPTIONS = (
    "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false",
)  # fmt: skip
#: Our dtypes as IREE's runtime calls them; it takes no others as arguments or results.
_ELEMENTS = {
    "f64": "FLOAT_64", "f32": "FLOAT_32", "f16": "FLOAT_16", "bf16": "BFLOAT_16", "i1": "BOOL_8",
    "f8E4M3FN": "FLOAT_8_E4M3_FN", "f8E4M3FNUZ": "FLOAT_8_E4M3_FNUZ", "f8E5M2": "FLOAT_8_E5M2",
    "f8E5M2FNUZ": "FLOAT_8_E5M2_FNUZ",
    **{f"{sign}i{bits}": f"INT_{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")},
}  # fmt: skip


def passed(kind: DType) -> bool:
    """Whether IREE's runtime passes tensors of a dtype."""
    return kind.name in _ELEMENTS


def of_samples(samples: Sequence[Sample]) -> Module:
    """One function ``s0, s1, ...`` for each sample: the op alone, its operands as arguments."""
    functions = {}
    for number, sample in enumerate(samples):
        op = sample.op()
        body = Block(op.operands, (op,), op.results)
        functions[f"s{number}"] = Function(f"s{number}", body)
    return Module(functions)


def text_of(module: Module, dialect: str, **options) -> str:
    return export(module, dialect=dialect, inputs=(), outputs=(), **options)


def accepted(path: Path, timeout: float = 300) -> None:
    """``iree-opt`` reads and verifies the file."""
    command = [_BIN / "iree-opt", path, "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[:4000]


def complaint(path: Path, dialect: str, compiled: Path, timeout: float = 600) -> str:
    """What ``iree-compile`` says against the file; "" where it made ``compiled``."""
    command = [_BIN / "iree-compile", path, "-o", compiled, f"--iree-input-type={INPUT[dialect]}",
               *_OPTIONS]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return "" if done.returncode == 0 else done.stderr or f"exit code {done.returncode}"


class Loaded:
    """A compiled module on the CPU."""

    def __init__(self, compiled: Path):
        from iree import runtime

        self._runtime = runtime
        config = runtime.Config("local-sync")
        self._device = config.device
        module = runtime.VmModule.mmap(config.vm_instance, str(compiled))
        self._context = runtime.SystemContext(config=config)
        self._context.add_vm_module(module)
        self._module = module

    def __call__(
        self, name: str, arrays: Sequence[np.ndarray], results: Sequence[TensorType]
    ) -> list[np.ndarray]:
        """The results of a function on arrays."""
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
        codes = held.view(np.dtype(f"u{held.dtype.itemsize}"))
        return self._device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
            device=self._device, buffer=codes, element_type=element,
        )  # fmt: skip

    def _array(self, made, place: int, type_: TensorType) -> np.ndarray:
        view = made.get_as_object(place, self._runtime.HalBufferView)
        assert tuple(view.shape) == type_.shape
        raw = bytes(view.map().asarray((view.byte_length,), np.dtype(np.uint8)))
        return np.frombuffer(raw, type_.dtype.numpy).reshape(type_.shape)
