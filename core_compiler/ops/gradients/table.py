"""The table of gradient rules, and what the rules are written in.

A rule says for every operand of an op how the gradient of the loss with respect to it (its
*cotangent*) follows from the cotangents of the results.  It is given the op itself, so that it may
read operands and results: those values are saved for the backward pass.  Only operands whose
gradient is asked for are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from core_compiler.ir import Op, Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened


@dataclass(frozen=True)
class Box:
    """A cotangent that is 0 but for ``update`` at ``starts``: a part is added to what is known."""

    update: Value
    starts: tuple[Value, ...]

    def added(self, b: Builder, known: Value) -> Value:
        """``known`` plus this."""
        there = b.dynamic_slice(known, *self.starts, sizes=self.update.type.shape)
        return b.dynamic_update_slice(known, b.add(there, self.update), *self.starts)

    def alone(self, b: Builder, like: Value) -> Value:
        """This as a tensor of the shape of ``like``."""
        return b.dynamic_update_slice(b.scalar_like(0, like), self.update, *self.starts)


#: What a rule says of one operand; None stands for zero, and for operands that nobody asked for.
Cotangent = Value | Box | None
#: ``(builder, op, cotangents of the results, which operands are asked for) -> cotangents of the
#: operands``.
Rule = Callable[[Builder, Op, Sequence[Value | None], Sequence[bool]], Sequence[Cotangent]]

RULES: dict[str, Rule] = {}


class NoGradient(Exception):
    """An op, in this form of it, has no gradient; the message says why."""


def CONSTANT(b, op, cotangents, wanted):
    """The rule of an op whose results do not depend on its operands in any way that a gradient
    sees: a piecewise constant one, or one that gives integers."""
    return (None,) * len(op.operands)


def gradient(*names: str) -> Callable[[Rule], Rule]:
    """Enter the rule of ``core.<name>``."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = rule
        return rule

    return enter


def of_one(*names: str) -> Callable:
    """Enter ``rule(b, op, dy) -> dx`` of an op with one operand and one result."""

    def enter(rule: Callable[[Builder, Op, Value], Value | None]):
        def each(b, op, cotangents, wanted):
            return (rule(b, op, cotangents[0]),)

        gradient(*names)(each)
        return rule

    return enter


def of_each(*names: str) -> Callable:
    """Enter ``rule(b, op, dy) -> functions``: one function without arguments for each operand that
    can be asked for (None: its gradient is zero), called where it is."""

    def enter(rule: Callable[[Builder, Op, Value], Sequence[Callable[[], Cotangent] | None]]):
        def each(b, op, cotangents, wanted):
            made = rule(b, op, cotangents[0])
            made = (*made, *[None] * (len(op.operands) - len(made)))
            return tuple(
                f() if asked and f is not None else None
                for f, asked in zip(made, wanted, strict=True)
            )

        gradient(*names)(each)
        return rule

    return enter


@dataclass(frozen=True)
class Term:
    """A value that formulas are written with: ``dy * 2 / x`` appends the ops.

    Python numbers are constants of the other side's dtype and shape; every op rounds.
    """

    b: Builder
    value: Value

    def _of(self, other: Any) -> Value:
        if isinstance(other, Term):
            return other.value
        return self.b.scalar_like(other, self.value)

    def call(self, name: str, *others: Any) -> Term:
        """``core.<name>`` of this value and ``others``."""
        return Term(self.b, self.b.op(f"core.{name}", (self.value, *map(self._of, others))))

    def __add__(self, other: Any) -> Term:
        return self.call("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Term:
        return self.call("sub", other)

    def __rsub__(self, other: Any) -> Term:
        return Term(self.b, self._of(other)).call("sub", self)

    def __mul__(self, other: Any) -> Term:
        return self.call("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Term:
        return self.call("div", other)

    def __rtruediv__(self, other: Any) -> Term:
        return Term(self.b, self._of(other)).call("div", self)

    def __neg__(self) -> Term:
        return self.call("neg")

    def __lt__(self, other: Any) -> Term:
        return self.call("lt", other)

    def __le__(self, other: Any) -> Term:
        return self.call("le", other)

    def __gt__(self, other: Any) -> Term:
        return self.call("gt", other)

    def __ge__(self, other: Any) -> Term:
        return self.call("ge", other)

    def same(self, other: Any) -> Term:
        """Where it equals ``other``."""
        return self.call("eq", other)

    def where(self, condition: Term, otherwise: Any = 0) -> Term:
        """This value where ``condition`` holds."""
        chosen = (condition.value, self.value, self._of(otherwise))
        return Term(self.b, self.b.op("core.select", chosen))

    def unless(self, condition: Term) -> Term:
        """0 where ``condition`` holds, else this value."""
        chosen = (condition.value, self._of(0), self.value)
        return Term(self.b, self.b.op("core.select", chosen))


def in_terms(formula: Callable[..., Term]) -> Callable[..., Value]:
    """``formula(*terms)`` as a function of a builder and values; floats narrower than f32 are
    widened at the start, the caller rounds once at the end."""

    @wraps(formula)
    def made(b: Builder, *values: Value) -> Value:
        return formula(*(Term(b, widened(b, v)) for v in values)).value

    return made


def rounded(b: Builder, made: Value, like: Value) -> Value:
    """``made`` in the dtype of ``like``."""
    return as_dtype(b, made, like.type.dtype)
