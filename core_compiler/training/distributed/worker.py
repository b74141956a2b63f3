"""The worker process: it runs its shards of every batch until all iterations are done."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.training.distributed.package import Package, PackedStep
from core_compiler.training.distributed.rendezvous import Apart, Place, Seat, Unreached
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
    place: Place,
    own: Sequence[int],
    state: bytes | None,
    shared: bool = True,
) -> dict[str, Any]:
    """Train until the job is done, a loss is not finite, or another worker is lost.

    ``own`` are the numbers of this worker's shards, counted from 0 for the first worker. ``state``
    is the initial checkpoint, or None to continue from the state of this process.
    """
    try:
        seat = Seat(place, own, shared)
    except (Apart, Unreached) as error:
        step = _STEPS.get(job.run)
        iteration = step.iteration if step else None
        return {"ended": "apart", "iteration": iteration, "told": [], "unreached": str(error)}
    try:
        return _train(job, package, data, seat, state)
    finally:
        seat.close()


def _train(job: Job, package: Package, data: Data | Stream, seat: Seat, state) -> dict[str, Any]:
    step = _step(job, package, seat, state)
    history = History(step.iteration)

    def tell(progress: Progress) -> None:
        if seat.leads:
            seat.tell(history.rows[-1])

    made: dict[str, Any] = {"ended": "done"}
    try:
        iterate(step, data, history, job.plan, tell, seat)
        seat.leave()
    except Apart:
        made["ended"] = "apart"
    except LossNotFinite as error:
        made |= {"ended": "not finite", "loss": error.loss}
    else:
        made |= {"digest": step.digest, "peak_bytes": step.peak_bytes}
    return made | {"iteration": step.iteration, "told": history.rows}


def _step(job: Job, package: Package, seat: Seat, state: bytes | None) -> PackedStep:
    step = _STEPS.get(job.run)
    if step is None:
        _STEPS.clear()  # a worker has one run at a time
        assert state is not None
        held, _ = checkpoint.decoded(state, "the first state")
        arrays = [held[name] for name in names(package.roles)]
        step = _STEPS[job.run] = PackedStep(package, arrays, job.threads)
    elif state is not None:
        step.load_state_dict(checkpoint.decoded(state, "another worker's state")[0])
    step.meet(seat.own, seat.join)
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
    return checkpoint.encoded(step.whole_state(), {"iteration": step.iteration})


def dask_setup(_: Any) -> None:
    """Ignore Ctrl-C in a worker that this process started.

    The worker belongs to the terminal's process group, but the process that began the run stops it
    after fetching its state.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def forget(run: str) -> None:
    """Release the state of a finished run."""
    _STEPS.pop(run, None)
