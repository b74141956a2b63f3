"""Ops whose declared gradient is not the derivative of their result (``OpDef.slope``)."""

from __future__ import annotations

from core_compiler.ir import Op, WeightStore
from core_compiler.ops.base import REGISTRY, view
from core_compiler.ops.builder import Builder


def is_declared(op: Op) -> bool:
    """Return whether an op declares other slopes than its own."""
    return op.kind in REGISTRY and REGISTRY[op.kind].slope is not None


def with_declared_slopes(op: Op) -> list[Op]:
    """Return ops with the result of ``op``, whose slopes are the declared ones.

    The result of ``op`` is behind a stopped gradient; the change of its declared function is added
    to it. ``[op]`` if its slopes are its own.
    """
    if not is_declared(op):
        return [op]
    b = Builder(WeightStore())
    slope = REGISTRY[op.kind].slope
    assert slope is not None
    smooth = slope(b, view(op))
    held = b.stop_gradient(b.op(op.kind, op.operands, **op.attributes))
    b.add(held, b.sub(smooth, b.stop_gradient(smooth)))
    *ops, result = b.ops
    return [*ops, result.with_(results=op.results)]
