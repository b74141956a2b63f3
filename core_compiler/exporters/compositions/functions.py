"""Elementary functions built from exponentials, logarithms, powers and square roots, in f32.

The formulas are the standard ones that avoid cancellation.  Special values (zeros, infinities, NaN,
the ends of domains) follow the numerics contract.  Errors are a few units in the last place, except
for ``erfc`` far from 0 (about 1e-5, relative) and large ``exp2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from core_compiler.ir import Block, Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import in_f32

_HALF_PI = math.pi / 2


def _n(b: Builder, number: float, x: Value) -> Value:
    return b.scalar_like(number, x)


def _scaled(b: Builder, factor: float, x: Value) -> Value:
    return b.mul(x, _n(b, factor, x))


def _shifted(b: Builder, x: Value, number: float) -> Value:
    return b.add(x, _n(b, number, x))


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial by Horner's rule; the coefficients start with the highest power."""
    made = _n(b, coefficients[0], x)
    for each in coefficients[1:]:
        made = _shifted(b, b.mul(made, x), each)
    return made


def _with_sign(b: Builder, size: Value, x: Value) -> Value:
    """Return ``size`` with the sign of x, or x itself if it is 0."""
    zero = _n(b, 0, x)
    signed = b.select(b.lt(x, zero), b.neg(size), size)
    return b.select(b.eq(x, zero), x, signed)


def sign(b: Builder, op: typed.Sign) -> Value:
    """Return 1 or -1; zeros and NaN are returned unchanged."""
    (x,) = op.operands
    zero = _n(b, 0, x)
    return b.select(b.gt(x, zero), _n(b, 1, x), b.select(b.lt(x, zero), _n(b, -1, x), x))


def ne(b: Builder, op: typed.Ne) -> Value:
    return b.not_(b.eq(op.a, op.b))


def is_finite(b: Builder, op: typed.IsFinite) -> Value:
    return b.lt(b.abs(op.x), _n(b, math.inf, op.x))


@in_f32
def trunc(b: Builder, op: typed.Trunc, x: Value) -> Value:
    return b.select(b.lt(x, _n(b, 0, x)), b.ceil(x), b.floor(x))


@in_f32
def rsqrt(b: Builder, op: typed.Rsqrt, x: Value) -> Value:
    return b.div(_n(b, 1, x), b.sqrt(x))


@in_f32
def exp2(b: Builder, op: typed.Exp2, x: Value) -> Value:
    return b.pow(_n(b, 2, x), x)


def logarithm(base: float) -> Callable:
    """Return a composition for the logarithm to ``base``."""

    @in_f32
    def formula(b: Builder, op: typed.Log10 | typed.Log2, x: Value) -> Value:
        return _scaled(b, 1 / math.log(base), b.log(x))

    return formula


@in_f32
def expm1(b: Builder, op: typed.Expm1, x: Value) -> Value:
    """Compute (u - 1) x / log(u) with u = exp(x) rounded; the errors cancel (Kahan)."""
    u = b.exp(x)
    less = _shifted(b, u, -1)
    near = b.mul(less, b.div(x, b.log(u)))
    whole = b.or_(b.eq(less, _n(b, -1, x)), b.eq(u, _n(b, math.inf, x)))
    return b.select(b.eq(u, _n(b, 1, x)), x, b.select(whole, less, near))


@in_f32
def log1p(b: Builder, op: typed.Log1p, x: Value) -> Value:
    """Compute log(u) x / (u - 1) with u = 1 + x rounded; the errors cancel (Goldberg, 1991)."""
    u = _shifted(b, x, 1)
    far = b.log(u)
    near = b.mul(far, b.div(x, _shifted(b, u, -1)))
    near = b.select(b.gt(u, _n(b, 1e9, x)), far, near)
    return b.select(b.eq(u, _n(b, 1, x)), x, near)


@in_f32
def cbrt(b: Builder, op: typed.Cbrt, x: Value) -> Value:
    """Compute a power followed by one Newton step."""
    size = b.abs(x)
    root = b.pow(size, _n(b, 1 / 3, x))
    error = b.sub(root, b.div(size, b.mul(root, root)))
    root = b.sub(root, _scaled(b, 1 / 3, error))
    ends = b.or_(b.eq(size, _n(b, 0, x)), b.eq(size, _n(b, math.inf, x)))
    return _with_sign(b, b.select(ends, size, root), x)


@in_f32
def tan(b: Builder, op: typed.Tan, x: Value) -> Value:
    return b.div(b.sin(x), b.cos(x))


