"""Events of differentiation on small programs, checked; rules with one fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from core_compiler.debug.evaluate import Evaluator, Values
from core_compiler.debug.gradient_checks import check_gradient
from core_compiler.ir import Module, Rewriter, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.ops.base import REGISTRY
from core_compiler.training.graph.autodiff import differentiate
from core_compiler.training.passes.differentiate import _Rewritten


def records(module: Module, arrays: Sequence[np.ndarray]) -> list[CheckRecord]:
    """What is said of every gradient rewrite of ``module``, differentiated for all its floats."""
    body = module.main.body
    rw = Rewriter(body)
    cotangents = {v: Value(v.type) for v in body.outputs if v.type.dtype.is_float}
    varied = [v for v in body.arguments if v.type.dtype.is_float]
    differentiate(_Rewritten(rw, module.weights), cotangents, varied, module.weights)
    evaluator = Evaluator(module.weights)
    known = dict(zip(body.arguments, arrays, strict=True))
    known |= {c: np.ones(c.type.shape, c.type.dtype.numpy) for c in cotangents.values()}
    values = Values(evaluator, known)
    values.learn(body.ops)
    found = []
    for rewrite in rw.events:
        values.learn(rewrite.new)
        if rewrite.claim is not None:
            found.append(check_gradient(rewrite, values, evaluator))
    return found


def _weighted(b, v):
    """Elements times 2, 3, ... along the last axis."""
    if not v.type.rank:
        return b.neg(v)
    places = b.iota(shape=v.type.shape, dtype="i64", axis=v.type.rank - 1)
    wide = b.cast(places, dtype=v.type.dtype)
    return b.mul(v, b.add(wide, b.scalar_like(2.0, v)))


#: How a cotangent is made wrong.
FAULTS: dict[str, Callable] = {
    "sign": lambda b, v: b.neg(v),
    "factor": lambda b, v: b.mul(v, b.scalar_like(2.0, v)),
    "dropped": lambda b, v: None,
    "a little": lambda b, v: b.mul(v, b.scalar_like(1.001, v)),
    "weights": _weighted,
}


@contextmanager
def planted(kind: str, fault: Callable, place: int = 0) -> Iterator[None]:
    """The rule of ``kind`` gives a wrong cotangent of one operand."""
    good = REGISTRY[kind]
    rule = good.gradient
    assert rule is not None

    def wrong(b, op, cotangents, wanted):
        made = list(rule(b, op, cotangents, wanted))
        if isinstance(made[place], Value):
            made[place] = fault(b, made[place])
        return tuple(made)

    REGISTRY[kind] = replace(good, gradient=wrong)
    try:
        yield
    finally:
        REGISTRY[kind] = good
