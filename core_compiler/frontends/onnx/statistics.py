"""State that training an ONNX model changes besides its parameters, stored as initializers."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.frontends.onnx.table import NotSupported
from core_compiler.ir import Op, Value
from core_compiler.ops.evaluation import constant_array
from core_compiler.support.errors import UserError


def initializer(importer: Any, value: Value) -> tuple[str, np.ndarray] | None:
    """Return the name and values of ``value`` if it is a tensor stored in the model."""
    op = importer.made.get(value)
    if op is None or op.kind != "core.constant" or op.origin.node is None:
        return None
    stored = op.origin.node.kind == "initializer"
    return (op.origin.node.name, constant_array(op, importer.weights)) if stored else None


def current_statistic(importer: Any, value: Value) -> Value:
    """Return the current value of a running statistic.

    It is state if ``value`` is an initializer, else ``value`` itself.
    """
    if value not in importer.running_statistics:
        stored = initializer(importer, value)
        if stored is None:
            return value
        if importer.regions:
            raise NotSupported("running statistics that change inside a branch or a loop")
        importer.state.add_state(*stored)
        importer.running_statistics[value] = stored[0]
    return importer.state.current(importer.running_statistics[value])


def set_next_statistic(importer: Any, value: Value, after: Value) -> None:
    """Set the next value of the running statistic ``value`` to ``after``."""
    if value in importer.running_statistics:
        importer.state.set_next(importer.running_statistics[value], after)


def drop_unread_constants(importer: Any) -> list[Op]:
    """Return the ops without unused stored tensors.

    These are the ones that became state, and constants that were only used at import.  Raise
    UserError if a state is also a parameter.
    """
    read = {v for op in importer.ops for v in op.uses()} | set(importer.results)
    for value, name in importer.running_statistics.items():
        if value in read:
            raise UserError(
                f"{name} is both a weight and a running statistic of a batch normalisation: "
                "equal tensors of the model were merged",
                importer.name,
                "export it without merging equal tensors, or train the original model",
            )
    return [op for op in importer.ops if op.kind != "core.constant" or op.result in read]
