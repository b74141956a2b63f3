"""A recording as the views read it: each query runs once, also while the recording grows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from core_compiler.ir import Module, Op, Value
from core_compiler.ir.diff import ModuleDiff
from core_compiler.ir.events import Diagnostic, IterationRecord
from core_compiler.ir.origin import Origin
from core_compiler.record.history import OpHistory
from core_compiler.record.reader import (
    Buffer,
    Execution,
    Kernel,
    RecordedRewrite,
    Recording,
    Stage,
    Timing,
)
from core_compiler.record.recorder import machine_id
from core_compiler.support.errors import UserError

T = TypeVar("T")

#: How many derived objects (a stage's index, a diff, a view's rows) are cached for each recording,
#: and the least number for recordings with very many ops: each has about as many rows.
MAX_CACHED, MIN_CACHED = 160, 24
#: The total rows of these objects that are cached.
MAX_CACHED_ROWS = 3_000_000
#: Bytes of data packed for the browser that are cached for each recording.
MAX_CACHED_BYTES = 64 << 20

_VERSION = """SELECT (SELECT count(*) FROM stage), (SELECT count(*) FROM check_result),
  (SELECT count(*) FROM kernel), (SELECT count(*) FROM buffer), (SELECT max(id) FROM timing),
  (SELECT count(*) FROM figure), (SELECT max(id) FROM event), (SELECT max(id) FROM iteration),
  (SELECT value FROM meta WHERE key = 'status'),
  (SELECT value FROM meta WHERE key IN ('id', 'began') ORDER BY key DESC)"""


@dataclass(frozen=True)
class Version:
    """The state of a growing recording; equal versions mean equal contents.

    It has counts of its contents (``timings``, ``event``, ``iterations``: the last id) and the
    recording's identity (its start time, for those recorded before they had an ``id``).
    """

    stages: int
    checks: int
    kernels: int
    buffers: int
    timings: int | None
    figures: int
    event: int | None
    iterations: int | None
    status: str | None
    id: str | None

    @property
    def compiled(self) -> Version:
        """Return the progress of the compile alone: iterations are added after it."""
        return replace(self, iterations=None)


@dataclass(frozen=True, eq=False)
class StageIndex:
    """A stage's module with its ops by id, including nested ones."""

    module: Module
    ops: dict[int, Op]
    #: The op that contains each op of a region, by id.
    around: dict[int, int]


