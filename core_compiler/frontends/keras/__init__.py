"""Keras 3 models: live ones on the backend they run on, ``.keras`` files on JAX."""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.errors import UserError, raised_at
from core_compiler.frontends.base import Imported

__all__ = ["example_shapes", "import_model", "on_arrays", "read_file"]

_BACKENDS = ("jax", "torch", "tensorflow")


def read_file(path: Path, trust: bool = False) -> Any:
    """The model of a ``.keras`` file; ``trust`` lets it run the code of its Lambda layers.

    Keras is started on JAX where nobody has chosen a backend.  UserError where keras is missing or
    refuses the file.
    """
    if importlib.util.find_spec("keras") is None:
        raise UserError("keras is not installed", "frontend",
                        "pip install 'compiler-workbench[keras]'", 3)  # fmt: skip
    if not zipfile.is_zipfile(path):  # keras would say that there is no such file
        what = "keras cannot read it: it is no zip archive, as .keras files are"
        raise UserError(what, str(path), "save it again with model.save(path)")
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    try:
        return keras.saving.load_model(path, compile=False, safe_mode=not trust)
    except Exception as problem:  # zip, json, h5, layers that nobody knows: keras raises them all
        text = str(problem)
        unsafe = "unsafe" in text.lower() or "safe_mode" in text
        fix = ("--trust lets the file run its code" if unsafe
               else "save it again with model.save(path), of built-in layers")  # fmt: skip
        said = " ".join(text.split())[:300] or type(problem).__name__
        raise UserError(f"keras cannot read it: {said}", str(path), fix) from None


def example_shapes(model: Any) -> list[tuple[tuple[int, ...], str]]:
    """Shape (open sizes are 1) and dtype of each input.  UserError for a model that has never been
    built."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise UserError(f"{model.name} does not say what its inputs are", "keras",
                        "give example inputs, or call the model once")  # fmt: skip
    return [(tuple(size or 1 for size in one.shape), str(one.dtype)) for one in inputs]


def import_model(model: Any, inputs: Sequence[np.ndarray], name: str = "model") -> Imported:
    """Import a Keras model for inference.

    ``inputs``  one array for each of its inputs, in order.
    Variables become constants that keep their paths as names and layers' names are the ops' scopes.
    UserError where the model cannot be called on ``inputs``, for a backend that is not read, and
    for ops without a translation.
    """
    import keras

    backend = keras.config.backend()
    if backend == "torch":
        return _by_torch(model, inputs, name)
    if backend == "tensorflow":
        return _by_tensorflow(model, inputs, name)
    if backend != "jax":
        fix = f"set KERAS_BACKEND to {' or '.join(_BACKENDS)}: a .keras file loads on any"
        raise UserError(f"models on the backend {backend} are not read", name, fix)
    return _by_jax(model, inputs, name)


def on_arrays(model: Any):
    """``model`` called for inference by Keras itself, from arrays to a tuple of arrays."""
    import keras

    def run(*arrays):
        made = model(arrays[0] if len(arrays) == 1 else list(arrays), training=False)
        return tuple(keras.ops.convert_to_numpy(leaf) for leaf in keras.tree.flatten(made))

    return run


def _by_torch(model: Any, inputs: Sequence[np.ndarray], name: str) -> Imported:
    import torch

    from core_compiler.frontends.pytorch import import_module

    tensors = [torch.from_numpy(np.array(each)) for each in inputs]
    # A second argument of a call is no second input: several go in as a list.
    made = import_module(model.eval(), tensors if len(tensors) == 1 else [tensors], name=name)
    return Imported(made.module, made.inputs, made.outputs, made.sources, _facts(made.facts))


def _by_tensorflow(model: Any, inputs: Sequence[np.ndarray], name: str) -> Imported:
    from core_compiler.frontends.tensorflow import import_function

    def call(*inputs):
        return model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)

    made = import_function(call, inputs, name=name)
    named = [one.name for one in getattr(model, "inputs", None) or ()] or made.inputs
    results = list(getattr(model, "output_names", None) or ()) or made.outputs
    return Imported(made.module, tuple(named), tuple(results), made.sources, _facts(made.facts))


def _by_jax(model: Any, inputs: Sequence[np.ndarray], name: str) -> Imported:
    from core_compiler.frontends.stablehlo import import_function

    trainable, others = model.trainable_variables, model.non_trainable_variables
    count = len(trainable)
    variables = [*trainable, *others]
    weights = [variable.value for variable in variables]

    def call(weights, *inputs):
        given = inputs[0] if len(inputs) == 1 else list(inputs)
        return model.stateless_call(weights[:count], weights[count:], given, training=False)[0]

    try:
        made = import_function(
            call, (weights, *inputs), name=name,
            weights={v.path: np.asarray(w) for v, w in zip(variables, weights, strict=True)},
            statistics=[v.path for v in others],
            inputs_named=[one.name for one in getattr(model, "inputs", None) or ()],
            outputs_named=list(getattr(model, "output_names", None) or ()),
        )  # fmt: skip
    except UserError:
        raise
    except Exception as problem:  # the model's own layers
        raise UserError(f"keras cannot call it: {raised_at(problem)}", name,
                        "see that model(inputs) runs") from None  # fmt: skip
    return Imported(made.module, made.inputs, made.outputs, made.sources, _facts(made.facts))


def _facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts, "frontend": "keras", "keras": version("keras")}
