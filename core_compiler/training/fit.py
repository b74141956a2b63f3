"""Training over many iterations: data in order, progress, checkpoints, resuming."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core_compiler.errors import UserError
from core_compiler.kernels import CONTRACT_VERSION
from core_compiler.training import checkpoint
from core_compiler.training.data import Data
from core_compiler.training.step import TrainingStep


@dataclass
class History:
    """What came of a run: the loss of every iteration done in it, and the seconds of each;
    ``peak_bytes`` of all its processes."""

    first: int
    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    def add(self, loss: float, seconds: float) -> None:
        self.loss.append(loss)
        self.seconds.append(seconds)

    def progress(self, total: int, batch: int) -> Progress:
        """Where the run stands; ``batch`` examples an iteration."""
        recent = self.seconds[-20:]
        mean = sum(recent) / len(recent)
        done = self.first + len(self.loss)
        return Progress(done, total, self.loss[-1], batch / mean if mean else 0.0,
                        mean * (total - done))  # fmt: skip


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


def fit(
    step: TrainingStep, data: Any, *, iterations: int, batch: int, seed: int = 0,
    folder: str | Path | None = None, every: int = 0, resume: bool = False,
    watch: Watch = lambda progress: None, workers: int = 1, scheduler: str | None = None,
) -> History:  # fmt: skip
    """Run ``step`` until ``iterations`` have been done, on batches of ``data`` (see
    :meth:`Data.of`) in the order that ``seed`` fixes.

    ``folder``: where a checkpoint is written after every ``every`` iterations and at the end;
    ``resume``: go on from the newest one there.  The batches depend on the iteration alone, so a
    resumed run ends in the bits of one that was never stopped.

    ``workers``: processes that share the shards of every batch (at most as many as there are
    shards), started here or found at the dask ``scheduler``; they change no bit.
    """
    if iterations < 0 or batch < 1:
        raise UserError(f"{iterations} iterations of {batch} examples", "fit",
                        "give 0 or more iterations of 1 or more examples")  # fmt: skip
    held = Data.of(data)
    place = None if folder is None else Path(folder)
    if resume:
        if place is None:
            raise UserError("there is no folder to resume from", "resume", "give the folder")
        found = checkpoint.newest(place)
        if found is not None:
            restore(step, found)
    history = History(step.iteration)
    if workers > 1 or scheduler is not None:
        from core_compiler.training.workers import run

        run(step, held, history, iterations=iterations, batch=batch, seed=seed, folder=place,
            every=every, watch=watch, workers=workers, scheduler=scheduler)  # fmt: skip
    else:
        iterate(step, held, history, iterations=iterations, batch=batch, seed=seed, folder=place,
                every=every, watch=watch)  # fmt: skip
        history.peak_bytes = step.peak_bytes
    return history


def iterate(
    step: TrainingStep, data: Data, history: History, *, iterations: int, batch: int, seed: int,
    folder: Path | None, every: int, watch: Watch,
) -> None:  # fmt: skip
    """The iterations of :func:`fit` that are still to do, in this process."""
    for number in range(step.iteration, iterations):
        given = data.batch(number, batch, seed)
        began = time.perf_counter()
        loss = step(*given)
        history.add(loss, time.perf_counter() - began)
        watch(history.progress(iterations, batch))
        last = number + 1 == iterations
        if folder is not None and (last or (every and (number + 1) % every == 0)):
            save(step, folder / checkpoint.name_of(number + 1), seed)


def save(step: TrainingStep, path: Path, seed: int = 0) -> None:
    """Write a checkpoint of a training step."""
    checkpoint.write(path, step.whole_state(), {
        "iteration": step.iteration, "digest": step.digest, "data_seed": seed,
        "identity": step.identity, "contract": CONTRACT_VERSION,
    })  # fmt: skip


def restore(step: TrainingStep, path: Path) -> dict[str, Any]:
    """Set a training step to a checkpoint; its receipt.  UserError where the checkpoint is of
    another step or damaged; then the step stays as it is."""
    state, receipt = checkpoint.read(path)
    if receipt.get("identity") != step.identity:
        raise UserError("the checkpoint is of another training step", str(path),
                        "resume with the model and the configuration that it was written "
                        "with")  # fmt: skip
    before = step.whole_state()
    missing = before.keys() - state.keys()
    if missing:
        raise UserError(f"the checkpoint lacks {', '.join(sorted(missing)[:3])}", str(path),
                        "resume from another one")  # fmt: skip
    step.load_state_dict(state)
    if step.digest != receipt.get("digest"):
        step.load_state_dict(before)
        raise UserError("the checkpoint's tensors are not those that its receipt names", str(path),
                        "resume from an older one")  # fmt: skip
    return receipt
