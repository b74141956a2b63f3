"""Elementwise operations with broadcasting, in the contract's scalar arithmetic.

Operations that are one IEEE operation or exact integer arithmetic run in NumPy (its loops round
each element once); elementary functions and float maxima run the contract's compiled sources.
Floats of at most 16 bits are widened to f32, computed and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from core_compiler.numerics.reference.dtypes import cast, dtype_name, is_float, widen
from core_compiler.support import lazy_module

# Functions that use only NumPy must not pay for Numba's import.
_numba = lazy_module.module("core_compiler.numerics.jit")
_functions = lazy_module.module("core_compiler.numerics.functions")
_primitives = lazy_module.module("core_compiler.numerics.primitives")

_WIDTH_ERROR = "{name} of {dtypes}: expected operands of one dtype, cast first"


def apply(name: str, *arrays: np.ndarray) -> np.ndarray:
    """Apply one of ``OPERATIONS`` or of the contract's functions to arrays of one dtype, broadcast.

    Comparisons return bool, all others the operands' dtype. Raise TypeError for a dtype that the
    operation does not support.
    """
    operands = [np.asarray(a) for a in arrays]
    operation = OPERATIONS.get(name) or _function(name)
    dtypes = {a.dtype for a in operands}
    if len(dtypes) != 1:
        raise TypeError(_WIDTH_ERROR.format(name=name, dtypes=", ".join(sorted(map(str, dtypes)))))
    dtype = operands[0].dtype
    wide = [widen(a) for a in operands]
    with np.errstate(all="ignore"):
        result = np.asarray(operation(*wide))
    if result.dtype == np.bool_ or result.dtype == dtype:
        return result
    return cast(result, dtype)


def select(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a where condition (bool) else b, bits unchanged, broadcast."""
    if a.dtype != b.dtype or condition.dtype != np.bool_:
        raise TypeError(f"select of {condition.dtype}, {a.dtype}, {b.dtype}: bool and one dtype")
    return np.where(condition, a, b)


def clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return min(max(x, low), high): any NaN yields NaN; high wins if the bounds cross."""
    return apply("minimum", apply("maximum", x, low), high)


# --- operations ---------------------------------------------------------------------------------


def _numpy(function: Callable, floats=True, integers=True, bools=False) -> Callable:
    def run(*operands):
        kind = operands[0].dtype
        allowed = bools if kind == np.bool_ else floats if is_float(kind) else integers
        if not allowed:
            raise TypeError(f"{function.__name__} is not defined for {kind}")
        return function(*operands)

    return run


def _compiled(name: str) -> Callable:
    def run(*operands):
        if not is_float(operands[0].dtype):
            raise TypeError(f"{name} is not defined for {operands[0].dtype}")
        shape = np.broadcast_shapes(*(a.shape for a in operands))
        flat = [np.ascontiguousarray(np.broadcast_to(a, shape)).reshape(-1) for a in operands]
        out = np.empty(shape, operands[0].dtype)
        _loop(name, dtype_name(out.dtype), len(flat))(*flat, out.reshape(-1))
        return out

    return run


def _by_kind(of_floats: Callable, of_integers: Callable) -> Callable:
    def run(*operands):
        return (of_floats if is_float(operands[0].dtype) else of_integers)(*operands)

    return run


def _map_one(x, out):
    for i in range(out.shape[0]):
        out[i] = op(x[i])  # noqa: F821


def _map_two(x, y, out):
    for i in range(out.shape[0]):
        out[i] = op(x[i], y[i])  # noqa: F821


@functools.cache
def _loop(name: str, dtype: str, arity: int):
    template = _map_one if arity == 1 else _map_two
    symbol = f"{name}_{dtype}"
    element = _primitives.NUMBERS[dtype]
    loop = _numba.specialise(template, f"map_{symbol}", op=_functions.NAMESPACE[symbol])
    return _numba.jit(loop, *[_numba.reads(element, 1)] * arity, _numba.writes(element, 1))


def _safe_divisor(a, b):
    """Return (b without 0 and, for signed types, -1; where it was 0; where it was -1)."""
    by_zero = b == 0
    minus_one = (b == -1) if a.dtype.kind == "i" else np.zeros(b.shape, bool)
    return np.where(by_zero | minus_one, b.dtype.type(1), b), by_zero, minus_one


def _integer_divide(a, b):
    """Return the truncated quotient; by zero it is 0; lowest / -1 wraps."""
    divisor, by_zero, minus_one = _safe_divisor(a, b)
    quotient = a // divisor
    remainder = a - quotient * divisor
    floor_too_low = (remainder != 0) & ((a < 0) != (divisor < 0))
    quotient = (quotient + floor_too_low).astype(a.dtype)
    quotient = np.where(minus_one, -a if a.dtype.kind == "i" else a, quotient)
    return np.where(by_zero, a.dtype.type(0), quotient).astype(a.dtype)


def _integer_remainder(a, b):
    """Return the remainder with the dividend's sign (C's %); by zero it is 0."""
    return np.where(b == 0, a.dtype.type(0), a - _integer_divide(a, b) * b).astype(a.dtype)


def _integer_floor_divide(a, b):
    quotient, remainder = _integer_divide(a, b), _integer_remainder(a, b)
    adjust = (remainder != 0) & ((remainder < 0) != (b < 0))
    return (quotient - adjust).astype(a.dtype)


def _integer_floor_modulo(a, b):
    remainder = _integer_remainder(a, b)
    adjust = (remainder != 0) & ((remainder < 0) != (b < 0))
    return np.where(adjust, remainder + b, remainder).astype(a.dtype)


def _integer_power(a, b):
    """Return a**b by squaring, wrapping.

    A negative exponent yields 1 or -1 for the bases 1 and -1, else 0.
    """
    a, b = np.broadcast_arrays(a, b)
    result = np.ones(a.shape, a.dtype)
    base, left = a.copy(), np.maximum(b, 0).astype(np.uint64)
    while left.any():
        result = np.where(left & np.uint64(1), result * base, result)
        base, left = base * base, left >> np.uint64(1)
    unit = np.where((a == -1) & (b % 2 != 0), a, a.dtype.type(1))
    negative = np.where((a == 1) | (a == -1), unit, a.dtype.type(0))
    return np.where(b < 0, negative, result).astype(a.dtype)


def _shift(function: Callable) -> Callable:
    """Return a shift in which counts outside [0, width) yield 0.

    An arithmetic shift to the right then fills with the sign.
    """

    def run(a, count):
        width = 8 * a.dtype.itemsize
        inside = (count >= 0) & (count < width)
        if function is np.right_shift and a.dtype.kind == "i":
            return function(a, np.where(inside, count, count.dtype.type(width - 1))).astype(a.dtype)
        shifted = function(a, np.where(inside, count, count.dtype.type(0)))
        return np.where(inside, shifted, a.dtype.type(0)).astype(a.dtype)

    return _numpy(run, floats=False)


def _logical_right(a, count):
    unsigned = a.view(f"u{a.dtype.itemsize}")
    return np.right_shift(unsigned, count.astype(unsigned.dtype)).view(a.dtype)


def _integer_sign(x):
    return np.sign(x).astype(x.dtype)


_ARITHMETIC = {
    "add": _numpy(np.add),
    "sub": _numpy(np.subtract),
    "mul": _numpy(np.multiply),
    "div": _by_kind(np.divide, _integer_divide),
    "floor_div": _by_kind(lambda a, b: np.floor(np.divide(a, b)), _integer_floor_divide),
    "fmod": _by_kind(_compiled("fmod"), _integer_remainder),
    "remainder": _by_kind(_compiled("remainder"), _integer_floor_modulo),
    "pow": _by_kind(_compiled("pow"), _integer_power),
    "maximum": _by_kind(_compiled("maximum"), np.maximum),
    "minimum": _by_kind(_compiled("minimum"), np.minimum),
    "neg": _numpy(np.negative),
    "abs": _numpy(np.abs),
    "sign": _by_kind(_compiled("sign"), _integer_sign),
    "sqrt": _numpy(np.sqrt, integers=False),
    "floor": _numpy(np.floor, integers=False),
    "ceil": _numpy(np.ceil, integers=False),
    "trunc": _numpy(np.trunc, integers=False),
    "round_even": _numpy(np.rint, integers=False),
}
_COMPARISONS = {
    "equal": _numpy(np.equal, bools=True),
    "not_equal": _numpy(np.not_equal, bools=True),
    "less": _numpy(np.less, bools=True),
    "less_equal": _numpy(np.less_equal, bools=True),
    "greater": _numpy(np.greater, bools=True),
    "greater_equal": _numpy(np.greater_equal, bools=True),
    "is_nan": _numpy(np.isnan, integers=False),
    "is_inf": _numpy(np.isinf, integers=False),
}
_BITS = {
    "and": _numpy(np.bitwise_and, floats=False, bools=True),
    "or": _numpy(np.bitwise_or, floats=False, bools=True),
    "xor": _numpy(np.bitwise_xor, floats=False, bools=True),
    "not": _numpy(np.invert, floats=False, bools=True),
    "shift_left": _shift(np.left_shift),
    "shift_right": _shift(np.right_shift),
    "shift_right_logical": _shift(_logical_right),
}
#: Name -> function on widened arrays; the contract's elementary functions are added.
OPERATIONS: dict[str, Callable] = {**_ARITHMETIC, **_COMPARISONS, **_BITS}


def _function(name: str) -> Callable:
    """Return one of the contract's elementary functions (``exp``...) on widened arrays."""
    if name not in _functions.FUNCTIONS:
        known = ", ".join([*OPERATIONS, *_functions.FUNCTIONS])
        raise ValueError(f"unknown elementwise operation {name!r}, expected one of {known}")
    return _compiled(name)
