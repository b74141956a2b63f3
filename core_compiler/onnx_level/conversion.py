"""Conversion of ops between versions of ONNX, along the history of each op's definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from core_compiler.ir import Op, Rewriter, Value, WeightStore
from core_compiler.onnx_level.adapters import CannotConvert, apply_adapter, carry_over
from core_compiler.onnx_level.dialect import SINCE, domain_and_type, is_node, newest, schema
from core_compiler.onnx_level.inline import expand_definition, reuse_results
from core_compiler.onnx_level.legality import find_error

#: An op and its definition in terms of other ops may differ by their rounding.
TOLERANCE = 2e-6


@dataclass
class Converter:
    """A converter of the ops of blocks to version ``to`` of the default domain.

    ``outer`` finds the defining op of a value from outside a block.  ``unsupported`` collects the
    ops that the version does not support, with reasons.
    """

    to: int
    weights: WeightStore
    outer: Callable[[Value], Op | None]
    unsupported: list[tuple[Op, str]] = field(default_factory=list)

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
            domain, op_type = domain_and_type(op)
            if op not in rewriter or not is_node(op) or domain or SINCE not in op.attributes:
                continue
            try:
                work += reversed(change(op, op_type))
            except CannotConvert as reason:
                self.unsupported.append((op, str(reason)))

    def _op(self, op: Op, op_type: str, rewriter: Rewriter) -> Sequence[Op]:
        """Convert ``op`` to the target version, or part of the way; return the ops to do next."""
        found = schema("", op_type, self.to)
        if found is None:
            return ()  # define() has recorded it already
        current = op
        for version in path(op_type, op[SINCE], found.since_version):
            made = apply_adapter(current, version, self.weights, self._producer_of(rewriter))
            if made is not None:
                if current is not op:  # the versions carried over so far are a separate step
                    (op,) = self._replace_carried(op, current, rewriter)
                return self._replace(op, made, rewriter, f"{op_type} {op[SINCE]} => {version}")
            current = carry_over(
                current, schema("", op_type, current[SINCE]), schema("", op_type, version)
            )
        if found.deprecated:
            raise CannotConvert(f"{op_type} is deprecated in that version")
        if current is not op:
            self._replace_carried(op, current, rewriter)
        return ()

    def _replace_carried(self, op: Op, carried_op: Op, rewriter: Rewriter) -> list[Op]:
        rule = f"{domain_and_type(op)[1]} {op[SINCE]} => {carried_op[SINCE]}"
        return rewriter.replace(op, carried_op.with_(origin=None), rule=rule)

    def _replace(self, op: Op, made, rewriter: Rewriter, rule: str, tolerance=None) -> list[Op]:
        ops, values = made
        error = next((text for o in ops if (text := find_error(o))), None)
        if error is not None:
            raise CannotConvert(error)
        ops, mapping = reuse_results(op, values, ops)
        return rewriter.replace(op, ops, mapping, rule=rule, tolerance=tolerance)

    def _by_definition(self, op: Op, rewriter: Rewriter) -> list[Op]:
        """Replace an op that the version does not have yet by its definition."""
        made = expand_definition(op, self.weights, self._producer_of(rewriter))
        if made is None:
            raise CannotConvert("the op does not exist in that version")
        rule = f"{domain_and_type(op)[1]} {op[SINCE]} => its definition"
        return self._replace(op, made, rewriter, rule, TOLERANCE)

    def _producer_of(self, rewriter: Rewriter) -> Callable[[Value], Op | None]:
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
