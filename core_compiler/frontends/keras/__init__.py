"""Keras 3 models: live ones on their backend, ``.keras`` files on an installed backend."""

from __future__ import annotations

import importlib.util
import inspect
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.base import Imported, unique_names
from core_compiler.frontends.keras import backends
from core_compiler.frontends.stablehlo.nodes import with_results
from core_compiler.support.errors import UserError, raised_at
from core_compiler.support.regular_files import need_regular

__all__ = ["example_shapes", "import_model", "on_arrays", "read_file"]


def read_file(path: Path, trust: bool = False) -> Any:
    """Load the model of a ``.keras`` file; ``trust`` allows the code of its Lambda layers to run.

    Keras is started on an installed backend if the user has not chosen one.  Raise UserError if
    keras is missing or rejects the file.
    """
    if importlib.util.find_spec("keras") is None:
        raise UserError(
            "keras is not installed", "frontend", "pip install 'compiler-workbench[keras]'", 3
        )
    need_regular(path)
    if not zipfile.is_zipfile(path):  # keras would report that the file does not exist
        what = "keras cannot read it: expected a zip archive"
        raise UserError(what, str(path), "save it again with model.save(path)")
    backends.choose()
    import keras

    try:
        return keras.saving.load_model(path, compile=False, safe_mode=not trust)
    except Exception as problem:  # zip, json, h5, unknown layers: keras raises them all
        text = str(problem)
        unsafe = "unsafe" in text.lower() or "safe_mode" in text
        fix = (
            "pass --trust to let the file run its code"
            if unsafe
            else "save it again with model.save(path), with built-in layers only"
        )
        message = " ".join(text.split())[:300] or type(problem).__name__
        raise UserError(f"keras cannot read it: {message}", str(path), fix) from None


def example_shapes(model: Any) -> list[tuple[tuple[int, ...], str]]:
    """Return the shape (unknown sizes are 1) and dtype of each input.

    Raise UserError for a model that has never been built.
    """
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise UserError(
            f"the inputs of {model.name} are unknown",
            "keras",
            "pass example inputs, or call the model once",
        )
    return [(tuple(size or 1 for size in one.shape), str(one.dtype)) for one in inputs]


def import_model(
    model: Any, inputs: Sequence[np.ndarray], name: str = "model", training: bool = False
) -> Imported:
    """Import a Keras model.

    ``inputs``    one array for each of its inputs, in order.
    ``training``  import it in training mode (on JAX): the variables that a call changes (statistics
                  of a batch normalisation, seeds of dropout) are state.

    The other variables become constants named by their paths; layer names are the scopes of ops.
    Raise UserError if the model cannot be called on ``inputs``, for an unsupported backend, for
    losses that layers add in training, and for ops without a translation.
    """
    import keras

    backend = keras.config.backend()
    if training and backend != "jax":
        how = "set KERAS_BACKEND to jax" if "jax" in backends.installed() else "install jax"
        raise UserError(
            f"training is not supported on the backend {backend}",
            name,
            f"{how}: a .keras file loads on any backend",
        )
    if backend == "torch":
        made = _import_torch(model, inputs, name)
    elif backend == "tensorflow":
        made = _import_tensorflow(model, inputs, name)
    elif backend == "jax":
        made = _import_jax(model, inputs, name, training)
    else:
        raise UserError(f"the backend {backend} is not supported", name, backends.fix())
    nodes = with_results(made.nodes, "keras", on_arrays(model))
    return replace(made, facts=_facts(made.facts), nodes=nodes)


def on_arrays(model: Any):
    """Return ``model`` in inference mode as a function from arrays to a tuple of arrays."""
    import keras

    def run(*arrays):
        made = model(arrays[0] if len(arrays) == 1 else list(arrays), **_mode(model))
        return tuple(keras.ops.convert_to_numpy(leaf) for leaf in keras.tree.flatten(made))

    return run


def _mode(model: Any, training: bool = False) -> dict[str, bool]:
    """Return the argument that selects training or inference, for models that accept it."""
    known = "training" in inspect.signature(model.call).parameters
    return {"training": training} if known else {}


def _import_torch(model: Any, inputs: Sequence[np.ndarray], name: str) -> Imported:
    import torch

    from core_compiler.frontends.pytorch import import_module

    tensors = [torch.from_numpy(np.array(each)) for each in inputs]
    # Several inputs are passed as a list: a second positional argument would not be an input.
    return import_module(model.eval(), tensors if len(tensors) == 1 else [tensors], name=name)


