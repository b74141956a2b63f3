"""What the tables of spellings share: constants that stand for a number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import Op
from core_compiler.passes.rules import Const, Match, is_float

#: What a composite may differ by from primitives that mean the same, in f32 (some 16 roundings).
TOLERANCE = 2e-6
#: Classes of values for which intermediate results overflow in one form and not in the other.
OVERFLOWS = ("infinities", "largest")


#: How far a constant may be from the number that it stands for, relative to it: in f64 one of f32's
#: digits is another number.
_NEAR = {np.dtype(np.float64): 1e-12}


def near(number: float, relative: float = 1e-6) -> Callable[[np.ndarray], bool]:
    """Whether a constant equals ``number`` everywhere, up to the rounding of its dtype."""

    def test(array: np.ndarray) -> bool:
        if array.size == 0 or array.dtype.kind != "f":
            return False
        bound = min(relative, _NEAR.get(array.dtype, relative)) * abs(number)
        if not abs(float(array.flat[0]) - number) <= bound:  # weights are large: mostly this tells
            return False
        return bool(np.all(np.abs(array.astype(np.float64) - number) <= bound))

    return test


def number(name: str, value: float) -> Const:
    return Const(name, near(value), f"{value:.6g}")


def one(array: np.ndarray) -> bool:
    """Whether a constant is one number everywhere, a zero of one sign."""
    if array.size == 0 or array.flat[0] != array.flat[-1]:
        return False
    signs = np.signbit(array) if is_float(array) else np.zeros((), bool)
    return bool(np.all(array == array.flat[0]) and np.all(signs == signs.flat[0]))


def single(name: str) -> Const:
    """A constant that is one number everywhere."""
    return Const(name, one, "one number")


def worth(m: Match, name: str):
    """The number that a constant is everywhere, as Python has it."""
    found = m.array(name).flat[0]
    return float(found) if is_float(m.array(name)) else found.item()


def lowest(name: str) -> Const:
    """A constant of -infinity."""
    return Const(name, lambda a: is_float(a) and bool(np.all(np.isneginf(a))), "-infinity")


def reshapes(op: Op) -> bool:
    """Looks through what keeps elements in their order."""
    if op.kind == "core.broadcast":
        return op.operands[0].type.elements == op.result.type.elements
    return op.kind == "core.reshape"
