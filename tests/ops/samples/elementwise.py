"""Elementwise ops over every dtype they take; oracles: NumPy and SciPy in f64, Python integers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from scipy import special

from tests.ops.samples.base import FLOATS, Sample, sample, values

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
INTEGERS = SIGNED + UNSIGNED

#: op -> (oracle on f64, low, high)
UNARY_FLOAT = {
    "neg": (np.negative, -9, 9),
    "abs": (np.abs, -9, 9),
    "sign": (np.sign, -2, 2),
    "exp": (np.exp, -9, 9),
    "exp2": (np.exp2, -9, 9),
    "expm1": (np.expm1, -2, 2),
    "log": (np.log, 0.01, 99),
    "log2": (np.log2, 0.01, 99),
    "log10": (np.log10, 0.01, 99),
    "log1p": (np.log1p, -0.5, 2),
    "sqrt": (np.sqrt, 0, 99),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.01, 99),
    "cbrt": (np.cbrt, -99, 99),
    "sin": (np.sin, -99, 99),
    "cos": (np.cos, -99, 99),
    "tan": (np.tan, -1.5, 1.5),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -9, 9),
    "sinh": (np.sinh, -4, 4),
    "cosh": (np.cosh, -4, 4),
    "tanh": (np.tanh, -4, 4),
    "asinh": (np.arcsinh, -9, 9),
    "acosh": (np.arccosh, 1, 9),
    "atanh": (np.arctanh, -0.9, 0.9),
    "erf": (special.erf, -3, 3),
    "erfc": (special.erfc, -3, 3),
    "sigmoid": (special.expit, -9, 9),
    "floor": (np.floor, -9, 9),
    "ceil": (np.ceil, -9, 9),
    "round": (np.rint, -9, 9),
    "trunc": (np.trunc, -9, 9),
}
TESTS = {"is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite}
BINARY_FLOAT = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "rem": np.fmod,
    "mod": np.mod,
    "atan2": np.arctan2,
}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-5]


def _wrapped(function):
    """An oracle that applies ``function`` to Python integers and wraps to the operand's dtype."""

    def oracle(*arrays):
        rows = zip(*(a.ravel().tolist() for a in arrays), strict=True)
        width = arrays[0].dtype.itemsize * 8
        made = [function(*row) % 2**width for row in rows]
        unsigned = np.array(made, np.uint64).astype(f"u{arrays[0].dtype.itemsize}")
        return unsigned.view(arrays[0].dtype).reshape(arrays[0].shape)

    return oracle


def _truncated(a: int, b: int) -> int:
    return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b)) if b else 0


def _shift(right: bool):
    """A shift of Python integers; 0 where the count is not in 0..width-1 (bound by the sample)."""
    return (lambda a, b: a >> b) if right else (lambda a, b: a << b)


