"""Conversion of ops between versions of ONNX, along the history of each op's definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from core_compiler.ir import Op, Rewriter, Value, WeightStore
from core_compiler.onnx_level.adapters import CannotSay, adapted, carried
from core_compiler.onnx_level.dialect import SINCE, is_node, newest, schema, spelled
from core_compiler.onnx_level.inline import defined, settled
from core_compiler.onnx_level.legality import complaint

#: An op and its definition in terms of other ops may differ by their rounding.
TOLERANCE = 2e-6


@dataclass
class Converter:
    """A converter of the ops of blocks to version ``to`` of the default domain.

    ``outer`` finds the defining op of a value from outside a block.  ``refused`` collects the ops
    that the version does not support, with reasons.
    """

    to: int
    weights: WeightStore
    outer: Callable[[Value], Op | None]
    refused: list[tuple[Op, str]] = field(default_factory=list)

    def define(self, rewriter: Rewriter) -> None:
        """Replace the ops that the version does not have yet by their definitions."""
        self._each(
            rewriter,
            lambda op, op_type: (
                self._by_definition(op, rewriter) if schema("", op_type, self.to) is None else ()
            ),
        )

    def convert(self, rewriter: Rewriter) -> None:
        """Convert the ops of one block; the version must have all of them."""
        self._each(rewriter, lambda op, op_type: self._op(op, op_type, rewriter))

    def _each(self, rewriter: Rewriter, change: Callable[[Op, str], Sequence[Op]]) -> None:
        work = list(reversed(rewriter.ops))
        while work:
            op = work.pop()
            domain, op_type = spelled(op)
            if op not in rewriter or not is_node(op) or domain or SINCE not in op.attributes:
                continue
            try:
                work += reversed(change(op, op_type))
            except CannotSay as reason:
                self.refused.append((op, str(reason)))

    def _op(self, op: Op, op_type: str, rewriter: Rewriter) -> Sequence[Op]:
        """Convert ``op`` to the target version, or part of the way; return the ops to do next."""
        found = schema("", op_type, self.to)
        if found is None:
            return ()  # define() has recorded it already
        current = op
        for version in path(op_type, op[SINCE], found.since_version):
            made = adapted(current, version, self.weights, self._maker(rewriter))
            if made is not None:
                if current is not op:  # the versions carried over so far are a separate step
                    (op,) = self._carry(op, current, rewriter)
                return self._replace(op, made, rewriter, f"{op_type} {op[SINCE]} => {version}")
            current = carried(
                current, schema("", op_type, current[SINCE]), schema("", op_type, version)
            )
        if found.deprecated:
            raise CannotSay(f"{op_type} is deprecated in that version")
        if current is not op:
            self._carry(op, current, rewriter)
        return ()

    def _carry(self, op: Op, carried_: Op, rewriter: Rewriter) -> list[Op]:
        rule = f"{spelled(op)[1]} {op[SINCE]} => {carried_[SINCE]}"
        return rewriter.replace(op, carried_.with_(origin=None), rule=rule)

    def _replace(self, op: Op, made, rewriter: Rewriter, rule: str, tolerance=None) -> list[Op]:
        ops, values = made
        wrong = next((text for o in ops if (text := complaint(o))), None)
        if wrong is not None:
            raise CannotSay(wrong)
        ops, mapping = settled(op, values, ops)
        return rewriter.replace(op, ops, mapping, rule=rule, tolerance=tolerance)

    def _by_definition(self, op: Op, rewriter: Rewriter) -> list[Op]:
        """Replace an op that the version does not have yet by its definition."""
        made = defined(op, self.weights, self._maker(rewriter))
        if made is None:
            raise CannotSay("the op does not exist in that version")
        rule = f"{spelled(op)[1]} {op[SINCE]} => its definition"
        return self._replace(op, made, rewriter, rule, TOLERANCE)

    def _maker(self, rewriter: Rewriter) -> Callable[[Value], Op | None]:
        return lambda value: rewriter.producer(value) or self.outer(value)


@lru_cache(maxsize=4096)
def history(op_type: str) -> tuple[int, ...]:
    """Return the versions in which the definition of an op changed, in order."""
    every = (schema("", op_type, v) for v in range(1, newest() + 1))
    return tuple(sorted({s.since_version for s in every if s is not None}))


def path(op_type: str, old: int, new: int) -> tuple[int, ...]:
    """Return the definitions after that of version ``old``, up to that of ``new``."""
    versions = history(op_type)
    i, j = versions.index(old), versions.index(new)
    return versions[i + 1 : j + 1] if i < j else versions[j:i][::-1]
