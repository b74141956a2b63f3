"""Equality saturation: the tables of rules on an e-graph, then extraction of the cheapest form.

A rewriting pass decides at each step and never backtracks.  Here no decision is made until all
forms that the rules find (within limits) are in the e-graph of a block; then the cheapest is
extracted.  The rules are those of the other passes, and a table of moves that only make sense with
both sides present (moves.py).  The pass is in no default pipeline: insert it where it is wanted
(docs/saturation.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from typing_extensions import override

from core_compiler.hardware.costs import CostModel
from core_compiler.ir import Module, Op, Rewriter, Value, WeightStore
from core_compiler.passes import canonicalise, fold_batch_norm, recompose, simplify_shapes
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.rules import Rule
from core_compiler.passes.saturation import moves
from core_compiler.passes.saturation.egraph import Classes, build_egraph, need_egglog
from core_compiler.passes.saturation.extraction import Selection, choose
from core_compiler.passes.saturation.matching import ClassView, Equality, RuleMatcher
from core_compiler.passes.saturation.prices import Prices, total
from core_compiler.passes.saturation.rebuild import Reasons, listed, rebuild

TABLES = (
    canonicalise.RULES,
    simplify_shapes.RULES,
    recompose.RULES,
    fold_batch_norm.RULES,
    moves.RULES,
)


def rules_of(kinds: str) -> tuple[Rule, ...]:
    """Return the rules of all tables: ``exact`` those that keep every bit, ``tolerant`` all."""
    every = dict.fromkeys(rule for table in TABLES for rule in table)
    return tuple(rule for rule in every if kinds == "tolerant" or rule.tolerance is None)


@dataclass(frozen=True)
class Merged:
    """An e-class with several forms.

    The ``type`` of its values, the kinds of the ``forms``, the ``rules`` that found them equal, and
    the kind that is ``taken`` ("" if the block does not need it).  ``changed``: it had another
    form.
    """

    type: str
    forms: tuple[str, ...]
    rules: tuple[str, ...]
    taken: str
    changed: bool


@dataclass(frozen=True)
class Figures:
    """Statistics of the saturation of one block.

    ``cost`` of the block before and after, in bytes (see hardware/costs.py); ``forms`` of its
    values (e-nodes), in ``classes`` of equal ones, found in ``iterations``; ``merged``: the classes
    of more than one form; ``changed``: how many took another form than they had; ``stopped``:
    ``saturated``, or the limit that ended it; ``rules``: the number of equalities found by each
    rule.
    """

    function: str
    cost: tuple[int, int]
    forms: int
    classes: int
    iterations: int
    changed: int
    stopped: str
    seconds: float
    rules: dict[str, int]
    merged: tuple[Merged, ...]

    @override
    def __str__(self) -> str:
        before, after = self.cost
        ended = "nothing more to find" if self.stopped == "saturated" else f"limit: {self.stopped}"
        by = listed([f"`{rule}`" for rule, count in self.rules.items() for _ in range(count)])
        return (
            f"{self.function}: {self.forms} forms in {self.classes} classes ({len(self.merged)} of "
            f"several forms{f', by {by}' if by else ''}) after {self.iterations} iterations "
            f"({ended}); {self.changed} classes change form, cost {before:,} -> {after:,}"
        )


@dataclass(frozen=True)
class Saturate(Pass):
    """Hold all forms of each value that the rules know side by side and take the cheapest.

    ``rules``: ``exact`` for those that keep every bit, ``tolerant`` for all.  It stops when nothing
    new is found, after ``iterations``, or beyond ``nodes`` forms; ``seconds`` are for emergencies:
    the result then depends on the machine, and a warning says so.

    Costs are the target's, except for tolerant rules, where a choice changes bits: then they are
    the same for all targets, so that all compute the same values.
    """

    tolerance = "the sum of the tolerances of the rules that a value depends on"

    rules: str = field(default="exact", metadata={"choices": ("exact", "tolerant")})
    iterations: int = 30
    nodes: int = 20_000
    seconds: float = 120.0

    @property
    @override
    def exact(self) -> bool:  # type: ignore[override]
        return self.rules == "exact"

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        need_egglog()
        ours = context.target is None or not self.exact
        model = CostModel() if ours else context.target.costs
        found: list[Figures] = []

        def edit(rewriter: Rewriter) -> None:
            saturation = _Saturation(self, rewriter, module.weights, model)
            try:
                saturation.run()
            finally:  # also if the budget of rewrites is exhausted
                found.append(saturation.figures())

        made = context.rewrite(module, edit)
        context.facts["saturation"] = [asdict(figures) for figures in found]
        for figures in found:
            context.note("warning" if figures.stopped == "seconds" else "note", str(figures))
        return made


class _Saturation:
    """The saturation of one block: fill, saturate, choose, rebuild."""

    def __init__(self, pass_: Saturate, rewriter: Rewriter, weights: WeightStore, model: CostModel):
        self.started = time.perf_counter()
        self.pass_, self.rewriter, self.weights, self.model = pass_, rewriter, weights, model
        self.egraph = build_egraph(rewriter.ops, rewriter.block.arguments)
        self.reasons: list[tuple[Value, str, float | None]] = []
        self.before = total(live(rewriter), model)
        self.classes = Classes({})
        self.taken: Selection = {}
        self.order: list[int] = []
        self.changed: list[int] = []
        self.iterations, self.stopped = 0, "saturated"

    def run(self) -> None:
        self._saturate()
        view = ClassView(self.egraph.classes(), self.weights)
        self.classes = view.classes
        if self._choose(view) < self.before:
            given = self._given()
            rebuild(
                self.rewriter,
                view.classes,
                self.taken,
                self.order,
                given,
                self._reasons(),
                self.changed,
            )

    def figures(self) -> Figures:
        """Return the statistics so far."""
        counts: dict[str, int] = {}
        for _, rule, _ in self.reasons:
            counts[rule] = counts.get(rule, 0) + 1
        return Figures(
            self.rewriter.function,
            (self.before, total(live(self.rewriter), self.model)),
            len(self.egraph),
            len(self.classes.nodes),
            self.iterations,
            len(self.changed),
            self.stopped,
            time.perf_counter() - self.started,
            counts,
            tuple(self._merged()),
        )

    # -- saturating --------------------------------------------------------------------------------

    def _saturate(self) -> None:
        """Apply the rules until they add nothing, or a limit is reached."""
        matcher = RuleMatcher(rules_of(self.pass_.rules))
        self.stopped = "iterations"
        while self.iterations < self.pass_.iterations:
            self.iterations += 1
            view = ClassView(self.egraph.classes(), self.weights)
            before = len(self.reasons)
            for found in matcher.equalities(view, self._is_out_of_time):
                self._add_equality(found)
                if len(self.egraph) > self.pass_.nodes:
                    self.stopped = "nodes"
                    return
            if self._is_out_of_time():
                self.stopped = "seconds"
                return
            if len(self.reasons) == before:
                self.stopped = "saturated"
                return

    def _is_out_of_time(self) -> bool:
        return time.perf_counter() - self.started > self.pass_.seconds

    def _add_equality(self, found: Equality) -> None:
        for op in found.ops:
            self.egraph.add(op)
        if self.egraph.union(found.root, found.value):
            self.reasons.append((found.root, found.rule, found.tolerance))

    # -- choosing ----------------------------------------------------------------------------------

    def _choose(self, view: ClassView) -> int:
        """Choose the nodes ``taken`` and their ``order``, and return their cost."""
        roots = list(dict.fromkeys(map(self._class, self.rewriter.outputs)))
        prices = Prices(view.ops, self.model)
        by_order = {
            node.order: prices.of(view.op(number, node))
            for number, nodes in view.classes.nodes.items()
            for node in nodes
        }
        self.taken, self.order = choose(view.classes, by_order, self._given(), roots)
        return total(_selected_ops(view, self.taken, self.order), self.model)

    def _class(self, value: Value) -> int:
        return self.classes.of[self.egraph.number(value)]

    def _given(self) -> dict[int, Value]:
        """Return the classes of arguments and of values of the enclosing blocks."""
        return {self._class(v): v for v in reversed(self.egraph.given)}

    def _reasons(self) -> dict[int, Reasons]:
        made: dict[int, Reasons] = {}
        for value, rule, tolerance in self.reasons:
            made.setdefault(self._class(value), Reasons()).add(rule, tolerance)
        return made

    def _merged(self) -> list[Merged]:
        reasons = self._reasons() if self.classes.of else {}
        changed, needed = set(self.changed), set(self.order)
        made = []
        for number, nodes in self.classes.nodes.items():
            if len(nodes) < 2:
                continue
            chosen = self.taken[number] if number in needed else None
            rules = reasons[number].rules if number in reasons else {}
            made.append(
                Merged(
                    str(self.classes.values[number][0].type),
                    tuple(node.signature.kind for node in nodes),
                    tuple(rules),
                    chosen.signature.kind if chosen is not None else "",
                    number in changed,
                )
            )
        return made


def live(rewriter: Rewriter) -> list[Op]:
    """Return the ops of a block that its outputs need."""
    found: dict[Op, None] = {}
    work = list(rewriter.outputs)
    while work:
        op = rewriter.producer(work.pop())
        if op is not None and op not in found:
            found[op] = None
            work += op.uses()
    return list(found)


def _selected_ops(view: ClassView, taken: Selection, order: Sequence[int]) -> list[Op]:
    """Return the ops of a choice; an op with several results occurs once."""
    nodes = [(number, node) for number in order if (node := taken[number]) is not None]
    return list(dict.fromkeys(view.op(number, node) for number, node in nodes))
