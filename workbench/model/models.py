"""Loading of models: from a model's name to tensor IR with inputs.

Frameworks are imported only if the import is not in the cache.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends import stand_ins
from core_compiler.frontends.base import Imported
from core_compiler.frontends.open import open_model
from core_compiler.ir import TensorType
from core_compiler.support.errors import UserError, one_line
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


def load(spec: Spec, cache: bool = True) -> Model:
    """Import a model, from the import cache if possible (``cache`` False: always import it)."""
    if spec.frontend == AS_GRAPH:
        return _as_graph(spec, cache)
    key = import_cache.key(spec) if cache else None
    if key is not None:
        found = import_cache.get(key)
        if found is not None:
            imported, inputs, others = found
            return Model(spec, imported, inputs, others, cached=True)
    imported, inputs, others, *live = _IMPORTERS.get(spec.kind, _file)(spec)
    if spec.kind == "function" and (own := imported.facts.get("frontend")) in OF_FUNCTIONS:
        spec = replace(spec, frontend=str(own))
    own = len(imported.inputs) - len(imported.state)  # the state has its initial values
    first, second = ((*tuple(given)[:own], *imported.state) for given in (inputs, others))
    model = Model(spec, imported, first, second, live=live[0] if live else None)
    import_cache.put(key, spec, model.imported, model.inputs, model.others)
    return model


def _as_graph(spec: Spec, cache: bool) -> Model:
    """Return the model as an ONNX graph, with the names and inputs of its import.

    If it cannot be imported (its passes may still work), the inputs follow from the graph's own
    types.
    """
    from core_compiler.onnx_level.read import read_file

    if spec.kind == "sample":
        from sample_models.export import export_onnx

        path = export_onnx(spec.text, **spec.sizes)
    else:
        path = Path(spec.text)
    module = read_file(path)
    try:
        found = load(replace(spec, frontend="onnx"), cache)
        return replace(found, spec=spec, imported=replace(found.imported, module=module))
    except UserError:
        main = module.main
        if not all(isinstance(v.type, TensorType) for v in main.arguments):
            raise
        names = tuple(v.name or "" for v in main.arguments), main.attributes["outputs"]
        imported = Imported(module, *names, {}, {"frontend": AS_GRAPH})
        return Model(spec, imported, example_inputs(imported, 0), example_inputs(imported, 1))


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


def _sample(spec: Spec):
    need("torch", "torch")
    from sample_models.catalogue import build

    built = build(spec.text, **spec.sizes)
    inputs = _numpy(built.example_inputs)
    others = _numpy(built.make_inputs(int(spec.sizes.get("seed", 0)) + 1))
    if spec.frontend == "onnx":
        from core_compiler.frontends.onnx import import_file
        from sample_models.export import export_onnx

        return import_file(export_onnx(spec.text, **spec.sizes)), inputs, others
    from core_compiler.frontends.pytorch import import_module

    return import_module(built.module, built.example_inputs, name=spec.text), inputs, others


def _file(spec: Spec):
    return _open(Path(spec.text), None, spec)


def _open(model: Any, inputs: Sequence | None, spec: Spec):
    """Open a model with ``core_compiler``, with two sets of inputs."""
    for framework, extra in _NEEDS.get(spec.kind, ()):
        need(framework, extra)
    sizes = {} if spec.kind == "function" else spec.sizes
    found = open_model(model, inputs, name=spec.text, trust=spec.trust, as_is=True, sizes=sizes)
    first = example_inputs(found.imported, 0) if found.inputs is None else found.inputs
    like = () if found.live is None else first
    live = () if found.live is None else (found.live,)
    return found.imported, first, example_inputs(found.imported, 1, like=like), *live


def _recording(spec: Spec):
    return recorded_model.load(spec)


def _function(spec: Spec):
    axes = {name: size for name, size in spec.sizes.items() if "." in name}
    given = {name: size for name, size in spec.sizes.items() if name not in axes}
    model, inputs = user_code.call(spec.text, given)
    if not (user_code.of_keras(model) or user_code.of_tensorflow(model)):
        need(*("torch", "torch") if user_code.of_torch(model) else ("jax", "jax"))
    made = _open(model, inputs, spec)
    if not axes:
        return made
    imported, arrays, *_ = made
    resized = _resized(imported.inputs, arrays, axes, spec.text)
    if inputs is not None and imported.facts.get("frontend") == "jax":
        from core_compiler.frontends.stablehlo.jax import refilled

        return _open(model, refilled(inputs)(resized), spec)
    return _open(model, resized, spec)


def _resized(
    names: Sequence[str], arrays: Sequence[np.ndarray], axes: Mapping[str, Any], where: str
) -> list[np.ndarray]:
    """Return example inputs with other sizes of axes, by ``INPUT.AXIS``; their values repeat."""
    shapes = {name: list(array.shape) for name, array in zip(names, arrays, strict=False)}
    for place, size in axes.items():
        name, _, axis = place.rpartition(".")
        if not axis.isdecimal() or int(axis) >= len(shapes.get(name, ())):
            known = [f"{n}.{i}" for n, shape in shapes.items() for i in range(len(shape))]
            fix = one_line(f"sizes of its inputs: {', '.join(known)}", 200)
            raise UserError(f"unknown size {place!r}", where, fix)
        if not isinstance(size, int) or size < 0:
            raise UserError(
                f"expected a size of 0 or more for {place}, got {size!r}",
                where,
                "pass a whole number",
            )
        shapes[name][int(axis)] = size
    return [np.resize(a, shapes.get(n, a.shape)) for n, a in zip(names, arrays, strict=False)]


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
