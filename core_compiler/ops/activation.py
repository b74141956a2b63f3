"""Activations: elementwise composites. The formula in each summary is the decomposition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

from core_compiler.ops import typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.composite import (
    GELU_BETA,
    GELU_KAPPA,
    SELU_ALPHA,
    SELU_SCALE,
    in_f32,
)
from core_compiler.ops.gradients.table import RULES
from core_compiler.ops.precision import FOLLOWS, RANGE, Precision
from core_compiler.ops.rules import FLOATS, NUMBERS, common_order, need, need_dtype, refuse
from core_compiler.ops.traits import traits


def _rule(allowed):
    def rule(types, attributes):
        need_dtype("x", types[0], allowed)
        return (types[0].with_(order=common_order(*types)),)

    return rule


def _activation(
    name: str,
    summary: str,
    formula: Callable,
    attributes: Mapping[str, Attr] | None = None,
    allowed=FLOATS,
    type_rule=None,
    further: tuple[str, ...] = (),
    precision: Precision = FOLLOWS,
) -> None:
    """Declare ``core.<name>`` with ``formula(b, op, x) -> value`` and ``further`` traits."""
    declare(
        OpDef(
            f"core.{name}",
            summary,
            ("x",),
            type_rule or _rule(allowed),
            attributes=attributes or {},
            decompose=formula,
            traits=traits("elementwise", *further),
            precision=precision,
            gradient=RULES.get(name),
        )
    )


def _constant(b, number, x):
    return b.scalar_like(number, x)


# -- piecewise linear ------------------------------------------------------------------------------


def _relu(b, op):
    (x,) = op.operands
    return b.max(x, _constant(b, 0, x))


def _clamp_rule(types, attributes):
    made = _rule(NUMBERS)(types, attributes)
    low, high = attributes["low"], attributes["high"]
    need(low is not None or high is not None, "neither low nor high is given")
    if types[0].dtype.is_integer and any(isinstance(v, float) for v in (low, high)):
        refuse(f"x is {types[0].dtype.name} but low and high are {low} and {high}")
    return made


def _clamp(b, op: typed.Clamp):
    (x,) = op.operands
    if op.low is not None:
        x = b.max(x, _constant(b, op.low, x))
    if op.high is not None:
        x = b.min(x, _constant(b, op.high, x))
    return x


@in_f32
def _leaky_relu(b, op: typed.LeakyRelu, x):
    positive = b.gt(x, _constant(b, 0, x))
    return b.select(positive, x, b.mul(x, _constant(b, op.slope, x)))


def _ramp(b, x, alpha: float, beta: float):
    """Return ``min(max(alpha * x + beta, 0), 1)``, product and sum rounded separately."""
    line = b.add(b.mul(x, _constant(b, alpha, x)), _constant(b, beta, x))
    return b.min(b.max(line, _constant(b, 0, x)), _constant(b, 1, x))


@in_f32
def _hard_sigmoid(b, op: typed.HardSigmoid, x):
    return _ramp(b, x, op.alpha, op.beta)


@in_f32
def _hard_swish(b, op, x):
    return b.mul(x, _ramp(b, x, 1 / 6, 0.5))


_activation(
    "relu", "max(x, 0); NaN stays NaN", _relu, allowed=NUMBERS, further=("never_negative_zero",)
)
_activation(
    "clamp",
    "min(max(x, low), high): high wins where low > high",
    _clamp,
    {
        "low": Attr((int, float), None, "lower bound; absent: none"),
        "high": Attr((int, float), None, "upper bound; absent: none"),
        "open": Attr(bool, False, "whether the gradient at a bound is 0, as in relu6"),
    },
    type_rule=_clamp_rule,
)
_activation(
    "leaky_relu",
    "x where x > 0, else slope * x",
    _leaky_relu,
    {"slope": Attr(float, 0.01, "factor of negative x")},
)
_activation(
    "hard_sigmoid",
    "min(max(alpha * x + beta, 0), 1)",
    _hard_sigmoid,
    {"alpha": Attr(float, 1 / 6, "slope"), "beta": Attr(float, 0.5, "value at 0")},
)
_activation("hard_swish", "x * min(max(x / 6 + 1/2, 0), 1), with x * (1/6) for x / 6", _hard_swish)


# -- exponential -----------------------------------------------------------------------------------


@in_f32
def _gelu(b, op: typed.Gelu, x):
    half, one = _constant(b, 0.5, x), _constant(b, 1, x)
    if op.approximate == "tanh":
        cube = b.mul(b.mul(x, x), x)
        inner = b.add(x, b.mul(_constant(b, GELU_KAPPA, x), cube))
        bend = b.tanh(b.mul(_constant(b, GELU_BETA, x), inner))
    else:
        bend = b.erf(b.mul(x, _constant(b, sqrt(0.5), x)))
    return b.mul(b.mul(x, half), b.add(one, bend))


@in_f32
def _silu(b, op, x):
    return b.mul(x, b.sigmoid(x))


def _expm1_branch(b, x, alpha: float):
    """Return ``x`` where x > 0, else ``alpha * expm1(x)``."""
    grown = b.mul(_constant(b, alpha, x), b.expm1(x))
    return b.select(b.gt(x, _constant(b, 0, x)), x, grown)


@in_f32
def _elu(b, op: typed.Elu, x):
    return _expm1_branch(b, x, op.alpha)


@in_f32
def _selu(b, op, x):
    return b.mul(_constant(b, SELU_SCALE, x), _expm1_branch(b, x, SELU_ALPHA))


@in_f32
def _celu(b, op: typed.Celu, x):
    alpha = _constant(b, op.alpha, x)
    grown = b.mul(alpha, b.expm1(b.div(x, alpha)))
    return b.select(b.gt(x, _constant(b, 0, x)), x, grown)


def _softplus_of(b, x):
    """Return ``max(x, 0) + log1p(exp(-|x|))``: log(1 + exp(x)) without overflow."""
    tail = b.log1p(b.exp(b.neg(b.abs(x))))
    return b.add(b.max(x, _constant(b, 0, x)), tail)


@in_f32
def _softplus(b, op: typed.Softplus, x):
    if op.beta == 1.0:
        return _softplus_of(b, x)
    beta = _constant(b, op.beta, x)
    return b.div(_softplus_of(b, b.mul(x, beta)), beta)


@in_f32
def _mish(b, op, x):
    return b.mul(x, b.tanh(_softplus_of(b, x)))


@in_f32
def _softsign(b, op, x):
    return b.div(x, b.add(_constant(b, 1, x), b.abs(x)))


_activation(
    "gelu",
    "none: (x * 0.5) * (1 + erf(x * sqrt(1/2))); "
    "tanh: (x * 0.5) * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))",
    _gelu,
    {"approximate": Attr(str, "none", "which form", choices=("none", "tanh"))},
)
_activation("silu", "x * sigmoid(x)", _silu)
_activation(
    "elu",
    "x where x > 0, else alpha * expm1(x)",
    _elu,
    {"alpha": Attr(float, 1.0, "minus the limit at -infinity")},
)
_activation("selu", "scale * elu(x), with the paper's scale and alpha", _selu)
_activation(
    "celu",
    "x where x > 0, else alpha * expm1(x / alpha)",
    _celu,
    {"alpha": Attr(float, 1.0, "minus the limit at -infinity")},
)
_activation(
    "softplus",
    "(max(y, 0) + log1p(exp(-|y|))) / beta with y = beta * x",
    _softplus,
    {"beta": Attr(float, 1.0, "sharpness")},
    precision=RANGE,
)
_activation("mish", "x * tanh(softplus(x))", _mish)
_activation("softsign", "x / (1 + |x|)", _softsign)
