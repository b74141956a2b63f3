"""Forms of the activations: one row each; the matcher adds the commutative variants."""

from __future__ import annotations

from math import copysign, pi, sqrt

import numpy as np

from core_compiler.ir import Op
from core_compiler.ir.views import OpView
from core_compiler.ops import typed
from core_compiler.ops.composite import GELU_KAPPA, SELU_ALPHA, SELU_SCALE
from core_compiler.passes.recompose.spelling import (
    TOLERANCE,
    has_bounds,
    near,
    number,
    scalar_value,
    single,
)
from core_compiler.passes.rules import (
    Const,
    Match,
    Rule,
    all_of,
    either,
    is_all,
    is_float,
    op,
    wide,
)

_ONE, _HALF = number("one", 1), number("half", 0.5)
_ZERO = Const("zero", lambda a: bool(np.all(a == 0)), "zero")
_PLUS_ZERO = Const("zero", lambda a: is_float(a) and is_all(0.0)(a), "+0")


# -- gelu, sigmoid and silu ------------------------------------------------------------------------

_SQRT_2, _SQRT_HALF = sqrt(2), sqrt(0.5)
_SCALED = either(
    op("div", "x", number("root", _SQRT_2)), op("mul", "x", number("root", _SQRT_HALF))
)
_NEGATED_SCALED = either(
    op("mul", op("neg", "x"), number("root", _SQRT_HALF)),
    op("div", op("neg", "x"), number("root", _SQRT_2)),
    op("neg", _SCALED),
    op("mul", "x", number("root", -_SQRT_HALF)),
    op("div", "x", number("root", -_SQRT_2)),
)
#: Twice the normal distribution function at x.
_ONE_PLUS_ERF = either(op("add", op("erf", _SCALED), _ONE), op("erfc", _NEGATED_SCALED))

_SQUARE = op("mul", "x", "x")
_CUBE = either(op("pow", "x", number("three", 3)), op("mul", _SQUARE, "x"))
_KAPPA, _BETA = number("c", GELU_KAPPA), number("k", sqrt(2 / pi))
_CUBIC_FACTOR = op("add", op("mul", _SQUARE, _KAPPA), _ONE)
_TANH_ARGUMENT = either(
    op(
        "mul",
        either(op("add", "x", op("mul", _CUBE, _KAPPA)), op("mul", "x", _CUBIC_FACTOR)),
        _BETA,
    ),
    op("mul", op("mul", "x", _BETA), _CUBIC_FACTOR),
)
_ONE_PLUS_TANH = op("add", op("tanh", _TANH_ARGUMENT), _ONE)


def _halved(gate) -> tuple:
    """Return the ways to write x * gate / 2."""
    return (
        op("mul", op("mul", "x", _HALF), gate),
        op("mul", op("mul", "x", gate), _HALF),
        op("mul", "x", op("mul", _HALF, gate)),
    )


def _gelu(approximate: str):
    return lambda b, m: b.gelu(m["x"], approximate=approximate)


_ONE_PLUS_EXP = op("add", op("exp", op("neg", "x")), _ONE)

_SMOOTH = (
    *(Rule("x * (1 + erf(x / sqrt 2)) / 2 => gelu(x)", pattern, _gelu("none"), wide, TOLERANCE)
      for pattern in _halved(_ONE_PLUS_ERF)),
    *(Rule("x * (1 + tanh(k (x + c x**3))) / 2 => gelu(x, tanh)", pattern, _gelu("tanh"), wide,
           TOLERANCE)
      for pattern in _halved(_ONE_PLUS_TANH)),
    Rule("1 / (1 + exp(-x)) => sigmoid(x)", op("div", _ONE, _ONE_PLUS_EXP),
         lambda b, m: b.sigmoid(m["x"]), wide, TOLERANCE),
    Rule("x * sigmoid(x) => silu(x)", op("mul", "x", op("sigmoid", "x")),
         lambda b, m: b.silu(m["x"]), wide, TOLERANCE),
    Rule("x / (1 + exp(-x)) => silu(x)", op("div", "x", _ONE_PLUS_EXP),
         lambda b, m: b.silu(m["x"]), wide, TOLERANCE),
)  # fmt: skip


