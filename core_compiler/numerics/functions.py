"""The contract's elementary functions: one table, instantiated for the CPU.

``NAMESPACE`` maps every name that generated source may call (``exp_f32``, ``fma_f32``,
``convert_f32_bf16`` ...) to a Numba function; ``instantiate_functions`` builds the same for another
target from that target's leaves, out of the same source. ``FUNCTIONS`` describes them.
"""

from __future__ import annotations

import types as pytypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core_compiler.numerics import functions_f32, functions_f64
from core_compiler.numerics.jit import inline_jit, instantiate, specialise
from core_compiler.numerics.narrow import narrow_functions
from core_compiler.numerics.primitives import PRIMITIVES

#: f32 functions that are computed in f64 and rounded once.
THROUGH_F64 = ("sinh", "cosh", "asinh", "acosh", "atanh", "cbrt", "atan2", "pow")
#: Functions that are a single exact or correctly rounded primitive.
PRIMITIVE_FUNCTIONS = ("sqrt", "floor", "ceil", "trunc", "round_even", "abs", "neg")
BINARY = ("pow", "atan2", "fmod", "remainder")

#: Largest error in ulps of the result: (f32, f64). f32: unary functions over all 2**32 inputs,
#: binary ones sampled; f64: sampled (a million values and more, most of them where the error is
#: largest). 0 means exact, 0.5 correctly rounded; 0.501 is an f64 result rounded once. Measured
#: errors are rounded up; the tests check them, and a checked compile checks those that it uses
#: (``debug.elementary``).
BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (0.97, 1.0),
    "exp2": (0.9, 0.85),
    "expm1": (1.8, 1.9),
    "log": (1.13, 0.9),
    "log2": (1.2, 0.77),
    "log10": (1.05, 0.75),
    "log1p": (1.0, 0.9),
    "tanh": (1.42, 1.4),
    "sigmoid": (2.5, 2.45),
    "erf": (1.06, 1.0),
    "erfc": (4.23, 3.9),
    "sin": (0.95, 0.84),
    "cos": (0.95, 0.84),
    "tan": (2.5, 2.1),
    "asin": (2.3, 2.1),
    "acos": (1.4, 1.3),
    "atan": (1.4, 1.43),
    "sinh": (0.501, 2.8),
    "cosh": (0.501, 2.9),
    "asinh": (0.501, 1.8),
    "acosh": (0.501, 2.2),
    "atanh": (0.501, 2.15),
    "cbrt": (0.501, 0.51),
    "rsqrt": (1.5, 1.5),
    "sqrt": (0.5, 0.5),
    "floor": (0, 0),
    "ceil": (0, 0),
    "trunc": (0, 0),
    "round_even": (0, 0),
    "abs": (0, 0),
    "neg": (0, 0),
    "sign": (0, 0),
    "pow": (0.501, 1.2),
    "atan2": (0.501, 1.8),
    "fmod": (0, 0),
    "remainder": (0.5, 0.5),
}


@dataclass(frozen=True)
class ScalarFunction:
    """An elementary function.

    ``name`` is without a dtype suffix; ``arity`` is the number of scalars of one dtype, with a
    result of the same dtype; ``bounds`` maps a dtype ("f32", "f64") to the largest error in ulps;
    ``callables`` maps it to the Numba function that generated source calls as ``symbol(dtype)``.
    """

    name: str
    arity: int
    bounds: dict[str, float]
    callables: dict[str, Callable]
    doc: str

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(self.callables)

    def symbol(self, dtype: str) -> str:
        return f"{self.name}_{dtype}"


def _two_over_pi() -> np.ndarray:
    """Return word 0, then the first 1216 bits of 2/pi, 64 per word, highest first."""
    return np.array(_TWO_OVER_PI, np.uint64)


# fmt: off
_TWO_OVER_PI = (
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
    0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
)
# fmt: on


def _sources(module: pytypes.ModuleType) -> dict[str, Callable]:
    """Return the module's functions in file order: callees come first."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, pytypes.FunctionType) and not name.startswith("through")
    }


def instantiate_functions(compile_: Callable, names: dict) -> dict[str, Callable]:
    """Return every elementary function and narrow conversion over one target's primitives.

    ``names`` are the target's primitives (see ``primitives.LEAVES`` for the required ones,
    including literal constructors); ``compile_`` is its inlining jit for scalar functions.
    """
    bound = {
        **names,
        "np_inf": np.inf,
        "np_nan": np.nan,
        "two_over_pi_table": _two_over_pi(),
    }
    done = instantiate(_sources(functions_f64), compile_, bound)
    done |= instantiate(_sources(functions_f32), compile_, {**bound, **done})
    for name in THROUGH_F64:
        binary = name in BINARY
        template = functions_f64.through_f64_binary if binary else functions_f64.through_f64
        source = specialise(template, f"{name}_f32", wide=done[f"{name}_f64"])
        done |= instantiate({f"{name}_f32": source}, compile_, names)
    return {**done, **narrow_functions(compile_, names)}


def _power(a, b):
    """Return a**b by squaring, wrapping.

    A negative exponent yields 1 or -1 for the bases 1 and -1, else 0.
    """
    one, zero = number(1), number(0)  # noqa: F821
    if lt(b, zero):  # noqa: F821
        if eq(a, one):  # noqa: F821
            return one
        if eq(a, neg(one)):  # noqa: F821
            return select(eq(and_(b, one), one), a, one)  # noqa: F821
        return zero
    result, base, left = one, a, b
    while lt(zero, left):  # noqa: F821
        if eq(and_(left, one), one):  # noqa: F821
            result = mul(result, base)  # noqa: F821
        base = mul(base, base)  # noqa: F821
        left = shr(left, one)  # noqa: F821
    return result


def integer_power(dtype: str, names: dict) -> Callable:
    """Return the source of ``power_<dtype>`` over one target's primitives."""
    words = ("lt", "eq", "neg", "select", "and_", "mul", "shr")
    bound = {w: names[f"{w.rstrip('_')}_{dtype}"] for w in words}
    return specialise(_power, f"power_{dtype}", number=names[dtype], **bound)


#: Every name that generated CPU source may call: primitives, functions, narrow conversions.
NAMESPACE: dict[str, Callable] = {**PRIMITIVES, **instantiate_functions(inline_jit, PRIMITIVES)}


def _describe(name: str) -> ScalarFunction:
    callables = {dtype: NAMESPACE[f"{name}_{dtype}"] for dtype in ("f32", "f64")}
    source = getattr(functions_f64, f"{name}_f64", None)
    doc = (source.__doc__ if source else "Exact or correctly rounded primitive.").strip()
    bounds = dict(zip(("f32", "f64"), BOUNDS[name], strict=True))
    return ScalarFunction(name, 2 if name in BINARY else 1, bounds, callables, doc)


#: Name -> description, for every elementary function.
FUNCTIONS: dict[str, ScalarFunction] = {name: _describe(name) for name in BOUNDS}
