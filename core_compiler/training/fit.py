"""Training over many iterations: data in order, progress, checkpoints, resuming."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from core_compiler.ir.events import IterationRecord, Observer
from core_compiler.kernels import CONTRACT_VERSION
from core_compiler.kernels._numba import assert_no_flush_to_zero
from core_compiler.kernels.contract import need_current
from core_compiler.runtime.interrupts import held_back
from core_compiler.support.errors import UserError
from core_compiler.training import checkpoint, files, receipts, run_file
from core_compiler.training.data import Data, for_step
from core_compiler.training.inject import Injection
from core_compiler.training.loss_scale import SCALE, SKIPPED
from core_compiler.training.meeting import Apart
from core_compiler.training.options import SEEDS, whole
from core_compiler.training.probes import watch_of
from core_compiler.training.receipts import Recorder
from core_compiler.training.roles import ITERATION
from core_compiler.training.step import TrainingStep
from core_compiler.training.stream import Stream
from core_compiler.training.telling import Telling


@dataclass
class History:
    """What came of a run: a row for every iteration done in it, the first one after ``first``;
    ``peak_bytes`` of all its processes."""

    first: int
    rows: list[IterationRecord] = field(default_factory=list)
    peak_bytes: int = 0
    #: Told every iteration that is done.
    hear: Callable[[IterationRecord], None] = lambda row: None

    @property
    def loss(self) -> list[float]:
        return [row.loss for row in self.rows]

    @property
    def seconds(self) -> list[float]:
        return [row.seconds for row in self.rows]

    def add(self, row: IterationRecord) -> None:
        self.rows.append(row)
        self.hear(row)

    def progress(self, total: int, batch: int) -> Progress:
        """Where the run stands; ``batch`` examples an iteration."""
        recent = [row.seconds for row in self.rows[-20:]]
        mean = sum(recent) / len(recent)
        last = self.rows[-1]
        return Progress(last.number, total, last.loss, batch / mean if mean else 0.0,
                        mean * (total - last.number))  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """After an iteration: its number (from 1 on) of ``total``, its loss, examples a second and the
    seconds that are left, by the mean of the last iterations."""

    iteration: int
    total: int
    loss: float
    rate: float
    left: float


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Plan:
    """What a run does, apart from the step itself: see :func:`fit`."""

    iterations: int
    batch: int
    seed: int = 0
    folder: Path | None = None
    every: int = 0
    receipts: str = "off"
    ops_every: int = 0
    inject: Injection | None = None
    leaves: str = "fast"

    def __post_init__(self) -> None:
        for name, low in (("iterations", 0), ("batch", 1), ("every", 0), ("ops_every", 0)):
            held = whole("fit", name, getattr(self, name), low, 2**63 - 1,
                         f"give a whole number of {low} or more")  # fmt: skip
            object.__setattr__(self, name, held)
        object.__setattr__(self, "seed", whole("fit", "seed", self.seed, *SEEDS))
        if self.has_receipts and self.folder is None:
            raise UserError("there is no folder for receipts", "receipts", "give a folder")
        receipts.leaf_of(self.leaves)

    @property
    def has_receipts(self) -> bool:
        return self.receipts != "off" or self.ops_every > 0

    @staticmethod
    def of(facts: Mapping[str, Any], folder: Path) -> Plan:
        """The plan whose :meth:`facts` a run's folder keeps; KeyError, TypeError or ValueError
        where they are none."""
        held = {name: facts[name] for name in Plan.__dataclass_fields__ if name != "folder"}
        inject = held["inject"]
        try:
            inject = Injection.of(inject) if inject else None
            return Plan(**{**held, "inject": inject}, folder=folder)
        except UserError as error:
            raise ValueError(error.what) from None

    def facts(self) -> dict[str, Any]:
        """What a recording says of it."""
        held = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **held, "folder": "" if self.folder is None else str(self.folder.absolute()),
            "inject": "" if self.inject is None else str(self.inject),
        }  # fmt: skip

    def check_folder(self, resume: bool) -> None:
        """UserError where the folder cannot be begun in, or resumed from."""
        if resume and self.folder is None:
            raise UserError("there is no folder to resume from", "resume", "give the folder")
        if not resume and self.folder is not None and checkpoint.newest(self.folder) is not None:
            raise UserError(
                "there are checkpoints of a run in the folder", str(self.folder),
                "go on with --resume (resume=True), or choose another folder",
            )  # fmt: skip


def share_out(shards: int, workers: int) -> None:
    """UserError where some workers would have no shard."""
    if workers > shards:
        raise UserError(
            f"{workers} workers for {shards} shard{'s' if shards > 1 else ''}", "workers",
            f"cut the batch with --shards {workers} or Training(shards={workers}): shards are part "
            "of what is computed, workers are not",
        )  # fmt: skip


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
    :meth:`Run.of <core_compiler.training.replay.Run.of>` takes the function itself.

    ``receipts``: ``state`` or ``gradients``, what is hashed in every iteration, and ``ops_every``
    N: in every N-th all values that lie in memory (see :mod:`core_compiler.training.receipts`);
    ``leaves``: ``fast``, or ``sha256`` for audits.  Receipts of gradients need a step that keeps
    them (``Training(keep_gradients=True)``).
    ``inject`` flips the last bit of one element once (see :mod:`core_compiler.training.inject`).

    ``workers``: processes that share the shards of every batch (at most as many as there are
    shards), started here or found at the dask ``scheduler``; they change no bit.

    ``observer``: told the compile of ``step`` (which is finished meanwhile where it is not), the
    iterations while they are done, at most twice a second, and the end: with a ``Recorder`` all of
    it is in a recording that others read while it grows.

    UserError on a thread that flushes subnormal numbers to zero, before anything is written.
    """
    assert_no_flush_to_zero()
    workers = whole("fit", "workers", workers, 1, 2**31, "give 1 or more")
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
                from core_compiler.training.workers import run

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
        raise UserError(f"the iterations that are done have the injection {was}, given {given}",
                        str(plan.folder), "resume with what the run was begun with, or begin "
                        "another run in another folder")  # fmt: skip