# -- piecewise linear ------------------------------------------------------------------------------

_LOW, _HIGH = single("low"), single("high")


def _zero_bound(m: Match) -> int | float:
    """Return 0 as a bound of x: an integer for integers."""
    return 0.0 if m["x"].type.dtype.is_float else 0


def _clamp_at_zero(b, m: Match):
    return b.clamp(m["x"], low=_zero_bound(m), high=scalar_value(m, "high"))


def _clamp(b, m: Match):
    return b.clamp(m["x"], low=scalar_value(m, "low"), high=scalar_value(m, "high"))


def _ordered(m: Match) -> str | None:
    low, high = (scalar_value(m, name) for name in ("low", "high"))
    ordered = (low, copysign(1, low)) <= (high, copysign(1, high))  # -0 is below +0
    return None if ordered else "the lower bound is above the upper bound"


def _refuse_booleans(m: Match) -> str | None:
    """Refuse booleans: they are ordered like numbers but have no clamp."""
    return "x is i1" if m["x"].type.dtype.kind == "bool" else None


def _not_negative(m: Match) -> str | None:
    high = scalar_value(m, "high")
    return None if high >= 0 and copysign(1, high) > 0 else "the upper bound is below 0, or -0"


def _clamp_twice(b, m: Match):
    inner, outer = (typed.Clamp.of(o) for o in (m.named["inner"], m.root))
    return b.clamp(m["x"], low=inner.low, high=outer.high)


def _has_only_low(o: Op) -> bool:
    clamp = typed.Clamp.of(o)
    return clamp.low is not None and clamp.high is None


def _has_only_high(o: Op) -> bool:
    clamp = typed.Clamp.of(o)
    return clamp.high is not None and clamp.low is None


def _hard_sigmoid(b, m: Match):
    return b.hard_sigmoid(m["x"], alpha=scalar_value(m, "alpha"), beta=scalar_value(m, "beta"))


def _has_slope_one_sixth(o: Op) -> bool:
    sigmoid = typed.HardSigmoid.of(o)
    return near(1 / 6)(_in_dtype(sigmoid, sigmoid.alpha)) and sigmoid.beta == 0.5


def _in_dtype(o: OpView, number: float) -> np.ndarray:
    """Return a number of an op, rounded to its dtype."""
    return np.asarray(number, o.result.type.dtype.numpy)


_SIX = op("clamp", op("add", "x", number("three", 3)), where=has_bounds(0, 6))
_SIXTH = number("sixth", 1 / 6)
_STEP = op("mul", "x", single("slope"))


def _branches(if_positive, if_negative) -> tuple:
    """Return the ways to write ``if_positive`` where x > 0, else ``if_negative`` (equal at 0).

    Each comes with a flag: whether the slope at 0 is that of ``if_positive``.  The composites have
    the slope of ``if_negative`` there.
    """
    return (
        (op("select", op("gt", "x", _ZERO), if_positive, if_negative), False),
        (op("select", op("le", "x", _ZERO), if_negative, if_positive), False),
        (op("select", op("ge", "x", _ZERO), if_positive, if_negative), True),
        (op("select", op("lt", "x", _ZERO), if_negative, if_positive), True),
    )


def _leaky_relu(b, m: Match):
    return b.leaky_relu(m["x"], slope=scalar_value(m, "slope"))


def _slope_at_most_one(m: Match) -> str | None:
    return None if 0 <= scalar_value(m, "slope") <= 1 else "the slope is not between 0 and 1"


