"""Checks of the properties that ops declare, against their references.

Rules, the e-graph and common subexpression elimination exchange the operands of an op that is
declared ``commutative``.  If the declaration is wrong, each of their rewrites looks wrong although
none is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from core_compiler.debug import hurtful
from core_compiler.debug.bits import differing, same_bits
from core_compiler.debug.elementary import KIND
from core_compiler.ir import Module, Op, TensorType, Value, tensor
from core_compiler.ir.events import CheckRecord
from core_compiler.ops.base import REGISTRY
from core_compiler.ops.evaluation import evaluate

#: Number of operand pairs that an op is tried on.
_COUNT = 1 << 10


def checks(module: Module, others: Iterable[Module] = ()) -> list[CheckRecord]:
    """Return a failed check for each kind of op that is declared commutative and is not.

    The ops are those of ``module``, an import, and of the modules made from it.
    """
    found, own = [], set(module.walk())
    first_ops: dict[tuple[str, str], Op] = {}
    for each in (module, *others):
        for op in each.walk():
            declared = REGISTRY.get(op.kind)
            if declared is not None and "commutative" in declared.traits:
                a, b = (v.type for v in op.operands)
                if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype is b.dtype:
                    first_ops.setdefault((op.kind, a.dtype.name), op)
    for key, op in first_ops.items():
        pair = exchanged(*key)
        if pair is not None:
            (a, b), (one, other) = pair
            note = (
                f"{op.kind} is declared commutative, but returns {one} for ({a}, {b}) and "
                f"{other} for ({b}, {a})"
            )
            value = op.result if op in own else None
            found.append(
                CheckRecord(
                    None,
                    "failed",
                    float("inf"),
                    value=value,
                    old=float(one),
                    new=float(other),
                    note=note,
                    kind=KIND,
                )
            )
    return found


@functools.cache
def exchanged(kind: str, dtype: str) -> tuple[tuple, tuple] | None:
    """Return two operands whose exchange changes the result of an op, and both results, or None."""
    type_ = tensor((_COUNT,), dtype)
    random = np.random.default_rng(5)
    a, b = (hurtful.array("mixed", type_, random, (), True) for _ in range(2))
    x, y = Value(type_), Value(type_)
    declared = REGISTRY[kind]
    result = Value(declared.type_rule([type_, type_], declared.fill({}))[0])
    op = Op(kind, (x, y), (result,))
    with np.errstate(all="ignore"):
        one, other = (evaluate(op, pair)[0] for pair in ((a, b), (b, a)))
    if same_bits(one, other):
        return None
    index = int(np.argmax(differing(one, other)))
    return (a[index], b[index]), (one[index], other[index])