class Share(Protocol):
    """One of several processes that run a step's shards: all see their own ones' values, one of
    them leads and writes what is kept."""

    @property
    def leads(self) -> bool: ...

    def gather(self, what: Any) -> list[Any]:
        """What all give, for the one that leads; nothing for the others."""


def iterate(
    step: TrainingStep, data: Data | Stream, history: History, plan: Plan, watch: Watch,
    share: Share | None = None,
) -> None:  # fmt: skip
    """The iterations of :func:`fit` that are still to do, in this process; ``share``: it is one of
    several."""
    leads = share is None or share.leads
    folder = plan.folder if leads else None
    recorder = probe = None
    if plan.inject is not None:
        probe = plan.inject.probe(step.names, step.probes)
    if plan.has_receipts:
        if plan.receipts == "gradients":
            receipts.need_gradients(step.probes)
        recorder = Recorder(step.probes, plan.receipts, plan.ops_every, leads, plan.leaves)
        if folder is not None:
            path = folder / receipts.FILE
            if step.iteration and path.exists():
                recorder.before = receipts.keep(path, step.iteration)
            else:
                receipts.begin(path, step.identity, step.names, plan.leaves)
    for number in range(step.iteration, plan.iterations):
        given = data.batch(number, plan.batch, plan.seed)
        factor, root = step.number(SCALE), ""
        lost: Apart | None = None
        began = time.perf_counter()
        watches = [
            *([plan.inject.watch(probe, number + 1)] if plan.inject and probe else []),
            *([recorder.watch(number + 1)] if recorder else []),
        ]
        step.watch = watch_of(watches)
        with held_back():  # an iteration without its receipt would leave a gap
            try:
                loss = step(*given)
            finally:
                step.watch = None
            if recorder is not None:
                if share is not None and recorder.whole(number + 1):
                    try:
                        recorder.add(share.gather(recorder.ops))
                    except Apart as error:  # the iteration is done; its values are not all known
                        recorder.ops, lost = {}, error
                if folder is not None:
                    receipt = recorder.receipt(number + 1, loss, step)
                    receipts.add(folder / receipts.FILE, [receipt])
                    root = receipt.root
            history.add(IterationRecord(
                number + 1, loss, time.perf_counter() - began, root, loss_scale=factor,
                skipped=step.number(SKIPPED),
            ))  # fmt: skip
        watch(history.progress(plan.iterations, plan.batch))
        last = number + 1 == plan.iterations
        if folder is not None and (last or (plan.every and (number + 1) % plan.every == 0)):
            save(step, folder / checkpoint.name_of(number + 1), plan.seed, data.place)
        if lost is not None:
            raise lost
    if folder is not None and 0 < step.iteration == plan.iterations:
        path = folder / checkpoint.name_of(step.iteration)
        if not path.exists():  # who had done the last iteration was lost before it wrote
            save(step, path, plan.seed, data.place)


