"""Ops on the corners of their meaning: what dialects leave open and the contract fixes.

No subnormal numbers, and no small ones that have them as product: IREE flushes them to zero.
"""

from __future__ import annotations

import numpy as np

from core_compiler.ir import dtype
from tests.ops.samples import Sample
from tests.ops.samples.base import sample

INTEGERS = ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")
_NUMBERS = np.array([
    0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-25, -2e-25, 3e38,
    -3e38, 1e20, 8388609.5, 127.6, 128, -128.6, 300, 2147483648.0, -2147483904.0, 9.3e18,
    -9.3e18, 1.9e19, 0.7, -0.99999994, 1.0000001,
], np.float32)  # fmt: skip
_OF_ONE = ("neg", "abs", "sign", "floor", "ceil", "round", "trunc", "is_nan", "is_inf", "is_finite")
_OF_TWO = ("add", "sub", "mul", "max", "min", "rem", "mod", "eq", "ne", "lt", "le", "gt", "ge")
_BITS = ("and", "or", "xor", "shl", "shr")
_TARGETS = (*INTEGERS, "i1", "f8E4M3FN", "f8E5M2")
_ROWS = ([-0.0, 0.0], [0.0, -0.0], [np.nan, 1.0], [1.0, np.nan], [np.inf, np.nan], [3.0, 3.0])


def _case(kind: str, *operands: np.ndarray, label: str = "", **attributes) -> Sample:
    return sample(kind, *operands, oracle=None, exact=True, label=label, **attributes)


def floats(name: str) -> list[Sample]:
    """One float dtype on zeros, infinities, NaN, ties, and numbers that no integer holds."""
    with np.errstate(over="ignore"):
        x = _NUMBERS.astype(dtype(name).numpy)
    a, b = (v.ravel() for v in np.meshgrid(x, x))
    table = np.stack([x, np.roll(x, 3), np.roll(x, 7)])
    image = np.resize(x, (1, 2, 6, 6))
    options = {"window": (2, 2), "strides": (1, 1), "low": (1, 1), "high": (1, 1)}
    made = [_case(kind, x) for kind in _OF_ONE] + [_case(kind, a, b) for kind in _OF_TWO]
    made += [_case("cast", x, label=f"to-{t}", dtype=t) for t in _TARGETS]
    made += [
        _case("max_pool", image, dilations=(1, 1), **options),
        _case("relu", x),
        _case("clamp", x, low=-1.0, high=2.0),
    ]
    for descending in (False, True):
        for kind in ("sort", "argsort"):
            made.append(_case(kind, table, axis=1, descending=descending, label=str(descending)))
    for row in _ROWS:
        pair, label = np.array([row], x.dtype), str(row).replace(" ", "")
        for kind in ("reduce_max", "reduce_min"):
            made.append(_case(kind, pair, axes=(1,), label=label))
        for kind in ("argmax", "argmin", "cummax", "cummin"):
            made.append(_case(kind, pair, axis=1, label=label))
    return made


def integers(name: str) -> list[Sample]:
    """One integer dtype at its ends, around 0 and around its width: arithmetic, shifts by any
    count, conversions, and positions far out of range."""
    kind = dtype(name)
    info = np.iinfo(kind.numpy)
    numbers = {info.min, info.min + 1, 0, 1, 2, 3, 7, info.bits - 1, info.bits, info.bits + 1,
               info.max, info.max - 1, info.max // 2, info.max // 2 + 1}  # fmt: skip
    numbers |= {-1, -2, -7} if kind.kind == "int" else set()
    v = np.array(sorted(numbers), kind.numpy)
    a, b = (x.ravel() for x in np.meshgrid(v, v))
    both = np.stack([v, v[::-1]])
    made = [_case(op, a, b) for op in (*_OF_TWO, "div", "pow", *_BITS)]
    made += [_case(op, v) for op in ("bitnot", *(_OF_ONE[:3] if kind.kind == "int" else ()))]
    made += [
        _case("cast", v, label=f"to-{t}", dtype=t)
        for t in (*_TARGETS, "f32", "f16", "bf16")
        if t != name
    ]
    for op in ("max", "min", "sum", "prod", "and", "or"):
        made.append(_case(f"reduce_{op}", both, axes=(1,)))
    made += [_case(op, both, axis=1) for op in ("argmax", "argmin", "sort", "argsort")]
    return made + _places(v)


def _places(v: np.ndarray) -> list[Sample]:
    """Gathers, scatters and boxes at positions that are mostly outside."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    rows = np.arange(3 * len(v), dtype=np.float32).reshape(-1, 3)
    wide = np.resize(x, (3, len(v)))
    made = [
        _case("take", x, v, axis=0),
        _case("gather_nd", x, np.stack([v, v[::-1]], -1)),
        _case("take_along", wide, np.stack([v, v[::-1], v]), axis=1),
    ]
    for mode in ("set", "add", "max"):
        made += [
            _case("scatter_nd", x, v[:, None], rows, mode=mode, label=mode),
            _case("scatter_along", x, np.stack([v] * 3, -1), rows, axis=0, mode=mode, label=mode),
        ]
    for start in (v[0].reshape(()), v[-1].reshape(())):
        made += [
            _case("dynamic_slice", x, start, start, sizes=(2, 2), label=str(start)),
            _case("dynamic_update_slice", x, x[:2, :2] + 50, start, start, label=str(start)),
        ]
    return made
