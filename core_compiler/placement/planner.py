"""Offset assignment: several planners behind one function, each with its bound and its gap.

Effort is counted in placements and search nodes, not in seconds, so that a plan is the same on
every run and every machine (the compiler is deterministic); a time limit is the caller's choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core_compiler.placement import greedy, search
from core_compiler.placement.problem import Arrays, Lifetime, Plan, arrays, live_bytes, lower_bound
from core_compiler.placement.verify import verify
from core_compiler.support.errors import CANNOT_HERE, InternalError, UserError

#: Maximum number of buffers for the exact search (its memory grows with their square).
SEARCH_LIMIT = 1500
#: Orders that break ties in the search, one letter per key, larger first: T largest live sum, A
#: area, W sections, L duration, Z size, O overlapping buffers, S start, E end.  Search times are
#: heavy-tailed: one order needs a minute where another needs a millisecond, so all run with growing
#: budgets.
SEARCH_ORDERS = ("WAT", "TAW", "TWA", "EL", "TO", "SZ", "AE", "OA", "WE", "TS", "ZW", "LA")


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort that a planner may spend.

    ``placements``: buffers placed by greedy orders and climbing; ``nodes``: search nodes per order,
    capacity and round; ``rounds``: of doubling ``nodes``; ``seconds``: wall time (None: no limit;
    with a limit, plans may differ between runs).
    """

    placements: int = 20_000
    nodes: int = 500
    rounds: int = 12
    seconds: float | None = None


Candidate = tuple[np.ndarray, int]  # offsets, and a proven lower bound


def plan(
    lifetimes: Sequence[Lifetime],
    planner: str = "best",
    *,
    effort: Effort | None = None,
    capacity: int | None = None,
    seconds: float | None = None,
) -> Plan:
    """Return the best plan that ``planner`` finds, checked independently.

    ``planner`` is a key of :data:`PLANNERS`.  ``seconds`` limits the effort by time, at the price
    of plans that may differ between runs.  With a ``capacity`` (bytes) the planner stops at the
    first plan that fits; if none does, UserError (exit code 3) names the buffers of the fullest
    step.
    """
    if planner not in PLANNERS:
        raise UserError(
            f"unknown planner {planner!r}", "memory plan", f"choose one of {', '.join(PLANNERS)}"
        )
    effort = Effort() if effort is None else effort
    effort = effort if seconds is None else replace(effort, seconds=seconds)
    lifetimes, began = tuple(lifetimes), time.perf_counter()
    a = arrays(lifetimes)
    bound = lower_bound(lifetimes)
    enough = bound if capacity is None else max(bound, capacity)
    chosen, peak = np.zeros(a.count, np.int64), None
    for offsets, proven in PLANNERS[planner](a, bound, enough, effort):
        bound = max(bound, proven)
        height = greedy.peak(a, offsets)
        if peak is None or height < peak:
            chosen, peak = offsets, height
        out_of_time = effort.seconds is not None and time.perf_counter() - began > effort.seconds
        if peak <= max(enough, bound) or out_of_time:
            break
    result = Plan(
        lifetimes,
        tuple(map(int, chosen)),
        int(peak or 0),
        int(bound),
        planner,
        time.perf_counter() - began,
    )
    wrong = verify(result)
    if wrong:
        raise InternalError(f"planner {planner}: {wrong[0]}")
    if capacity is not None and result.peak > capacity:
        raise too_large(result, capacity)
    return result


def plan_tiers(
    tiers: Mapping[str, Sequence[Lifetime]],
    capacities: Mapping[str, int] | None = None,
    planner: str = "best",
    effort: Effort | None = None,
) -> dict[str, Plan]:
    """Return one plan per memory tier; tiers without a capacity are as large as their plan."""
    capacities = capacities or {}
    return {
        tier: plan(lifetimes, planner, effort=effort, capacity=capacities.get(tier))
        for tier, lifetimes in tiers.items()
    }