class Run:
    """A recording opened for the views. Thread-safe; everything derived is cached.

    ``version`` is the state at the last ``refresh``; facts that grow are read again after it has
    changed, stages never change once recorded.
    """

    def __init__(self, path: str | Path, folders: bool = True):
        """Open a recording; ``folders``: read the folder of a training run that it names."""
        self.path, self.folders = Path(path), folders
        self.recording = Recording.open(path)
        self._stamp = self.recording.stamp
        self.lock = threading.RLock()
        self._cached: OrderedDict[Hashable, Any] = OrderedDict()
        self._packed: OrderedDict[Hashable, tuple[str, bytes]] = OrderedDict()
        self._packed_bytes = 0
        self._max_cached = self._cache_size()
        self._scopes: dict[Origin, str] = {}
        self._places: dict[Origin, tuple[str, int]] = {}
        self._iterations: dict[int, IterationRecord] = {}
        #: The number of the iteration that was written last.
        self.newest = 0
        self._read_to = 0
        self.version = self._read_version()
        self.status = self.recording.status
        self._meta: tuple[Hashable, dict[str, Any]] | None = None
        self.meta()

    def close(self) -> None:
        self.recording.close()

    def refresh(self, wait: bool = True) -> bool:
        """Return True if the recording has grown since the last refresh.

        ``wait``: also while another thread derives something from it. UserError if the file now
        contains another recording, or none that can be read: it must be opened again.
        """
        if not self.lock.acquire(blocking=wait):
            return False
        try:
            self._stamp = self.recording.stamp
            version, status = self._read_version(), self.recording.status
            if self.identity not in (None, version.id):
                raise UserError(
                    "the file now contains another recording", self.path.name, "open it again"
                )
            if version == self.version and status == self.status:
                return False
            self.version, self.status = version, status
            self._max_cached = self._cache_size()
            self.meta()
            return True
        finally:
            self.lock.release()

    @property
    def identity(self) -> str | None:
        """Return the recording's id, which is the same for every file it is copied to."""
        return self.version.id

    @property
    def is_touched(self) -> bool:
        """Return whether its file was written since the last refresh."""
        return self.recording.stamp not in (None, self._stamp)

    def _read_version(self) -> Version:
        return Version(*self.recording.query(_VERSION).rows[0])

    def _cache_size(self) -> int:
        """Return how many derived objects are cached, given the number of ops in all stages."""
        ops = self.recording.query("SELECT max(id) FROM op").rows[0][0] or 1
        return max(MIN_CACHED, min(MAX_CACHED, MAX_CACHED_ROWS // int(ops)))

    @property
    def live(self) -> bool:
        """Return whether it is being written."""
        return self.status == "recording"

    @property
    def elsewhere(self) -> bool:
        """Return whether another machine writes it: this may be a copy, which never grows."""
        return self.live and str(self.meta().get("writer", "")).rpartition("@")[2] != machine_id()

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return ``make()``, cached by key (the least recently used ones are evicted)."""
        with self.lock:
            if key in self._cached:
                self._cached.move_to_end(key)
                return self._cached[key]
            value = self._cached[key] = make()
            while len(self._cached) > self._max_cached:
                self._cached.popitem(last=False)
            return value

    def cached_packed(
        self, key: Hashable, make: Callable[[], tuple[str, bytes]]
    ) -> tuple[str, bytes]:
        """Return a view's packed data, made once for each key, within ``MAX_CACHED_BYTES``."""
        with self.lock:
            if key in self._packed:
                self._packed.move_to_end(key)
                return self._packed[key]
            found = self._packed[key] = make()
            self._packed_bytes += len(found[0]) + len(found[1])
            while self._packed_bytes > MAX_CACHED_BYTES and len(self._packed) > 1:
                _, (text, blob) = self._packed.popitem(last=False)
                self._packed_bytes -= len(text) + len(blob)
            return found

    def scope_of(self, op: Op) -> str:
        """Return the module path of an op's origin (shared origins are walked once)."""
        if op.origin is None:
            return ""
        found = self._scopes.get(op.origin)
        if found is None:
            found = self._scopes[op.origin] = op.origin.scope
        return found

    def source_location(self, op: Op) -> tuple[str, int]:
        """Return the file and line of an op's origin (shared origins are walked once)."""
        if op.origin is None:
            return "", 0
        found = self._places.get(op.origin)
        if found is None:
            places = ((n.file, n.line) for n in op.origin.nodes() if n.file)
            found = self._places[op.origin] = next(places, ("", 0))
        return found

    def _growing(self, name: str, counted: Hashable, make: Callable[[], T]) -> T:
        return self.cached((name, counted), make)

    # -- growing facts ---------------------------------------------------------------------------

    def meta(self) -> dict[str, Any]:
        """Return facts about the run, as of the last refresh; needs no lock."""
        counted, known = (self.version.status, self.status), self._meta
        if known is None or known[0] != counted:
            known = self._meta = counted, self._growing("meta", counted, self.recording.meta)
        return known[1]

    def stages(self) -> list[Stage]:
        counted = self.version.stages, self.version.checks
        return self._growing("stages", counted, self.recording.stages)

    def figures(self, section: str = "run") -> dict[str, Any]:
        return self._growing(
            f"figures {section}", self.version.figures, lambda: self.recording.figures(section)
        )

    def kernels(self) -> list[Kernel]:
        return self._growing("kernels", self.version.kernels, self.recording.kernels)

    def buffers(self) -> list[Buffer]:
        return self._growing("buffers", self.version.buffers, self.recording.buffers)

    def timings(self) -> list[Timing]:
        return self._growing("timings", self.version.timings, self.recording.timings)

    def executions(self) -> list[Execution]:
        return self._growing("executions", self.version.timings, self.recording.executions)

    def timings_of(self, execution: int) -> list[Timing]:
        """Return the launches of an execution by its id."""
        return self._growing(
            f"timings {execution}", self.version.timings, lambda: self.recording.timings(execution)
        )

    def iterations(self) -> dict[int, IterationRecord]:
        """Return the iterations of a training run by number, in order; only new ones are read."""
        with self.lock:
            if self._read_to == (self.version.iterations or 0):
                return self._iterations
            self._read_to, rows = self.recording.iterations(self._read_to)
            self.newest = rows[-1].number if rows else self.newest
            rows.sort(key=lambda row: row.number)
            again = rows and rows[0].number <= next(reversed(self._iterations), 0)
            self._iterations.update((row.number, row) for row in rows)
            if again:
                self._iterations = dict(sorted(self._iterations.items()))
            return self._iterations

    def not_timed(self) -> str | None:
        """Return the reason why launches were not timed, if there is one."""
        if self.meta().get("mode") == "training":
            return "the launches of a training run are not timed one by one"
        return self.figures().get("not_executed") or None

    def progress(self) -> dict[str, Any] | None:
        return self.recording.progress()

    def diagnostics(self) -> list[tuple[int, Diagnostic]]:
        """Return all diagnostics with the stage they were made in."""
        counted = self.version.stages, self.version.checks, self.version.figures
        return self._growing(
            "diagnostics",
            counted,
            lambda: [
                (stage.index, found)
                for stage in self.stages()
                for found in self.recording.diagnostics(stage.index)
            ],
        )

    def op_history(self, op: int) -> OpHistory:
        version = self.version.stages, self.version.kernels, self.version.buffers
        return self.cached(("history", op, version), lambda: self.recording.op_history(op))

    # -- stages ----------------------------------------------------------------------------------

    def stage_number(self, wanted: int | None) -> int:
        """Return the stage to show: ``wanted`` if it exists, else a default.

        The default is the first with a failed check, else the first that changed something.
        """
        stages = self.stages()
        if wanted is not None and 0 <= wanted < len(stages):
            return wanted
        if wanted is not None and stages:
            return len(stages) - 1
        failing = (s.index for s in stages if s.verdicts.get("failed"))
        return next(failing, next((s.index for s in stages[1:] if s.changed), 0))

    def index(self, stage: int) -> StageIndex:
        return self.cached(("index", stage), lambda: self._index(stage))

    def _index(self, stage: int) -> StageIndex:
        module, number = self.recording.module(stage), self.recording.op_id
        ops: dict[int, Op] = {}
        around: dict[int, int] = {}

        def visit(op: Op, outer: int | None) -> None:
            key = number(op)
            ops[key] = op
            if outer is not None:
                around.setdefault(key, outer)
            for region in op.regions:
                for inner in region.ops:
                    visit(inner, key)

        for function in module.functions.values():
            for op in function.body.ops:
                visit(op, None)
        return StageIndex(module, ops, around)

    def diff(self, before: int, after: int) -> ModuleDiff:
        return self.cached(("diff", before, after), lambda: self.recording.diff(before, after))

    def rewrites(self, stage: int) -> list[RecordedRewrite]:
        checks = self.version.checks
        return self.cached(("rewrites", stage, checks), lambda: self.recording.rewrites(stage))

    def births(self, stage: int) -> dict[int, int]:
        """Return, for each op up to ``stage``, the first stage that contains it."""
        return self.cached(("births", stage), lambda: self.recording.births(stage))

    def op_id(self, op: Op) -> int:
        return self.recording.op_id(op)

    def name_of(self, op: int) -> str:
        """Return the name of an op in the IR text: that of its first result.

        An op without results is named ``#id``.
        """
        return self.name(self.recording.op(op), op)

    def name(self, op: Op, number: int) -> str:
        """Return :meth:`name_of` op ``number``."""
        if not op.results:
            return f"#{number}"
        value = op.results[0]
        return f"%{value.name or self.value_id(value)}"

    def value_id(self, value: Value) -> int:
        return self.recording.value_id(value)


#: The recordings that a view shows: one, or two side by side (A, then B).
Runs = tuple[Run, ...]


def shown(runs: Runs) -> tuple[Run, Run | None]:
    """Return the recording that is shown and the one it is compared with, if any."""
    return runs[0], runs[1] if len(runs) > 1 else None