def _import_tensorflow(model: Any, inputs: Sequence[np.ndarray], name: str) -> Imported:
    from core_compiler.frontends.tensorflow import import_function

    def call(*inputs):
        return model(inputs[0] if len(inputs) == 1 else list(inputs), **_mode(model))

    made = import_function(call, inputs, name=name)
    named = [one.name for one in getattr(model, "inputs", None) or ()] or made.inputs
    results = list(getattr(model, "output_names", None) or ()) or made.outputs
    return replace(made, inputs=tuple(named), outputs=tuple(results))


def _import_jax(model: Any, inputs: Sequence[np.ndarray], name: str, training: bool) -> Imported:
    from core_compiler.frontends.stablehlo import import_function

    try:
        stateless = _Stateless(model, inputs, training)
        arguments = (
            stateless.values(stateless.fixed),
            list(inputs),
            stateless.values(stateless.moving),
        )
        return import_function(
            stateless,
            arguments,
            name=name,
            weights=stateless.arrays(stateless.fixed),
            statistics=[stateless.names[id(v)] for v in stateless.others],
            inputs_named=[one.name for one in getattr(model, "inputs", None) or ()],
            outputs_named=list(getattr(model, "output_names", None) or ()),
            state=stateless.arrays(stateless.moving),
        )
    except UserError:
        raise
    except Exception as problem:  # raised by the model's own layers
        raise UserError(
            f"keras cannot call it: {raised_at(problem)}", name, "make sure that model(inputs) runs"
        ) from None


class _Stateless:
    """A model on JAX as a pure function.

    It maps the ``fixed`` variables, the inputs and the ``moving`` variables, which a training call
    changes, to the outputs and the next moving variables.
    """

    def __init__(self, model: Any, inputs: Sequence[np.ndarray], training: bool):
        self.model, self.training = model, training
        self.trained: list[Any] = list(model.trainable_variables)
        self.others: list[Any] = list(model.non_trainable_variables)
        self.fixed, self.moving = self.trained, self.others
        paths = unique_names([v.path for v in (*self.trained, *self.others)])
        self.names = dict(zip(map(id, (*self.trained, *self.others)), paths, strict=True))
        changed = self._changed(inputs) if training else [False] * len(self.others)
        marked = list(zip(self.others, changed, strict=True))
        self.moving = [v for v, moves in marked if moves]
        self.fixed = self.trained + [v for v, moves in marked if not moves]

    def _changed(self, inputs: Sequence[np.ndarray]) -> list[bool]:
        """Return, for each variable that is not trained, whether a call changes it."""
        import jax

        given = self.values(self.fixed), list(inputs), self.values(self.moving)
        program = jax.make_jaxpr(self)(*given).jaxpr
        first = len(program.invars) - len(self.others), len(program.outvars) - len(self.others)
        pairs = zip(program.invars[first[0] :], program.outvars[first[1] :], strict=True)
        return [before is not after for before, after in pairs]

    def __call__(self, fixed: Sequence, inputs: Sequence, moving: Sequence) -> Any:
        held = dict(zip(map(id, (*self.fixed, *self.moving)), (*fixed, *moving), strict=True))
        trained, others = ([held[id(v)] for v in of] for of in (self.trained, self.others))
        given = inputs[0] if len(inputs) == 1 else list(inputs)
        if not self.training:
            return self.model.stateless_call(trained, others, given, **_mode(self.model))[0]
        outputs, after, losses = self.model.stateless_call(
            trained, others, given, return_losses=True, **_mode(self.model, training=True)
        )
        if losses:
            raise UserError(
                f"its layers add {len(losses)} losses, which are not supported",
                self.model.name,
                "remove the regularisers: an optimiser's weight_decay does the same as L2",
            )
        made = dict(zip(map(id, self.others), after, strict=True))
        return outputs, [made[id(v)] for v in self.moving]

    def values(self, variables: Sequence[Any]) -> list[Any]:
        return [variable.value for variable in variables]

    def arrays(self, variables: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return the values of the variables by their paths."""
        return {self.names[id(v)]: np.asarray(v.value) for v in variables}


def _facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **facts,
        "frontend": "keras",
        "keras": version("keras"),
        "keras_backend": backends.backend(),
    }
