"""Division, remainders and powers.

ONNX leaves corner cases of integers open.  In the IR, x / 0, x rem 0 and x mod 0 are 0, the lowest
value / -1 wraps, and products of powers wrap.  Divisions are always guarded, even without
``guards``: a divisor of 0, and the lowest value divided by -1, terminate the process of onnxruntime
with a signal.
"""

from __future__ import annotations

import numpy as np

from core_compiler.exporters.onnx.graph import Graph, Tensor
from core_compiler.exporters.onnx.table import BOOL, I64, Emitter, core
from core_compiler.ir import Value, dtype
from core_compiler.ops import typed

#: Exponents up to this one become products.
PRODUCTS = 8
UI64 = dtype("ui64")


def _special(g: Emitter, op: typed.Div | typed.Mod | typed.Rem) -> list[int]:
    """Return the divisors among 0 and -1 that need a guard.

    -1 is included only if the dividend can be the lowest value.
    """
    dividend, divisor = op.operands
    kind = divisor.type.dtype
    if not kind.is_integer:
        return []
    wanted = [0, -1] if kind.kind == "int" and _can_be_lowest(g, dividend) else [0]
    held = g.numbers(divisor)
    if held is not None:
        return [v for v in wanted if (held == v).any()]
    low, high = g.bounds(divisor) or (-1, 0)
    return [v for v in wanted if low <= v <= high]


def _can_be_lowest(g: Emitter, dividend: Value) -> bool:
    held = g.bounds(dividend)
    return held is None or held[0] <= np.iinfo(dividend.type.dtype.numpy).min


def _equal(g: Emitter, x: Tensor, number: int) -> Tensor:
    return g.emit("Equal", x, g.scalar(number, x.dtype))


def _safe(g: Emitter, divisor: Tensor, special: list[int]) -> Tensor:
    """Return ``divisor`` with 1 instead of the special values."""
    if not special:
        return divisor
    held = [_equal(g, divisor, v) for v in special]
    found = held[0] if len(held) == 1 else g.emit("Or", *held)
    return g.where(found, g.scalar(1, divisor.dtype), divisor)


@core("div")
def div(g, op, a, b):
    """Divide; ONNX truncates integers too."""
    special = _special(g, op)
    made = g.emit("Div", a, _safe(g, b, special))
    zero = g.scalar(0, a.dtype)
    if -1 in special:
        made = g.where(_equal(g, b, -1), g.emit("Sub", zero, a), made)
    return g.where(_equal(g, b, 0), zero, made) if 0 in special else made


@core("rem")
def rem(g, op, a, b):
    """Compute C's remainder, with the sign of ``a``; 1 replaces the divisors 0 and -1.

    onnxruntime computes 64-bit remainders in f64, which rounds; there, the remainder is computed
    from the quotient.
    """
    divisor = _safe(g, b, _special(g, op))
    if a.dtype.is_integer and a.dtype.bits == 64:
        return g.emit("Sub", a, g.emit("Mul", g.emit("Div", a, divisor), divisor))
    return g.emit("Mod", a, divisor, fmod=1)


@core("mod", when=lambda g, op: op.a.type.dtype.is_integer)
def mod(g, op, a, b):
    """Compute Python's remainder, with the sign of ``b``."""
    return g.emit("Mod", a, _safe(g, b, _special(g, op)), fmod=0)


# -- powers ----------------------------------------------------------------------------------------


@core("pow")
def pow_(g, op: typed.Pow, a, b):
    if a.dtype.is_float:
        return g.emit("Pow", a, b)
    held = g.numbers(op.b)
    if held is not None and held.size == 1 and 2 <= held.item() <= PRODUCTS:
        made = a = g.expand(a, op.result.type.shape)
        for _ in range(held.item() - 1):
            made = g.emit("Mul", made, a)
        return made
    if not g.guards:
        return g.emit("Pow", a, b)
    whole = op.result.type.shape
    exponent = b if b.dtype is UI64 else g.cast(b, I64)
    made = _power_by_squaring(
        g, g.expand(g.cast(a, I64), whole), g.expand(exponent, whole), a.dtype.bits
    )
    return g.cast(made, a.dtype)


def _power_by_squaring(g: Emitter, a: Tensor, b: Tensor, bits: int) -> Tensor:
    """Raise ``a`` (i64) to ``b`` in a loop over the bits of the exponents.

    The powers of runtimes are computed in floats and do not wrap.  A negative exponent yields 1 or
    -1 for the bases 1 and -1, else 0.
    """
    zero, one = (g.scalar(n, I64) for n in (0, 1))
    two = g.scalar(2, b.dtype)
    carried = (g.emit("Expand", one, g.emit("Shape", a)), a, b)
    step, go, inner = Tensor(I64, ()), Tensor(BOOL, ()), [Tensor(t.dtype) for t in carried]
    body = Graph([step, go, *inner])
    with g.inside(body):
        made, base, left = inner
        odd = g.emit("Equal", g.emit("Mod", left, two), g.scalar(1, b.dtype))
        body.outputs = [
            g.emit("Identity", go),
            g.where(odd, g.emit("Mul", made, base), made),
            g.emit("Mul", base, base),
            g.emit("Div", left, two),
        ]
    results = [Tensor(t.dtype) for t in carried]
    rounds, forever = g.constant(np.int64(bits)), g.constant(np.bool_(True))
    g.node("Loop", (rounds, forever, *carried), results, body=body)
    if b.dtype is UI64:
        return results[0]
    of_minus_one = _equal(g, a, -1)
    even = g.emit("Equal", g.emit("Mod", b, two), zero)
    gives_one = g.emit("Or", g.emit("Equal", a, one), g.emit("And", of_minus_one, even))
    inverse = g.where(gives_one, one, g.where(of_minus_one, a, zero))
    return g.where(g.emit("Less", b, zero), inverse, results[0])
