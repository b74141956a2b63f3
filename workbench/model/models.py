"""What a person may name as a model, and how it becomes tensor IR with inputs to run it on.

``resnet50`` (the catalogue), ``model.onnx``, ``model.pt2``, ``model.keras``, ``model.mlir``
(StableHLO, or our own IR), a folder with a SavedModel, ``package.module:function``, and a recording
(its stage 0).
Frameworks are imported only where the import is not in the cache.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.errors import UserError, nearest
from core_compiler.frontends import stand_ins
from core_compiler.frontends.base import Imported, is_saved_model
from core_compiler.frontends.text import is_ours
from core_compiler.ir import TensorType, tensor
from core_compiler.regular_files import need_regular
from workbench.model import import_cache, recorded_model, user_code

_FUNCTION = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
FRONTENDS = ("torch", "onnx", "onnx-passes", "jax", "keras", "tensorflow", "stablehlo", "ir")
#: Reads what ``onnx`` reads, as a graph of ONNX: the passes of that level run before the import.
AS_GRAPH = "onnx-passes"
#: A model file's ending -> its kind and the frontend that reads it.
FILES = {
    ".onnx": ("onnx", "onnx"), ".pt2": ("pt2", "torch"), ".keras": ("keras", "keras"),
    **dict.fromkeys((".mlir", ".mlirbc", ".stablehlo"), ("stablehlo", "stablehlo")),
}  # fmt: skip
#: The ending of a recording, whose stage 0 is a model too.
RECORDING = ".run"
#: What reads a function's model: by what it returns.
OF_FUNCTIONS = ("torch", "jax", "keras", "tensorflow")


@dataclass(frozen=True)
class Spec:
    """A model as asked for: ``kind`` is ``sample``, ``function``, ``saved_model``, ``recording``,
    or one of :data:`FILES`.

    ``sizes`` are builder arguments of a sample (width, depth, batch, seed...).
    """

    text: str
    kind: str
    frontend: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    trust: bool = False

    @property
    def name(self) -> str:
        """A short name for files and titles."""
        if self.kind not in ("sample", "function"):
            return Path(self.text).stem
        return self.text.rsplit(":", 1)[-1] if self.kind == "function" else self.text


@dataclass(frozen=True, eq=False)
class Model:
    """An imported model with two sets of inputs (the second scales errors) and where it came from.

    ``live`` is the torch module that a Python function returned, or of JAX and Keras a function of
    arrays: weights may be random, so that calling the function again would make another model.
    """

    spec: Spec
    imported: Imported
    inputs: tuple[np.ndarray, ...]
    others: tuple[np.ndarray, ...]
    cached: bool = False
    live: Any = None

    @property
    def name(self) -> str:
        return str(self.imported.facts.get("recorded_as") or self.spec.name)


def spec(text: str, frontend: str | None = None, trust: bool = False, **sizes: Any) -> Spec:
    """What ``text`` names; UserError says what could be named instead."""
    sizes = {k: v for k, v in sizes.items() if v is not None}
    if frontend is not None and frontend not in FRONTENDS:
        raise UserError(
            f"no frontend is called {frontend!r}", "--frontend", f"choose {' or '.join(FRONTENDS)}"
        )
    kind, own = {**FILES, RECORDING: (recorded_model.KIND,) * 2}.get(
        Path(text).suffix.lower(), ("", "")
    )
    if kind:
        need_regular(Path(text))
        if kind == "stablehlo" and is_ours(Path(text)):
            kind = own = "ir"
        if frontend not in (None, own) and (own, frontend) != ("onnx", AS_GRAPH):
            raise UserError(
                f"a {Path(text).suffix} file is read by the {own} frontend", text,
                f"drop --frontend {frontend}",
            )  # fmt: skip
        if sizes:
            raise UserError(
                f"{', '.join(sizes)} cannot be set for a file", text, "export it at that size"
            )
        return Spec(text, kind, frontend or own, {}, trust)
    if is_saved_model(Path(text)):
        return Spec(text, "saved_model", "tensorflow", {}, trust)
    if _FUNCTION.match(text):
        if frontend not in (None, *OF_FUNCTIONS):
            raise UserError(
                "a Python function is read as what it returns, of torch or of JAX", text,
                f"drop --frontend {frontend}",
            )  # fmt: skip
        return Spec(text, "function", frontend or OF_FUNCTIONS[0], sizes, trust)
    from sample_models.catalogue import CATALOGUE

    if text in CATALOGUE:
        if frontend not in (None, "torch", "onnx", AS_GRAPH):
            raise UserError(f"the samples are no programs of {frontend}", text,
                            "choose --frontend torch, onnx or onnx-passes")  # fmt: skip
        return Spec(text, "sample", frontend or "torch", sizes, trust)
    files = ".onnx, .pt2, .keras or .mlir file"
    if Path(text).exists():
        raise UserError("this is no model file", text, f"give a {files}, or a .run to open")
    listed = f"a sample ({', '.join(CATALOGUE)}), a {files}, a SavedModel's folder, or "
    listed += "package.module:function"
    raise UserError(
        f"no model is called {text!r}", "MODEL", nearest(text, CATALOGUE, f"give {listed}")
    )


def load(wanted: Spec, cache: bool = True) -> Model:
    """Import a model, from the import cache where it is there (``cache`` off: always anew)."""
    if wanted.frontend == AS_GRAPH:
        return _as_graph(wanted, cache)
    key = import_cache.key(wanted) if cache else None
    if key is not None:
        found = import_cache.get(key)
        if found is not None:
            imported, inputs, others = found
            return Model(wanted, imported, inputs, others, cached=True)
    imported, inputs, others, *live = _IMPORTERS[wanted.kind](wanted)
    if wanted.kind == "function" and (own := imported.facts.get("frontend")) in OF_FUNCTIONS:
        wanted = replace(wanted, frontend=str(own))
    own = len(imported.inputs) - len(imported.state)  # the state is what it is at first
    first, second = ((*tuple(given)[:own], *imported.state) for given in (inputs, others))
    model = Model(wanted, imported, first, second, live=live[0] if live else None)
    import_cache.put(key, wanted, model.imported, model.inputs, model.others)
    return model


def _as_graph(wanted: Spec, cache: bool) -> Model:
    """The model as a graph of ONNX, with the names and the inputs of its import; of one that cannot
    be imported (its passes may work all the same) with inputs of the graph's own types."""
    from core_compiler.onnx_level.read import read_file

    if wanted.kind == "sample":
        from sample_models.export import export_onnx

        path = export_onnx(wanted.text, **wanted.sizes)
    else:
        path = Path(wanted.text)
    module = read_file(path)
    try:
        found = load(replace(wanted, frontend="onnx"), cache)
        return replace(found, spec=wanted, imported=replace(found.imported, module=module))
    except UserError:
        main = module.main
        if not all(isinstance(v.type, TensorType) for v in main.arguments):
            raise
        names = tuple(v.name or "" for v in main.arguments), main.attributes["outputs"]
        imported = Imported(module, *names, {}, {"frontend": AS_GRAPH})
        return Model(wanted, imported, example_inputs(imported, 0), example_inputs(imported, 1))


