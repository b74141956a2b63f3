"""What a person may name as a model, and how it becomes tensor IR with inputs to run it on.

``resnet50`` (the catalogue), ``model.onnx``, ``model.pt2``, ``model.keras``, ``model.mlir``
(StableHLO), a folder with a SavedModel, ``package.module:function``.
Frameworks are imported only where the import is not in the cache.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.errors import UserError, nearest, raised_at
from core_compiler.frontends.base import Imported
from core_compiler.ir import TensorType, dtype
from workbench import import_cache, user_code

_FUNCTION = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
FRONTENDS = ("torch", "onnx", "onnx-passes", "jax", "keras", "tensorflow", "stablehlo")
#: Reads what ``onnx`` reads, as a graph of ONNX: the passes of that level run before the import.
AS_GRAPH = "onnx-passes"
#: A model file's ending -> its kind and the frontend that reads it.
FILES = {
    ".onnx": ("onnx", "onnx"), ".pt2": ("pt2", "torch"), ".keras": ("keras", "keras"),
    **dict.fromkeys((".mlir", ".mlirbc", ".stablehlo"), ("stablehlo", "stablehlo")),
}  # fmt: skip
#: What reads a function's model: by what it returns.
OF_FUNCTIONS = ("torch", "jax", "keras", "tensorflow")


@dataclass(frozen=True)
class Spec:
    """A model as asked for: ``kind`` is ``sample``, ``function``, ``saved_model``, or one of
    :data:`FILES`.

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
        return self.spec.name


def spec(text: str, frontend: str | None = None, trust: bool = False, **sizes: Any) -> Spec:
    """What ``text`` names; UserError says what could be named instead."""
    sizes = {k: v for k, v in sizes.items() if v is not None}
    if frontend is not None and frontend not in FRONTENDS:
        raise UserError(
            f"no frontend is called {frontend!r}", "--frontend", f"choose {' or '.join(FRONTENDS)}"
        )
    kind, own = FILES.get(Path(text).suffix.lower(), ("", ""))
    if kind:
        if not Path(text).is_file():
            raise UserError("there is no such file", text, "check the path")
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
    if (Path(text) / "saved_model.pb").is_file():
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
    listed = f"a sample ({', '.join(CATALOGUE)}), a {files}, or package.module:function"
    raise UserError(
        f"no model is called {text!r}", "MODEL", nearest(text, CATALOGUE, f"give {listed}")
    )


def recorded(meta: Mapping[str, Any], trust: bool = False) -> Spec:
    """The model that a recording's facts name; UserError where they name none that can be imported
    again."""
    name = str(meta.get("model") or "the recording")
    if meta.get("mode") == "training":
        raise UserError("a training step is not compiled again from its recording", name,
                        "compare two runs of it: workbench diverge")  # fmt: skip
    text, sizes = str(meta.get("spec") or ""), meta.get("sizes")
    if not text:
        raise UserError("the recording does not say where its model comes from", name,
                        "it was compiled from Python: look there, with "
                        "core_compiler.debug.bisect.bisect")  # fmt: skip
    kind, frontend = meta.get("kind"), meta.get("frontend")
    chosen = str(frontend) if frontend and kind in ("sample", "function", "onnx") else None
    return spec(text, chosen, trust, **(sizes if isinstance(sizes, dict) else {}))


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
    if cache:
        import_cache.put(wanted, model.imported, model.inputs, model.others)
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