INTEGER_BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _truncated,
    "max": max,
    "min": min,
    "rem": lambda a, b: a - b * _truncated(a, b) if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _edges(name: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(EDGES, np.float64).astype(_numpy(name))


def _numpy(name: str):
    return {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[
        name
    ]


def _integers(name: str, key: object) -> np.ndarray:
    """Values over the dtype's whole range, its ends and 0 included."""
    width = int(name.lstrip("ui"))
    ends = [0, 2**width - 1] if name[0] == "u" else [-(2 ** (width - 1)), 2 ** (width - 1) - 1]
    made = values((3, 7), name, ends[0], ends[1], key).ravel()
    made[:5] = [ends[0], ends[1], 0, 1, 7]
    return made.reshape(3, 7)


def _floats() -> list[Sample]:
    made = []
    for name in FLOATS:
        for kind, (oracle, low, high) in UNARY_FLOAT.items():
            made.append(sample(kind, values((5, 7), name, low, high), oracle=oracle))
        for kind, oracle in TESTS.items():
            made.append(sample(kind, _edges(name), oracle=oracle, exact=True))
        a, b = values((5, 7), name, -9, 9, "a"), values((5, 7), name, 0.5, 4, "b")
        for kind, oracle in BINARY_FLOAT.items():
            made.append(sample(kind, a, b, oracle=oracle))
        made.append(sample("pow", np.abs(a), b, oracle=np.power, slack=4))
        x, y = (m.ravel() for m in np.meshgrid(_edges(name), _edges(name)))
        for kind, oracle in COMPARISONS.items():
            made.append(sample(kind, x, y, oracle=oracle, exact=True))
    return made


def _whole() -> list[Sample]:
    made = []
    for name in INTEGERS:
        a, b = _integers(name, "a"), _integers(name, "b").T.reshape(3, 7)
        for kind, function in INTEGER_BINARY.items():
            made.append(sample(kind, a, b, oracle=_wrapped(function), exact=True))
        for kind, oracle in COMPARISONS.items():
            made.append(sample(kind, a, b, oracle=oracle, exact=True))
        counts = values((3, 7), name, 0, int(name.lstrip("ui")) - 1, "counts")
        made.append(sample("shl", a, counts, oracle=_wrapped(_shift(False)), exact=True))
        made.append(sample("shr", a, counts, oracle=_wrapped(_shift(True)), exact=True))
        made.append(sample("bitnot", a, oracle=np.invert, exact=True))
        base, power = values((3, 7), name, -5, 5, "base"), values((3, 7), name, 0, 6, "power")
        made.append(sample("pow", base, power, oracle=_wrapped(pow), exact=True))
    for name in SIGNED:
        a = _integers(name, "a")
        made.append(sample("neg", a, oracle=_wrapped(lambda x: -x), exact=True))
        made.append(sample("abs", a, oracle=_wrapped(abs), exact=True))
        made.append(sample("sign", a, oracle=np.sign, exact=True))
    return made


def _logical() -> list[Sample]:
    p, q = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    made = [sample("not", p, oracle=np.logical_not, exact=True)]
    table = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    for kind, oracle in {**table, **COMPARISONS}.items():
        made.append(sample(kind, p, q, oracle=oracle, exact=True))
    for name in (*FLOATS, *INTEGERS, "i1", "i4", "f8E4M3FN"):
        low, high = (0, 1) if name == "i1" else (-7, 7)
        operands = (values((3, 4), name, low, high, k) for k in "ab")
        made.append(sample("select", values((3, 4), "i1"), *operands, oracle=np.where, exact=True))
    return made


def _casts() -> list[Sample]:
    made = []
    for source in (*FLOATS, "f8E4M3FN", "f8E5M2", "i4", "i8", "ui8", "i32", "i64", "i1"):
        x = values((4, 5), source, -7, 7, "cast")
        for target in (*FLOATS, "i8", "i32", "i64", "i1"):
            made.append(
                sample(
                    "cast",
                    x,
                    oracle=_converted(target),
                    exact=True,
                    label=f"to-{target}",
                    dtype=target,
                )
            )
    for target in (
        "f8E4M3FN",
        "f8E4M3FNUZ",
        "f8E4M3",
        "f8E4M3B11FNUZ",
        "f8E3M4",
        "f8E5M2",
        "f8E5M2FNUZ",
        "f4E2M1FN",
        "bf16",
        "f16",
    ):
        x = values((6, 5), "f32", -5, 5, "narrow")
        made.append(
            sample(
                "cast", x, oracle=_converted(target), exact=True, label=f"to-{target}", dtype=target
            )
        )
    for source, target in (("f32", "i32"), ("i32", "f32"), ("f64", "ui64"), ("bf16", "i16")):
        x = values((3, 4), source, -9, 9, "bits")
        bits = _target(target)
        made.append(
            sample("bitcast", x, oracle=lambda x, t=bits: x.view(t), exact=True, dtype=target)
        )
    return made


def _target(name: str):
    from core_compiler.ir import dtype

    return dtype(name).numpy


def _converted(target: str):
    return lambda x: x.astype(_target(target))


SAMPLES = _floats() + _whole() + _logical() + _casts()
