"""Gradients of elementwise ops: formulas in x (or a, b), the result y and its cotangent dy.

If a function is not differentiable at a point, the subgradient is that of torch.autograd: |x| has
slope 0 at 0, equal operands of max and min share the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, sqrt

from core_compiler.ops import typed
from core_compiler.ops.gradients.table import Term, gradient, in_terms, of_each, of_one, rounded

#: Unary ops: (x, y, dy) -> dx.
UNARY: dict[str, Callable[[Term, Term, Term], Term]] = {
    "neg": lambda x, y, dy: -dy,
    "abs": lambda x, y, dy: dy * x.call("sign"),
    "exp": lambda x, y, dy: dy * y,
    "exp2": lambda x, y, dy: dy * y * log(2),
    "expm1": lambda x, y, dy: dy * (y + 1),
    "log": lambda x, y, dy: dy / x,
    "log2": lambda x, y, dy: dy / (x * log(2)),
    "log10": lambda x, y, dy: dy / (x * log(10)),
    "log1p": lambda x, y, dy: dy / (x + 1),
    "sqrt": lambda x, y, dy: dy / (y * 2),
    "rsqrt": lambda x, y, dy: dy * -0.5 * (y * y * y),
    "cbrt": lambda x, y, dy: dy / (y * y * 3),
    "sin": lambda x, y, dy: dy * x.call("cos"),
    "cos": lambda x, y, dy: dy * -x.call("sin"),
    "tan": lambda x, y, dy: dy * (y * y + 1),
    "asin": lambda x, y, dy: dy * (1 - x * x).call("rsqrt"),
    "acos": lambda x, y, dy: dy * -(1 - x * x).call("rsqrt"),
    "atan": lambda x, y, dy: dy / (x * x + 1),
    "sinh": lambda x, y, dy: dy * x.call("cosh"),
    "cosh": lambda x, y, dy: dy * x.call("sinh"),
    "tanh": lambda x, y, dy: dy * (1 - y * y),
    "asinh": lambda x, y, dy: dy * (x * x + 1).call("rsqrt"),
    "acosh": lambda x, y, dy: dy * (x * x - 1).call("rsqrt"),
    "atanh": lambda x, y, dy: dy / (1 - x * x),
    "erf": lambda x, y, dy: dy * (-(x * x)).call("exp") * (2 / sqrt(pi)),
    "erfc": lambda x, y, dy: dy * (-(x * x)).call("exp") * (-2 / sqrt(pi)),
    "sigmoid": lambda x, y, dy: dy * (1 - y) * y,
    # Composites with one operand.
    "relu": lambda x, y, dy: dy.where(y > 0),
}


def _of_extreme(a: Term, c: Term, y: Term, dy: Term) -> Term:
    """Return the gradient of ``a`` in max(a, c) or min(a, c): equal operands share it."""
    shared = (dy / 2).where(a.same(c))
    return dy.where(a.same(y).call("and", a.call("ne", c)), shared)


def _of_base(a: Term, c: Term, y: Term, dy: Term) -> Term:
    """Return c * a^(c - 1), and 0 for c = 0."""
    return (dy * (c * a.call("pow", c - 1))).unless(c.same(0))


def _of_exponent(a: Term, c: Term, y: Term, dy: Term) -> Term:
    """Return y * log(a), and 0 for a = 0 and an exponent that is not negative."""
    zero = a.same(0).call("and", c >= 0)
    return (dy * (y * a.call("log"))).unless(zero)


def _over(x: Term, square: Term) -> Term:
    """Return x / square, and 0 at the origin."""
    return (x / square).unless(square.same(0))


#: Binary ops: (a, c, y, dy) -> da, and -> dc.
BINARY: dict[str, tuple[Callable[..., Term], Callable[..., Term]]] = {
    "add": (lambda a, c, y, dy: dy, lambda a, c, y, dy: dy),
    "sub": (lambda a, c, y, dy: dy, lambda a, c, y, dy: -dy),
    "mul": (lambda a, c, y, dy: dy * c, lambda a, c, y, dy: dy * a),
    "div": (lambda a, c, y, dy: dy / c, lambda a, c, y, dy: -dy * (y / c)),
    "max": (_of_extreme, lambda a, c, y, dy: _of_extreme(c, a, y, dy)),
    "min": (_of_extreme, lambda a, c, y, dy: _of_extreme(c, a, y, dy)),
    "pow": (_of_base, _of_exponent),
    "rem": (lambda a, c, y, dy: dy, lambda a, c, y, dy: -dy * (a / c).call("trunc")),
    # The quotient's floor, even if a / c rounds up to the next integer.
    "mod": (lambda a, c, y, dy: dy, lambda a, c, y, dy: -dy * ((a - y) / c).call("round")),
    "atan2": (
        lambda a, c, y, dy: dy * _over(c, a * a + c * c),
        lambda a, c, y, dy: dy * -_over(a, a * a + c * c),
    ),
}


def _register_unary(name: str, formula: Callable) -> None:
    spelled = in_terms(formula)

    @of_one(name)
    def rule(b, op, dy):
        (x,) = op.operands
        return rounded(b, spelled(b, x, op.result, dy), x)


def _register_binary(name: str, formulas: tuple[Callable, Callable]) -> None:
    spelled = [in_terms(f) for f in formulas]

    @of_each(name)
    def rule(b, op, dy):
        x, z = op.operands
        return [lambda f=f: rounded(b, f(b, x, z, op.result, dy), x) for f in spelled]


for _name, _formula in UNARY.items():
    _register_unary(_name, _formula)
for _name, _formulas in BINARY.items():
    _register_binary(_name, _formulas)


@of_each("select")
def _select(b, op: typed.Select, dy):
    p = op.p
    zero = b.scalar_like(0, dy)
    return None, lambda: b.select(p, dy, zero), lambda: b.select(p, zero, dy)


@of_one("cast")
def _cast(b, op: typed.Cast, dy):
    return rounded(b, dy, op.x)


@gradient("clamp")
def _clamp(b, op: typed.Clamp, cotangents, wanted):
    """Return dy inside the bounds and, unless they are ``open``, on them; 0 outside."""
    (x,), (dy,) = op.operands, cotangents
    above, below = (b.gt, b.lt) if op.open else (b.ge, b.le)
    for bound, test in ((op.low, above), (op.high, below)):
        if bound is not None:
            dy = b.select(test(x, b.scalar_like(bound, x)), dy, b.scalar_like(0, dy))
    return (dy,)
