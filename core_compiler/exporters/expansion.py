"""Ops that a format lacks, in terms of ops that it has: the first step of every export.

Each op of a block that a format does not have (or not in this form) becomes the ops of the format's
own composition of it, else of its declared decomposition or expansion. What remains is a table of
names: a writer translates each op by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_compiler.ir import Block, Op, Value, WeightStore
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder

#: ``(builder, view of op) -> value(s)``: an op expressed in other core ops, as in a decomposition.
Composition = Callable[[Builder, Any], Any]


@dataclass(frozen=True)
class Vocabulary:
    """The ops that a format has.

    ``lacks``    ``(op) -> reason``: why the format does not have this form of an op, or "".
    ``refuses``  ``(op) -> reason``: why no composition of it helps (a dtype of its own), or "".
    ``composed`` the format's own compositions, by kind.
    ``makes``    is told the ops of each composition before they are asked for.
    """

    lacks: Callable[[Op], str]
    refuses: Callable[[Op], str] = lambda op: ""
    composed: Mapping[str, Composition] = field(default_factory=dict)
    makes: Callable[[Sequence[Op]], None] = lambda ops: None


@dataclass(frozen=True)
class Missing:
    """An op that a format lacks, the reason, and the op of the model that it is a part of."""

    op: Op
    reason: str
    of: Op

    @property
    def told(self) -> tuple[Op, str]:
        """The op of the model, and the reason with the part that lacks."""
        part = "" if self.of is self.op else f", for {self.op.kind} in it"
        return self.of, f"{self.reason}{part}"


@dataclass
class Expansion:
    """The state of an expansion.

    ``weights`` receives the constants of compositions. ``of`` has for each op of a composition the
    op of the model that it is a part of; ``missing`` are the ops that remain unsupported, in
    program order.
    """

    vocabulary: Vocabulary
    weights: WeightStore
    of: dict[Op, Op] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)

    def block(self, block: Block, outer_op: Op | None = None) -> Block:
        """Return a block whose ops, also in regions, the format has; ``outer_op`` contains it.

        Ops that no output depends on are left out.
        """
        made: list[Op] = []
        renamed: dict[Value, Value] = {}
        for op in needed(block.ops, block.outputs):
            self._expand(op.substitute(renamed), made, renamed, outer_op)
        outputs = tuple(renamed.get(v, v) for v in block.outputs)
        return Block(block.arguments, tuple(needed(made, outputs)), outputs)

    def _expand(
        self, op: Op, made: list[Op], renamed: dict[Value, Value], outer_op: Op | None
    ) -> None:
        if op.regions:
            op = op.with_(regions=tuple(self.block(region, outer_op) for region in op.regions))
        reason = self.vocabulary.lacks(op)
        refusal = self.vocabulary.refuses(op)
        builder = Builder(self.weights, op.origin)
        parts = None if not reason or refusal else self._parts(op, builder)
        if parts is None:
            if reason or refusal:
                self.missing.append(Missing(op, refusal or reason, outer_op or op))
            if outer_op is not None:
                self.of[op] = outer_op
            made.append(op)
            return
        self.vocabulary.makes(builder.ops)
        for part in builder.ops:
            self._expand(part.substitute(renamed), made, renamed, outer_op or op)
        inner = {v for part in builder.ops for v in part.results}
        for old, new in zip(op.results, parts, strict=True):
            if new in inner and not new.name:
                new.name = old.name
            renamed[old] = renamed.get(new, new)

    def _parts(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """Build the composition of an op; return its results, or None if there is none."""
        declared = definition(op)
        composition = self.vocabulary.composed.get(op.kind)
        if composition is None and declared.decompose is not None:
            return tuple(declared.decompose(builder, op))
        composition = composition or declared.expand
        if composition is None:
            return None
        found = composition(builder, declared.view(op))
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def needed(ops: Sequence[Op], outputs: Sequence[Value]) -> list[Op]:
    """Return the ops that the outputs depend on, in order."""
    live = set(outputs)
    made = []
    for op in reversed(ops):
        if not live.isdisjoint(op.results):
            made.append(op)
            live.update(op.uses())
    return made[::-1]
