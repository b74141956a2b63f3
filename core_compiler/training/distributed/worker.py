"""The worker process: it runs its shards of every batch until all iterations are done."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.training.distributed.package import Package, PackedStep
from core_compiler.training.distributed.rendezvous import (
    CoordinatorUnreachable,
    Rank,
    RendezvousInfo,
    WorkerLost,
)
from core_compiler.training.graph.joint import names
from core_compiler.training.run import checkpoint
from core_compiler.training.run.data import Data
from core_compiler.training.run.iterate import iterate
from core_compiler.training.run.plan import History, Plan, Progress
from core_compiler.training.run.step import LossNotFinite
from core_compiler.training.run.stream import Stream


@dataclass(frozen=True)
class Job:
    """The description of a run that all workers share."""

    run: str
    plan: Plan
    threads: int


#: The steps of this process by run: after another worker is lost, a worker keeps its own step.
_STEPS: dict[str, PackedStep] = {}


def train(
    job: Job,
    package: Package,
    data: Data | Stream,
    info: RendezvousInfo,
    shard_indices: Sequence[int],
    state: bytes | None,
    shared: bool = True,
) -> dict[str, Any]:
    """Train until the job is done, a loss is not finite, or another worker is lost.

    ``shard_indices`` are the numbers of this worker's shards, counted from 0 for the first worker.
    ``state`` is the initial checkpoint, or None to continue from the state of this process.
    """
    try:
        rank = Rank(info, shard_indices, shared)
    except (WorkerLost, CoordinatorUnreachable) as error:
        step = _STEPS.get(job.run)
        iteration = step.iteration if step else None
        return {"ended": "apart", "iteration": iteration, "told": [], "unreached": str(error)}
    try:
        return _train(job, package, data, rank, state)
    finally:
        rank.close()


def _train(job: Job, package: Package, data: Data | Stream, rank: Rank, state) -> dict[str, Any]:
    step = _step(job, package, rank, state)
    history = History(step.iteration)

    def report(progress: Progress) -> None:
        if rank.is_leader:
            rank.report(history.rows[-1])

    outcome: dict[str, Any] = {"ended": "done"}
    try:
        iterate(step, data, history, job.plan, report, rank)
        rank.leave()
    except WorkerLost:
        outcome["ended"] = "apart"
    except LossNotFinite as error:
        outcome |= {"ended": "not finite", "loss": error.loss}
    else:
        outcome |= {"digest": step.digest, "peak_bytes": step.peak_bytes}
    return outcome | {"iteration": step.iteration, "told": history.rows}


def _step(job: Job, package: Package, rank: Rank, state: bytes | None) -> PackedStep:
    step = _STEPS.get(job.run)
    if step is None:
        _STEPS.clear()  # a worker has one run at a time
        assert state is not None
        tensors, _ = checkpoint.decode(state, "the first state")
        arrays = [tensors[name] for name in names(package.roles)]
        step = _STEPS[job.run] = PackedStep(package, arrays, job.threads)
    elif state is not None:
        step.load_state_dict(checkpoint.decode(state, "another worker's state")[0])
    step.assign_shards(rank.shard_indices, rank.all_reduce)
    return step


def iteration_of(run: str) -> int | None:
    """Return the number of iterations done by this process's step, or None if it has no step."""
    step = _STEPS.get(run)
    return None if step is None else step.iteration


def state_of(run: str) -> bytes | None:
    """Return the state of this process's step as a checkpoint, or None if it has no step."""
    step = _STEPS.get(run)
    if step is None:
        return None
    return checkpoint.encode(step.whole_state(), {"iteration": step.iteration})


def dask_setup(_: Any) -> None:
    """Ignore Ctrl-C in a worker that this process started.

    The worker belongs to the terminal's process group, but the process that began the run stops it
    after fetching its state.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def forget(run: str) -> None:
    """Release the state of a finished run."""
    _STEPS.pop(run, None)
