"""Replay of a single iteration of a run, from the checkpoint before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.probes import Probe, Probes, Watch, combine_watches
from core_compiler.training.audit.receipts import Book, Receipt, Recorder
from core_compiler.training.run import checkpoint, run_file
from core_compiler.training.run.data import Data, for_step
from core_compiler.training.run.last_batch import decided
from core_compiler.training.run.plan import Plan
from core_compiler.training.run.resume import DATA, resume_at
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream


@dataclass
class Run:
    """A run in its folder: its receipts, its checkpoints, and the way to rebuild its step and data.

    ``build(edit)`` is called when something has to be computed, with any edit of the pipeline.
    ``edit`` is the edit that the run was made with (None: none). ``what`` contains everything else
    that determines the computation. ``progress`` is called for repeated iterations, like an
    observer's ``progress``.
    """

    folder: Path
    plan: Plan
    build: Callable[[Any], tuple[TrainingStep, Any]]
    edit: Any = None  # a PipelineEdit; pipelines are a layer above training
    what: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] = lambda what, done, total: None

    def __post_init__(self) -> None:
        self.book = Book.read(self.folder / receipts.FILE)
        self._built: tuple[TrainingStep, Data | Stream] | None = None
        #: The reason why this machine cannot repeat the run, once it is known.
        self.unavailable: UserError | None = None
        self._initial_state: dict[str, np.ndarray] = {}

    @staticmethod
    def of(
        folder: str | Path, make: Callable[..., tuple[TrainingStep, Any]], edit: Any = None
    ) -> Run:
        """Return the run that ``fit`` left in a folder, with its plan.

        ``make(edit)`` compiles the step with an edit of the pipeline and returns it with the data;
        it is called without an argument if ``edit`` is None. Raise UserError if the folder contains
        no run.
        """
        folder = Path(folder)
        held = run_file.read(folder)

        def build(edit: Any) -> tuple[TrainingStep, Any]:
            return make() if edit is None else make(edit)

        try:
            return Run(folder, Plan.of(held, folder), build, edit)
        except (ValueError, KeyError, TypeError) as error:
            raise run_file.damaged_error(folder, error) from None

    @property
    def step(self) -> TrainingStep:
        return self._open()[0]

    @property
    def data(self) -> Data | Stream:
        return self._open()[1]

    def _open(self) -> tuple[TrainingStep, Data | Stream]:
        if self.unavailable is not None:
            raise self.unavailable
        if self._built is None:
            try:
                step, data = self.build(self.edit)
            except UserError as error:
                if error.exit_code == CANNOT_HERE:
                    self.unavailable = error
                raise
            if step.identity != self.book.identity:
                raise UserError(
                    f"the step's numerics identity ({step.identity[:12]}) differs from that of the "
                    f"receipts ({self.book.identity[:12]})",
                    str(self.folder),
                    "use the versions of the model and the compiler that made the run",
                )
            self._initial_state = step.whole_state()
            self._built = step, for_step(step, data)
            self.plan, _ = decided(self.plan, *self._built)
        return self._built

    def restore_before(self, iteration: int, other_folders: Iterable[Path] = ()) -> None:
        """Bring the step to the state at the start of ``iteration``.

        It starts from the last checkpoint before it, here or in the folders ``other_folders``.
        """
        step, data = self._open()
        found = [
            (number, path)
            for folder in (self.folder, *other_folders)
            for number, path in checkpoint.list_checkpoints(folder).items()
            if number < iteration
        ]
        if found:
            _, path = max(found, key=lambda f: f[0])
            data.resume_at(resume_at(step, path).get(DATA))
        else:
            step.load_state_dict(self._initial_state)
        first = step.iteration + 1
        for number in range(first, iteration):
            self.progress(f"iteration {number} again", number - first, iteration - first)
            self.run(number, [])

    def _batch(self, iteration: int) -> tuple[np.ndarray, ...]:
        data = self.data  # decides the plan
        plan = self.plan
        return data.batch(iteration - 1, plan.batch, plan.seed, plan.drop_last)

    def probes(self, iteration: int) -> Probes:
        """Return the values that are in memory in an iteration: its batch may be smaller."""
        return self.step.bound(self._batch(iteration)).probes

    def run(self, iteration: int, watches: list[Watch | None]) -> float:
        """Run one iteration, with the fault of the run's configuration, and return the loss."""
        step, given, inject = self.step, self._batch(iteration), self.plan.inject
        injected = (
            None if inject is None else inject.watch(step.names, self.probes(iteration), iteration)
        )
        step.watch = combine_watches([injected, *watches])
        try:
            return step(*given)
        finally:
            step.watch = None

    def receipt(self, iteration: int, other_folders: Iterable[Path] = ()) -> Receipt:
        """Return the receipt of a repeated iteration, with all values that are in memory."""
        self.restore_before(iteration, other_folders)
        recorder = Recorder(self.probes(iteration), "gradients", 1, leaves=self.book.leaves)
        watch = recorder.watch(iteration)
        loss = self.run(iteration, [watch])
        return recorder.receipt(iteration, loss, self.step)

    def checkpoint_receipt(self, iteration: int) -> Receipt:
        """Return the receipt of an iteration as far as the checkpoint after it determines it.

        This is the state, or nothing if there is no such checkpoint. Raise UserError if the
        checkpoint is damaged.
        """
        wanted = self.book.receipts[iteration]
        path = self.folder / checkpoint.name_of(iteration)
        state = checkpoint.read(path)[0] if path.exists() else {}
        leaf = receipts.leaf_hash(self.book.leaves)
        leaves = {name: leaf(state[name]) for name in wanted.state if name in state}
        return Receipt(iteration, wanted.loss, leaves)

    def value(
        self, iteration: int, key: str, other_folders: Iterable[Path] = ()
    ) -> tuple[Probe, np.ndarray]:
        """Return the array of a value (``shard/number``) in an iteration."""
        shard, number = map(int, key.split("/"))
        held: list[tuple[Probe, np.ndarray]] = []

        def capture(seen_shard: int, probe: Probe, array: np.ndarray) -> None:
            if not probe.own or seen_shard == shard:
                held[:] = [(probe, np.array(array, order="C"))]

        self.restore_before(iteration, other_folders)
        probes = [p for p in self.probes(iteration).probes if p.number == number]
        self.run(iteration, [Watch(probes, capture)])
        return held[0]


def mismatch(wanted: Receipt, found: Receipt) -> str | None:
    """Return the first mismatch between a receipt and the repeated one.

    Entries that both contain are compared in this order: values in program order, gradients, the
    state, the loss.
    """
    for what, a, b in (
        ("value", wanted.ops, found.ops),
        ("gradient of", wanted.gradients, found.gradients),
        ("state", wanted.state, found.state),
    ):
        name = first(wanted.iteration, a, b)
        if name is not None:
            return f"{what} {name}"
    same = float(wanted.loss).hex() == float(found.loss).hex()
    return None if same else "loss"


def first(iteration: int, a: Mapping[str, str], b: Mapping[str, str]) -> str | None:
    """Return the first shared name whose leaves differ."""
    shared = [n for n in a if n in b]
    return receipts.first_difference(
        iteration, {n: a[n] for n in shared}, {n: b[n] for n in shared}
    )
