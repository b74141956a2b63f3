"""Hazards of memory: idle buffers at the peak, plans above their bound, padding, unused results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.fuse_elementwise import FuseElementwise
from core_compiler.passes.fuse_epilogues import FuseEpilogues
from core_compiler.passes.fuse_reductions import FuseReductions
from core_compiler.passes.plan_memory import ALIGNMENTS, PlanMemory
from core_compiler.record.reader import Buffer
from core_compiler.runtime.memory import show_bytes
from core_compiler.training.passes.order_launches import OrderLaunches
from core_compiler.training.passes.recompute import Recompute
from workbench.advice import trials
from workbench.advice.finding import NOTHING, Cost, Fact, Finding, Suggestion, severity
from workbench.advice.offers import Gesture, insert, last_stage, option, skip, suggest_reverting
from workbench.advice.program import PAGE, Launch, Program, at
from workbench.queries import memory_plans
from workbench.queries.links import written_by
from workbench.queries.numeric_results import as_count
from workbench.support import units

#: A plan is reported if it exceeds its lower bound by more than this.
GAP = 0.02
#: An idle buffer is reported if the peak would be lower by this fraction without it.
MIN_IDLE_PART = 0.05
#: Padding above this fraction of the arena is waste: 64 bytes per buffer are needed for vectors.
PADDING = 0.05
#: The number of buffers at the peak that are named.
MAX_NAMED = 6

_FUSIONS = tuple(p.name() for p in (FuseElementwise, FuseEpilogues, FuseReductions))


def arena(program: Program) -> list[Buffer]:
    return [b for b in program.run.buffers() if b.tier == "dram"]


def live(buffers: Sequence[Buffer]) -> tuple[int, int]:
    """Return the most bytes alive at once, and the first position at which they are."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.start] = change.get(b.start, 0) + b.size
        change[b.end + 1] = change.get(b.end + 1, 0) - b.size
    current, peak_bytes, where = 0, 0, 0
    for position in sorted(change):
        current += change[position]
        if current > peak_bytes:
            peak_bytes, where = current, position
    return peak_bytes, where


def _memory(program: Program, value: float, how: str, whole: float, of: str) -> Cost | None:
    part = value / whole if whole else 0.0
    return None if value < PAGE else Cost(value, "B", how, min(part, 1.0), of)


# -- the peak --------------------------------------------------------------------------------------


def peak(program: Program) -> Iterator[Finding]:
    """Yield a finding for a buffer that is idle at the peak and raises it."""
    buffers = arena(program)
    peak_bytes, where = live(buffers)
    launch = next((each for each in program.launches if each.at >= where), None)
    if launch is None or not peak_bytes:
        return
    touched = {program.run.value_id(v) for v in (*dict(launch.reads), *launch.writes)}
    alive = [b for b in buffers if b.start <= where <= b.end]
    idle = [b for b in alive if b.value not in touched]
    if not idle:
        return
    largest = max(idle, key=lambda b: b.size)
    without, _ = live([b for b in buffers if b is not largest])
    how = f"counted: {show_bytes(peak_bytes)} are alive at once, {show_bytes(without)} without it"
    cost = _memory(program, peak_bytes - without, how, peak_bytes, "of the peak")
    if cost is None or cost.part < MIN_IDLE_PART:
        return
    makers = {each.id: each for each in program.launches}
    maker = makers.get(written_by(program.run, largest) or -1)
    last = _last_reader(program, largest)
    origin = f" from {maker.kernel}{at([maker])}" if maker else ""
    until = f" until {last.kernel}{at([last])}" if last else ""
    facts = [
        Fact(
            f"the peak is at {launch.kernel}{at([launch])}, step {launch.at}, which neither reads "
            "nor writes it",
            program.go(launch, "memory", "graph"),
        ),
        Fact(f"it is written at step {largest.start} and read last at step {largest.end}"),
        *(_alive(program, b, makers) for b in sorted(alive, key=lambda b: -b.size)[:MAX_NAMED]),
    ]
    yield Finding(
        severity(cost),
        f"{show_bytes(largest.size)}{origin} stay alive{until} and set the peak",
        f"{show_bytes(peak_bytes)} are alive at once",
        {"buffer": largest.id, "panes": ["memory", "graph"]},
        "sets the peak",
        cost,
        tuple(facts),
        tuple(_lower(program)),
    )


def _alive(program: Program, buffer: Buffer, makers: dict[int, Launch]) -> Fact:
    maker = makers.get(written_by(program.run, buffer) or -1)
    name = f"{maker.kernel}{at([maker])}" if maker else (buffer.name or "a buffer")
    return Fact(
        f"alive at the peak: {show_bytes(buffer.size)} of {name}, until step {buffer.end}",
        {"buffer": buffer.id, "panes": ["memory", "graph"]},
    )


