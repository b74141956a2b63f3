"""Training over many iterations: data in order, progress, checkpoints, resuming."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from core_compiler.ir.events import Observer
from core_compiler.numerics.jit import assert_no_flush_to_zero
from core_compiler.runtime.interrupts import held_back
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.inject import Injection
from core_compiler.training.audit.receipts import Recorder
from core_compiler.training.options import whole
from core_compiler.training.run import checkpoint, files, run_file
from core_compiler.training.run.data import Data, for_step
from core_compiler.training.run.iterate import iterate
from core_compiler.training.run.plan import History, Plan, Watch
from core_compiler.training.run.reporting import Telling
from core_compiler.training.run.resume import DATA, restore, save
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream


def fit(
    step: TrainingStep, data: Any, *, iterations: int, batch: int, seed: int = 0,
    folder: str | Path | None = None, every: int = 0, resume: bool = False,
    receipts: str = "off", ops_every: int = 0, inject: Injection | str | None = None,
    watch: Watch = lambda progress: None, workers: int = 1, scheduler: str | None = None,
    observer: Observer | None = None, leaves: str = "fast", begun: Callable[[], None] | None = None,
    task: str = "",
) -> History:  # fmt: skip
    """Run ``step`` until ``iterations`` have been done, on batches of ``data`` (arrays, columns, a
    dataset, an iterable: see :meth:`Data.of`) in the order that ``seed`` fixes.

    ``folder``: where a checkpoint is written after every ``every`` iterations, at the end, and when
    the run is interrupted (then :class:`Stopped` is raised) or cannot go on;
    ``resume``: go on from the newest one there (a folder that has some is refused otherwise).  The
    batches depend on the iteration alone, so a resumed run ends in the bits of one that was never
    stopped.  One that was begun with other seeds, shards or by another version of the numerics
    contract is refused (:func:`restore`).
    ``begun``: called once nothing hinders the run any more, before anything in the folder changes;
    it keeps there how the run is done again.  Without it that is done here, of a run with receipts:
    ``task`` is a function by its name, ``package.module:function``, which takes ``edit`` (a
    ``PipelineEdit`` to compile with) and returns the compiled step and its data, so that
    ``workbench verify`` and ``diverge`` can do an iteration of the run again; where it is left out
    they say what receipts alone can, and
    :meth:`Run.of <core_compiler.training.audit.replay.Run.of>` takes the function itself.

    ``receipts``: ``state`` or ``gradients``, what is hashed in every iteration, and ``ops_every``
    N: in every N-th all values that lie in memory (see
    :mod:`core_compiler.training.audit.receipts`); ``leaves``: ``fast``, or ``sha256`` for
    audits.  Receipts of gradients need a step that keeps them (``Training(keep_gradients=True)``).
    ``inject`` flips the last bit of one element once (see
    :mod:`core_compiler.training.audit.inject`).

    ``workers``: processes that share the shards of every batch (at most as many as there are
    shards), started here or found at the dask ``scheduler``; they change no bit.

    ``observer``: told the compile of ``step`` (which is finished meanwhile where it is not), the
    iterations while they are done, at most twice a second, and the end: with a ``Recorder`` all of
    it is in a recording that others read while it grows.

    UserError on a thread that flushes subnormal numbers to zero, before anything is written.
    """
    assert_no_flush_to_zero()
    workers = whole("fit", "workers", workers, 1, 2**31, "pass 1 or more")
    place = None if folder is None else Path(folder)
    inject = Injection.of(inject) if isinstance(inject, str) else inject
    plan = Plan(iterations, batch, seed, place, every, receipts, ops_every, inject, leaves)
    if task:
        run_file.check_task(task)
    held = for_step(step, data)
    plan.check_folder(resume)
    history = History(step.iteration)
    with ExitStack() as stack:
        if plan.folder is not None:
            stack.enter_context(files.alone(plan.folder))
            plan.check_folder(resume)  # another run may have ended there meanwhile
        if observer is not None:
            facts = {**plan.facts(), "workers": workers}
            history.hear = stack.enter_context(Telling(observer, step, facts)).add
        found = checkpoint.newest(plan.folder) if resume and plan.folder is not None else None
        if found is not None:
            held.begin_at(restore(step, found, seed).get(DATA))
        history.first = step.iteration
        _check(step, held, plan)
        _check_injected(plan, step.iteration)
        if begun is not None:
            begun()
        elif plan.folder is not None and (task or plan.has_receipts):
            _keep(step, plan.folder, plan, task, resume)
        try:
            if workers > 1 or scheduler is not None:
                from core_compiler.training.distributed.workers import run

                run(step, held, history, plan, watch, workers=workers, scheduler=scheduler)
            else:
                iterate(step, held, history, plan, watch)
                history.peak_bytes = step.peak_bytes
        except KeyboardInterrupt:
            if plan.folder is None:
                raise
            raise _stopped(step, plan.folder, plan.seed, held, history) from None
        except UserError:  # a loss that is not finite, workers that are lost
            if plan.folder is not None:
                _save_done(step, plan.folder, plan.seed, held, history)
            raise
    return history


def _keep(step: TrainingStep, folder: Path, plan: Plan, task: str, resume: bool) -> None:
    """How the run is done again; one that goes on without a task is what its folder says."""
    if task or not resume or not (folder / run_file.FILE).exists():
        run_file.write(folder, run_file.of_python(step, plan.facts(), task))


class Stopped(KeyboardInterrupt):
    """An interrupted run: ``iteration`` is the last one that was done, ``kept`` that of the newest
    checkpoint (0: there is none), ``problem`` why the last one could not be written."""

    def __init__(self, iteration: int, kept: int, problem: str = ""):
        self.iteration, self.kept, self.problem = iteration, kept, problem
        said = f"stopped after iteration {iteration}, kept up to iteration {kept}"
        super().__init__(f"{said}: {problem}" if problem else said)


def _stopped(
    step: TrainingStep, folder: Path, seed: int, data: Data | Stream, history: History
) -> Stopped:  # fmt: skip
    problem = _save_done(step, folder, seed, data, history)
    return Stopped(step.iteration, max(checkpoint.all_of(folder), default=0), problem)


def _save_done(
    step: TrainingStep, folder: Path, seed: int, data: Data | Stream, history: History
) -> str:  # fmt: skip
    """Keeps the iterations that were done since the newest checkpoint; why that could not be."""
    path = folder / checkpoint.name_of(step.iteration)
    if step.iteration <= history.first or path.exists():
        return ""
    with held_back():
        try:
            save(step, path, seed, data.place)
        except UserError as error:
            return str(error)
    return ""


def _check(step: TrainingStep, data: Data | Stream, plan: Plan) -> None:
    """UserError where the first iteration would be refused."""
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
        receipts.check_head(path, step.identity, plan.leaves)


def _check_injected(plan: Plan, done: int) -> None:
    """UserError where the folder would say of the iterations that are done another injection than
    they had."""
    if not done or plan.folder is None:
        return
    try:
        said = run_file.read(plan.folder).get("inject")
        begun = Injection.of(str(said)) if said else None
    except UserError:  # nothing says how the run was begun
        return
    before, now = (i if i is not None and i.iteration <= done else None
                   for i in (begun, plan.inject))  # fmt: skip
    if before != now:
        was, given = ("none" if i is None else str(i) for i in (before, now))
        raise UserError(f"the iterations done so far have the injection {was}, got {given}",
                        str(plan.folder), "resume with the settings that the run was started "
                        "with, or start another run in another folder")  # fmt: skip
