"""Round correctly: f32 functions are computed in f64 and rounded once.

The contract's f32 functions err by some ulps at most.  The f64 ones do too, but their ulps are far
smaller: rounded to f32 the result is the nearest number for almost every input (docs/numerics.md
says for how many it is not).  It stands in no pipeline: insert it where that is worth its time.
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
    return None if dtype is F32 else f"it is a function of {dtype.name}, not of f32"


def _rule(name: str) -> Rule:
    def rounded_once(b, m: Match):
        wide = b.cast(m["x"], dtype=F64)
        return b.cast(getattr(b, name)(wide), dtype=F32)

    # Both errors together, of the largest number: an ulp of it is at most 2**-23 of it.
    tolerance = (contract.BOUNDS[name][0] + 0.5) * 2.0**-23
    return Rule(f"{name}(x) => f32({name}(f64(x)))", op(name, "x"), rounded_once, check=_is_f32,
                tolerance=tolerance)  # fmt: skip


@cache
def rules_of(names: tuple[str, ...]) -> tuple[Rule, ...]:
    """A rule for each of these functions."""
    return tuple(map(_rule, names))


@dataclass(frozen=True)
class RoundCorrectly(Pass):
    """Computes functions of f32 in f64 and rounds the result once.

    ``functions`` lists them, comma separated; ``composites``: those inside of softmax, gelu and
    their like as well, which are then written as their parts.
    """

    exact = False
    tolerance = "each function loses its error of up to some ulps (docs/numerics.md has the bounds)"

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
                raise UserError(what, f"pass {self.name()}",
                                fix if known else nearest(name, NAMES, fix))  # fmt: skip
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
    """Whether a composite has one of these functions, of f32, among its parts or in theirs."""
    decompose = definition(op_).decompose
    if decompose is None:
        return False
    builder = Builder(weights)
    decompose(builder, op_)
    return any(
        (part.kind in kinds and part.operands[0].type.dtype is F32) or _holds(part, kinds, weights)
        for part in builder.ops
    )