_PIECEWISE = (
    Rule("max(x, 0) => relu(x)", op("max", "x", _PLUS_ZERO), lambda b, m: b.relu(m["x"]),
         changes_subgradient=True),
    Rule("min(max(x, low), high) => clamp(x)",
         op("min", op("max", "x", _LOW), _HIGH), _clamp, changes_subgradient=True),
    Rule("min(relu(x), high) => clamp(x)", op("min", op("relu", "x"), _HIGH), _clamp_at_zero,
         changes_subgradient=True),
    Rule("max(min(x, high), low) => clamp(x)", op("max", op("min", "x", _HIGH), _LOW), _clamp,
         _ordered, changes_subgradient=True),
    Rule("relu(min(x, high)) => clamp(x)", op("relu", op("min", "x", _HIGH)), _clamp_at_zero,
         _not_negative, changes_subgradient=True),
    Rule("clamp(clamp(x, low), high) => clamp(x)",
         op("clamp", op("clamp", "x", name="inner", where=_has_only_low),
            where=_has_only_high), _clamp_twice),
    Rule("x > high ? high : x < low ? low : x => clamp(x)",
         op("select", op("gt", "x", _HIGH), _HIGH,
            op("select", op("lt", "x", _LOW), _LOW, "x")),
         _clamp, all_of(_refuse_booleans, _ordered), 0.0),
    Rule("clamp(alpha x + beta, 0, 1) => hard_sigmoid(x)",
         op("clamp", op("add", op("mul", "x", single("alpha")), single("beta")),
            where=has_bounds(0, 1)), _hard_sigmoid, wide, TOLERANCE, changes_subgradient=True),
    *(Rule("clamp(x + 3, 0, 6) / 6 => hard_sigmoid(x)", pattern,
           lambda b, m: b.hard_sigmoid(m["x"], alpha=1 / 6, beta=0.5), wide, TOLERANCE,
           changes_subgradient=True)
      for pattern in (op("div", _SIX, number("six", 6)), op("mul", _SIX, _SIXTH))),
    Rule("x * hard_sigmoid(x) => hard_swish(x)",
         op("mul", "x", op("hard_sigmoid", "x", where=_has_slope_one_sixth)),
         lambda b, m: b.hard_swish(m["x"]), wide, TOLERANCE),
    *(Rule("x * clamp(x + 3, 0, 6) / 6 => hard_swish(x)", pattern,
           lambda b, m: b.hard_swish(m["x"]), wide, TOLERANCE, changes_subgradient=True)
      for pattern in (op("div", op("mul", "x", _SIX), number("six", 6)),
                      op("mul", op("mul", "x", _SIX), _SIXTH))),
    *(Rule("x > 0 ? x : slope x => leaky_relu(x)", pattern, _leaky_relu, wide, 0.0, changes)
      for pattern, changes in _branches("x", _STEP)),
    Rule("max(x, slope x) => leaky_relu(x)", op("max", "x", _STEP), _leaky_relu,
         all_of(wide, _slope_at_most_one), 0.0, changes_subgradient=True),
)  # fmt: skip


# -- exponential -----------------------------------------------------------------------------------

#: x where only its negative part matters: it may be clamped first to avoid overflow.
_NEGATIVE = either("x", op("select", op("gt", "x", _ZERO), _ZERO, "x"), op("min", "x", _ZERO))
_GROWTH = either(op("expm1", _NEGATIVE), op("sub", op("exp", _NEGATIVE), _ONE))


def _elu(b, m: Match):
    return b.elu(m["x"], alpha=scalar_value(m, "alpha") if "alpha" in m.values else 1.0)


def _selu(b, m: Match):
    return b.selu(m["x"])


def _is_plain_softplus(o: Op) -> bool:
    return typed.Softplus.of(o).beta == 1


def _is_selu_alpha(o: Op) -> bool:
    elu = typed.Elu.of(o)
    return near(SELU_ALPHA)(_in_dtype(elu, elu.alpha))


