"""Rematerialisation: which values of a forward pass are saved for the backward pass.

The others are recomputed.  A program is a list of steps.  The backward pass reads values of the
forward pass: these are *saved*.  A plan names forward steps that are *recomputed*, each just before
the first backward step that needs one of its values, from values that are saved or themselves
recomputed.

A plan has three figures.  **Saved**: bytes kept when the forward pass ends.  **Held**: the peak
bytes of forward values, saved or recomputed, at any moment after that; without a plan it equals
saved. **Extra**: the cost of the recomputed steps.

For each price, the plan with the least ``saved + price * extra`` is a minimum cut: a needed value
costs its bytes unless its step is recomputed, and a recomputed step costs its extra and needs its
operands (Picard, "Maximal Closure of a Graph", Management Science 22, 1976).  The same cuts give
lower bounds.  As they do not model how many recomputed values are held at once, the forward pass is
also divided into segments at whose borders all values are saved (Chen, Xu, Zhang, Guestrin,
"Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174).  All resulting plans are
measured step by step, and the cheapest plan within the limit is selected and then improved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from core_compiler.placement.min_cut import UNLIMITED, Network

#: The numbers of segments that the forward pass is divided into, one after another.
SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: Prices, as powers of 4 around the price at which all bytes cost as much as all steps.
PRICES = range(-5, 6)
#: The number of plans that are improved, and of steps that may be visited for that.
STARTS, EFFORT = 4, 2_000_000
#: Capacities are integers: this many per byte.
_FINE = 1024


@dataclass(frozen=True, slots=True)
class Step:
    """A step; ``reads`` and ``makes`` are indices of values, ``cost`` is in any unit.

    ``again``: it may be recomputed.
    """

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    cost: int
    again: bool = True


@dataclass(frozen=True)
class Problem:
    """The ``steps`` in order, of which the first ``forward`` are the forward pass.

    The step after these computes the loss: its other results belong to the backward pass.
    ``sizes`` are those of the values in bytes (0: not in this memory), and their sizes when
    recomputed.
    """

    steps: tuple[Step, ...]
    forward: int
    sizes: tuple[int, ...]
    again_sizes: tuple[int, ...]

    @cached_property
    def maker(self) -> dict[int, int]:
        """Map each value to the step that defines it."""
        return {v: i for i, step in enumerate(self.steps) for v in step.makes}

    @cached_property
    def wanted(self) -> set[int]:
        """Return the values of the forward pass that are read after the loss is computed."""
        last = self.steps[self.forward + 1 :]
        return {v for s in last for v in s.reads if self.maker.get(v, self.forward) < self.forward}


@dataclass(frozen=True)
class Plan:
    """The steps recomputed (``again``), and the figures; ``peak``: peak bytes in use."""

    again: frozenset[int]
    saved: int
    held: int
    peak: int
    extra: int


@dataclass(frozen=True)
class Choice:
    """The ``plan`` for a ``limit`` of held bytes, and the one without recomputation (``baseline``).

    ``bound``: no plan within the limit has less ``extra``.  ``alternatives``: the Pareto-optimal
    plans in held bytes and extra, from the most bytes to the fewest; the chosen one is among them.
    """

    plan: Plan
    baseline: Plan
    limit: int
    bound: int
    alternatives: tuple[Plan, ...]

    @property
    def fits(self) -> bool:
        return self.plan.held <= self.limit


def schedule(problem: Problem, again: frozenset[int]) -> Iterator[tuple[int, bool]]:
    """Yield the steps in execution order, each with whether it is a recomputation."""
    done: set[int] = set()
    for number, step in enumerate(problem.steps):
        if number > problem.forward:
            for early in sorted(_needed(problem, step, again, done)):
                done.add(early)
                yield early, True
        yield number, False


def _needed(problem: Problem, step: Step, again: frozenset[int], done: set[int]) -> set[int]:
    """Return the steps that must be recomputed before ``step``."""
    found: set[int] = set()
    work = [step]
    while work:
        for value in work.pop().reads:
            maker = problem.maker.get(value, -1)
            if maker in again and maker not in done and maker not in found:
                found.add(maker)
                work.append(problem.steps[maker])
    return found


def measure(problem: Problem, again: frozenset[int]) -> Plan:
    """Return the figures of recomputing some steps; the plan names those that are needed."""
    count = len(problem.sizes)
    start: dict[int, int] = {}  # a value, or ``count`` + a recomputed value
    end: dict[int, int] = {}
    done: set[int] = set()
    border = extra = at = 0
    for at, (number, second) in enumerate(schedule(problem, again)):
        step = problem.steps[number]
        late = second or number > problem.forward
        for value in step.reads:
            maker = problem.maker.get(value, -1)
            if late and maker in again:
                value += count
            end[value] = at
        for value in step.makes:
            value += count if second else 0
            start[value] = end[value] = at
        if second:
            done.add(number)
            extra += step.cost
        if number == problem.forward:
            border = at
    sizes = (*problem.sizes, *problem.again_sizes)
    all_change, change = [0] * (at + 2), [0] * (at + 2)
    saved = 0
    for value, first in start.items():
        size, last = sizes[value], end[value]
        all_change[first] += size
        all_change[last + 1] -= size
        forward = value >= count or problem.maker[value] < problem.forward
        if forward and last > border:
            saved += size if first <= border else 0
            change[max(first, border + 1)] += size
            change[last + 1] -= size
    return Plan(frozenset(done), saved, _peak_of(change), _peak_of(all_change), extra)


def _peak_of(change: Sequence[int]) -> int:
    most = total = 0
    for step in change:
        total += step
        most = max(most, total)
    return most


def choose(problem: Problem, part: float) -> Choice:
    """Return the cheapest plan found that holds at most ``part`` of the bytes saved without one.

    If there is none, the plan that holds the fewest bytes.
    """
    baseline = measure(problem, frozenset())
    limit = int(part * baseline.saved)
    found = {baseline.again: baseline}
    bound = 0
    for segments in SEGMENTS:
        if segments > 1 and 2 * segments > problem.forward:
            break
        borders = _borders(problem, segments)
        for price in _prices(problem, baseline):
            value, again = _cut(problem, price, borders)
            if segments == 1:  # held is at least saved
                bound = max(bound, int((value - limit) / price))
            if again not in found:
                found[again] = measure(problem, again)
    climb = _Climb(problem, limit)
    for plan in sorted(found.values(), key=climb.rank)[:STARTS]:
        better = climb.improved(plan)
        found[better.again] = better
    best = min(found.values(), key=climb.rank)
    return Choice(
        best, baseline, limit, min(bound, best.extra), _pareto_front([*found.values()], best)
    )


@dataclass(frozen=True)
class _Climb:
    """Hill climbing of plans, step by step, up to ``EFFORT``.

    The effort is counted, not timed, so that a compile is deterministic.
    """

    problem: Problem
    limit: int

    def rank(self, plan: Plan) -> tuple[int, int, int]:
        """Return a sort key, smaller is better: within the limit by cost, others by held bytes."""
        over = max(0, plan.held - self.limit)
        return (over, plan.extra, plan.held)

    def improved(self, plan: Plan) -> Plan:
        """Return ``plan`` with single steps added or removed as long as that is better."""
        steps = self.problem.steps[: self.problem.forward]
        by_cost = sorted((k for k, s in enumerate(steps) if s.again), key=lambda k: -steps[k].cost)
        left, moved = EFFORT // (STARTS * len(self.problem.steps)), True
        while moved and left > 0:
            moved = False
            for step in by_cost:
                if step not in plan.again and plan.held <= self.limit:
                    continue  # it would only cost more
                left -= 1
                trial = measure(self.problem, plan.again ^ {step})
                if self.rank(trial) < self.rank(plan):
                    plan, moved = trial, True
                if left <= 0:
                    break
        return plan


def _pareto_front(plans: Sequence[Plan], chosen: Plan) -> tuple[Plan, ...]:
    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda p: (p.extra, p.held, p is not chosen)):
        if not kept or plan.held < kept[-1].held:
            kept.append(plan)
    return tuple(kept)


def _prices(problem: Problem, baseline: Plan) -> list[float]:
    """Return the bytes that a unit of cost is worth, from few to many."""
    cost = sum(s.cost for s in problem.steps[: problem.forward])
    even = max(baseline.saved, 1) / max(cost, 1)
    return [even * 4.0**power for power in PRICES]


def _borders(problem: Problem, segments: int) -> frozenset[int]:
    """Return the values saved at the borders of segments of the forward pass.

    The borders are at the points with the fewest live bytes, near those that divide its cost
    evenly.
    """
    if segments == 1:
        return frozenset()
    alive = _live_after(problem)
    weight = [sum(problem.sizes[v] for v in values) for values in alive]
    costs = [s.cost for s in problem.steps[: problem.forward]]
    share, reached, places = sum(costs) / segments, 0, [0]
    for at, cost in enumerate(costs[:-1]):
        reached += cost
        if reached >= share * len(places) and len(places) < segments:
            places.append(at)
    kept: set[int] = set()
    for before, at in pairwise(places):
        reach = max((at - before) // 2, 1)
        near = range(max(at - reach, 0), min(at + reach + 1, len(alive)))
        kept |= alive[min(near, key=lambda i: (weight[i], abs(i - at)))]
    return frozenset(kept)


def _live_after(problem: Problem) -> list[set[int]]:
    """Return, for each forward step, the values that later ones read."""
    last: dict[int, int] = {}
    for number, step in enumerate(problem.steps[: problem.forward]):
        last |= dict.fromkeys(step.reads, number)
    alive: list[set[int]] = []
    now: set[int] = set()
    for number, step in enumerate(problem.steps[: problem.forward]):
        now = {v for v in (*now, *step.makes) if last.get(v, -1) > number}
        alive.append(now)
    return alive


@dataclass
class _Nodes:
    """The numbering of the nodes of a network."""

    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def of(self, kind: str, number: int) -> int:
        return self.numbers.setdefault((kind, number), len(self.numbers) + 2)


def _cut(problem: Problem, price: float, kept: frozenset[int]) -> tuple[float, frozenset[int]]:
    """Return the least ``saved + price * extra``, and the recomputed steps of that plan.

    Values in ``kept`` are saved at no cost.
    """
    nodes = _Nodes()
    edges: list[tuple[int, int, int]] = []
    source, sink = 0, 1
    edges += [(source, nodes.of("value", v), UNLIMITED) for v in sorted(problem.wanted)]
    for number, step in enumerate(problem.steps[: problem.forward]):
        possible = step.again and not kept.intersection(step.makes)
        node = nodes.of("step", number) if possible else sink
        for value in step.makes:
            if problem.sizes[value] and value not in kept:
                edges.append((nodes.of("value", value), node, problem.sizes[value] * _FINE))
        if not possible:
            continue
        edges.append((node, sink, int(price * step.cost * _FINE)))
        for value in step.reads:
            if value in problem.maker and problem.sizes[value] and value not in kept:
                edges.append((node, nodes.of("value", value), UNLIMITED))
    network = Network(len(nodes.numbers) + 2)
    for a, b, capacity in edges:
        network.edge(a, b, capacity)
    value, side = network.cut(source, sink)
    again = [n for (kind, n), node in nodes.numbers.items() if kind == "step" and node in side]
    return value / _FINE, frozenset(again)
