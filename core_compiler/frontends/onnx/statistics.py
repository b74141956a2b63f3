"""What of an ONNX model training changes beside its parameters: initializers that are state."""

from __future__ import annotations

from typing import Any

from core_compiler.errors import UserError
from core_compiler.frontends.onnx.table import NotSupported
from core_compiler.ir import Op, Value, as_array


def initializer(importer: Any, value: Value) -> Op | None:
    """The constant that ``value`` is, if it is a tensor stored in the model."""
    op = importer.made.get(value)
    stored = op is not None and op.kind == "core.constant" and op.origin.node is not None
    return op if stored and op.origin.node.kind == "initializer" else None


def running(importer: Any, value: Value) -> Value:
    """A running statistic as it is now: state where ``value`` is an initializer, else ``value``."""
    if value not in importer.moving:
        op = initializer(importer, value)
        if op is None:
            return value
        if importer.regions:
            raise NotSupported("running statistics that change inside a branch or a loop")
        name = op.origin.node.name
        importer.state.begin(name, as_array(op["value"], importer.weights))
        importer.moving[value] = name
    return importer.state.now(importer.moving[value])


def move(importer: Any, value: Value, after: Value) -> None:
    """``after`` is what the running statistic ``value`` is from now on."""
    if value in importer.moving:
        importer.state.change(importer.moving[value], after)


def without_unread(importer: Any) -> list[Op]:
    """The ops without the stored tensors that none of them reads: those that became state, and
    numbers that importing took.  UserError where a part of the state is a parameter as well."""
    read = {v for op in importer.ops for v in op.uses()} | set(importer.results)
    for value, name in importer.moving.items():
        if value in read:
            raise UserError(
                f"{name} is a weight and a running statistic of a batch normalisation at once: "
                "equal tensors of the model were merged", importer.name,
                "export it without merging them, or train the model that it came from",
            )  # fmt: skip
    return [op for op in importer.ops if op.kind != "core.constant" or op.result in read]
