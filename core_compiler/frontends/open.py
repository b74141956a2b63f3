"""The entry point for models: a user's model becomes tensor IR with example inputs.

It accepts a live torch module, an exported program, an ONNX or Keras model, a JAX or TensorFlow
function, a ``.onnx``, ``.pt2``, ``.keras`` or ``.mlir`` file, a folder with a SavedModel, and a
module of the IR.  Each framework is only imported if one of its models is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends import stand_ins, text
from core_compiler.frontends.base import Imported, is_saved_model
from core_compiler.ir import Module, WeightStore, tensor
from core_compiler.support.arrays import numbers, to_torch
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import need_regular
from core_compiler.support.torch_modules import set_mode

#: The frontend that reads a model file, by the file's extension.  A ``.mlir`` file may also contain
#: our own IR: then it is ``ir``.
FILES: Mapping[str, str] = {
    ".onnx": "onnx",
    ".pt2": "torch",
    ".keras": "keras",
    ".mlir": "stablehlo",
    ".mlirbc": "stablehlo",
    ".stablehlo": "stablehlo",
}


@dataclass(frozen=True, eq=False)
class Opened:
    """A model in tensor IR.

    ``inputs`` are example inputs: those passed, else the ones in the model (None: it has none).
    ``live`` is the torch module, or for JAX, Keras and TensorFlow the model as a function of arrays
    (None: only the file is available).
    """

    imported: Imported
    inputs: tuple[np.ndarray, ...] | None = None
    live: Any = None


def frontend_of(path: Path) -> str | None:
    """Return the name of the frontend that reads a file or folder, or None."""
    if is_saved_model(path):
        return "tensorflow"
    found = FILES.get(path.suffix.lower())
    return "ir" if found == "stablehlo" and text.contains_core_ir(path) else found


def open_model(
    model: Any,
    inputs: Sequence | None = None,
    *,
    name: str = "",
    training: bool = False,
    trust: bool = False,
    as_is: bool = False,
    sizes: Mapping[str, int] | None = None,
    earlier: WeightStore | None = None,
) -> Opened:
    """Import a model.

    ``inputs``    example inputs in order (arrays or tensors; for a JAX function trees of arrays);
                  required for a live torch module and a function.
    ``name``      the name of the model in messages and in the import (default: its own name).
    ``training``  import it in training mode.
    ``trust``     let a ``.pt2`` or ``.keras`` file run code when it is read.
    ``as_is``     leave a live torch module in its current mode (training or evaluation).
    ``sizes``     sizes that the model leaves open, by their names or as ``INPUT.AXIS``: of an
                  exported program, an ONNX model or a StableHLO program without ``inputs``.
    ``earlier``   the weights of an earlier import of this model, whose hashes are taken over.

    Raise UserError if the model is invalid, with the location and a suggestion.
    """
    if isinstance(model, Imported):
        return Opened(model, _arrays(inputs))
    if isinstance(model, Module):
        return Opened(_wrap_module(model), _arrays(inputs))
    request = _OpenRequest(inputs, name, training, trust, as_is, sizes or {}, earlier)
    if isinstance(model, str | Path):
        return request.file(Path(model))
    packages = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    # A Keras model may be a torch module too.
    for framework in ("keras", "torch", "tensorflow", "onnx"):
        if framework in packages:
            return getattr(request, framework)(model)
    if callable(model):
        return request.jax(model)
    raise UserError(
        f"{type(model).__name__} is not a supported model",
        "compile",
        "pass a torch module, an exported program, an ONNX or Keras model, a JAX or TensorFlow "
        "function, a .onnx, .pt2, .keras or .mlir file, a Module",
    )


def name_of(model: Any) -> str:
    """Return a short name for a model."""
    if isinstance(model, str | Path):
        return Path(model).stem
    graph = getattr(model, "graph", None)  # for an ONNX model
    return getattr(graph, "name", "") or getattr(model, "__name__", "") or type(model).__name__


@dataclass(frozen=True)
class _OpenRequest:
    """A request to open a model, with a method for each framework."""

    inputs: Sequence | None
    name: str
    training: bool
    trust: bool
    as_is: bool
    sizes: Mapping[str, int]
    earlier: WeightStore | None

    def file(self, path: Path) -> Opened:
        if is_saved_model(path):
            from core_compiler.frontends.tensorflow import read_saved_model

            return self.tensorflow(read_saved_model(path))
        need_regular(path)
        read = {
            "onnx": self._onnx_file,
            "torch": self._pt2_file,
            "keras": self._keras_file,
            "stablehlo": self._stablehlo_file,
            "ir": self._ir_file,
        }
        found = frontend_of(path)
        if found is None:
            raise UserError(
                "unrecognised file extension", str(path), "pass a .onnx, .pt2, .keras or .mlir file"
            )
        return read[found](path)

    def _onnx_file(self, path: Path) -> Opened:
        from core_compiler.frontends.onnx import import_file

        arrays = _arrays(self.inputs)
        made = import_file(path, self.sizes, arrays, training=self.training)
        return Opened(made, arrays)

    def _pt2_file(self, path: Path) -> Opened:
        from core_compiler.frontends.pytorch import import_exported
        from core_compiler.frontends.pytorch.archive import read_pt2

        program, arrays = read_pt2(path, trust=self.trust), _arrays(self.inputs)
        sizes = {**_sizes(program, arrays), **self.sizes}
        made = import_exported(
            program, name=str(path), sizes=sizes, read_files=self.trust, training=self.training
        )
        if arrays is None and not self.sizes:
            arrays = _arrays(_program_examples(program))
        return Opened(made, arrays)

    def _keras_file(self, path: Path) -> Opened:
        from core_compiler.frontends.keras import read_file

        return self.keras(read_file(path, trust=self.trust))

    def _stablehlo_file(self, path: Path) -> Opened:
        from core_compiler.frontends.stablehlo import import_file

        arrays = _arrays(self.inputs)
        return Opened(import_file(path, arrays, self.sizes), arrays)

    def _ir_file(self, path: Path) -> Opened:
        self._refuse_sizes(str(path))
        return Opened(text.import_file(path), _arrays(self.inputs))

    def onnx(self, model: Any) -> Opened:
        from core_compiler.frontends.onnx import import_proto

        arrays = _arrays(self.inputs)
        made = import_proto(model, sizes=self.sizes, inputs=arrays, training=self.training)
        return Opened(made, arrays)

    def keras(self, model: Any) -> Opened:
        from core_compiler.frontends.keras import example_shapes, import_model, on_arrays

        self._refuse_sizes(self.name or model.name)
        given = _arrays(self.inputs)
        if given is None:
            given = _draw_inputs(example_shapes(model))
        made = import_model(model, given, name=self.name or model.name, training=self.training)
        return Opened(made, given, on_arrays(model))

    def tensorflow(self, function: Any) -> Opened:
        from core_compiler.frontends.tensorflow import example_shapes, import_function, on_arrays

        self._refuse_sizes(self.name or name_of(function))
        given = _arrays(self.inputs)
        if given is None and hasattr(function, "structured_input_signature"):
            given = _draw_inputs(example_shapes(function))
        if given is None:
            raise self._missing_inputs_error(function, "them: compile(function, (x,))")
        made = import_function(function, given, name=self.name or name_of(function))
        return Opened(made, given, on_arrays(function))

    def jax(self, function: Callable) -> Opened:
        from core_compiler.frontends.stablehlo import import_function
        from core_compiler.frontends.stablehlo.jax import leaves, on_leaves

        self._refuse_sizes(self.name or name_of(function))
        given = self.inputs
        if given is None:
            raise self._missing_inputs_error(
                function, "its arguments: compile(function, (params, x))"
            )
        made = import_function(function, given, name=self.name or name_of(function))
        return Opened(made, leaves(given), on_leaves(function, given))

    def torch(self, model: Any) -> Opened:
        from core_compiler.frontends.pytorch import import_exported, import_module

        name = self.name or type(model).__name__
        if hasattr(model, "graph_signature"):  # an ExportedProgram
            arrays = _arrays(_program_examples(model) if self.inputs is None else self.inputs)
            sizes = {} if self.inputs is None else _sizes(model, arrays)
            sizes = {**sizes, **self.sizes}
            made = import_exported(
                model, name=name, sizes=sizes, training=self.training, earlier=self.earlier
            )
            return Opened(made, None if self.inputs is None and self.sizes else arrays)
        self._refuse_sizes(name)
        given = self.inputs
        if given is None:
            raise self._missing_inputs_error(model, "them: compile(model, (x,))")
        import torch

        arrays = _arrays(given) or ()
        tensors = [
            x if isinstance(x, torch.Tensor) else to_torch(np.array(a))
            for x, a in zip(given, arrays, strict=True)
        ]
        modes = [(part, part.training) for part in model.modules()]
        try:
            # Parts that do not keep their mode, if the whole model trains.
            if not self.as_is and not (self.training and model.training):
                set_mode(model, self.training)
            made = import_module(model, tensors, name=name, training=self.training)
            return Opened(made, arrays, model)
        finally:
            for part, mode in modes:  # the module belongs to the caller
                part.training = mode

    def _refuse_sizes(self, where: str) -> None:
        """Raise UserError if sizes are given for a model that takes them from its inputs."""
        if self.sizes:
            raise UserError(
                f"{', '.join(self.sizes)} cannot be set for this model",
                where,
                "pass inputs of that size, or export it to ONNX or with torch.export",
            )

    def _missing_inputs_error(self, model: Any, what: str) -> UserError:
        name = self.name or name_of(model)
        return UserError(f"{name} needs example inputs", "compile", f"pass {what}")


def _wrap_module(module: Module) -> Imported:
    body = module.main.body
    inputs = tuple(v.name or f"input{i}" for i, v in enumerate(body.arguments))
    return Imported(module, inputs, tuple(f"output{i}" for i in range(len(body.outputs))))


def _program_examples(program: Any) -> Sequence | None:
    """Return the example inputs of an exported program; None if it has keywords or no examples."""
    found = getattr(program, "example_inputs", None)
    return found[0] if found and not found[1] else None


def _sizes(program: Any, arrays: Sequence[np.ndarray] | None) -> dict[str, int]:
    """Return the symbolic sizes of an exported program that match the arrays."""
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    found: dict[str, int] = {}
    for name, array in zip(program.graph_signature.user_inputs, arrays or (), strict=False):
        shape = getattr(nodes.get(name), "shape", ())
        for size, given in zip(shape, array.shape, strict=False):
            symbol = str(size)
            if not isinstance(size, int) and symbol.isidentifier():  # not computed from others
                found.setdefault(symbol, given)
    return found


def _draw_inputs(shapes: Sequence[tuple[Sequence[int], str]]) -> tuple[np.ndarray, ...]:
    """Return seeded example inputs: normal floats, integers of 0 and 1."""
    random = np.random.default_rng(0)
    return tuple(stand_ins.draw(random, tensor(tuple(shape), kind)) for shape, kind in shapes)


def _arrays(inputs: Sequence | None) -> tuple[np.ndarray, ...] | None:
    return None if inputs is None else as_arrays(inputs)


def as_arrays(inputs: Sequence) -> tuple[np.ndarray, ...]:
    """Return copies of example inputs as NumPy arrays; raise UserError if one is not dense."""
    made = []
    for index, given in enumerate(inputs):
        try:
            made.append(np.array(numbers(given)))
        except ValueError as error:
            raise UserError(
                f"example input {index}: {error}",
                "compile",
                "pass dense tensors of numbers, of known sizes; for sequences of "
                "tensors use the frontend's import_file",
            ) from None
    return tuple(made)
