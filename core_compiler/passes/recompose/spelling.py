"""Helpers shared by the tables of forms: constants that stand for a number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import Op
from core_compiler.ops import typed
from core_compiler.passes.rules import Const, Match, is_float

#: Tolerance of a composite against equivalent primitives, in f32 (some 16 roundings).
TOLERANCE = 2e-6
#: Classes of values for which intermediate results overflow in one form and not in the other.
OVERFLOWS = ("infinities", "largest")


#: Relative tolerance of a constant: in f64, a number with f32's digits is a different one.
_NEAR = {np.dtype(np.float64): 1e-12}


def near(number: float, relative: float = 1e-6) -> Callable[[np.ndarray], bool]:
    """Return a test that a constant equals ``number`` everywhere, up to its dtype's rounding."""

    def test(array: np.ndarray) -> bool:
        if array.size == 0 or array.dtype.kind != "f":
            return False
        bound = min(relative, _NEAR.get(array.dtype, relative)) * abs(number)
        if not abs(float(array.flat[0]) - number) <= bound:  # weights are large: test one first
            return False
        return bool(np.all(np.abs(array.astype(np.float64) - number) <= bound))

    return test


def number(name: str, value: float) -> Const:
    return Const(name, near(value), f"{value:.6g}")


def is_uniform(array: np.ndarray) -> bool:
    """Return whether a constant is one number everywhere, with one sign if it is zero."""
    if array.size == 0 or array.flat[0] != array.flat[-1]:
        return False
    signs = np.signbit(array) if is_float(array) else np.zeros((), bool)
    return bool(np.all(array == array.flat[0]) and np.all(signs == signs.flat[0]))


def single(name: str) -> Const:
    """Match a constant that is one number everywhere."""
    return Const(name, is_uniform, "one number")


def has_bounds(low: float, high: float) -> Callable[[Op], bool]:
    """Return a test of a clamp for these bounds."""

    def test(o: Op) -> bool:
        clamp = typed.Clamp.of(o)
        return (clamp.low, clamp.high) == (low, high)

    return test


def scalar_value(m: Match, name: str):
    """Return a uniform constant as a Python number."""
    found = m.array(name).flat[0]
    return float(found) if is_float(m.array(name)) else found.item()


def lowest(name: str) -> Const:
    """Match a constant of -infinity."""
    return Const(name, lambda a: is_float(a) and bool(np.all(np.isneginf(a))), "-infinity")


def reshapes(op: Op) -> bool:
    """Skip ops that keep elements in their order."""
    if op.kind == "core.broadcast":
        return op.operands[0].type.elements == op.result.type.elements
    return op.kind == "core.reshape"
