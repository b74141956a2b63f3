"""Round correctly: f32 functions are computed in f64 and rounded once.

The contract's f32 functions have an error of a few ulps.  So do the f64 ones, but their ulps are
far smaller: rounded to f32 the result is the nearest number for almost every input
(docs/numerics.md counts the exceptions).  The pass is in no default pipeline: insert it where that
is worth its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from typing_extensions import override

from core_compiler.ir import Op, Rewriter, WeightStore
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.rules import F32, F64
from core_compiler.ops.traits import kinds_with
from core_compiler.passes.base import Pass
from core_compiler.passes.decompose import expand
from core_compiler.passes.rules import Match, Rule, apply_rules, op
from core_compiler.support import lazy_module
from core_compiler.support.errors import UserError, nearest

contract = lazy_module.module("core_compiler.numerics.functions")

#: All functions of one operand that f32 arithmetic rounds more than once.
NAMES = tuple(definition(kind).name for kind in kinds_with("several_roundings"))


def _is_f32(m: Match) -> str | None:
    dtype = m["x"].type.dtype
    return None if dtype is F32 else f"it is a function of {dtype.name}, expected f32"


def _rule(name: str) -> Rule:
    def rounded_once(b, m: Match):
        wide = b.cast(m["x"], dtype=F64)
        return b.cast(getattr(b, name)(wide), dtype=F32)

    # Both errors together, relative to the largest value, whose ulp is at most 2**-23 of it.
    tolerance = (contract.BOUNDS[name][0] + 0.5) * 2.0**-23
    return Rule(
        f"{name}(x) => f32({name}(f64(x)))",
        op(name, "x"),
        rounded_once,
        check=_is_f32,
        tolerance=tolerance,
    )


@cache
def rules_of(names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return a rule for each of these functions."""
    return tuple(map(_rule, names))


@dataclass(frozen=True)
class RoundCorrectly(Pass):
    """Compute functions of f32 in f64 and round the result once.

    ``functions`` lists them, separated by commas; ``composites``: also those inside softmax, gelu
    and the like, which are then decomposed.
    """

    exact = False
    tolerance = "removes the error of each function, up to a few ulps (bounds: docs/numerics.md)"

    functions: str = ",".join(NAMES)
    composites: bool = True

    @override
    def table(self):
        return rules_of(self._wanted())

    @override
    def run(self, module, context):
        rules = self.table()
        kinds = frozenset(rule.pattern.kind for rule in rules)

        def edit(rw):
            if self.composites:
                _open_composites(rw, kinds, module.weights)
            if rules:
                apply_rules(rw, rules, module.weights)

        return context.rewrite(module, edit)

    def _wanted(self) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(n.strip() for n in self.functions.split(",") if n.strip()))
        for name in names:
            if name not in NAMES:
                known = name in contract.BOUNDS
                what = f"{name} is already rounded once" if known else f"unknown function {name!r}"
                fix = f"choose from {', '.join(NAMES)}"
                raise UserError(
                    what, f"pass {self.name()}", fix if known else nearest(name, NAMES, fix)
                )
        return names


def _open_composites(rewriter: Rewriter, kinds: frozenset[str], weights: WeightStore) -> None:
    work = list(rewriter.ops)
    while work:
        current = work.pop(0)
        if current in rewriter and _holds(current, kinds, weights):
            before = len(rewriter.events)
            expand(current, rewriter, weights)
            work[:0] = rewriter.events[before].new


def _holds(op_: Op, kinds: frozenset[str], weights: WeightStore) -> bool:
    """Return whether a composite's parts, nested ones too, contain one of these f32 functions."""
    decompose = definition(op_).decompose
    if decompose is None:
        return False
    builder = Builder(weights)
    decompose(builder, op_)
    return any(
        (part.kind in kinds and part.operands[0].type.dtype is F32) or _holds(part, kinds, weights)
        for part in builder.ops
    )
