"""The table of gradient rules, and the notation of the rules.

A rule returns for every operand of an op the gradient of the loss with respect to it (its
*cotangent*), given the cotangents of the results. It receives the op itself, so that it may read
operands and results: those values are saved for the backward pass. Only requested gradients are
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened


@dataclass(frozen=True)
class Box:
    """A cotangent that is 0 except for ``update`` at ``starts``: a box to add to the known one."""

    update: Value
    starts: tuple[Value, ...]

    def added(self, b: Builder, known: Value) -> Value:
        """Return ``known`` plus this box."""
        there = b.dynamic_slice(known, *self.starts, sizes=self.update.type.shape)
        return b.dynamic_update_slice(known, b.add(there, self.update), *self.starts)

    def as_tensor(self, b: Builder, like: Value) -> Value:
        """Return this box as a tensor of the shape of ``like``."""
        return b.dynamic_update_slice(b.scalar_like(0, like), self.update, *self.starts)


#: The cotangent of one operand; None is zero, and stands for operands that were not requested.
Cotangent = Value | Box | None
#: ``(builder, view of the op, cotangents of the results, requested operands) -> cotangents of the
#: operands``.
Rule = Callable[[Builder, Any, Sequence[Value | None], Sequence[bool]], Sequence[Cotangent]]

RULES: dict[str, Rule] = {}


class NoGradient(Exception):
    """Raised if this form of an op has no gradient; the message is the reason."""


def CONSTANT(b, op, cotangents, wanted):
    """Propagate nothing: the rule of ops whose results have no gradient.

    They are piecewise constant, or integers.
    """
    return (None,) * len(op.operands)


def gradient(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of ``core.<name>``."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = rule
        return rule

    return register


def of_one(*names: str) -> Callable:
    """Register ``rule(b, op, dy) -> dx`` of an op with one operand and one result."""

    def register(rule: Callable[[Builder, Any, Value], Value | None]):
        def each(b, op, cotangents, wanted):
            return (rule(b, op, cotangents[0]),)

        gradient(*names)(each)
        return rule

    return register


def of_each(*names: str) -> Callable:
    """Register ``rule(b, op, dy) -> functions``.

    There is one function without arguments for each differentiable operand (None: its gradient is
    zero), called if that gradient is requested.
    """

    def register(rule: Callable[[Builder, Any, Value], Sequence[Callable[[], Cotangent] | None]]):
        def each(b, op, cotangents, wanted):
            made = rule(b, op, cotangents[0])
            made = (*made, *[None] * (len(op.operands) - len(made)))
            return tuple(
                f() if needed and f is not None else None
                for f, needed in zip(made, wanted, strict=True)
            )

        gradient(*names)(each)
        return rule

    return register


@dataclass(frozen=True)
class Term:
    """A value with operators for formulas: ``dy * 2 / x`` appends the ops.

    Python numbers are constants of the other side's dtype and shape; every op rounds.
    """

    b: Builder
    value: Value

    def _of(self, other: Any) -> Value:
        if isinstance(other, Term):
            return other.value
        return self.b.scalar_like(other, self.value)

    def call(self, name: str, *others: Any) -> Term:
        """Return ``core.<name>`` of this value and ``others``."""
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
        """Return whether it equals ``other``."""
        return self.call("eq", other)

    def where(self, condition: Term, otherwise: Any = 0) -> Term:
        """Return this value where ``condition`` holds, else ``otherwise``."""
        chosen = (condition.value, self.value, self._of(otherwise))
        return Term(self.b, self.b.op("core.select", chosen))

    def unless(self, condition: Term) -> Term:
        """Return 0 where ``condition`` holds, else this value."""
        chosen = (condition.value, self._of(0), self.value)
        return Term(self.b, self.b.op("core.select", chosen))


def in_terms(formula: Callable[..., Term]) -> Callable[..., Value]:
    """Return ``formula(*terms)`` as a function of a builder and values.

    Floats narrower than f32 are widened at the start; the caller rounds once at the end.
    """

    @wraps(formula)
    def made(b: Builder, *values: Value) -> Value:
        return formula(*(Term(b, widened(b, v)) for v in values)).value

    return made


def rounded(b: Builder, made: Value, like: Value) -> Value:
    """Return ``made`` in the dtype of ``like``."""
    return as_dtype(b, made, like.type.dtype)
