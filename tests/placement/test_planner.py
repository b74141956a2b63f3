"""Memory plans: nothing overlaps, nothing beats the bound, hard instances fit, results repeat."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.placement.planner import PLANNERS, Effort, compare, plan, plan_tiers
from core_compiler.placement.problem import Lifetime, Plan, live_bytes, lower_bound
from core_compiler.placement.verify import verify
from core_compiler.support.errors import UserError
from tests.examples import examples

#: Planners that need no compiled search: quick on every example.
QUICK = [p for p in PLANNERS if p != "search"]
SMALL = Effort(placements=200, nodes=200, rounds=3)


@st.composite
def problems(draw, alignments=(1, 4, 64)):
    count = draw(st.integers(0, 25))
    made = []
    for number in range(count):
        start = draw(st.integers(0, 12))
        end = start + draw(st.integers(0, 8))
        size, alignment = draw(st.integers(0, 300)), draw(st.sampled_from(alignments))
        made.append(Lifetime(f"b{number}", size, start, end, alignment))
    return made


def brute_force_overlaps(lifetimes, offsets) -> int:
    """Pairs that share a byte at a step: quadratic, by the definition."""
    used = [(b, o) for b, o in zip(lifetimes, offsets, strict=True) if b.size and b.start < b.end]
    return sum(
        max(a.start, b.start) < min(a.end, b.end) and max(p, q) < min(p + a.size, q + b.size)
        for i, (a, p) in enumerate(used)
        for b, q in used[:i]
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("planner", QUICK)
@given(problems())
def test_no_two_live_buffers_share_a_byte(planner, lifetimes):
    made = plan(lifetimes, planner, effort=SMALL)
    assert brute_force_overlaps(lifetimes, made.offsets) == 0
    assert all(o % b.alignment == 0 for b, o in zip(lifetimes, made.offsets, strict=True))
    assert made.peak >= made.lower_bound == lower_bound(lifetimes)
    # no worse than one after another; what hangs from the bound may leave that much empty below
    hanging = made.lower_bound if planner == "greedy_ends" else 0
    assert made.peak <= hanging + sum(-(-b.size // 64) * 64 for b in lifetimes)


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(problems(alignments=(1, 64)))
def test_the_search_is_never_worse_than_greedy_and_its_bound_holds(lifetimes):
    found, quick = plan(lifetimes, "search", effort=SMALL), plan(lifetimes, "greedy", effort=SMALL)
    assert brute_force_overlaps(lifetimes, found.offsets) == 0
    assert quick.lower_bound <= found.lower_bound <= found.peak <= quick.peak


@given(problems(), st.data())
def test_the_checker_finds_every_overlap_that_is_there(lifetimes, data):
    """Random offsets: the sweep and the quadratic definition agree on whether a plan is sound."""
    offsets = tuple(data.draw(st.integers(0, 6)) * b.alignment for b in lifetimes)
    peak = max((o + b.size for b, o in zip(lifetimes, offsets, strict=True)), default=0)
    made = Plan(tuple(lifetimes), offsets, peak, 0)
    assert bool(verify(made)) == bool(brute_force_overlaps(lifetimes, offsets))


@pytest.mark.parametrize(
    ("offsets", "peak", "message"),
    [
        ((0, 60), 200, "b is at 60, not a multiple of 64"),
        ((0, -64), 200, "b is at -64"),
        ((0, 64), 100, "b ends at 128, past the block of 100 bytes"),
        ((0, 0), 128, "b [0, 64) and a [0, 64) share bytes at step 1"),
        ((0,), 64, "1 offsets for 2 buffers"),
    ],
)
def test_the_checker_says_what_is_wrong(offsets, peak, message):
    buffers = (Lifetime("a", 64, 0, 2), Lifetime("b", 64, 1, 3))
    assert message in verify(Plan(buffers, offsets, peak, 0))[0]


GOLDEN = """\
weights_t    256 @  512  [0, 2)
hidden       512 @    0  [1, 3)
mask          64 @  768  [1, 5)
scores       256 @  512  [2, 4)
out          128 @    0  [3, 5)
peak 832, lower bound 832"""


def test_golden_plan():
    made = plan(
        [
            Lifetime("weights_t", 256, 0, 2),
            Lifetime("hidden", 500, 1, 3),
            Lifetime("mask", 1, 1, 5),
            Lifetime("scores", 256, 2, 4),
            Lifetime("out", 128, 3, 5),
        ]
    )
    lines = [
        f"{b.name:<9} {-(-b.size // 64) * 64:6} @ {o:4}  [{b.start}, {b.end})"
        for b, o in zip(made.lifetimes, made.offsets, strict=True)
    ]
    assert "\n".join([*lines, f"peak {made.peak}, lower bound {made.lower_bound}"]) == GOLDEN


def test_a_chain_of_layers_reaches_the_bound_at_once():
    """What a model without branches looks like: two buffers alive at a time."""
    sizes = [1000 * (i * 7919 % 97 + 1) for i in range(300)]
    chain = [Lifetime(f"t{i}", s, i, i + 2) for i, s in enumerate(sizes)]
    made = plan(chain)
    assert made.proven and made.gap == 0


def test_residual_blocks_reach_the_bound():
    """ResNet-like: a skip connection lives across each block of three layers."""
    buffers = []
    for block in range(16):
        size, t = (64 << 10) * (16 - block), 4 * block
        buffers += [
            Lifetime(f"skip{block}", 4 * size, t, t + 5),
            Lifetime(f"a{block}", size, t + 1, t + 3),
            Lifetime(f"b{block}", size, t + 2, t + 4),
            Lifetime(f"c{block}", 4 * size, t + 3, t + 5),
        ]
    assert plan(buffers).proven


def test_plans_repeat():
    lifetimes = [
        Lifetime(str(i), i * 37 % 500 + 1, i * 7 % 40, i * 7 % 40 + i % 9 + 1) for i in range(80)
    ]
    for planner in QUICK:
        assert plan(lifetimes, planner).offsets == plan(lifetimes, planner).offsets


def test_too_large_says_why():
    buffers = [Lifetime(n, 1024, 0, 2) for n in "abc"]
    with pytest.raises(
        UserError,
        match=r"does not fit 2048 B \(3072 B are live at step 0: a \(1024 B\),"
        r" b \(1024 B\), c \(1024 B\)\); provide 1024 B more",
    ) as refused:
        plan(buffers, capacity=2048)
    assert refused.value.exit_code == 3
    assert plan(buffers, capacity=4096).peak == 3072


def test_tiers_are_planned_on_their_own():
    made = plan_tiers(
        {"sram": [Lifetime("a", 64, 0, 1)], "dram": [Lifetime("b", 128, 0, 1)]}, {"sram": 64}
    )
    assert (made["sram"].peak, made["dram"].peak) == (64, 128)


def test_bad_problems_are_refused():
    with pytest.raises(UserError, match="unknown planner 'magic'"):
        plan([], "magic")
    with pytest.raises(UserError, match="buffer a: invalid size -1"):
        plan([Lifetime("a", -1, 0, 1)])


def test_the_live_bytes_curve():
    steps, loads = live_bytes([Lifetime("a", 64, 0, 2), Lifetime("b", 1, 1, 3)])
    assert steps.tolist() == [0, 1, 2, 3] and loads.tolist() == [64, 128, 64, 0]


def hard(name: str) -> list[Lifetime]:
    (path,) = (Path(__file__).parents[2] / "benchmarks/data/minimalloc").glob(f"{name}.*.csv")
    with path.open() as file:
        return [
            Lifetime(r["id"], int(r["size"]), int(r["lower"]), int(r["upper"]), 1)
            for r in csv.DictReader(file)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["A", "C", "E", "H"])
def test_hard_instances_are_packed_without_a_gap(name):
    """MiniMalloc's published instances; here the lower bound is reached: nothing is better."""
    made = plan(hard(name), "search")
    assert made.proven and brute_force_overlaps(made.lifetimes, made.offsets) == 0


@pytest.mark.slow
def test_an_instance_without_a_known_optimum_fits_its_published_capacity():
    assert plan(hard("D"), "search", capacity=1048576).peak <= 1048576


def test_all_planners_side_by_side():
    made = compare(hard("input"), effort=SMALL)
    assert {p.planner for p in made} == set(PLANNERS)
    assert min(p.peak for p in made) == 12  # the optimum MiniMalloc's README gives