@in_f32
def sinh(b: Builder, op: typed.Sinh, x: Value) -> Value:
    size = b.abs(x)
    t = b.expm1(size)
    near = _scaled(b, 0.5, b.add(t, b.div(t, _shifted(b, t, 1))))
    half = b.exp(_scaled(b, 0.5, size))
    far = b.mul(_scaled(b, 0.5, half), half)
    return _with_sign(b, b.select(b.gt(size, _n(b, 20, x)), far, near), x)


@in_f32
def cosh(b: Builder, op: typed.Cosh, x: Value) -> Value:
    size = b.abs(x)
    half = b.exp(_scaled(b, 0.5, size))
    return b.add(b.mul(_scaled(b, 0.5, half), half), _scaled(b, 0.5, b.exp(b.neg(size))))


@in_f32
def asinh(b: Builder, op: typed.Asinh, x: Value) -> Value:
    size = b.abs(x)
    square = b.mul(size, size)
    root = _shifted(b, b.sqrt(_shifted(b, square, 1)), 1)
    near = b.log1p(b.add(size, b.div(square, root)))
    return _with_sign(b, _or_logarithm(b, size, near), x)


@in_f32
def acosh(b: Builder, op: typed.Acosh, x: Value) -> Value:
    t = _shifted(b, x, -1)
    near = b.log1p(b.add(t, b.sqrt(b.add(_scaled(b, 2, t), b.mul(t, t)))))
    made = _or_logarithm(b, x, near)
    return b.select(b.lt(x, _n(b, 1, x)), _n(b, math.nan, x), made)


def _or_logarithm(b: Builder, x: Value, near: Value) -> Value:
    """Return log(2 x) if x is so large that adding 1 to it has no effect, else ``near``."""
    far = _shifted(b, b.log(x), math.log(2))
    return b.select(b.gt(x, _n(b, 1e9, x)), far, near)


@in_f32
def atanh(b: Builder, op: typed.Atanh, x: Value) -> Value:
    size = b.abs(x)
    ratio = b.div(_scaled(b, 2, size), b.sub(_n(b, 1, x), size))
    return _with_sign(b, _scaled(b, 0.5, b.log1p(ratio)), x)


#: Polynomials of the arc functions in single precision (S. Moshier, Cephes: asinf, atanf).
_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)


