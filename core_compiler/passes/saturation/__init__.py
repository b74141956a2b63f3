"""Equality saturation: the tables of rules on an e-graph, then the forms that cost least.

A pass that rewrites decides at each step and never goes back.  Here nothing is decided until all
forms that the rules know (within limits) are held side by side in the e-graph of a block; then the
cheapest is taken out.  The rules are those of the other passes, and a table of moves that only
make sense with both sides at hand (moves.py).  It stands in no pipeline: insert it where it is
wanted.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

from core_compiler.ir import Module, Op, Rewriter, Value, WeightStore
from core_compiler.passes import canonicalise, fold_batch_norm, recompose, simplify_shapes
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Rule
from core_compiler.passes.saturation import moves
from core_compiler.passes.saturation.egraph import Classes, filled, need_egglog
from core_compiler.passes.saturation.extraction import Prices, choose, in_order
from core_compiler.passes.saturation.matching import ClassView, Equality, equalities
from core_compiler.passes.saturation.rebuild import Reasons, rebuild

TABLES = (
    canonicalise.RULES, simplify_shapes.RULES, recompose.RULES, fold_batch_norm.RULES, moves.RULES,
)  # fmt: skip


def rules_of(kinds: str) -> tuple[Rule, ...]:
    """The rules of all tables: ``exact`` those that keep every bit, ``tolerant`` all."""
    every = dict.fromkeys(rule for table in TABLES for rule in table)
    return tuple(rule for rule in every if kinds == "tolerant" or rule.tolerance is None)


@dataclass(frozen=True)
class Figures:
    """What happened to one block.

    ``cost`` of the block as it was and as it is now, in bytes moved (see extraction.py); ``forms``
    of its values, in ``classes`` of equal ones, found in ``iterations``; ``several``: the classes
    of more than one form; ``changed``: those that took another form than they had; ``stopped``:
    ``saturated``, or the limit that ended it; ``rules``: how many equalities each rule found.
    """

    function: str
    cost: tuple[int, int]
    forms: int
    classes: int
    several: int
    iterations: int
    changed: int
    stopped: str
    seconds: float
    rules: dict[str, int]

    def __str__(self) -> str:
        before, after = self.cost
        ended = "nothing more to find" if self.stopped == "saturated" else f"limit: {self.stopped}"
        return (
            f"{self.function}: {self.forms} forms in {self.classes} classes ({self.several} of "
            f"several forms) after {self.iterations} iterations ({ended}); {self.changed} classes "
            f"take another form, cost {before:,} -> {after:,}"
        )


@dataclass(frozen=True)
class Saturate(Pass):
    """Holds all forms of each value that the rules know side by side and takes the cheapest.

    ``rules``: ``exact`` for those that keep every bit, ``tolerant`` for all.  It stops where
    nothing new is found, after ``iterations``, or beyond ``nodes`` forms; ``seconds`` are for
    emergencies: what is found by then depends on the machine, and a warning says so.
    """

    tolerance = "the rules' own, added where one value is made by several"

    rules: str = field(default="exact", metadata={"choices": ("exact", "tolerant")})
    iterations: int = 12
    nodes: int = 20_000
    seconds: float = 120.0

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.rules == "exact"

    def run(self, module: Module, context) -> Module:
        need_egglog()
        found: list[Figures] = []

        def edit(rewriter: Rewriter) -> None:
            _Saturation(self, rewriter, module.weights, found).run()

        made = context.rewrite(module, edit)
        context.facts["saturation"] = [asdict(figures) for figures in found]
        for figures in found:
            context.note("warning" if figures.stopped == "seconds" else "note", str(figures))
        return made


class _Saturation:
    """One block: fill, saturate, choose, rebuild."""

    def __init__(self, pass_: Saturate, rewriter: Rewriter, weights: WeightStore, found: list):
        self.pass_, self.rewriter, self.weights, self.found = pass_, rewriter, weights, found
        self.table: dict[str, list[Rule]] = {}
        for rule in rules_of(pass_.rules):
            self.table.setdefault(rule.pattern.kind, []).append(rule)
        self.egraph = filled(rewriter.ops, rewriter.block.arguments)
        self.reasons: list[tuple[Value, str, float | None]] = []
        self.counts: dict[str, int] = {}
        self.started = time.perf_counter()

    def run(self) -> None:
        iterations, stopped = self._saturate()
        view = ClassView(self.egraph.classes(), self.weights)
        prices = Prices(view)
        roots = list(dict.fromkeys(self._class(view.classes, v) for v in self.rewriter.outputs))
        made = choose(view.classes, prices.nodes, self._given(view.classes), roots)
        order = in_order(made, roots) or []
        live = self._live()
        before = sum(prices.of(op, self._class(view.classes, op.results[0])) for op in live)
        after = sum(prices.nodes[n.order] for c in order if (n := made[c].node) is not None)
        changed = []
        if after < before:
            given = self._given(view.classes)
            changed = rebuild(self.rewriter, view.classes, made, order, given, self._reasons(view))
        self.found.append(Figures(
            self.rewriter.function, (before, min(before, after)), len(self.egraph),
            len(view.classes.nodes), sum(len(n) > 1 for n in view.classes.nodes.values()),
            iterations, len(changed), stopped, time.perf_counter() - self.started, self.counts,
        ))  # fmt: skip

    def _saturate(self) -> tuple[int, str]:
        """Ask the rules until they have nothing to add: how often, and what ended it."""
        asked: set[tuple] = set()
        for iteration in range(1, self.pass_.iterations + 1):
            view = ClassView(self.egraph.classes(), self.weights)
            before = len(self.reasons)
            for found in equalities(view, self.table, asked):
                self._enter(found)
                if len(self.egraph) > self.pass_.nodes:
                    return iteration, "nodes"
                if time.perf_counter() - self.started > self.pass_.seconds:
                    return iteration, "seconds"
            if len(self.reasons) == before:
                return iteration, "saturated"
        return self.pass_.iterations, "iterations"

    def _enter(self, found: Equality) -> None:
        for op in found.ops:
            self.egraph.add(op)
        if self.egraph.union(found.root, found.value):
            self.reasons.append((found.root, found.rule, found.tolerance))
            self.counts[found.rule] = self.counts.get(found.rule, 0) + 1

    def _class(self, classes: Classes, value: Value) -> int:
        return classes.of[self.egraph.number(value)]

    def _given(self, classes: Classes) -> dict[int, Value]:
        """The classes of arguments and of values of the blocks around this one."""
        return {self._class(classes, v): v for v in reversed(self.egraph.given)}

    def _reasons(self, view: ClassView) -> dict[int, Reasons]:
        made: dict[int, Reasons] = {}
        for value, rule, tolerance in self.reasons:
            rules = made.setdefault(self._class(view.classes, value), Reasons()).rules
            rules[rule] = tolerance
        return made

    def _live(self) -> list[Op]:
        """The ops of the block that its outputs need."""
        live: dict[Op, None] = {}
        work = list(self.rewriter.outputs)
        while work:
            op = self.rewriter.producer(work.pop())
            if op is not None and op not in live:
                live[op] = None
                work += op.uses()
        return list(live)