_SCALE = number("scale", SELU_SCALE)
_SELU_ALPHA = number("alpha", SELU_ALPHA)
_SCALED_GROWTH = either(
    op("mul", _GROWTH, number("both", SELU_SCALE * SELU_ALPHA)),
    op("mul", op("sub", op("mul", op("exp", "x"), _SELU_ALPHA), _SELU_ALPHA), _SCALE),
    op("mul", op("mul", _GROWTH, _SELU_ALPHA), _SCALE),
)

_LARGE = Const(
    "threshold", lambda a: _is_large(a), "one number of at least 15: a smaller one changes results"
)


def _is_large(array: np.ndarray) -> bool:
    """Return whether softplus(x) - x is below the tolerance from here on."""
    return array.dtype.kind == "f" and array.size > 0 and bool(np.all(array >= 15))


_SOFTPLUS = op(
    "add",
    either(op("relu", "x"), op("max", "x", _ZERO)),
    op("log1p", op("exp", op("neg", op("abs", "x")))),
)
_TIMES_BETA = op("mul", "x", single("beta"))
_LOG = op("log1p", op("exp", _TIMES_BETA))


def _softplus(b, m: Match):
    return b.softplus(m["x"], beta=scalar_value(m, "beta") if "beta" in m.values else 1.0)


def _inverse(m: Match) -> str | None:
    beta, inverse = scalar_value(m, "beta"), scalar_value(m, "inverse")
    same = near(1)(np.asarray(beta * inverse, m.array("beta").dtype))
    return None if same else f"it is multiplied by {beta:.6g}, then by {inverse:.6g}"


_EXPONENTIAL = (
    *(Rule("x > 0 ? x : alpha expm1(x) => elu(x)", pattern, _elu, wide, TOLERANCE, changes)
      for pattern, changes in _branches("x", either(op("mul", _GROWTH, single("alpha")), _GROWTH))),
    *(Rule("x > 0 ? s x : s a expm1(x) => selu(x)", pattern, _selu, wide, TOLERANCE, changes)
      for pattern, changes in _branches(op("mul", "x", _SCALE), _SCALED_GROWTH)),
    Rule("elu(x, a) * s => selu(x)", op("mul", op("elu", "x", where=_is_selu_alpha), _SCALE),
         _selu, wide, TOLERANCE),
    Rule("max(x, 0) + log1p(exp(-abs(x))) => softplus(x)", _SOFTPLUS, _softplus, wide, TOLERANCE),
    Rule("x is NaN ? x : softplus(x) => softplus(x)",
         op("select", either(op("ne", "x", "x"), op("is_nan", "x")),
            either("x", op("add", "x", _ZERO)), op("softplus", "x")),
         _softplus, wide, TOLERANCE),
    Rule("x > threshold ? x : log1p(exp(x)) => softplus(x)",
         op("select", op("gt", "x", _LARGE), "x", op("log1p", op("exp", "x"))), _softplus, wide,
         TOLERANCE),
    Rule("beta x > threshold ? x : log1p(exp(beta x)) / beta => softplus(x, beta)",
         op("select", op("gt", _TIMES_BETA, _LARGE), "x", op("div", _LOG, single("beta"))),
         _softplus, wide, TOLERANCE),
    Rule("beta x > threshold ? x : log1p(exp(beta x)) / beta => softplus(x, beta)",
         op("select", op("gt", _TIMES_BETA, _LARGE), "x", op("mul", _LOG, single("inverse"))),
         _softplus, all_of(wide, _inverse), TOLERANCE),
    Rule("x * tanh(softplus(x)) => mish(x)",
         op("mul", "x", op("tanh", op("softplus", "x", where=_is_plain_softplus))),
         lambda b, m: b.mish(m["x"]), wide, TOLERANCE),
    Rule("x / (1 + abs(x)) => softsign(x)", op("div", "x", op("add", op("abs", "x"), _ONE)),
         lambda b, m: b.softsign(m["x"]), wide, TOLERANCE),
)  # fmt: skip

RULES = (*_SMOOTH, *_PIECEWISE, *_EXPONENTIAL)