@in_f32
def asin(b: Builder, op: typed.Asin, x: Value) -> Value:
    """Compute a polynomial up to 1/2; beyond, pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    size = b.abs(x)
    large = b.gt(size, _n(b, 0.5, x))
    rest = _scaled(b, 0.5, b.sub(_n(b, 1, x), size))
    square = b.select(large, rest, b.mul(size, size))
    root = b.select(large, b.sqrt(rest), size)
    made = b.add(b.mul(b.mul(_polynomial(b, square, _ASIN), square), root), root)
    far = b.sub(_n(b, _HALF_PI, x), _scaled(b, 2, made))
    return _with_sign(b, b.select(large, far, made), x)


@in_f32
def acos(b: Builder, op: typed.Acos, x: Value) -> Value:
    """Compute 2 asin(sqrt((1 - |x|) / 2)), or pi minus it, if |x| is large; else pi/2 - asin(x)."""
    size = b.abs(x)
    near_end = _scaled(b, 2, b.asin(b.sqrt(_scaled(b, 0.5, b.sub(_n(b, 1, x), size)))))
    other = b.sub(_n(b, math.pi, x), near_end)
    far = b.select(b.lt(x, _n(b, 0, x)), other, near_end)
    middle = b.sub(_n(b, _HALF_PI, x), b.asin(x))
    return b.select(b.gt(size, _n(b, 0.5, x)), far, middle)


@in_f32
def atan(b: Builder, op: typed.Atan, x: Value) -> Value:
    """Compute a polynomial up to tan(pi/8), with -1/x and (x - 1) / (x + 1) as range reductions."""
    size = b.abs(x)
    large, middle = (
        b.gt(size, _n(b, math.tan(angle), x)) for angle in (3 * math.pi / 8, math.pi / 8)
    )
    negative_inverse = b.div(_n(b, -1, x), size)
    halved = b.div(_shifted(b, size, -1), _shifted(b, size, 1))
    t = b.select(large, negative_inverse, b.select(middle, halved, size))
    start = b.select(
        large, _n(b, _HALF_PI, x), b.select(middle, _n(b, math.pi / 4, x), _n(b, 0, x))
    )
    square = b.mul(t, t)
    polynomial_term = b.mul(b.mul(_polynomial(b, square, _ATAN), square), t)
    return _with_sign(b, b.add(start, b.add(polynomial_term, t)), x)


@in_f32
def atan2(b: Builder, op: typed.Atan2, y: Value, x: Value) -> Value:
    """Compute the angle of |y| / |x|, moved to its quadrant by the signs, also of zeros."""
    zero = _n(b, 0, x)
    tall, wide = b.abs(y), b.abs(x)
    huge = b.gt(b.max(tall, wide), _n(b, 1e37, x))  # the reciprocal would be subnormal
    factor = b.select(huge, _n(b, 2.0**-8, x), _n(b, 1, x))
    tall, wide = b.mul(tall, factor), b.mul(wide, factor)
    angle = b.atan(b.div(tall, wide))
    angle = b.select(b.and_(b.eq(tall, zero), b.eq(wide, zero)), zero, angle)
    both = b.and_(b.is_inf(tall), b.is_inf(wide))
    angle = b.select(both, _n(b, math.pi / 4, x), angle)
    angle = b.select(_is_negative(b, x), b.sub(_n(b, math.pi, x), angle), angle)
    return b.select(_is_negative(b, y), b.neg(angle), angle)


def _is_negative(b: Builder, x: Value) -> Value:
    """Return whether the sign bit is set, also for zeros."""
    zero = _n(b, 0, x)
    return b.or_(b.lt(x, zero), b.lt(b.div(_n(b, 1, x), x), zero))


#: Numerical Recipes' Chebyshev fit of erfc with t = 1 / (1 + |x| / 2): t exp(-x^2 + P(t)), within
#: 1.2e-7 of its value everywhere (Press et al., 2nd edition, 6.2).
_ERFC = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)


@in_f32
def erfc(b: Builder, op: typed.Erfc, x: Value) -> Value:
    size = b.abs(x)
    t = b.div(_n(b, 1, x), _shifted(b, _scaled(b, 0.5, size), 1))
    power = b.sub(_polynomial(b, t, _ERFC), b.mul(size, size))
    made = b.mul(t, b.exp(power))
    return b.select(b.lt(x, _n(b, 0, x)), b.sub(_n(b, 2, x), made), made)


# -- remainders ------------------------------------------------------------------------------------


@in_f32
def rem(b: Builder, op: typed.Rem, x: Value, y: Value) -> Value:
    """Compute the exact remainder of truncated division by long division in two loops.

    The divisor is doubled until it reaches the dividend; then it is halved step by step and
    subtracted wherever it fits.  Each difference is exact (Sterbenz), and the number of iterations
    is the number of bits of the longest quotient.
    """
    zero, one = _n(b, 0, x), _n(b, 1, x)
    left, divisor = b.abs(x), b.abs(y)
    valid = b.and_(b.is_finite(x), b.gt(divisor, zero))
    left, divisor = b.select(valid, left, zero), b.select(valid, divisor, one)
    axes = tuple(range(x.type.rank))

    def doubled(c: Builder, rest: Value, step: Value) -> Value:
        return c.le(step, _scaled(c, 0.5, rest))

    def any_of(c: Builder, each: Value) -> Value:
        return c.reduce_or(each, axes=axes)

    grown = _loop(
        b,
        lambda c, rest, step, own: any_of(c, doubled(c, rest, step)),
        lambda c, rest, step, own: (
            rest,
            c.select(doubled(c, rest, step), c.add(step, step), step),
            own,
        ),
        left,
        divisor,
        divisor,
    )

    def taken(c: Builder, rest: Value, step: Value, own: Value) -> tuple[Value, ...]:
        rest = c.select(c.ge(rest, step), c.sub(rest, step), rest)
        return rest, c.select(c.gt(step, own), _scaled(c, 0.5, step), step), own

    rest, _, _ = _loop(b, lambda c, rest, step, own: any_of(c, c.ge(rest, own)), taken, *grown)
    signed = b.select(b.lt(x, zero), b.neg(rest), b.select(b.eq(x, zero), x, rest))
    return b.select(valid, signed, _n(b, math.nan, x))


@in_f32
def mod(b: Builder, op: typed.Mod, x: Value, y: Value) -> Value:
    """Compute the remainder plus y if their signs differ; a zero has the sign of y."""
    zero = _n(b, 0, x)
    rest = b.rem(x, y)
    unlike = b.xor(b.lt(rest, zero), b.lt(y, zero))
    rest = b.select(b.and_(b.ne(rest, zero), unlike), b.add(rest, y), rest)
    whole = b.select(b.lt(y, zero), b.neg(zero), zero)
    return b.select(b.eq(rest, zero), whole, rest)


def _loop(b: Builder, condition: Callable, body: Callable, *carried: Value) -> tuple[Value, ...]:
    """Build a ``core.while`` whose regions come from functions of (builder, *values)."""
    regions = []
    for formula in (condition, body):
        inner = Builder(b.weights)
        arguments = tuple(Value(v.type) for v in carried)
        made = formula(inner, *arguments)
        regions.append(Block(arguments, tuple(inner.ops), made if formula is body else (made,)))
    return b.op("core.while", carried, regions=regions)
