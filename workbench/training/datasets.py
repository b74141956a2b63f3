"""Training data in files, and the inputs of a model, compared by name before compiling."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import need_regular
from core_compiler.training.run.data import Data
from core_compiler.training.run.rows import InputSpec

#: The extensions of data files.
KINDS = ".npz, .npy or .safetensors"
#: The name of the last column if a model's inputs are known.
TARGETS = "targets"
_DAMAGED = "save it again with numpy.savez(FILE, x=..., targets=...)"


@dataclass(frozen=True)
class Input:
    """An input of a model: dynamic sizes in ``shape`` are None; ``dtype`` None: not known."""

    name: str
    dtype: np.dtype | None = None
    shape: tuple[int | None, ...] | None = None

    @override
    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {_shape(self.shape)}"
        return f"{self.name}{f' of {self.dtype}' if self.dtype else ''}{shape}"


def columns(inputs: Sequence[Input], loss: str | None) -> list[InputSpec]:
    """Return the columns that a model is trained on: its inputs and the targets.

    There are no targets if its own result is the loss, and no columns if its inputs are not known.
    """
    input_columns = [InputSpec(i.name, i.dtype) for i in inputs]
    return (
        input_columns
        if loss == "own" or not input_columns
        else [*input_columns, InputSpec(TARGETS)]
    )


def read(files: Sequence[str], inputs: Sequence[Input], loss: str | None, batch: int) -> Data:
    """Return the :func:`columns` in ``files``, in the order of the model's inputs.

    They are matched by name; columns of other names keep their order. UserError if they do not
    match the model.
    """
    where = ", ".join(files)
    arrays: dict[str, np.ndarray] = {}
    for file in files:
        for name, array in _columns(Path(file)).items():
            if name in arrays:
                raise UserError(f"two files have a column {name!r}", where, "rename one of them")
            arrays[name] = array
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    try:
        data = Data.of(arrays, [InputSpec(column.name) for column in columns(inputs, loss)])
    except UserError as error:
        if len(set(counts.values())) > 1:
            lengths = ", ".join(f"{n} for {name}" for name, n in counts.items())
            raise UserError(
                f"columns of different lengths: {lengths}",
                where,
                "pass the same number of examples in each",
            ) from None
        raise UserError(error.what, where, error.fix) from None
    assert isinstance(data, Data)
    if batch > len(data):
        raise UserError(
            f"batch size {batch} exceeds the dataset size {len(data)}",
            where,
            f"pass --batch {len(data)} or less, or more examples",
        )
    column_names = {id(array): name for name, array in arrays.items()}
    for model_input, array in zip(inputs, data.arrays, strict=False):
        _check(model_input, array, column_names.get(id(array), model_input.name), batch, where)
    return data


def _check(model_input: Input, array: np.ndarray, column: str, batch: int, where: str) -> None:
    """Raise UserError if a column does not match an input of the model."""
    given = f"column {column} of {array.dtype} {_shape(array.shape)}"
    if model_input.dtype is not None and array.dtype != model_input.dtype:
        raise UserError(
            f"expected {model_input}, got {given}",
            where,
            f'convert it: {column}.astype("{model_input.dtype}")',
        )
    if model_input.shape is None:
        return
    sizes_given, sizes = array.shape[1:], model_input.shape[1:]
    if array.ndim != len(model_input.shape) or any(
        size not in (None, given_size) for size, given_size in zip(sizes, sizes_given, strict=True)
    ):
        raise UserError(
            f"expected {model_input}, got {given}",
            where,
            "put the examples on axis 0, each as the model takes it",
        )
    if model_input.shape and model_input.shape[0] not in (None, batch):
        raise UserError(
            f"expected batches of {model_input.shape[0]}, got {batch}",
            column,
            f"pass --batch {model_input.shape[0]}, or export the model for batches of any size",
        )


def _shape(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


# -- files -----------------------------------------------------------------------------------------


def _columns(path: Path) -> Mapping[str, np.ndarray]:
    """Return the columns of one file by name; a single array is named like its file."""
    reader = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors}.get(path.suffix.lower())
    if reader is None:
        raise UserError("not a supported data file", str(path), f"pass a {KINDS} file")
    need_regular(path)
    try:
        return reader(path)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(
            f"cannot read columns of numbers from the file ({why})", str(path), _DAMAGED
        ) from None


def _npz(path: Path) -> Mapping[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as npz:
        if not hasattr(npz, "files"):
            raise ValueError("it is a .npy")
        return {name: npz[name] for name in npz.files}


def _npy(path: Path) -> Mapping[str, np.ndarray]:
    array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it is a .npz")
    if array.dtype.names:
        return {name: np.ascontiguousarray(array[name]) for name in array.dtype.names}
    return {path.stem: array}


def _safetensors(path: Path) -> Mapping[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, AttributeError) as error:  # AttributeError: NumPy lacks the dtype
        raise ValueError(error) from None


# -- models ----------------------------------------------------------------------------------------


def inputs_of(model: Any) -> list[Input]:
    """Return a model's inputs before it is imported; [] if they are unknown.

    The model is an ONNX or Keras model, an exported program, or a torch module.
    """
    owners = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "keras" in owners:
        return [Input(i.name, np.dtype(str(i.dtype)), tuple(i.shape)) for i in model.inputs or ()]
    if "onnx" in owners:
        return _of_onnx(model)
    if hasattr(model, "graph_signature"):
        return _of_program(model)
    return _of_module(model)


def _of_onnx(model: Any) -> list[Input]:
    from core_compiler.frontends.onnx.reading import dtype_of

    stored = {tensor.name for tensor in model.graph.initializer}
    found = []
    for value in model.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
        dtype = np.dtype(dtype_of(kind.elem_type, value.name).numpy) if kind.elem_type else None
        found.append(Input(value.name, dtype, shape if kind.HasField("shape") else None))
    return found


def _of_program(program: Any) -> list[Input]:
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    found = []
    for name in program.graph_signature.user_inputs:
        value: Any = nodes.get(name)
        if not hasattr(value, "shape"):
            found.append(Input(str(name)))
            continue
        dtype = str(value.dtype).removeprefix("torch.")
        shape = tuple(size if isinstance(size, int) else None for size in value.shape)
        found.append(Input(name, np.dtype(dtype) if hasattr(np, dtype) else None, shape))
    return found


def _of_module(module: Any) -> list[Input]:
    """Return the inputs of a torch module, by its ``forward``."""
    from inspect import Parameter, signature

    try:
        parameters = signature(module.forward).parameters.values()
    except (AttributeError, TypeError, ValueError):
        return []
    if any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in parameters):
        return []
    return [Input(p.name) for p in parameters if p.default is Parameter.empty]
