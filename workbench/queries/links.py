"""Propagation of one selection to every view: an op followed to a stage, its kernel, its buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core_compiler.ir import Op, Value
from core_compiler.ir.target import ALLOC, CONSTANT, LAUNCH, TAKES, Launch
from core_compiler.record.history import OpHistory
from core_compiler.record.reader import Buffer
from core_compiler.targets.link import launch_runs
from workbench.queries.joint import same_phase, written
from workbench.queries.run import Run
from workbench.state.view_state import ViewState

#: Ops that only supply operands, ranked by how little they say about what became of another op.
FEEDS = {
    "core.constant": 2,
    CONSTANT: 2,
    "core.iota": 2,
    "core.broadcast": 1,
    ALLOC: 1,
}


@dataclass(frozen=True)
class Linked:
    """The selection in the shown stage: ids, None if it does not exist there.

    ``ops``: all ops of the stage that carry its meaning, the nearest first.
    """

    stage: int
    op: int | None = None
    ops: tuple[int, ...] = ()
    kernel: int | None = None
    buffer: int | None = None


def linked(run: Run, state: ViewState) -> Linked:
    """Return the selection of ``state`` in its stage, and what it became."""
    if not run.version.stages:
        return Linked(0)
    stage = run.stage_number(state.stage)
    key = ("linked", stage, state.op, state.kernel, state.buffer, run.version.compiled)
    return run.cached(key, lambda: _linked(run, state, stage))


def _linked(run: Run, state: ViewState, stage: int) -> Linked:
    anchor = state.op if state.op is None or exists(run, state.op) else None
    kernel, buffer = state.kernel, state.buffer
    if anchor is None and kernel is not None:
        anchor = costliest_launch(run, kernel)
    if anchor is None and buffer is not None:
        anchor = writer_of(run, buffer)
    if anchor is None:
        return Linked(stage, None, (), kernel, buffer)
    ops = follow(run, anchor, stage)
    if kernel is None or buffer is None:
        its_kernel, its_buffer = linked_to(run, anchor, run.op_history(anchor))
        kernel = its_kernel if kernel is None else kernel
        buffer = its_buffer if buffer is None else buffer
    return Linked(stage, ops[0] if ops else None, ops, kernel, buffer)


def linked_to(run: Run, op: int, history: OpHistory) -> tuple[int | None, int | None]:
    """Return the kernel and the buffer that an op became."""
    return _kernel_of(run, op, history.kernels), _buffer_of(run, op, history.buffers)


def exists(run: Run, op: int) -> bool:
    return bool(run.recording.query(f"SELECT 1 FROM op WHERE id = {int(op)}").rows)


def follow(run: Run, op: int, stage: int) -> tuple[int, ...]:
    """Return the ops of ``stage`` that ``op`` is, became, or was made from, nearest first."""
    present = run.index(stage).ops
    return (op,) if op in present else relatives_in_stage(run, present, stage, run.op_history(op))


def relatives_in_stage(
    run: Run, present: Mapping[int, Op], stage: int, history: OpHistory
) -> tuple[int, ...]:
    """Return the ops ``present`` in ``stage`` that another op became or was made from.

    They follow from its history.

    In a training step they are restricted to those of its phase if any: its gradient derives from
    it but is not what it became.
    """
    descendants = dict.fromkeys(_ranked([s.new for s in history.later], present))
    ancestors = dict.fromkeys(_ranked([s.old for s in history.earlier], present))
    later = history.stages is not None and history.stages[0] > stage
    found = {**ancestors, **descendants} if later else {**descendants, **ancestors}
    in_same_phase = same_phase(run, stage, history.op)
    return tuple([key for key in found if in_same_phase(present[key])] or found)


def outermost(run: Run, op: int, stage: int) -> int:
    """Return the op of ``main`` that contains ``op``: itself, or the enclosing group or launch."""
    around = run.index(stage).around
    while op in around:
        op = around[op]
    return op


def _ranked(keys: Iterable[int], present: Mapping[int, Op]) -> list[int]:
    """Return the keys that are present.

    Ops that compute come before their inputs (constants, broadcasts).
    """
    found = [k for k in dict.fromkeys(keys) if k in present]
    return sorted(found, key=lambda k: FEEDS.get(present[k].kind, 0))


def launches(run: Run) -> dict[int, Op]:
    """Return the launch ops of the last stage, by id, in program order."""
    last = run.version.stages - 1
    return run.cached(
        ("launches", last),
        lambda: {
            run.op_id(op): op for op in run.index(last).module.main.body.ops if op.kind == LAUNCH
        },
    )


def planned_runs(run: Run) -> dict[int, int]:
    """Return how often each launch (by id) runs in an execution, as far as it is static."""
    last = run.version.stages - 1
    return run.cached(
        ("planned runs", last),
        lambda: {
            run.op_id(op): n for op, n in launch_runs(run.index(last).module.main.body.ops).items()
        },
    )


def kernel_by_name(run: Run) -> dict[str, int]:
    return run.cached(
        ("kernel names", run.version.kernels), lambda: {k.name: k.id for k in run.kernels()}
    )


def costliest_launch(run: Run, kernel: int) -> int | None:
    """Return the slowest launch of a kernel (the first one if nothing was measured)."""
    found = next((k for k in run.kernels() if k.id == kernel), None)
    if found is None or not found.launches:
        return None
    times = {t.op: t.median_us or 0.0 for t in run.timings()}
    return max(found.launches, key=lambda op: times.get(op, 0.0))


def writers(run: Run) -> dict[int, int]:
    """Return the first launch that writes each buffer (value id), also after reuse in place."""

    def make() -> dict[int, int]:
        table: dict[int, int] = {}
        owner: dict[Value, Value] = {}
        for op in run.index(run.version.stages - 1).module.main.body.ops:
            if TAKES in op.attributes:
                owner[op.result] = owner.get(op.operands[0], op.operands[0])
        for key, op in launches(run).items():
            for value in written(op):
                table.setdefault(run.value_id(owner.get(value, value)), key)
        return table

    return run.cached(("writers", run.version.stages), make)


def written_by(run: Run, buffer: Buffer) -> int | None:
    """Return the launch that fills a buffer, else the op that defines it."""
    if buffer.value is None:
        return buffer.op
    return writers(run).get(buffer.value, buffer.op)


def writer_of(run: Run, buffer: int) -> int | None:
    """Return the launch that fills a buffer, else the op that defines it."""
    found = next((b for b in run.buffers() if b.id == buffer), None)
    if found is None:
        return None
    return written_by(run, found)


def _kernel_of(run: Run, op: int, kernels: tuple[int, ...]) -> int | None:
    around = run.index(run.version.stages - 1).around.get(op)  # for an op inside a launch
    launch = launches(run).get(op) or launches(run).get(around if around is not None else op)
    if launch is not None:
        return kernel_by_name(run).get(Launch.of(launch).kernel)
    return kernels[0] if kernels else None


def _buffer_of(run: Run, op: int, buffers: tuple[int, ...]) -> int | None:
    launch = launches(run).get(op)
    if launch is not None:
        values = {run.value_id(v) for v in written(launch)}
        return next((b.id for b in run.buffers() if b.value in values), None)
    temporary = [b.id for b in run.buffers() if b.id in set(buffers) and b.kind == "temporary"]
    return temporary[0] if temporary else buffers[0] if buffers else None
