"""What is computed again for the backward pass: measured by another simulation, and by trying all
plans of small problems."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.placement.recompute import Problem, Step, choose, measure
from tests.examples import examples


def layers(count: int, size: int = 100, cost: int = 10) -> Problem:
    """A chain of layers: each reads the one before; then the loss; backwards each reads its input
    and what came from behind."""
    forward = [Step((i - 1,) if i else (), (i,), cost) for i in range(count)]
    loss = Step((count - 1,), (2 * count,), 0, False)
    back = [
        Step(
            (*((i - 1,) if i else ()), *((count + count - i - 2,) if i < count - 1 else ())),
            (count + count - i - 1,),
            2 * cost,
            False,
        )
        for i in reversed(range(count))
    ]
    sizes = (size,) * count + (1,) * (count + 1)
    return Problem((*forward, loss, *back), count, sizes, sizes)


@st.composite
def problems(draw) -> Problem:
    count = draw(st.integers(1, 6))
    behind = draw(st.integers(1, 4))
    steps, made = [], 0
    for number in range(count + behind):
        reads = draw(st.sets(st.integers(0, made - 1), max_size=3)) if made else set()
        outputs = draw(st.integers(1, 2))
        makes = tuple(range(made, made + outputs))
        made += outputs
        again = number < count and draw(st.booleans())
        steps.append(Step(tuple(sorted(reads)), makes, draw(st.integers(0, 9)), again))
    again = tuple(draw(st.integers(1, 50)) for _ in range(made))
    sizes = tuple(s if draw(st.integers(0, 4)) else 0 for s in again)
    return Problem(tuple(steps), count, sizes, again)


def simulated(problem: Problem, again: frozenset[int]) -> tuple[int, int, int, int]:
    """Saved, held, peak and extra, by running the program with memory that is let go of."""
    maker = {v: i for i, s in enumerate(problem.steps) for v in s.makes}
    program: list[tuple[int, bool]] = [(i, False) for i in range(problem.forward + 1)]
    for i in range(problem.forward + 1, len(problem.steps)):
        needs = {s for v in problem.steps[i].reads for s in _closure(problem, maker, again, v)}
        program += [(s, True) for s in sorted(needs) if (s, True) not in program]
        program.append((i, False))

    def version(value: int, late: bool) -> tuple[int, bool]:
        return value, late and maker[value] in again

    reads = [
        {version(v, second or i > problem.forward) for v in problem.steps[i].reads}
        for i, second in program
    ]
    alive: set[tuple[int, bool]] = set()
    peak = held = saved = extra = 0
    for at, (i, second) in enumerate(program):
        extra += problem.steps[i].cost if second else 0
        alive |= {(v, second) for v in problem.steps[i].makes}
        size = {x: (problem.again_sizes if x[1] else problem.sizes)[x[0]] for x in alive}
        peak = max(peak, sum(size.values()))
        later = set().union(*reads[at + 1 :])
        if at > problem.forward:
            kept = [x for x in alive if maker[x[0]] < problem.forward]
            held = max(held, sum(size[x] for x in kept))
        alive &= later
        if at == problem.forward:
            saved = sum(size[x] for x in alive if maker[x[0]] < problem.forward)
            held = saved
    return saved, held, peak, extra


def _closure(problem, maker, again, value) -> set[int]:
    step = maker[value]
    if step not in again:
        return set()
    return {step}.union(*(_closure(problem, maker, again, v) for v in problem.steps[step].reads))


def possible(problem: Problem) -> list[frozenset[int]]:
    steps = [i for i in range(problem.forward) if problem.steps[i].again]
    every = chain.from_iterable(combinations(steps, n) for n in range(len(steps) + 1))
    return [frozenset(one) for one in every]


@given(problems())
@settings(max_examples=examples(150), deadline=None)
def test_a_plan_is_what_running_it_says(problem):
    for again in possible(problem):
        plan = measure(problem, again)
        assert (plan.saved, plan.held, plan.peak, plan.extra) == simulated(problem, again)


@given(problems(), st.floats(0.1, 1.0))
@settings(max_examples=examples(150), deadline=None)
def test_no_plan_beats_the_bound_and_what_is_offered_is_so(problem, part):
    choice = choose(problem, part)
    plans = [measure(problem, again) for again in possible(problem)]
    fitting = [p.extra for p in plans if p.held <= choice.limit]
    if fitting:
        assert choice.bound <= min(fitting) <= choice.plan.extra or not choice.fits
    assert choice.plan == measure(problem, choice.plan.again)
    assert choice.plan in choice.alternatives
    held = [p.held for p in choice.alternatives]
    assert held == sorted(held, reverse=True)
    assert choice.baseline.saved == choice.baseline.held


def test_a_part_of_one_does_nothing_again():
    assert not choose(layers(8), 1.0).plan.again


@pytest.mark.parametrize("count", [16, 36, 64])
def test_a_chain_is_kept_in_segments(count):
    """Of n layers about 2 sqrt(n) have to be held (Chen et al.), with each done again once or
    never."""
    problem = layers(count)
    choice = choose(problem, 2.2 * count**0.5 / count)
    assert choice.fits
    assert choice.plan.extra < sum(s.cost for s in problem.steps[:count])


def test_what_cannot_be_done_again_is_kept():
    problem = layers(8)
    steps = tuple(Step(s.reads, s.makes, s.cost, False) for s in problem.steps)
    choice = choose(Problem(steps, 8, problem.sizes, problem.again_sizes), 0.3)
    assert not choice.fits and not choice.plan.again
