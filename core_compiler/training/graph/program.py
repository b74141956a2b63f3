"""The interface of differentiated code, which grows, and the values that a gradient depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core_compiler.ir import Op, Origin, Value, WeightStore
from core_compiler.ir.claims import Gradient
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.gradients.table import CONSTANT
from core_compiler.passes.rules import reuse_results

#: Control flow whose regions are differentiated as a whole.
BRANCH, LOOP = "core.if", "core.while"


class Program(Protocol):
    """Straight-line code that grows: a rewriter's view of a block, or a list of ops."""

    @property
    def ops(self) -> Sequence[Op]: ...

    def expand(self, op: Op) -> Mapping[Value, Value]:
        """Replace a composite by its declared decomposition; return its old values -> new ones."""

    def replace(self, op: Op, new: Sequence[Op], rule: str, note: str) -> None:
        """Replace ``op`` by ops that define the same results and further ones."""

    def append(self, ops: Sequence[Op], of: Op, claim: Gradient) -> None:
        """Add the ops of the gradient of ``of`` at the end.

        There are none if cotangents are passed on unchanged. ``claim`` says which values they
        define.
        """


def active(ops: Sequence[Op], varied: Iterable[Value], wanted: Iterable[Value]) -> set[Value]:
    """Return the values that depend on ``varied`` and that ``wanted`` depend on.

    Only paths through ops that propagate gradients count, so all values are floats.
    """
    reached = {v for v in varied if v.type.dtype.is_float}
    for op in ops:
        if definition(op).gradient is not CONSTANT and not reached.isdisjoint(op.uses()):
            reached.update(v for v in op.results if v.type.dtype.is_float)
    needed = set(wanted)
    for op in reversed(ops):
        if not needed.isdisjoint(op.results):
            needed.update(op.uses())
    return reached & needed


@dataclass
class CodeList:
    """A program as a plain list of ops without a log: ``ops``, then ``made``, the gradients.

    ``changed`` maps values of composites to those of their decompositions.
    """

    ops: list[Op]
    weights: WeightStore | None = None
    made: list[Op] = field(default_factory=list)
    changed: dict[Value, Value] = field(default_factory=dict)

    def expand(self, op: Op) -> Mapping[Value, Value]:
        builder = Builder(self.weights, op.origin)
        decompose: Callable | None = definition(op).decompose
        assert decompose is not None
        made, change = reuse_results(op, decompose(builder, op), builder.ops)
        index = self.ops.index(op)
        rest = [later.substitute(change) for later in self.ops[index + 1 :]]
        self.ops[index:] = [*made, *rest]
        self.changed |= change
        return change

    def replace(self, op: Op, new: Sequence[Op], rule: str, note: str) -> None:
        origin = None if op.origin is None else Origin.derived(rule, [op.origin])
        index = self.ops.index(op)
        self.ops[index : index + 1] = [
            one if one.origin is not None else one.with_(origin=origin) for one in new
        ]

    def append(self, ops: Sequence[Op], of: Op, claim: Gradient) -> None:
        origin = gradient_origin(of)
        self.made += [op if op.origin is not None else op.with_(origin=origin) for op in ops]


#: The rule of the rewrite that lets a loop keep the values its gradient reads.
KEEP_RULE = "a loop keeps what its gradient reads"


def gradient_rule(of: Op) -> str:
    """Return the rule of the rewrite that adds the gradient of an op."""
    return f"gradient of {of.kind}"


def gradient_origin(of: Op) -> Origin | None:
    """Return the origin of gradient ops: the forward op."""
    return None if of.origin is None else Origin.derived(gradient_rule(of), [of.origin])
