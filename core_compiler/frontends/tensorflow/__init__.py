"""TensorFlow functions and SavedModels, lowered to StableHLO by TensorFlow's own XLA bridge.

Variables become constants that keep their names; the names of graph ops are scopes, and their lines
are those of the Python code that traced them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.base import Imported
from core_compiler.frontends.stablehlo.origins import FOREIGN
from core_compiler.frontends.stablehlo.reading import need_jax
from core_compiler.support.errors import UserError, nearest, raised_at

__all__ = ["example_shapes", "import_function", "on_arrays", "read_saved_model"]

#: The signature of a SavedModel that is used as the model if it exists.
SERVING = "serving_default"


def need_tensorflow() -> None:
    """Raise UserError (exit code 3) if tensorflow or jaxlib, which reads StableHLO, is missing."""
    need_jax()
    if importlib.util.find_spec("tensorflow") is None:
        raise UserError(
            "tensorflow is not installed",
            "frontend",
            "pip install 'compiler-workbench[tensorflow]'",
            3,
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # it reports every start on standard error


def read_saved_model(path: Path, signature: str = "") -> Any:
    """Return the function of a SavedModel's ``signature``.

    The default is ``serving_default``, or the only one.  Raise UserError if it does not exist, or
    if TensorFlow rejects the folder.
    """
    need_tensorflow()
    import tensorflow as tf

    try:
        held = tf.saved_model.load(str(path))
        signatures = dict(held.signatures)
    except Exception as problem:  # TensorFlow raises any exception for this folder
        message = " ".join(str(problem).split())[:300]
        raise UserError(
            f"tensorflow cannot read it: {message}",
            str(path),
            "save it again with tf.saved_model.save",
        ) from None
    wanted = signature or (SERVING if SERVING in signatures else "")
    if not wanted and len(signatures) == 1:
        (wanted,) = signatures
    if wanted not in signatures:
        choices = f"choose from {', '.join(signatures)}" if signatures else "save with signatures="
        what = f"expected signature {SERVING} or a single one, got {len(signatures)}"
        raise UserError(
            f"unknown signature {signature!r}" if signature else what,
            str(path),
            nearest(signature, signatures, choices),
        )
    found = signatures[wanted]
    found.owner = held  # keeps its variables alive
    return found


def example_shapes(function: Any) -> list[tuple[tuple[int, ...], str]]:
    """Return the shape (open sizes are 1) and dtype of each argument of a signature, in order."""
    return [
        (tuple(1 if d is None else d for d in spec.shape), spec.dtype.name)
        for spec in _specs(function).values()
    ]


def _specs(function: Any) -> Mapping[str, Any]:
    _, named = function.structured_input_signature
    return {name: named[name] for name in sorted(named)}


def import_function(
    function: Callable, inputs: Sequence[np.ndarray], name: str = "function"
) -> Imported:
    """Import a function that ``tf.function`` traces.

    It is a Python function, a ``tf.function``, a signature of a SavedModel (its arguments by name,
    sorted), or a Keras model on TensorFlow.  ``inputs`` has one array for each argument.  Raise
    UserError if it cannot be traced, if XLA does not support an op in it, and for ops without a
    translation.
    """
    need_tensorflow()
    import tensorflow as tf

    from core_compiler.frontends.stablehlo import import_program
    from core_compiler.frontends.stablehlo.nodes import with_results

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in map(np.asarray, inputs)]
    wrapped = tf.function(_positional(function), jit_compile=True, autograph=False)
    try:
        concrete = wrapped.get_concrete_function(*specs)
        inner = getattr(function, "get_concrete_function", None)
        graphs = [concrete.graph, *([inner(*specs).graph] if inner else [])]
    except Exception as problem:  # raised by the user's code
        raise UserError(
            f"tensorflow cannot trace it: {raised_at(problem)}",
            name,
            "make sure that tf.function(function)(*inputs) runs",
        ) from None
    try:
        program = wrapped.experimental_get_compiler_ir(*specs)(stage="stablehlo_serialized")
    except Exception as problem:  # XLA's own errors, each with the ops that it cannot compile
        message = " ".join(str(problem).split())[:400]
        fix = "replace the ops named here; tf.function(jit_compile=True) reports the same"
        raise UserError(f"XLA cannot compile it: {message}", name, fix) from None
    weights = _captured(concrete, len(specs))
    made = import_program(
        program,
        name=name,
        weights=weights,
        read_files=True,
        op_lines=_op_lines(graphs),
        inputs_named=_argument_names(concrete, function),
        outputs_named=_paths(concrete.structured_outputs),
    )
    facts = {**made.facts, "frontend": "tensorflow", "tensorflow": version_of()}
    nodes = with_results(made.nodes, "tensorflow", on_arrays(function))
    return replace(made, facts=facts, nodes=nodes)


def version_of() -> str:
    """Return the installed version of tensorflow, from whichever package provides it."""
    for package in ("tensorflow", "tensorflow-cpu", "tensorflow-intel"):
        with suppress(ImportError):
            return version(package)
    return ""


def _positional(function: Any) -> Callable:
    """Return ``function`` with positional arguments: a signature only takes them by name."""
    if not hasattr(function, "structured_input_signature"):
        return lambda *arrays: function(*arrays)
    positional, named = function.structured_input_signature
    if positional and not named:
        return lambda *arrays: function(*arrays)
    names = sorted(named)
    return lambda *arrays: function(**dict(zip(names, arrays, strict=True)))


def _argument_names(concrete: Any, function: Any) -> list[str]:
    if hasattr(function, "structured_input_signature"):
        return list(_specs(function))
    import inspect

    try:
        own = getattr(function, "python_function", function)
        return [n for n in inspect.signature(own).parameters if n != "self"]
    except (TypeError, ValueError):
        return []


def _captured(concrete: Any, first: int) -> dict[int, tuple[str, np.ndarray]]:
    """Return the captured variables (by their names) and constants of a function.

    The key is the position after the arguments.
    """
    variables = {id(v.handle): v for v in concrete.variables}
    made = {}
    for number, held in enumerate(concrete.captured_inputs):
        variable = variables.get(id(held))
        if variable is not None:
            made[first + number] = (variable.name.partition(":")[0], variable.numpy())
        elif held.dtype.name == "resource":
            raise UserError(
                "reading a table, an iterator or another resource is not supported",
                "tensorflow",
                "pass the values as an argument",
            )
        else:
            made[first + number] = (f"captured_{number}", held.numpy())
    return made


def _op_lines(graphs: Sequence[Any]) -> dict[str, tuple[str, int]]:
    """Return graph op's name -> file and line of the innermost user code that created it."""
    made = {}
    for op in (op for graph in graphs for op in graph.get_operations()):
        for frame in reversed(list(op.traceback or ())):
            file = getattr(frame, "filename", "")
            if file and file[0] != "<" and not FOREIGN.search(file):
                made[op.name] = (file, int(frame.lineno))
                break
    return made


def _paths(structure: Any, path: str = "") -> list[str]:
    """Return the names of a structure's leaves, in TensorFlow's order (dictionaries by key)."""
    if isinstance(structure, Mapping):
        parts = [
            (f"{path}/{key}" if path else str(key), structure[key]) for key in sorted(structure)
        ]
    elif isinstance(structure, tuple | list):
        parts = [
            (f"{path}/{i}" if path else f"output{i}", each) for i, each in enumerate(structure)
        ]
    else:
        return [path or "output0"]
    return [name for part, each in parts for name in _paths(each, part)]


def on_arrays(function: Any) -> Callable[..., tuple]:
    """Return ``function`` executed by TensorFlow, from arrays to a tuple of arrays."""
    import tensorflow as tf

    call = _positional(function)

    def run(*arrays):
        made = call(*map(tf.constant, arrays))
        return tuple(leaf.numpy() for leaf in tf.nest.flatten(made))

    return run