def _need(framework: str, extra: str) -> None:
    """UserError (exit code 3) where a framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        raise UserError(f"{framework} is not installed", "frontend",
                        f"pip install 'compiler-workbench[{extra}]'", 3)  # fmt: skip


def _sample(wanted: Spec):
    _need("torch", "torch")
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
    _need("onnx", "onnx")
    from core_compiler.frontends.onnx import import_file

    imported = import_file(Path(wanted.text))
    return imported, example_inputs(imported, 0), example_inputs(imported, 1)


def _pt2(wanted: Spec):
    _need("torch", "torch")
    from core_compiler.frontends.pytorch import import_exported
    from core_compiler.frontends.pytorch.archive import read_pt2

    program = read_pt2(Path(wanted.text), trust=wanted.trust)
    imported = import_exported(program, name=wanted.text, read_files=wanted.trust)
    given = getattr(program, "example_inputs", None)
    inputs = _numpy(given[0]) if given and not given[1] else example_inputs(imported, 0)
    return imported, inputs, example_inputs(imported, 1)


def _stablehlo(wanted: Spec):
    _need("jax", "jax")
    from core_compiler.frontends.stablehlo import import_file

    imported = import_file(Path(wanted.text))
    return imported, example_inputs(imported, 0), example_inputs(imported, 1)


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
    _need("torch", "torch")
    from core_compiler.frontends.pytorch import import_module

    imported = import_module(model, inputs, name=wanted.text)
    return imported, _numpy(inputs), example_inputs(imported, 1, like=_numpy(inputs)), model


def _jax_function(wanted: Spec, function: Callable, arguments: tuple):
    _need("jax", "jax")
    from core_compiler.frontends.stablehlo import import_function
    from core_compiler.frontends.stablehlo.jax import leaves, on_leaves

    imported = import_function(function, arguments, name=wanted.text)
    inputs = leaves(arguments)
    others = example_inputs(imported, 1, like=inputs)
    return imported, inputs, others, on_leaves(function, arguments)


_IMPORTERS = {
    "sample": _sample, "onnx": _onnx, "pt2": _pt2, "keras": _keras, "stablehlo": _stablehlo,
    "saved_model": _saved_model, "function": _function,
}  # fmt: skip


def _numpy(tensors: Sequence) -> tuple[np.ndarray, ...]:
    from core_compiler.frontends.pytorch.tensors import to_numpy

    return tuple(to_numpy(t).copy() for t in tensors)


def example_inputs(imported: Imported, seed: int, like: Sequence[np.ndarray] = ()):
    """Seeded inputs for a model that brings none: normal floats, integers in {0, 1} (or in the
    range of ``like``), booleans."""
    generator = np.random.default_rng(seed)
    made = []
    for i, value in enumerate(imported.module.main.arguments):
        kind: Any = value.type
        counts = not kind.dtype.is_float and i < len(like) and like[i].size
        high = int(like[i].max()) + 1 if counts else 2
        shape = [1 if isinstance(size, str) else size for size in kind.shape]
        made.append(_drawn(generator, shape, kind.dtype, high))
    return tuple(made)


def _all_drawn(shapes: Sequence[tuple[Sequence[int], str]]) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(0)
    return tuple(_drawn(generator, shape, kind) for shape, kind in shapes)


def _drawn(generator, shape: Sequence[int], kind: Any, high: int = 2) -> np.ndarray:
    """Normal floats, or integers below ``high``; ``kind``: a dtype or its name."""
    found = dtype(kind)
    if found.is_float:
        return generator.standard_normal(shape).astype(found.numpy)
    return generator.integers(0, max(high, 1), shape).astype(found.numpy)


# -- peers -----------------------------------------------------------------------------------------


#: The frameworks that a model can be compared with.
PEERS = ("torch", "torch.compile", "onnxruntime", "jax", "keras", "tensorflow")


def peer(model: Model, framework: str, threads: int = 0) -> Callable[..., tuple[np.ndarray, ...]]:
    """The same model in another framework, as a function of NumPy arrays (which holds its own
    state, if it has one).

    ``framework``: one of :data:`PEERS`.  UserError where the model cannot run there, or the
    framework is not installed.
    """
    found = _peer(model, framework, threads)
    own = len(model.inputs) - len(model.imported.state)
    return (lambda *arrays: found(*arrays[:own])) if model.imported.state else found


def _peer(model: Model, framework: str, threads: int) -> Callable[..., tuple[np.ndarray, ...]]:
    if framework in ("torch", "torch.compile"):
        return _torch_peer(model, framework == "torch.compile", threads)
    if framework == "onnxruntime":
        return _onnxruntime_peer(model, threads)
    if framework in ("jax", "keras", "tensorflow"):
        return _telling(_own_peer(model, framework), framework, model.spec.text)
    raise UserError(f"no peer is called {framework!r}", "--against",
                    f"choose one of {', '.join(PEERS)}")  # fmt: skip


def _own_peer(model: Model, framework: str):
    """The model in the framework that it came from."""
    if model.spec.frontend == framework and model.live is not None:
        return model.live
    if model.spec.kind == framework == "keras":  # imported from the cache
        from core_compiler.frontends.keras import on_arrays, read_file

        return on_arrays(read_file(Path(model.spec.text), trust=model.spec.trust))
    raise UserError(f"{framework} can run its own models only", model.spec.text,
                    "compare with torch or onnxruntime")  # fmt: skip


def _torch_peer(model: Model, compiled: bool, threads: int):
    _need("torch", "torch")
    import torch

    if threads:
        torch.set_num_threads(threads)
    wanted = model.spec
    if wanted.kind == "sample":
        from sample_models.catalogue import build

        module: Any = build(wanted.text, **wanted.sizes).module
    elif wanted.kind == "function" and wanted.frontend == "torch":
        module = model.live
    elif wanted.kind == "pt2":
        from core_compiler.frontends.pytorch.archive import read_pt2

        module = read_pt2(Path(wanted.text), trust=wanted.trust).module()
    else:
        fix = f"use --against {'onnxruntime' if wanted.kind == 'onnx' else wanted.frontend}"
        raise UserError("torch cannot run it", wanted.text, fix)
    if compiled:
        module = torch.compile(module)
    from core_compiler.frontends.pytorch.tensors import from_numpy, to_numpy

    def run(*arrays):
        with torch.no_grad():
            made = module(*map(from_numpy, arrays))
        leaves = torch.utils._pytree.tree_leaves(made)
        return tuple(to_numpy(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))

    def quiet(*arrays):
        with redirect_stdout(sys.stderr):  # standard output is for answers
            return run(*arrays)

    return _telling(run if model.live is None else quiet, "torch", wanted.text)


def _onnxruntime_peer(model: Model, threads: int):
    _need("onnxruntime", "peers")
    import onnxruntime

    wanted = model.spec
    if wanted.kind == "sample":
        from sample_models.export import export_onnx

        path = export_onnx(wanted.text, **wanted.sizes)
    elif wanted.kind == "onnx":
        path = Path(wanted.text)
    else:
        raise UserError("onnxruntime needs an .onnx file", wanted.text, "use --against torch")
    options = onnxruntime.SessionOptions()
    if threads:
        options.intra_op_num_threads = threads
    options.log_severity_level = 3
    open_session = _telling(onnxruntime.InferenceSession, "onnxruntime", wanted.text)
    session = open_session(str(path), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def run(*arrays):
        return tuple(session.run(None, dict(zip(names, arrays, strict=True))))

    return _telling(run, "onnxruntime", wanted.text)


def _telling(function: Callable, framework: str, where: str) -> Callable:
    """``function``, what the framework raises in it told as a UserError."""

    def told(*arguments, **keywords):
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            raise UserError(
                f"{framework} cannot run it: {raised_at(error)}", where, "compare with another"
            ) from error

    return told
