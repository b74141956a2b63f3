"""The request and the outcome of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core_compiler.ir.events import IterationRecord
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.inject import Injection
from core_compiler.training.options import SEEDS, flag, whole
from core_compiler.training.run import checkpoint


@dataclass
class History:
    """The outcome of a run.

    It has a row for every iteration done in it, beginning after ``first``, and the ``peak_bytes``
    of all its processes.
    """

    first: int
    rows: list[IterationRecord] = field(default_factory=list)
    peak_bytes: int = 0
    #: Which examples are left out at the end of each epoch, and why ("": none, or as asked for).
    left_out: str = ""
    #: Called for every finished iteration.
    on_iteration: Callable[[IterationRecord], None] = lambda row: None

    @property
    def loss(self) -> list[float]:
        return [row.loss for row in self.rows]

    @property
    def seconds(self) -> list[float]:
        return [row.seconds for row in self.rows]

    def add(self, row: IterationRecord) -> None:
        self.rows.append(row)
        self.on_iteration(row)

    def progress(self, total: int, batch: int) -> Progress:
        """Return the progress of the run, with ``batch`` examples per iteration."""
        recent = [row.seconds for row in self.rows[-20:]]
        mean = sum(recent) / len(recent)
        last = self.rows[-1]
        return Progress(
            last.number,
            total,
            last.loss,
            batch / mean if mean else 0.0,
            mean * (total - last.number),
        )


@dataclass(frozen=True)
class Progress:
    """The progress after an iteration.

    It has the iteration's number (from 1 on) of ``total``, its loss, examples per second and the
    seconds left, by the mean of the last iterations.
    """

    iteration: int
    total: int
    loss: float
    rate: float
    seconds_left: float


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Plan:
    """The parameters of a run apart from the step itself: see :func:`fit`."""

    iterations: int
    batch: int
    seed: int = 0
    folder: Path | None = None
    every: int = 0
    receipts: str = "off"
    ops_every: int = 0
    inject: Injection | None = None
    leaves: str = "fast"
    #: Whether the examples that are left over at the end of an epoch are left out; None: undecided,
    #: because no epoch ends in the run.
    drop_last: bool | None = None

    def __post_init__(self) -> None:
        for name, low in (("iterations", 0), ("batch", 1), ("every", 0), ("ops_every", 0)):
            held = whole(
                "fit",
                name,
                getattr(self, name),
                low,
                2**63 - 1,
                f"pass a whole number of {low} or more",
            )
            object.__setattr__(self, name, held)
        object.__setattr__(self, "seed", whole("fit", "seed", self.seed, *SEEDS))
        if self.has_receipts and self.folder is None:
            raise UserError("missing folder for the receipts", "receipts", "pass a folder")
        receipts.leaf_hash(self.leaves)
        if self.drop_last is not None:
            object.__setattr__(self, "drop_last", flag("fit", "drop_last", self.drop_last))

    @property
    def has_receipts(self) -> bool:
        return self.receipts != "off" or self.ops_every > 0

    @staticmethod
    def of(facts: Mapping[str, Any], folder: Path) -> Plan:
        """Return the plan whose :meth:`facts` a run's folder contains.

        Raise KeyError, TypeError or ValueError if they are invalid.
        """
        names = [name for name in Plan.__dataclass_fields__ if name != "folder"]
        held = {name: facts[name] for name in names if name != "drop_last"}
        held["drop_last"] = facts.get("drop_last", True)  # older runs left them out
        inject = held["inject"]
        try:
            inject = Injection.of(inject) if inject else None
            return Plan(**{**held, "inject": inject}, folder=folder)
        except UserError as error:
            raise ValueError(error.what) from None

    def facts(self) -> dict[str, Any]:
        """Return the plan as recordings store it."""
        held = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **held,
            "folder": "" if self.folder is None else str(self.folder.absolute()),
            "inject": "" if self.inject is None else str(self.inject),
        }

    def check_folder(self, resume: bool) -> None:
        """Raise UserError if a run cannot begin in the folder, or resume from it."""
        if resume and self.folder is None:
            raise UserError("missing folder to resume from", "resume", "pass the folder of the run")
        if not resume and self.folder is not None and checkpoint.newest(self.folder) is not None:
            raise UserError(
                "the folder already contains checkpoints of a run",
                str(self.folder),
                "continue with --resume (resume=True), or choose another folder",
            )


def check_worker_count(shards: int, workers: int) -> None:
    """Raise UserError if some workers would have no shard."""
    if workers > shards:
        raise UserError(
            f"more workers ({workers}) than shards ({shards})",
            "workers",
            f"split the batch with --shards {workers} or Training(shards={workers}): the number of "
            "shards is part of what is computed, the number of workers is not",
        )
