"""Trials of edits on the recorded stages, before they are suggested.

A pass runs again on its recorded input module, without code generation and without inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from core_compiler import targets
from core_compiler.ir import Module
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.find_lifetimes import live_peak, values_alive
from core_compiler.passes.fuse_elementwise import FuseElementwise
from core_compiler.passes.fuse_epilogues import FuseEpilogues
from core_compiler.passes.fuse_reductions import FuseReductions
from core_compiler.passes.grouping import is_unit
from core_compiler.passes.outline_kernels import OutlineKernels
from core_compiler.passes.rematerialise import Rematerialise
from core_compiler.record.reader import Stage
from core_compiler.runtime.memory import show_bytes
from core_compiler.support.errors import UserError
from core_compiler.training.passes.order_launches import OrderLaunches
from core_compiler.training.passes.recompute import Recompute
from workbench.advice.finding import Suggestion
from workbench.advice.offers import insert, move, option, repeat
from workbench.advice.program import LEAST_PART, Program
from workbench.support import units

#: Fusions whose order may change; all orders are tried.
FUSIONS = tuple(p.name() for p in (FuseElementwise, FuseEpilogues, FuseReductions))
#: Larger programs are not fused again for a trial: eight times takes seconds.
MAX_OPS = 400
#: Passes that leave a program of launches, in their order.
_LAUNCHED = tuple(p.name() for p in (OutlineKernels, OrderLaunches, Recompute, Rematerialise))


@dataclass(frozen=True)
class Fused:
    """The number of launches of a fused program, and the bytes that they read and write."""

    launches: int
    bytes: int


@dataclass(frozen=True)
class Better:
    """An edit of the fusions: the suggestion (``offer``), and the savings."""

    offer: Suggestion
    launches: int
    bytes: int


def fusions(program: Program) -> Better | None:
    """Return another order of the fusions, or a repetition, whose launches move fewer bytes.

    Returns None if there is none.
    """
    return program.cached("fusions", lambda: _fusions(program))


def _fusions(program: Program) -> Better | None:
    rows = [program.bench.row(label) for label in FUSIONS]
    stages = {s.pass_name: s for s in program.stages}
    if program.bench.reason or any(
        row is None
        or row.skipped
        or row.repeat
        or row.limit is not None
        or row.cuts
        or row.label not in stages
        for row in rows
    ):
        return None
    passes = [row.pass_ for row in rows if row is not None]
    first = min(stages[label].index for label in FUSIONS) - 1
    last = max(stages[label].index for label in FUSIONS)
    if first < 0 or last != first + len(FUSIONS):
        return None  # a user pass is between them
    module = program.run.recording.module(first)
    if len(module.main.body.ops) > MAX_OPS:
        return None
    order = sorted(range(len(FUSIONS)), key=lambda i: stages[FUSIONS[i]].index)
    best, found = _fused(program, module, [passes[i] for i in order]), None
    if best is None:
        return None
    before = best
    for words, gestures, tried in _variants(program, order):
        made = _fused(program, module, [passes[i] for i in tried])
        if made is not None and made.launches <= before.launches and made.bytes < best.bytes:
            best, found = made, (words, gestures)
    if found is None or before.bytes - best.bytes < LEAST_PART * before.bytes:
        return None
    fewer = before.launches - best.launches
    count_text = f"{units.launches(fewer)} fewer, " if fewer else ""
    less = before.bytes - best.bytes
    offer = Suggestion(
        f"{found[0]}: {count_text}{show_bytes(less)} less read and written by launches.",
        tuple(found[1]),
    )
    return Better(offer, fewer, less)


def _variants(
    program: Program, order: Sequence[int]
) -> Iterator[tuple[str, list[Mapping[str, Any]], Sequence[int]]]:
    next_pass = next(
        (s.pass_name for s in program.stages if s.pass_name == OutlineKernels.name()), ""
    )
    for place, i in enumerate(order):
        yield (
            f"Run {FUSIONS[i]} twice",
            [repeat(FUSIONS[i])],
            [*order[: place + 1], i, *order[place + 1 :]],
        )
    for other in permutations(order):
        if list(other) != list(order) and next_pass:
            names = [FUSIONS[i] for i in other]
            yield (
                f"Fuse in another order ({', '.join(names)})",
                [move(name, next_pass) for name in names],
                other,
            )


def _fused(program: Program, module: Module, passes: Sequence[Pass]) -> Fused | None:
    try:
        target = targets.target(str(program.run.meta().get("target") or "cpu"))
        for each in passes:
            module = each.run(module, PassContext(target=target))
    except UserError:
        return None
    units = [op for op in module.main.body.ops if is_unit(op) or target.claims(op)]
    moved = sum(v.type.bytes for op in units for v in (*dict.fromkeys(op.uses()), *op.results))
    return Fused(len(units), moved)


# -- memory ----------------------------------------------------------------------------------------


def rematerialised(program: Program) -> Suggestion | None:
    """Suggest recomputing launches if that lowers the peak; None if it does not."""
    return program.cached("rematerialised", lambda: _rematerialised(program))


def _rematerialised(program: Program) -> Suggestion | None:
    stage = _last_launched(program.stages)
    if program.bench.reason or stage is None:
        return None
    module, context = program.run.recording.module(stage.index), PassContext()
    before = live_peak(values_alive(module.main.body))[0]
    after = live_peak(values_alive(Rematerialise().run(module, context).main.body))[0]
    if not before - after:
        return None
    name, count = Rematerialise.name(), len({r.note for r in context.rewrites})
    pipeline_row = program.bench.row(name)
    done = [insert(stage.pass_name, name)]
    if pipeline_row is not None:
        more = pipeline_row.options.get("launches", str(Rematerialise().launches))
        done = [option(name, "launches", str(int(more) + Rematerialise().launches))]
    return Suggestion(
        "Recompute values where they are read instead of keeping them through the peak: the "
        f"values alive at once need {show_bytes(after)} instead of {show_bytes(before)}, for at "
        f"most {units.launches(count)} more.",
        tuple(done),
    )


def _last_launched(stages: Sequence[Stage]) -> Stage | None:
    found = [s for s in stages if s.pass_name in _LAUNCHED]
    return found[-1] if found else None
