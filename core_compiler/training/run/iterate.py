"""The iterations of a training run, in one process."""

from __future__ import annotations

import time
from typing import Any, Protocol

from core_compiler.ir.events import IterationRecord
from core_compiler.runtime.interrupts import held_back
from core_compiler.training.audit import receipts
from core_compiler.training.audit.probes import watch_of
from core_compiler.training.audit.receipts import Recorder
from core_compiler.training.distributed.rendezvous import Apart
from core_compiler.training.optimisers.loss_scale import SCALE, SKIPPED
from core_compiler.training.run import checkpoint
from core_compiler.training.run.data import Data
from core_compiler.training.run.plan import History, Plan, Watch
from core_compiler.training.run.resume import save
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream


class Share(Protocol):
    """A rank among several processes that run a step's shards.

    Each observes the values of its own shards; the leading one writes the files.
    """

    @property
    def leads(self) -> bool: ...

    def gather(self, what: Any) -> list[Any]:
        """Return the contributions of all processes in the leading one, nothing in the others."""


def iterate(
    step: TrainingStep,
    data: Data | Stream,
    history: History,
    plan: Plan,
    watch: Watch,
    share: Share | None = None,
) -> None:
    """Run the remaining iterations of :func:`fit` in this process, or its share of them."""
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
                    except Apart as error:  # the iteration is done, but not all values are known
                        recorder.ops, lost = {}, error
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
        last = number + 1 == plan.iterations
        if folder is not None and (last or (plan.every and (number + 1) % plan.every == 0)):
            save(step, folder / checkpoint.name_of(number + 1), plan.seed, data.place)
        if lost is not None:
            raise lost
    if folder is not None and 0 < step.iteration == plan.iterations:
        path = folder / checkpoint.name_of(step.iteration)
        if not path.exists():  # the writer of the last iteration was lost before it wrote
            save(step, path, plan.seed, data.place)
