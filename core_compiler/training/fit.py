"""Training over many iterations: data order, progress, checkpoints, resuming."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from core_compiler.ir.events import Observer
from core_compiler.numerics.jit import assert_no_flush_to_zero
from core_compiler.runtime.interrupts import deferred_interrupts
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.inject import Injection
from core_compiler.training.audit.receipts import Recorder
from core_compiler.training.options import whole
from core_compiler.training.run import checkpoint, files, run_file
from core_compiler.training.run.data import Data, for_step
from core_compiler.training.run.iterate import iterate
from core_compiler.training.run.last_batch import decided
from core_compiler.training.run.plan import History, Plan, Watch
from core_compiler.training.run.reporting import RunReporter
from core_compiler.training.run.resume import DATA, DROP_LAST, restore, save
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream


def fit(
    step: TrainingStep,
    data: Any,
    *,
    iterations: int,
    batch: int,
    seed: int = 0,
    folder: str | Path | None = None,
    every: int = 0,
    resume: bool = False,
    receipts: str = "off",
    ops_every: int = 0,
    inject: Injection | str | None = None,
    watch: Watch = lambda progress: None,
    workers: int = 1,
    scheduler: str | None = None,
    observer: Observer | None = None,
    leaves: str = "fast",
    on_start: Callable[[], None] | None = None,
    task: str = "",
    drop_last: bool | None = None,
) -> History:
    """Run ``step`` until ``iterations`` are done.

    The batches of ``data`` (arrays, columns, a dataset, an iterable: see :meth:`Data.of`) come in
    the order that ``seed`` determines.

    ``drop_last``: whether the examples that are left over at the end of an epoch are left out. By
    default they are a smaller batch if the model can be compiled for it (``History.left_out`` says
    why not); of an iterable, whose length is unknown, they are left out.

    ``folder``: a checkpoint is written there after every ``every`` iterations, at the end, and when
    the run is interrupted (then :class:`Stopped` is raised) or fails. ``resume``: continue from the
    newest checkpoint in it (without it, a folder with checkpoints is rejected). The batches depend
    only on the iteration, so a resumed run ends with the bits of an uninterrupted one. A run with
    other seeds, shards or another version of the numerics contract is rejected (:func:`restore`).

    ``on_start``: called when all checks have passed, before anything in the folder changes; it
    stores there how to repeat the run. Without it, ``fit`` does so for a run with receipts:
    ``task`` names a function ``package.module:function`` that takes ``edit`` (a ``PipelineEdit`` to
    compile with) and returns the compiled step and its data, so that ``workbench verify`` and
    ``diverge`` can repeat an iteration of the run. Without ``task`` they use only the receipts, and
    :meth:`Run.of <core_compiler.training.audit.replay.Run.of>` takes the function itself.

    ``receipts``: ``state`` or ``gradients``, what is hashed in every iteration; ``ops_every`` N:
    all values that are in memory are hashed in every N-th iteration (see
    :mod:`core_compiler.training.audit.receipts`); ``leaves``: ``fast``, or ``sha256`` for audits.
    Receipts of gradients need a step that keeps them (``Training(keep_gradients=True)``).
    ``inject`` flips the last bit of one element once (see
    :mod:`core_compiler.training.audit.inject`).

    ``workers``: the number of processes that share the shards of every batch (at most the number of
    shards), started here or found at the dask ``scheduler``; they change no bit.

    ``observer``: receives the compile of ``step`` (which is finished first if necessary), the
    iterations while they run, at most twice a second, and the end. A ``Recorder`` stores all of it
    in a recording that others can read while it grows.

    Raise UserError on a thread that flushes subnormal numbers to zero, before anything is written.
    """
    assert_no_flush_to_zero()
    workers = whole("fit", "workers", workers, 1, 2**31, "pass 1 or more")
    path = None if folder is None else Path(folder)
    inject = Injection.of(inject) if isinstance(inject, str) else inject
    plan = Plan(
        iterations, batch, seed, path, every, receipts, ops_every, inject, leaves, drop_last
    )
    if task:
        run_file.check_task(task)
    source = for_step(step, data)
    plan.check_folder(resume)
    history = History(step.iteration)
    with ExitStack() as stack:
        if plan.folder is not None:
            stack.enter_context(files.lock_folder(plan.folder))
            plan.check_folder(resume)  # another run may have ended there in the meantime
        if observer is not None:
            facts = {**plan.facts(), "workers": workers}
            history.on_iteration = stack.enter_context(RunReporter(observer, step, facts)).add
        recorded = None
        found = checkpoint.newest(plan.folder) if resume and plan.folder is not None else None
        if found is not None:
            receipt = restore(step, found, seed)
            source.resume_at(receipt.get(DATA))
            recorded = receipt.get(DROP_LAST, True)
        plan, history.left_out = decided(plan, step, source, recorded)
        _check_workers(source, plan, workers, scheduler)
        history.first = step.iteration
        _check(step, source, plan)
        _check_injected(plan, step.iteration)
        if on_start is not None:
            on_start()
        elif plan.folder is not None and (task or plan.has_receipts):
            _store_run_file(step, plan.folder, plan, task, resume)
        try:
            if workers > 1 or scheduler is not None:
                from core_compiler.training.distributed.workers import run

                run(step, source, history, plan, watch, workers=workers, scheduler=scheduler)
            else:
                iterate(step, source, history, plan, watch)
                history.peak_bytes = step.peak_bytes
        except KeyboardInterrupt:
            if plan.folder is None:
                raise
            raise _save_stopped(step, plan, source, history) from None
        except UserError:  # a loss that is not finite, or lost workers
            if plan.folder is not None:
                _save_finished(step, plan, source, history)
            raise
    return history


def _store_run_file(step: TrainingStep, folder: Path, plan: Plan, task: str, resume: bool) -> None:
    """Store how to repeat the run; a resumed run without a task keeps the stored one."""
    if task or not resume or not (folder / run_file.FILE).exists():
        run_file.write(folder, run_file.describe_python_run(step, plan.facts(), task))


class Stopped(KeyboardInterrupt):
    """An interrupted run.

    ``iteration`` is the last finished iteration, ``checkpoint_iteration`` that of the newest
    checkpoint (0: none), and ``problem`` the reason why the last checkpoint could not be written.
    """

    def __init__(self, iteration: int, checkpoint_iteration: int, problem: str = ""):
        self.iteration, self.checkpoint_iteration, self.problem = (
            iteration,
            checkpoint_iteration,
            problem,
        )
        message = (
            f"stopped after iteration {iteration}, kept up to iteration {checkpoint_iteration}"
        )
        super().__init__(f"{message}: {problem}" if problem else message)


def _check_workers(data: Data | Stream, plan: Plan, workers: int, scheduler: str | None) -> None:
    """Raise UserError if workers would need a program whose size is unknown before it is read."""
    if isinstance(data, Stream) and plan.drop_last is False and (workers > 1 or scheduler):
        raise UserError(
            "the size of an iterable's last batch is unknown, which workers do not support",
            "drop_last",
            "leave it out (drop_last=True), pass arrays, or train without workers",
        )


def _save_stopped(step: TrainingStep, plan: Plan, data: Data | Stream, history: History) -> Stopped:
    problem = _save_finished(step, plan, data, history)
    assert plan.folder is not None
    last_kept = max(checkpoint.list_checkpoints(plan.folder), default=0)
    return Stopped(step.iteration, last_kept, problem)


def _save_finished(step: TrainingStep, plan: Plan, data: Data | Stream, history: History) -> str:
    """Save the iterations since the newest checkpoint; return the error if that fails."""
    assert plan.folder is not None
    path = plan.folder / checkpoint.name_of(step.iteration)
    if step.iteration <= history.first or path.exists():
        return ""
    with deferred_interrupts():
        try:
            save(step, path, plan.seed, data.position, plan.drop_last)
        except UserError as error:
            return str(error)
    return ""


def _check(step: TrainingStep, data: Data | Stream, plan: Plan) -> None:
    """Raise UserError if the first iteration would be rejected."""
    if step.iteration < plan.iterations:
        data.check(step.iteration, plan.batch)
    if plan.inject is not None:
        plan.inject.probe(step.names, step.probes)
    if not plan.has_receipts or plan.folder is None:
        return
    Recorder(step.probes, plan.receipts, plan.ops_every, leaves=plan.leaves)
    if plan.receipts == "gradients":
        receipts.need_gradients(step.probes)
    path = plan.folder / receipts.FILE
    if step.iteration and path.exists():
        receipts.check_header(path, step.identity, plan.leaves)


def _check_injected(plan: Plan, done: int) -> None:
    """Raise UserError if the folder would record another injection for the finished iterations."""
    if not done or plan.folder is None:
        return
    try:
        text = run_file.read(plan.folder).get("inject")
        recorded = Injection.of(str(text)) if text else None
    except UserError:  # the start of the run is not recorded
        return
    before, now = (
        i if i is not None and i.iteration <= done else None for i in (recorded, plan.inject)
    )
    if before != now:
        was, given = ("none" if i is None else str(i) for i in (before, now))
        raise UserError(
            f"the iterations done so far have the injection {was}, got {given}",
            str(plan.folder),
            "resume with the settings that the run was started "
            "with, or start another run in another folder",
        )
