"""erf and erfc as StableHLO decomposes them in f32 (chlo-legalize-to-stablehlo).

Serialised programs (``jax.export``, TensorFlow's bridge) contain these approximations instead of
the functions.  The coefficients are those of the legalisation: a quotient of polynomials for erf
(Eigen's), three polynomials for erfc (Cephes).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.passes.recompose.spelling import TOLERANCE, has_bounds, number
from core_compiler.passes.rules import Const, Node, Rule, op, wide

_ERF_ABOVE = (
    -2.72614237e-10,
    2.77068146e-8,
    -2.10102394e-6,
    -5.69250624e-5,
    -7.34990637e-4,
    -2.954600e-3,
    -1.60960332e-2,
)
_ERF_BELOW = (-1.45660715e-5, -2.13374049e-4, -1.68282702e-3, -7.37332925e-3, -1.42647391e-2)
#: erfc near 0, up to 2, and beyond.
_ERFC_NEAR = (
    7.85386146e-5,
    -8.0101937e-4,
    5.18832775e-3,
    -2.68538129e-2,
    1.12835854e-1,
    -3.7612626e-1,
    1.12837911,
)
_ERFC_MIDDLE = (
    2.326820e-2,
    -1.38703942e-1,
    3.68742466e-1,
    -5.82473278e-1,
    6.21000468e-1,
    -4.94451523e-1,
    3.404880e-1,
    -2.74112701e-1,
    5.63825965e-1,
)
_ERFC_FAR = (
    -1.0477664e1,
    1.297720e1,
    -7.49551868,
    2.92101908,
    -1.01526523,
    4.2184633e-1,
    -2.82076746e-1,
    5.64189494e-1,
)

_ONE, _TWO = number("one", 1), number("two", 2)
_ZERO = Const("zero", lambda a: bool(np.all(a == 0)), "zero")


def _polynomial(name: str, factors: Sequence[float], of):
    """Return Horner's form, highest power first."""
    made: Const | Node = number(f"{name}0", factors[0])
    for power, factor in enumerate(factors[1:], 1):
        made = op("add", op("mul", made, of), number(f"{name}{power}", factor))
    return made


def _erf():
    x = op("clamp", "x", where=has_bounds(-4, 4))
    square = op("mul", x, x)
    above = op("mul", x, _polynomial("a", _ERF_ABOVE, square))
    return op(
        "clamp", op("div", above, _polynomial("b", _ERF_BELOW, square)), where=has_bounds(-1, 1)
    )


def _erfc():
    square, size = op("mul", "x", "x"), op("abs", "x")
    inverse = op("div", _ONE, square)
    tail = op("mul", op("exp", op("neg", square)), op("div", _ONE, size))
    branch = op(
        "select",
        op("lt", size, _TWO),
        _polynomial("m", _ERFC_MIDDLE, inverse),
        _polynomial("f", _ERFC_FAR, inverse),
    )
    too_small = op("lt", op("neg", square), number("least", -88.7228394))
    far = op("select", too_small, _ZERO, op("mul", tail, branch))
    far = op("select", op("lt", "x", _ZERO), op("sub", _TWO, far), far)
    near = op("sub", _ONE, op("mul", "x", _polynomial("n", _ERFC_NEAR, square)))
    return op("select", op("lt", size, _ONE), near, far)


RULES = (
    Rule(
        "x A(x**2) / B(x**2) => erf(x)",
        _erf(),
        lambda b, m: b.erf(m["x"]),
        wide,
        TOLERANCE,
        in_f64=TOLERANCE,
    ),
    Rule(
        "1 - x N(x**2), exp(-x**2) M(1 / x**2) / x => erfc(x)",
        _erfc(),
        lambda b, m: b.erfc(m["x"]),
        wide,
        TOLERANCE,
        in_f64=TOLERANCE,
    ),
)