def _last_reader(program: Program, buffer: Buffer) -> Launch | None:
    readers = [
        each
        for each in program.launches
        if any(program.run.value_id(v) == buffer.value for v, _ in each.reads)
    ]
    return readers[-1] if readers else None


def _lower(program: Program) -> Iterator[Suggestion]:
    reverts = suggest_reverting(list(program.bench.changed(*_FUSIONS)))
    if reverts:
        yield from reverts
        return
    plans = memory_plans.again(program.run)
    offers = (_budget(program, plans), trials.rematerialised(program))
    found = [offer for offer in offers if offer is not None]
    yield from found or [
        Suggestion(
            f"{NOTHING}recomputing launches does not lower the peak. Read it "
            "earlier in the model, or run a smaller batch."
        )
    ]


def _budget(program: Program, plans: Sequence[dict]) -> Suggestion | None:
    """Suggest holding another fraction for the backward pass, if that lowers the peak.

    It changes the budget of the recorded recompute pass, or adds that pass.
    """
    chosen = next((plan for plan in plans if plan["chosen"]), None)
    if chosen is None:
        return None
    best = min(plans, key=lambda plan: (plan["peak"], plan["extra"]))
    if best["peak"] >= chosen["peak"] or not best["part"]:
        return None
    # Rounded up, so that the plan is within the budget.
    part = min(1.0, math.ceil(best["part"] * 1000) / 1000)
    return Suggestion(
        f"Save {part:.1%} for the backward pass: the values alive at once need "
        f"{show_bytes(best['peak'])} instead of {show_bytes(chosen['peak'])}, for "
        f"{best['extra']:.1%} more work in total. To train like this: "
        f"Training(recompute={part:g}), `workbench train --recompute {part:g}`.",
        _holding(program, f"{part:g}"),
    )


def _holding(program: Program, part: str) -> tuple[Gesture, ...]:
    """Return the gestures that make a step hold that fraction for its backward pass."""
    made = last_stage(program.stages, Recompute)
    if made is not None:
        return (option(made.pass_name, "budget", part),)
    name = Recompute.name()
    exists = program.bench.row(name) is not None
    added = skip(name, False) if exists else insert(OrderLaunches.name(), name)
    return added, option(name, "budget", part)


def recomputed(program: Program) -> Iterator[Finding]:
    """Yield findings for launches recomputed for the backward pass that do not lower the peak."""
    plans = memory_plans.again(program.run)
    chosen = next((plan for plan in plans if plan["chosen"]), None)
    none = next((plan for plan in plans if not plan["again"]), None)
    if chosen is None or none is None or not chosen["again"] or chosen["peak"] < none["peak"]:
        return
    how = (
        f"counted: {chosen['extra']:.1%} of the step's work, in bytes moved and operations "
        "of the recomputed launches"
    )
    cost = Cost(chosen["extra"], "part", how, chosen["extra"], "of the work")
    yield Finding(
        severity(cost),
        f"Recomputing {units.launches(chosen['again'])} for the backward pass "
        "does not lower the peak",
        f"the peak is {show_bytes(none['peak'])} with and without",
        {"panes": ["memory", "graph"]},
        "recompute in vain",
        cost,
        (
            Fact(
                f"saved for the backward pass: {show_bytes(chosen['held'])} instead of "
                f"{show_bytes(none['held'])}"
            ),
        ),
        tuple(_in_vain(program, plans)),
    )


def _in_vain(program: Program, plans: Sequence[dict]) -> Iterator[Suggestion]:
    made = last_stage(program.stages, Recompute)
    if made is not None:
        yield Suggestion(
            "Save everything: no launch is recomputed, and the peak stays the same.",
            (skip(made.pass_name),),
        )
    lower = _budget(program, plans)
    if lower is not None:
        yield lower


# -- the plan --------------------------------------------------------------------------------------


def plan(program: Program) -> Iterator[Finding]:
    """Yield a finding for a memory plan above its lower bound."""
    figures = program.run.figures("memory")
    used, bound = (as_count(figures.get(n)) for n in ("arena_bytes", "lower_bound_bytes"))
    if not used or not bound or used <= bound * (1 + GAP):
        return
    how = f"counted: {show_bytes(used)} planned, no plan needs less than {show_bytes(bound)}"
    cost = _memory(program, used - bound, how, used, "of the arena")
    if cost is None:
        return
    rows = memory_plans.planners(program.run)
    facts = [
        Fact(
            f"{row['planner']} needs {show_bytes(int(row['bytes']))}"
            + (" (used)" if row["used"] else "")
        )
        for row in rows
        if row["used"] or row is rows[0]
    ]
    made = last_stage(program.stages, PlanMemory)
    tries = [
        Suggestion(f"{NOTHING}no built-in planner needs less; fewer or smaller live buffers would.")
    ]
    if rows and made is not None and rows[0]["bytes"] < used:
        # Of the planners that need least, prefer the default one.
        least = [row["planner"] for row in rows if row["bytes"] == rows[0]["bytes"]]
        name = PlanMemory().planner if PlanMemory().planner in least else least[0]
        saved = show_bytes(int(used - rows[0]["bytes"]))
        tries = [
            Suggestion(
                f"Plan with {name}, which needs {saved} less.",
                (option(made.pass_name, "planner", name),),
            )
        ]
    yield Finding(
        severity(cost),
        f"The memory plan is {(used / bound - 1) * 100:.1f} % above its lower bound",
        f"planned by {figures.get('planner')}",
        {"panes": ["memory", "graph"]},
        "plan above its bound",
        cost,
        tuple(facts),
        tuple(tries),
    )


