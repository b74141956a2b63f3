"""The iterations of a training run, in one process."""

from __future__ import annotations

import time
from typing import Any, Protocol

from core_compiler.ir.events import IterationRecord
from core_compiler.runtime.interrupts import deferred_interrupts
from core_compiler.training.audit import receipts
from core_compiler.training.audit.probes import combine_watches
from core_compiler.training.audit.receipts import Recorder
from core_compiler.training.distributed.rendezvous import WorkerLost
from core_compiler.training.optimisers.loss_scale import SCALE, SKIPPED
from core_compiler.training.run import checkpoint
from core_compiler.training.run.data import Data
from core_compiler.training.run.plan import History, Plan, Watch
from core_compiler.training.run.resume import save
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream


class WorkerRank(Protocol):
    """A rank among several processes that run a step's shards.

    Each observes the values of its own shards; the leading one writes the files.
    """

    @property
    def is_leader(self) -> bool: ...

    def gather(self, value: Any) -> list[Any]:
        """Return the contributions of all processes in the leading one, nothing in the others."""


def iterate(
    step: TrainingStep,
    data: Data | Stream,
    history: History,
    plan: Plan,
    watch: Watch,
    rank: WorkerRank | None = None,
) -> None:
    """Run the remaining iterations of :func:`fit` in this process, or its share of them."""
    is_leader = rank is None or rank.is_leader
    folder = plan.folder if is_leader else None
    recorder = None
    if plan.has_receipts:
        if plan.receipts == "gradients":
            receipts.need_gradients(step.probes)
        recorder = Recorder(step.probes, plan.receipts, plan.ops_every, is_leader, plan.leaves)
        if folder is not None:
            path = folder / receipts.FILE
            if step.iteration and path.exists():
                recorder.before = receipts.keep(path, step.iteration)
            else:
                receipts.begin(path, step.identity, step.names, plan.leaves)
    for number in range(step.iteration, plan.iterations):
        examples = data.batch(number, plan.batch, plan.seed, plan.drop_last)
        factor, root = step.number(SCALE), ""
        worker_lost: WorkerLost | None = None
        began = time.perf_counter()
        if plan.inject or recorder:
            probes = step.bound(examples).probes
            step.watch = combine_watches(
                [
                    plan.inject.watch(step.names, probes, number + 1) if plan.inject else None,
                    recorder.watch(number + 1, probes) if recorder else None,
                ]
            )
        with deferred_interrupts():  # an iteration without its receipt would leave a gap
            try:
                loss = step(*examples)
            finally:
                step.watch = None
            if recorder is not None:
                if rank is not None and recorder.hashes_all_values(number + 1):
                    try:
                        recorder.add(rank.gather(recorder.ops))
                    except (
                        WorkerLost
                    ) as error:  # the iteration is done, but not all values are known
                        recorder.ops, worker_lost = {}, error
                if folder is not None:
                    receipt = recorder.receipt(number + 1, loss, step)
                    receipts.add(folder / receipts.FILE, [receipt])
                    root = receipt.root
            history.add(
                IterationRecord(
                    number + 1,
                    loss,
                    time.perf_counter() - began,
                    root,
                    loss_scale=factor,
                    skipped=step.number(SKIPPED),
                )
            )
        watch(history.progress(plan.iterations, plan.batch))
        is_last = number + 1 == plan.iterations
        if folder is not None and (is_last or (plan.every and (number + 1) % plan.every == 0)):
            save(
                step,
                folder / checkpoint.name_of(number + 1),
                plan.seed,
                data.position,
                plan.drop_last,
            )
        if worker_lost is not None:
            raise worker_lost
    if folder is not None and 0 < step.iteration == plan.iterations:
        path = folder / checkpoint.name_of(step.iteration)
        if not path.exists():  # the writer of the last iteration was lost before it wrote
            save(step, path, plan.seed, data.position, plan.drop_last)
