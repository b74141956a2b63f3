"""Loading of models: from a model's name to tensor IR with inputs.

Frameworks are imported only if the import is not in the cache.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends import stand_ins
from core_compiler.frontends.base import Imported
from core_compiler.frontends.open import open_model
from core_compiler.ir import TensorType
from core_compiler.support.errors import UserError
from workbench.model import import_cache, recorded_model, user_code
from workbench.model.spec import AS_GRAPH, OF_FUNCTIONS, Spec


@dataclass(frozen=True, eq=False)
class Model:
    """An imported model with two sets of inputs (the second scales errors) and its origin.

    ``live`` is the torch module that a Python function returned, or for JAX and Keras a function
    of arrays: weights may be random, so calling the function again would make another model.
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


def load(wanted: Spec, cache: bool = True) -> Model:
    """Import a model, from the import cache if possible (``cache`` False: always import it)."""
    if wanted.frontend == AS_GRAPH:
        return _as_graph(wanted, cache)
    key = import_cache.key(wanted) if cache else None
    if key is not None:
        found = import_cache.get(key)
        if found is not None:
            imported, inputs, others = found
            return Model(wanted, imported, inputs, others, cached=True)
    imported, inputs, others, *live = _IMPORTERS.get(wanted.kind, _file)(wanted)
    if wanted.kind == "function" and (own := imported.facts.get("frontend")) in OF_FUNCTIONS:
        wanted = replace(wanted, frontend=str(own))
    own = len(imported.inputs) - len(imported.state)  # the state has its initial values
    first, second = ((*tuple(given)[:own], *imported.state) for given in (inputs, others))
    model = Model(wanted, imported, first, second, live=live[0] if live else None)
    import_cache.put(key, wanted, model.imported, model.inputs, model.others)
    return model


def _as_graph(wanted: Spec, cache: bool) -> Model:
    """Return the model as an ONNX graph, with the names and inputs of its import.

    If it cannot be imported (its passes may still work), the inputs follow from the graph's own
    types.
    """
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


# -- kinds of models --------------------------------------------------------------------------


def need(framework: str, extra: str) -> None:
    """Raise UserError (exit code 3) if a framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        raise UserError(
            f"{framework} is not installed",
            "frontend",
            f"pip install 'compiler-workbench[{extra}]'",
            3,
        )


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


def _file(wanted: Spec):
    return _opened(Path(wanted.text), None, wanted)


def _opened(model: Any, inputs: Sequence | None, wanted: Spec):
    """Open a model with ``core_compiler``, with two sets of inputs."""
    for framework, extra in _NEEDS.get(wanted.kind, ()):
        need(framework, extra)
    found = open_model(model, inputs, name=wanted.text, trust=wanted.trust, as_is=True)
    first = example_inputs(found.imported, 0) if found.inputs is None else found.inputs
    like = () if found.live is None else first
    live = () if found.live is None else (found.live,)
    return found.imported, first, example_inputs(found.imported, 1, like=like), *live


def _recording(wanted: Spec):
    return recorded_model.load(wanted)


def _function(wanted: Spec):
    model, inputs = user_code.call(wanted.text, wanted.sizes)
    if not (user_code.of_keras(model) or user_code.of_tensorflow(model)):
        need(*("torch", "torch") if user_code.of_torch(model) else ("jax", "jax"))
    return _opened(model, inputs, wanted)


_IMPORTERS = {"sample": _sample, "function": _function, "recording": _recording}
#: The package that a file type needs, and the extra that installs it.
_NEEDS = {
    "onnx": (("onnx", "onnx"),),
    "pt2": (("torch", "torch"),),
    "stablehlo": (("jax", "jax"),),
}


def _numpy(tensors: Sequence) -> tuple[np.ndarray, ...]:
    from core_compiler.frontends.pytorch.tensors import to_numpy

    return tuple(to_numpy(t).copy() for t in tensors)


def example_inputs(imported: Imported, seed: int, like: Sequence[np.ndarray] = ()):
    """Return seeded inputs for a model that has none (see ``stand_ins.inputs``)."""
    return stand_ins.inputs(imported.module, seed, like)