#: Where a receipt has the place of data that are read as a stream.
DATA = "data"


def save(
    step: TrainingStep, path: Path, seed: int = 0, place: Mapping[str, int] | None = None
) -> None:
    """Write a checkpoint of a training step; ``seed`` of the data's order, ``place`` where they
    stand."""
    checkpoint.write(path, step.whole_state(), {
        "iteration": step.iteration, "digest": step.digest, "seed": step.seed, "data_seed": seed,
        "shards": step.shards, "identity": step.identity, "contract": CONTRACT_VERSION,
        **({DATA: dict(place)} if place else {}),
    })  # fmt: skip


def restore(step: TrainingStep, path: Path, data_seed: int | None = None) -> dict[str, Any]:
    """Set a training step to a checkpoint; its receipt.  ``data_seed``: that of the data which the
    run would go on with.  UserError where the checkpoint is of another step, was written under
    other seeds, shards or another version of the contract, or is damaged; then the step stays as it
    is."""
    state, receipt = checkpoint.read(path)
    _compare(step, receipt, data_seed, str(path))
    return _taken(step, state, receipt, path)


def begin_at(step: TrainingStep, path: Path) -> dict[str, Any]:
    """The same of a checkpoint that was written under whatever seeds."""
    return _taken(step, *checkpoint.read(path), path)


def _taken(
    step: TrainingStep, state: Mapping[str, np.ndarray], receipt: dict[str, Any], path: Path
) -> dict[str, Any]:
    need_current(receipt.get("contract", CONTRACT_VERSION), "the checkpoint was", str(path),
                 "begin at it")  # fmt: skip
    if receipt.get("identity") != step.identity:
        raise UserError("the checkpoint is of another training step", str(path),
                        "resume with the model and the configuration that it was written "
                        "with")  # fmt: skip
    before = step.whole_state()
    missing = before.keys() - state.keys()
    if missing:
        raise UserError(f"the checkpoint lacks {', '.join(sorted(missing)[:3])}", str(path),
                        checkpoint.OLDER)  # fmt: skip
    step.load_state_dict(state)
    if step.digest != receipt.get("digest") or step.iteration != receipt.get(ITERATION):
        step.load_state_dict(before)
        raise UserError("the checkpoint's tensors are not those that its receipt names", str(path),
                        checkpoint.OLDER)  # fmt: skip
    return receipt


def _compare(
    step: TrainingStep, receipt: Mapping[str, Any], data_seed: int | None, where: str
) -> None:
    """UserError where a run was begun with something else than it would go on with.  What receipts
    of before do not say is not compared."""
    need_current(receipt.get("contract", CONTRACT_VERSION), "the checkpoint was", where, "resume")
    given = {
        "seed": ("seed of the training", step.seed),
        "data_seed": ("seed of the data's order", data_seed),
        "shards": ("shards", step.shards),
    }
    other = [
        f"{what} {receipt[key]!r}, given {value}" for key, (what, value) in given.items()
        if value is not None and key in receipt and receipt[key] != value
    ]  # fmt: skip
    if not other:
        return
    raise UserError(f"the checkpoint has {'; '.join(other)}", where,
                    "resume with what the run was begun with, or begin another in another "
                    "folder")  # fmt: skip
