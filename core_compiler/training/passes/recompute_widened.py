"""Recompute wide values: the backward pass reads narrow values, not their f32 forms."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass, PassContext
from core_compiler.training.graph.roles import Roles

#: A value this many times smaller than a value computed from it is cheap to keep.
SMALL = 16


@dataclass(frozen=True)
class RecomputeWidened(Pass):
    """Let gradients recompute the f32 forms of narrow values, so that these are not kept.

    An op like ``x - mean`` of a narrow x runs in f32. Its gradient reads its operands or its
    result, which would be kept in f32 until then. If a chain of elementwise ops computes it from
    narrow or small values, the gradient gets a copy of the chain: the same ops, the same bits.
    """

    requires = frozenset({"gradients"})

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        rows = zip(roles.results, main.outputs, strict=True)
        ends = [v for (role, _), v in rows if role != "gradient"]
        rewriter = context.rewriter(main.body)
        with suppress(RewriteLimit):
            _Recomputation(rewriter, _dependencies(rewriter, ends)).run()
        return module.with_main(rewriter.commit())


def _dependencies(rewriter: Rewriter, values: Iterable[Value]) -> set[Op]:
    """Return the ops that ``values`` depend on: the forward pass of a loss."""
    found: set[Op] = set()
    work = [rewriter.producer(v) for v in values]
    while work:
        op = work.pop()
        if op is not None and op not in found:
            found.add(op)
            work += [rewriter.producer(v) for v in op.uses()]
    return found


@dataclass
class _Recomputation:
    rewriter: Rewriter
    forward: set[Op]
    #: f32 value of the forward pass -> its copy for the backward pass.
    recomputed: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> None:
        for op in self.rewriter.ops:
            if op in self.forward:
                continue
            fresh: list[Op] = []
            change: dict[Value, Value] = {}
            for value in dict.fromkeys(op.operands):
                if value in self.recomputed or self._is_worth_it(value):
                    change[value] = self._recompute(value, fresh, value.type.bytes // SMALL)
            if change:
                self.rewriter.replace(
                    op, [*fresh, op.substitute(change)], rule="read what is stored narrow"
                )

    def _is_worth_it(self, value: Value) -> bool:
        """Return whether a chain computes ``value`` from narrow, small or kept values."""
        if self._is_kept(value) or value.type.dtype.bits < 32:
            return False
        narrow, seen, work = False, set(), [value]
        while work:
            current = work.pop()
            maker = self.rewriter.producer(current)
            if (
                current in seen
                or self._is_kept(current)
                or current.type.bytes * SMALL <= value.type.bytes
            ):
                continue
            seen.add(current)
            if current.type.dtype.is_float and current.type.dtype.bits < 32:
                narrow = True
            elif maker is None or not _is_cheap(maker):
                return False
            else:
                work += maker.operands
        return narrow

    def _is_kept(self, value: Value) -> bool:
        """Return whether a value is in memory anyway.

        Arguments and constants are, and so are the results of backward ops.
        """
        maker = self.rewriter.producer(value)
        return maker is None or maker.kind == "core.constant" or maker not in self.forward

    def _recompute(self, value: Value, fresh: list[Op], small: int) -> Value:
        """Return ``value`` recomputed by ops added to ``fresh``.

        The recomputation starts from values that are narrow or have at most ``small`` bytes.
        """
        if value in self.recomputed:
            return self.recomputed[value]
        maker = self.rewriter.producer(value)
        is_leaf = value.type.dtype.bits < 32 or value.type.bytes <= small or self._is_kept(value)
        if is_leaf or maker is None or not _is_cheap(maker):
            return value
        operands = tuple(self._recompute(v, fresh, small) for v in maker.operands)
        self.recomputed[value] = Value(value.type, value.name)
        fresh.append(maker.with_(operands=operands, results=(self.recomputed[value],)))
        return self.recomputed[value]


def _is_cheap(op: Op) -> bool:
    return has_trait(op, "shape_only", "elementwise")