# -- the kinds --------------------------------------------------------------------------------


def need(framework: str, extra: str) -> None:
    """UserError (exit code 3) where a framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        raise UserError(f"{framework} is not installed", "frontend",
                        f"pip install 'compiler-workbench[{extra}]'", 3)  # fmt: skip


def _sample(wanted: Spec):
    need("torch", "torch")
    from sample_models.catalogue import build

    built = build(wanted.text, **wanted.sizes)
    inputs = _numpy(built.example_inputs)
    others = _numpy(built.make_inputs(int(wanted.sizes.get("seed", 0)) + 1))
    if wanted.frontend == "onnx":
        from core_compiler.frontends.onnx import import_file
        from sample_models.export import export_onnx

        return import_file(export_onnx(wanted.text, **wanted.sizes)), inputs, others
    from core_compiler.frontends.pytorch import import_module

    return import_module(built.module, built.example_inputs, name=wanted.text), inputs, others


def _onnx(wanted: Spec):
    need("onnx", "onnx")
    from core_compiler.frontends.onnx import import_file

    imported = import_file(Path(wanted.text))
    return imported, example_inputs(imported, 0), example_inputs(imported, 1)


def _pt2(wanted: Spec):
    need("torch", "torch")
    from core_compiler.frontends.pytorch import import_exported
    from core_compiler.frontends.pytorch.archive import read_pt2

    program = read_pt2(Path(wanted.text), trust=wanted.trust)
    imported = import_exported(program, name=wanted.text, read_files=wanted.trust)
    given = getattr(program, "example_inputs", None)
    inputs = _numpy(given[0]) if given and not given[1] else example_inputs(imported, 0)
    return imported, inputs, example_inputs(imported, 1)


def _stablehlo(wanted: Spec):
    need("jax", "jax")
    from core_compiler.frontends.stablehlo import import_file

    imported = import_file(Path(wanted.text))
    return imported, example_inputs(imported, 0), example_inputs(imported, 1)


def _ir(wanted: Spec):
    from core_compiler.frontends.text import import_file

    imported = import_file(Path(wanted.text))
    return imported, example_inputs(imported, 0), example_inputs(imported, 1)


def _recording(wanted: Spec):
    return recorded_model.load(wanted)


def _keras(wanted: Spec):
    from core_compiler.frontends.keras import example_shapes, read_file

    model = read_file(Path(wanted.text), trust=wanted.trust)
    return _keras_model(wanted, model, _all_drawn(example_shapes(model)))


def _keras_model(wanted: Spec, model: Any, inputs: tuple[np.ndarray, ...]):
    from core_compiler.frontends.keras import import_model, on_arrays

    imported = import_model(model, inputs, name=wanted.text)
    return imported, inputs, example_inputs(imported, 1, like=inputs), on_arrays(model)


def _saved_model(wanted: Spec):
    from core_compiler.frontends.tensorflow import example_shapes, read_saved_model

    function = read_saved_model(Path(wanted.text))
    return _tensorflow_model(wanted, function, _all_drawn(example_shapes(function)))


def _tensorflow_model(wanted: Spec, function: Any, inputs: tuple[np.ndarray, ...]):
    from core_compiler.frontends.tensorflow import import_function, on_arrays

    imported = import_function(function, inputs, name=wanted.text)
    return imported, inputs, example_inputs(imported, 1, like=inputs), on_arrays(function)


def _function(wanted: Spec):
    model, inputs = user_code.call(wanted.text, wanted.sizes)
    if user_code.of_keras(model):
        from core_compiler.frontends.keras import example_shapes

        given = _all_drawn(example_shapes(model)) if inputs is None else inputs
        return _keras_model(wanted, model, tuple(map(np.asarray, given)))
    if user_code.of_tensorflow(model):
        return _tensorflow_model(wanted, model, tuple(map(np.asarray, inputs)))
    if not user_code.of_torch(model):
        return _jax_function(wanted, model, inputs)
    need("torch", "torch")
    from core_compiler.frontends.pytorch import import_module

    imported = import_module(model, inputs, name=wanted.text)
    return imported, _numpy(inputs), example_inputs(imported, 1, like=_numpy(inputs)), model


def _jax_function(wanted: Spec, function: Callable, arguments: tuple):
    need("jax", "jax")
    from core_compiler.frontends.stablehlo import import_function
    from core_compiler.frontends.stablehlo.jax import leaves, on_leaves

    imported = import_function(function, arguments, name=wanted.text)
    inputs = leaves(arguments)
    others = example_inputs(imported, 1, like=inputs)
    return imported, inputs, others, on_leaves(function, arguments)


_IMPORTERS = {
    "sample": _sample, "onnx": _onnx, "pt2": _pt2, "keras": _keras, "stablehlo": _stablehlo,
    "ir": _ir, "saved_model": _saved_model, "function": _function, "recording": _recording,
}  # fmt: skip


def _numpy(tensors: Sequence) -> tuple[np.ndarray, ...]:
    from core_compiler.frontends.pytorch.tensors import to_numpy

    return tuple(to_numpy(t).copy() for t in tensors)


def example_inputs(imported: Imported, seed: int, like: Sequence[np.ndarray] = ()):
    """Seeded inputs for a model that brings none (see ``stand_ins.inputs``)."""
    return stand_ins.inputs(imported.module, seed, like)


def _all_drawn(shapes: Sequence[tuple[Sequence[int], str]]) -> tuple[np.ndarray, ...]:
    """Normal floats, integers of 0 and 1."""
    random = np.random.default_rng(0)
    return tuple(stand_ins.drawn(random, tensor(tuple(shape), kind)) for shape, kind in shapes)
