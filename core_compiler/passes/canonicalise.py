"""Canonicalise: a table of small algebraic rules, named by their effect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ops import typed
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Const, Match, Rule, apply_rules, is_all, is_float, op

_ONE = Const("c", is_all(1), "all ones")
_PLUS_ZERO = Const("c", is_all(0.0), "all +0")
_MINUS_ZERO = Const("c", lambda a: is_float(a) and is_all(-0.0)(a), "all -0")


def _same(b, m: Match):
    return m["x"]


def _no_float(m: Match) -> str | None:
    return "a NaN would lose its canonical form" if m["x"].type.dtype.is_float else None


def _no_minus_zero(m: Match) -> str | None:
    """Refuse values that may be -0, as -0 + (+0) is +0."""
    producer = m.view.producer(m["x"])
    if not m["x"].type.dtype.is_float:
        return None
    total = typed.ReduceSum.match(producer)
    if total is not None and not total.axes:
        producer = None  # over no axes: the element itself
    if producer is not None and has_trait(producer, "never_negative_zero"):
        return None
    return "-0 + (+0) is +0"


def _canonical_nan(m: Match) -> str | None:
    """Refuse an operand whose NaN may not be canonical; a maximum or minimum makes it so."""
    producer = m.view.producer(m["x"])
    if not m["x"].type.dtype.is_float or (
        producer is not None and has_trait(producer, "canonical_nan")
    ):
        return None
    return "a NaN would lose its canonical form"


def _limit(number: float) -> Const:
    """Match the identity of a maximum or minimum, of any dtype."""

    def test(array: np.ndarray) -> bool:
        if is_float(array):
            return bool(is_all(number)(array))
        if array.dtype.kind not in "iu":
            return False
        info = np.iinfo(array.dtype)
        return bool(is_all(info.min if number < 0 else info.max)(array))

    return Const("c", test, f"the {'lowest' if number < 0 else 'highest'} number")


def _booleans(m: Match) -> str | None:
    return None if m["x"].type.dtype.kind == "bool" else "the operands are not booleans"


def _power_of_two(array: np.ndarray) -> bool:
    """Return whether all are powers of two, whose reciprocals the dtype represents exactly."""
    wide = array.astype(np.float64)
    if not is_float(array) or array.size == 0 or not np.all(np.isfinite(wide) & (wide != 0)):
        return False
    with np.errstate(over="ignore"):
        reciprocals = 1 / wide
        held = reciprocals.astype(array.dtype).astype(np.float64)
    exact = np.isfinite(held) & (held == reciprocals)
    return bool(np.all(exact & (np.frexp(np.abs(wide))[0] == 0.5)))


def _like(b, constant, x):
    """Broadcast ``constant`` (rank 0, or already of x's shape) to ``x``."""
    return b.expand(constant, x.type.shape)


def _is_rank0_splat(m: Match) -> str | None:
    return None if m.array("c").size == 1 else "the divisor is not a single number"


def _scalar_reciprocal(b, m: Match):
    array = m.array("c").reshape(())
    return b.mul(m["x"], _like(b, b.constant(np.asarray(1 / array, array.dtype)), m["x"]))


def _identity_slice(o: Op) -> bool:
    cut = typed.Slice.of(o)
    shape = cut.x.type.shape
    return cut.starts == (0,) * len(shape) and cut.limits == shape and set(cut.strides) <= {1}


def _same_dtype(o: Op) -> bool:
    return o.result.type.dtype is o.operands[0].type.dtype


RULES = (
    Rule("x * 1 => x", op("mul", "x", _ONE), _same),
    Rule("x / 1 => x", op("div", "x", _ONE), _same),
    Rule("x - (+0) => x", op("sub", "x", _PLUS_ZERO), _same),
    Rule("x + (-0) => x", op("add", "x", _MINUS_ZERO), _same),
    Rule("x + (+0) => x", op("add", "x", _PLUS_ZERO), _same, check=_no_minus_zero),
    Rule("x ** 1 => x", op("pow", "x", _ONE), _same),
    Rule("x ** 2 => x * x", op("pow", "x", Const("c", is_all(2), "all twos")),
         lambda b, m: b.mul(m["x"], m["x"]), tolerance=1e-6),
    Rule("x / 2**k => x * 2**-k", op("div", "x", Const("c", _power_of_two, "powers of two")),
         _scalar_reciprocal, check=_is_rank0_splat),
    Rule("-(-x) => x", op("neg", op("neg", "x")), _same),
    Rule("a + (-b) => a - b", op("add", "x", op("neg", "y")), lambda b, m: b.sub(m["x"], m["y"])),
    Rule("a - (-b) => a + b", op("sub", "x", op("neg", "y")), lambda b, m: b.add(m["x"], m["y"])),
    Rule("abs(abs(x)) => abs(x)", op("abs", op("abs", "x")), lambda b, m: b.abs(m["x"])),
    Rule("abs(-x) => abs(x)", op("abs", op("neg", "x")), lambda b, m: b.abs(m["x"])),
    Rule("not(not(x)) => x", op("not", op("not", "x")), _same),
    Rule("relu(relu(x)) => relu(x)", op("relu", op("relu", "x")), lambda b, m: b.relu(m["x"])),
    Rule("max(x, x) => x", op("max", "x", "x"), _same,
         check=_no_float),
    Rule("max(x, lowest) => x", op("max", "x", _limit(-np.inf)), _same, check=_canonical_nan),
    Rule("min(x, highest) => x", op("min", "x", _limit(np.inf)), _same, check=_canonical_nan),
    Rule("distribute(x) => x", op("distribute", "x"), _same),
    Rule("select(p, x, x) => x", op("select", "p", "x", "x"), _same),
    Rule("select(true, x, y) => x",
         op("select", Const("c", is_all(True), "all true"), "x", "y"), _same),
    Rule("select(false, y, x) => x",
         op("select", Const("c", is_all(False), "all false"), "y", "x"), _same),
    Rule("select(not p, x, y) => select(p, y, x)", op("select", op("not", "p"), "x", "y"),
         lambda b, m: b.select(m["p"], m["y"], m["x"])),
    Rule("cast to the same dtype => x",
         op("cast", "x", where=_same_dtype), _same),
    Rule("bitcast to the same dtype => x",
         op("bitcast", "x", where=_same_dtype), _same),
    Rule("x and true => x", op("and", "x", Const("c", is_all(True), "all true")), _same,
         check=_booleans),
    Rule("x or false => x", op("or", "x", Const("c", is_all(False), "all false")), _same,
         check=_booleans),
    Rule("concat(x) => x", op("concat", "x"), _same),
)  # fmt: skip


@dataclass(frozen=True)
class Canonicalise(Pass):
    """Rewrite small algebraic identities to one form.

    One rule changes bits and declares it: ``x ** 2 => x * x``.  Zeros keep their signs: ``x +
    (-0)`` and ``x - (+0)`` become x, ``x + (+0)`` only for integers and for values that are never
    -0.
    """

    exact = False
    tolerance = "one rounding where a product replaces a power"

    @override
    def table(self):
        return RULES

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, RULES, module.weights))