def padding(program: Program) -> Iterator[Finding]:
    """Yield findings for padding between buffers, at the peak."""
    buffers = arena(program)
    peak_bytes, where = live(buffers)
    alive = [b for b in buffers if b.start <= where <= b.end]
    waste = sum(b.size - b.unpadded_size for b in alive)
    if not peak_bytes or waste < PADDING * peak_bytes:
        return
    unit = memory_plans.alignment(program.run)
    number = units.counted(len(alive), "buffer")
    how = f"counted: {number} at the peak, each padded to a multiple of {unit} bytes"
    cost = _memory(program, waste, how, peak_bytes, "of the peak")
    if cost is None:
        return
    worst = sorted(alive, key=lambda b: b.unpadded_size - b.size)[:4]
    facts = [
        Fact(
            f"{b.name or 'a buffer'}: {show_bytes(b.unpadded_size)} in {show_bytes(b.size)}",
            {"buffer": b.id, "panes": ["memory", "graph"]},
        )
        for b in worst
    ]
    yield Finding(
        severity(cost),
        f"{show_bytes(waste)} of padding at the peak",
        f"{show_bytes(peak_bytes - waste)} are used of {show_bytes(peak_bytes)}",
        {"buffer": worst[0].id, "panes": ["memory", "graph"]},
        "padding",
        cost,
        tuple(facts),
        tuple(_narrower(program, buffers, peak_bytes, unit)),
    )


def _narrower(
    program: Program, buffers: Sequence[Buffer], peak_bytes: int, unit: int
) -> Iterator[Suggestion]:
    """Yield a suggestion of a smaller alignment, if that reduces the memory alive at once."""
    made, least = last_stage(program.stages, PlanMemory), min(ALIGNMENTS)
    padded = [replace(b, size=-(-b.unpadded_size // least) * least) for b in buffers]
    saved = peak_bytes - live(padded)[0]
    if made is not None and least < unit and saved > 0:
        yield Suggestion(
            f"Pad to multiples of {least} bytes: {show_bytes(saved)} less at the peak. Two "
            "buffers may then share a cache line, which may slow down threads.",
            (option(made.pass_name, "alignment", str(least)),),
        )
        return
    yield Suggestion(
        f"{NOTHING}a buffer takes at least {unit} bytes. Join small tensors into one (stack "
        "or concatenate them)."
    )


def unread(program: Program) -> Iterator[Finding]:
    """Yield findings for results of launches that are never read."""
    read = {v for each in program.launches for v, _ in each.reads} | program.results
    read |= {
        program.roots[v]
        for op in program.ops
        if "writes" not in op.attributes
        for v in op.operands
        if v in program.roots
    }
    unread_values = [(each, v) for each in program.launches for v in each.writes if v not in read]
    nbytes = sum(v.type.bytes for _, v in unread_values)
    cost = program.traffic(nbytes, f"{show_bytes(nbytes)} written")
    if cost is None:
        return
    every = list(dict.fromkeys(each for each, _ in unread_values))
    facts = [
        Fact(
            f"{each.kernel}{at([each])} writes {show_bytes(v.type.bytes)} that is never read",
            program.go(each),
        )
        for each, v in unread_values[:4]
    ]
    reverts = suggest_reverting(list(program.bench.changed(EliminateDeadCode.name())))
    suggestion = Suggestion(
        f"{NOTHING}dead code is eliminated already; these kernels compute it together "
        "with values that are read. Do not compute it in the model."
    )
    recompute_stage = last_stage(program.stages, Recompute)
    if recompute_stage is not None:
        suggestion = Suggestion(
            "A launch recomputed for the backward pass writes all results of its "
            "kernel, but only some are read: save everything.",
            (skip(recompute_stage.pass_name),),
        )
    yield Finding(
        severity(cost),
        f"{show_bytes(nbytes)} written and never read{at(every)}",
        ", ".join(dict.fromkeys(each.kernel for each in every)),
        program.go(every[0]),
        "never read",
        cost,
        tuple(facts),
        tuple(reverts or [suggestion]),
    )
