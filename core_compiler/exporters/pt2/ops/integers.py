"""Division, remainders and powers.

In the IR, x / 0, x rem 0 and x mod 0 of integers are 0, and the lowest value / -1 wraps; in torch
the first raise an error, and the second ends the process.  These divisors are always guarded.
"""

from __future__ import annotations

from core_compiler.exporters.pt2.ops.elementwise import second
from core_compiler.exporters.pt2.table import Emitter, Node, core
from core_compiler.ir import Value
from core_compiler.ops import typed


def _special(g: Emitter, dividend: Node, divisor: Value) -> list[int]:
    """Return the divisors among 0 and -1 that may occur and need a guard."""
    wanted = [0, -1] if g.dtype(dividend).kind == "int" else [0]
    number = g.number(divisor)
    return wanted if number is None else [n for n in wanted if n == number]


def _safe(g: Emitter, divisor: Node, special: list[int]) -> Node:
    """Return the divisor with 1 in place of special values."""
    for number in special:
        found = g.call("eq.Scalar", divisor, number)
        divisor = g.where(found, g.scalar(1, g.dtype(divisor)), divisor)
    return divisor


@core("div")
def div(g, op: typed.Div, a, b):
    if not op.result.type.dtype.is_integer:
        return g.call("div.Tensor", a, second(g, op, a, b))
    special = _special(g, a, op.b)
    made = g.call("div.Tensor_mode", a, _safe(g, b, special), rounding_mode="trunc")
    if -1 in special:
        made = g.where(g.call("eq.Scalar", b, -1), g.call("neg", a), made)
    if 0 in special:
        made = g.where(g.call("eq.Scalar", b, 0), g.scalar(0, g.dtype(made)), made)
    return made


def _enter_remainder(name: str, function: str) -> None:
    def handler(g, op: typed.Rem | typed.Mod, a, b):
        if not op.result.type.dtype.is_integer:
            return g.call(function, a, b)
        return g.call(function, a, _safe(g, b, _special(g, a, op.b)))

    core(name)(handler)


_enter_remainder("rem", "fmod.Tensor")
_enter_remainder("mod", "remainder.Tensor")


@core("pow")
def pow_(g, op: typed.Pow, a, b):
    exponent = second(g, op, a, b)
    return g.call(f"pow.Tensor_{'Tensor' if exponent is b else 'Scalar'}", a, exponent)
