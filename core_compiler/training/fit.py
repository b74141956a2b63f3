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
    """What came of a run: the loss of every iteration done in it, and the seconds of each."""

    first: int
    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """After an iteration: its number (from 1 on) of ``total``, its loss, examples a second and the
    seconds that are left, by the mean of the last iterations."""

    iteration: int
    total: int
    loss: float
    rate: float
    left: float


def fit(
    step: TrainingStep, data: Any, *, iterations: int, batch: int, seed: int = 0,
    folder: str | Path | None = None, every: int = 0, resume: bool = False,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> History:  # fmt: skip
    """Run ``step`` until ``iterations`` have been done, on batches of ``data`` (see
    :meth:`Data.of`) in the order that ``seed`` fixes.

    ``folder``: where a checkpoint is written after every ``every`` iterations and at the end;
    ``resume``: go on from the newest one there.  The batches depend on the iteration alone, so a
    resumed run ends in the bits of one that was never stopped.
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
    for number in range(step.iteration, iterations):
        given = held.batch(number, batch, seed)
        began = time.perf_counter()
        loss = step(*given)
        seconds = time.perf_counter() - began
        history.loss.append(loss)
        history.seconds.append(seconds)
        recent = history.seconds[-20:]
        mean = sum(recent) / len(recent)
        watch(Progress(number + 1, iterations, loss, batch / mean if mean else 0.0,
                       mean * (iterations - number - 1)))  # fmt: skip
        last = number + 1 == iterations
        if place is not None and (last or (every and (number + 1) % every == 0)):
            save(step, place / checkpoint.name_of(number + 1), seed)
    return history


def save(step: TrainingStep, path: Path, seed: int = 0) -> None:
    """Write a checkpoint of a training step."""
    checkpoint.write(path, step.whole_state(), {
        "iteration": step.iteration, "digest": step.digest, "data_seed": seed,
        "identity": step.compilation.identity, "contract": CONTRACT_VERSION,
    })  # fmt: skip


def restore(step: TrainingStep, path: Path) -> dict[str, Any]:
    """Set a training step to a checkpoint; its receipt.  UserError where the checkpoint is of
    another step or damaged; then the step stays as it is."""
    state, receipt = checkpoint.read(path)
    if receipt.get("identity") != step.compilation.identity:
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