def compare(
    lifetimes: Sequence[Lifetime],
    planners: Sequence[str] | None = None,
    effort: Effort | None = None,
) -> list[Plan]:
    """Return the plans of several planners (default: all), in the given order."""
    return [plan(lifetimes, p, effort=effort) for p in planners or PLANNERS]


def too_large(found: Plan, capacity: int) -> UserError:
    """Return the error for a plan that does not fit: the fullest step's buffers, largest first."""
    steps, loads = live_bytes(found.lifetimes)
    at = int(steps[int(loads.argmax())])
    live = sorted((b for b in found.lifetimes if b.start <= at < b.end), key=lambda b: -b.size)
    names = ", ".join(f"{b.name} ({b.size} B)" for b in live[:4])
    more = f" and {len(live) - 4} more" if len(live) > 4 else ""
    reason = (
        f"{int(loads.max())} B are live at step {at}: {names}{more}"
        if found.lower_bound > capacity
        else f"the best plan found takes {found.peak} B, at least {found.lower_bound} B are needed"
    )
    return UserError(
        f"the plan does not fit {capacity} B ({reason})",
        "memory plan",
        f"provide {found.peak - capacity} B more, or keep fewer of these live at once",
        CANNOT_HERE,
    )


def single(order: str, fit: str = "first") -> Callable:
    """Return a planner that places once, in one order."""

    def run(a: Arrays, bound: int, enough: int, effort: Effort) -> Iterator[Candidate]:
        yield greedy.place(a, greedy.order(a, order), fit, bound), bound

    return run


def best_greedy(a: Arrays, bound: int, enough: int, effort: Effort) -> Iterator[Candidate]:
    """Yield plans of every greedy order with every fit, within the effort (at least one)."""
    # Placing is quadratic beyond a few hundred buffers.
    cost = a.count * max(1, a.count // 500)
    left = max(1, effort.placements // max(1, cost))
    for order in greedy.ORDERS:
        for fit in greedy.FITS:
            if left <= 0:
                return
            left -= 1
            yield greedy.place(a, greedy.order(a, order), fit, bound), bound


def climb(a: Arrays, bound: int, enough: int, effort: Effort) -> Iterator[Candidate]:
    """Yield the best greedy order, then results of moving a buffer at the peak earlier (seeded)."""
    starts = ((greedy.order(a, name), name) for name in greedy.ORDERS)
    placed = [(greedy.place(a, sequence), sequence) for sequence, _ in starts]
    for offsets, _ in placed:
        yield offsets, bound
    offsets, sequence = min(placed, key=lambda p: greedy.peak(a, p[0]))
    height, random = greedy.peak(a, offsets), np.random.default_rng(0)
    for _ in range(effort.placements // max(1, a.count)):
        moved = _earlier(a, sequence, offsets, random)
        trial = greedy.place(a, moved)
        if greedy.peak(a, trial) <= height:  # equal is accepted too: plateaus are wide
            offsets, sequence, height = trial, moved, greedy.peak(a, trial)
            yield offsets, bound


def _earlier(a: Arrays, sequence, offsets, random) -> np.ndarray:
    """Return ``sequence`` with a buffer at the peak (one time in three, any) moved ahead."""
    tops = np.flatnonzero(offsets + a.size == greedy.peak(a, offsets))
    chosen = random.integers(a.count) if random.integers(3) == 0 else random.choice(tops)
    at = int(np.flatnonzero(sequence == chosen)[0])
    to = int(random.integers(at + 1))
    rest = np.delete(sequence, at)
    return np.insert(rest, to, chosen)


def exact(a: Arrays, bound: int, enough: int, effort: Effort) -> Iterator[Candidate]:
    """Yield greedy plans, then results of searches between the bound and the best plan so far.

    Proves the optimum if the search is exhausted; raises the bound by what it has refuted.
    """
    lowest = None
    for offsets, _ in best_greedy(a, bound, enough, effort):
        lowest = (
            offsets if lowest is None else min(lowest, offsets, key=lambda o: greedy.peak(a, o))
        )
        yield offsets, bound
    needed = np.flatnonzero((a.size > 0) & (a.start < a.end))
    if len(needed) > SEARCH_LIMIT or not len(needed) or lowest is None:
        return
    part = Arrays(a.size[needed], a.start[needed], a.end[needed], a.alignment[needed])
    unit = int(np.gcd.reduce(np.concatenate((part.size, part.alignment))))
    small = Arrays(part.size // unit, part.start, part.end, part.alignment // unit)
    found = _minimise(
        small, bound // unit, -(-enough // unit), greedy.peak(a, lowest) // unit, effort
    )
    for inner, proven in found:
        offsets = np.zeros(a.count, np.int64)
        offsets[needed] = lowest[needed] if inner is None else inner * unit
        lowest = offsets
        yield offsets, proven * unit


def _minimise(a: Arrays, bound: int, enough: int, peak: int, effort: Effort):
    """Yield ``(offsets or None, bound)``; sizes are in units of their common divisor."""
    s = search.sections(a)
    sequences = [_search_order(a, s, keys) for keys in SEARCH_ORDERS]
    flag, timer = search.deadline(effort.seconds if effort.seconds is not None else 1e9)
    try:
        share = 0.5
        for doubling in range(effort.rounds):
            nodes = effort.nodes << doubling
            # First try the goal.  If undecided, try a fraction of the way from the best plan to it,
            # repeatedly while that succeeds, and half as far in the next round once it does not:
            # half of the effort is spent where the answer matters.
            target = goal = max(bound, enough)
            while goal < peak and not flag[0]:
                status, offsets = _try(s, sequences, target, nodes, flag)
                if status == search.FOUND:
                    peak = greedy.peak(a, offsets)
                    yield offsets, bound
                elif status == search.INFEASIBLE:
                    bound = target + 1
                    yield None, bound
                    target = goal = max(bound, enough)
                    continue
                elif target > goal:
                    share /= 2
                    break
                target = peak - max(1, int((peak - goal) * share))
                if target <= goal:
                    break
            if goal >= peak or flag[0]:
                return
    finally:
        timer.cancel()


def _try(s: search.Sections, sequences, capacity: int, nodes: int, flag) -> tuple[int, np.ndarray]:
    for sequence in sequences:
        status, offsets = search.search(s, sequence, capacity, nodes, flag)
        if status != search.UNDECIDED:
            return status, offsets
    return search.UNDECIDED, np.zeros(0, np.int64)


def _search_order(a: Arrays, s: search.Sections, keys: str) -> np.ndarray:
    table = {
        "T": greedy.pressure(a),
        "A": a.size * a.duration,
        "W": s.high - s.low,
        "L": a.duration,
        "Z": a.size,
        "O": np.diff(s.overlap_start),
        "S": a.start,
        "E": a.end,
    }
    return np.lexsort((np.arange(a.count), *(-table[k] for k in reversed(keys))))


def best(a: Arrays, bound: int, enough: int, effort: Effort) -> Iterator[Candidate]:
    """Yield greedy orders, then climbing: milliseconds on a model's graph, and without Numba."""
    yield from best_greedy(a, bound, enough, effort)
    if a.count <= SEARCH_LIMIT:
        yield from climb(a, bound, enough, replace(effort, placements=effort.placements // 2))


#: Planners by name: generators of improving candidates; :func:`plan` keeps the best and may stop
#: early.
PLANNERS: dict[str, Callable[[Arrays, int, int, Effort], Iterator[Candidate]]] = {
    "best": best,
    "greedy_size": single("size"),
    "greedy_size_best_fit": single("size", "best"),
    "greedy_area": single("area"),
    "greedy_duration": single("duration"),
    "greedy_start": single("start"),
    "greedy_pressure": single("pressure"),
    "greedy_ends": single("start", "ends"),
    "greedy": best_greedy,
    "climb": climb,
    "search": exact,
}
