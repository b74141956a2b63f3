"""The recorder: an observer that writes a compile into one SQLite file as it goes.

There is one transaction per stage, and a write-ahead log only while recording: if killed at any
moment, the file keeps every finished stage.  Closing merges it into a single file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir.core import Function, Module, Op, Value
from core_compiler.ir.events import (
    BufferRecord,
    CheckRecord,
    Diagnostic,
    FrameworkRecord,
    IterationRecord,
    KernelRecord,
    Observer,
    QuantisationRecord,
    StageRecord,
    TensorStats,
    TimingRecord,
)
from core_compiler.ir.rewriter import Rewrite
from core_compiler.record import schema
from core_compiler.record.encoding import ids_json
from core_compiler.record.file import RecordingFile, is_running
from core_compiler.record.intern import Interner, clean
from core_compiler.support.errors import UserError

#: Minimum interval between writes of progress (seconds).
PROGRESS_INTERVAL = 0.2
#: Maximum time that closing waits for readers to close the file (seconds).
CLOSE_PATIENCE = 2.0
#: Figures of an execution that are stored in its own row.
_OF_EXECUTION = frozenset({"total_samples_us", "digest", "machine"})

_encode = json.JSONEncoder(separators=(",", ":"), default=str, allow_nan=True).encode


class Recorder(Observer):
    """The writer of a recording to ``path``.

    An existing file there is replaced, except for a recording that another process is writing.
    ``source_text=False`` leaves out the model's source files.  Use as a context manager, or call
    ``close``; ``end`` closes too.  Raises UserError if the file cannot be written.
    """

    def __init__(self, path: str | Path, *, source_text: bool = True):
        self.path = Path(path)
        self._source_text = source_text
        self._ids = Interner(source_text)
        self._rewrites: dict[Rewrite, int] = {}
        self._functions: dict[str, Function] = {}
        self._present: dict[str, set[int]] = {}
        self._kernels = self._checks = 0
        self._start_time = time.time()
        self._last_progress = 0.0
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = self._create()
        self._file = _file_id(self.path)

    def _create(self) -> sqlite3.Connection:
        self._refuse_if_being_written()
        db = None
        try:
            self._remove()
            db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA page_size = 8192")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA wal_autocheckpoint = 4000")
            db.execute("PRAGMA cache_size = -65536")
            schema.create(db)
            id = json.dumps(secrets.token_hex(8))
            db.execute("INSERT INTO meta VALUES ('id', ?)", (id,))
        except (OSError, sqlite3.Error) as problem:
            if db is not None:  # a partial schema is not a recording
                db.close()
                with suppress(OSError):
                    self._remove()
            reason = getattr(problem, "strerror", None) or problem
            fix = "choose a writable folder with free disk space"
            raise UserError(f"cannot write a recording: {reason}", str(self.path), fix) from None
        return db

    def _refuse_if_being_written(self) -> None:
        try:
            with closing(RecordingFile(self.path)) as file:
                meta = {k: json.loads(v) for k, v in file.rows("tt", "SELECT * FROM meta")}
        except (UserError, ValueError):  # not a recording, or not one to keep
            return
        writer, here = str(meta.get("writer")), machine_id()
        is_other_process = writer.endswith(f"@{here}") and writer != writer_id()
        if meta.get("status") == "recording" and is_other_process and is_running(writer, here):
            raise UserError(
                "the recording is being written by another process",
                str(self.path),
                "wait for that run to end, record to another file, or delete this one",
            )

    def _remove(self) -> None:
        """Delete the file and SQLite's companion files."""
        for part in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.path}{part}").unlink(missing_ok=True)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind, problem, trace) -> None:
        if self._db is not None:
            interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
            status = "cancelled" if interrupted else "finished" if kind is None else "failed"
            self.end(status, "" if problem is None else str(problem))

    @property
    def op_ids(self) -> Mapping[Op, int]:
        """The ids of all ops reported so far."""
        return self._ids.ops

    # -- events ----------------------------------------------------------------------------------

    @override
    def begin(self, meta: Mapping[str, Any]) -> None:
        meta = dict(meta)
        sources = meta.pop("sources", {})
        facts = {"status": "recording", "writer": writer_id(), "began": self._start_time, **meta}
        with self._transaction():
            self._meta(facts)
            if self._source_text:
                rows = [(clean(name), self._ids.blob(text)) for name, text in sources.items()]
                self._queue_rows("INSERT OR REPLACE INTO source_file VALUES (?, ?)", rows)

    @override
    def amend(self, meta: Mapping[str, Any]) -> None:
        with self._transaction():
            self._meta(meta)

    @override
    def stage(self, stage: StageRecord) -> None:
        ids, module = self._ids, stage.module
        with self._transaction():
            functions = [ids.function(f) for f in module.functions.values()]
            added, removed = self._changes(module)
            row = (
                stage.index,
                clean(stage.pass_name),
                clean(stage.doc),
                _encode(dict(stage.options)),
                stage.half,
                stage.exact,
                stage.tolerance_class,
                stage.changed,
                stage.seconds,
                time.time() - self._start_time,
                ids_json(functions),
                _encode({k: list(v) for k, v in module.symbols.items()}),
                ids_json(sorted(added)),
                ids_json(sorted(removed)),
            )
            self._queue_rows(f"INSERT INTO stage VALUES ({', '.join('?' * 14)})", [row])
            self._figures(stage.index, "stage", stage.figures)
            self._diagnostics(stage.index, stage.diagnostics)
            self._write_rewrites(stage.index, stage.rewrites)

    def _changes(self, module: Module) -> tuple[set[int], set[int]]:
        """Return the ops that enter with this module and those that leave."""
        before: set[int] = set()
        after: set[int] = set()
        for name in dict.fromkeys((*self._functions, *module.functions)):
            old, new = self._functions.get(name), module.functions.get(name)
            if old is not new:
                before |= self._present.pop(name, set())
                if new is not None:
                    self._present[name] = self._ids.contents(new)
                    after |= self._present[name]
        self._functions = dict(module.functions)
        return after - before, before - after

    def _diagnostics(self, stage: int | None, diagnostics: Iterable[Diagnostic]) -> None:
        rows = [
            (stage, d.severity, clean(d.message), clean(d.function), self._op(d.op), clean(d.where))
            for d in diagnostics
        ]
        self._queue_rows("INSERT INTO diagnostic VALUES (NULL, ?, ?, ?, ?, ?, ?)", rows)

    def _write_rewrites(self, stage: int, rewrites: Sequence[Rewrite]) -> None:
        ids, known, ops = self._ids, self._rewrites, self._ids.ops
        rows = []
        for number, rewrite in enumerate(rewrites):
            key = known[rewrite] = len(known) + 1
            rule, source = ids.name(rewrite.rule), ids.name(rewrite.source)
            facts = rewrite.tolerance, clean(rewrite.note), rewrite.microseconds
            old = str([ops.get(op) or ids.op(op) for op in rewrite.old])
            new = str([ops.get(op) or ids.op(op) for op in rewrite.new])
            mapped = str([[ids.value(a), ids.value(b)] for a, b in rewrite.values.items()])
            function = clean(rewrite.function)
            rows.append((key, stage, number, rule, source, function, *facts, old, new, mapped))
        self._queue_rows(f"INSERT INTO rewrite VALUES ({', '.join('?' * 12)})", rows)

    @override
    def check(self, stage_index: int, results: Sequence[CheckRecord]) -> None:
        with self._transaction():
            rows, numbers, kinds = [], {}, {}
            for r in results:
                self._checks += 1
                rows.append(
                    (
                        self._checks,
                        stage_index,
                        None if r.rewrite is None else self._rewrites.get(r.rewrite),
                        r.verdict,
                        _number(r.worst_error),
                        _number(r.tolerance),
                        self._value(r.value),
                        ids_json([int(i) for i in r.index]),
                        r.seconds,
                        clean(r.note),
                    )
                )
                if r.old is not None and r.new is not None:
                    numbers[str(self._checks)] = f"{r.old!r} {r.new!r}"
                if r.kind != "rewrite":
                    kinds[str(self._checks)] = r.kind
            self._queue_rows(f"INSERT INTO check_result VALUES ({', '.join('?' * 10)})", rows)
            self._figures(stage_index, "check", numbers)
            self._figures(stage_index, "check_kind", kinds)

    @override
    def diagnostics(self, stage_index: int, found: Sequence[Diagnostic]) -> None:
        with self._transaction():
            self._diagnostics(stage_index, found)

    @override
    def kernels(self, kernels: Sequence[KernelRecord]) -> None:
        with self._transaction():
            for kernel in kernels:
                self._kernel(kernel)

    def _kernel(self, kernel: KernelRecord) -> None:
        ids = self._ids
        self._kernels += 1
        key = self._kernels
        texts = kernel.source, kernel.intermediate, kernel.assembly, kernel.machine_code
        lines = _encode([[line, ids.op(op)] for line, op in kernel.line_map])
        row = (
            key,
            clean(kernel.name),
            kernel.key,
            kernel.cached,
            kernel.compile_seconds,
            *(ids.blob(text) for text in texts),
            lines,
            _encode([list(pair) for pair in kernel.assembly_map]),
            _encode(dict(kernel.facts)),
            _encode([list(pair) for pair in kernel.intermediate_map]),
        )
        self._queue_rows(f"INSERT INTO kernel VALUES ({', '.join('?' * 13)})", [row])
        for role, ops in (("computes", kernel.ops), ("launch", kernel.launches)):
            rows = [(key, role, index, ids.op(op)) for index, op in enumerate(ops)]
            self._queue_rows("INSERT INTO kernel_op VALUES (?, ?, ?, ?)", rows)
        steps = [
            (key, n, clean(name), ids.blob(text)) for n, (name, text) in enumerate(kernel.steps)
        ]
        self._queue_rows("INSERT INTO kernel_step VALUES (?, ?, ?, ?)", steps)

    @override
    def buffers(self, buffers: Sequence[BufferRecord], figures: Mapping[str, float]) -> None:
        with self._transaction():
            rows = [
                (
                    self._value(b.value),
                    self._op(b.op),
                    clean(b.name),
                    b.kind,
                    b.tier,
                    b.offset,
                    b.size,
                    b.unpadded_size,
                    b.start,
                    b.end,
                )
                for b in buffers
            ]
            self._queue_rows(f"INSERT INTO buffer VALUES (NULL, {', '.join('?' * 10)})", rows)
            self._figures(None, "memory", figures)

    @override
    def timings(self, timings: Sequence[TimingRecord], figures: Mapping[str, Any]) -> None:
        with self._transaction():
            self._queue_rows(
                "INSERT INTO execution VALUES ((SELECT coalesce(max(id), 0) + 1 FROM execution),"
                " ?, ?, ?, ?, ?, ?)",
                [self._execution(timings, figures)],
            )
            rows = []
            for t in timings:
                samples = np.asarray(t.samples_us, "<f8")
                summary: tuple[float | None, ...] = (None, None, None)
                if samples.size:
                    summary = tuple(np.quantile(samples, (0.5, 0.0, 0.95)).tolist())
                counts = t.threads, t.flops, t.bytes
                rows.append(
                    (
                        t.launch,
                        clean(t.kernel),
                        self._op(t.op),
                        *counts,
                        *summary,
                        samples.tobytes(),
                    )
                )
            newest = "(SELECT max(id) FROM execution)"
            self._queue_rows(
                f"INSERT INTO launch_time VALUES (NULL, {newest}, {', '.join('?' * 10)})", rows
            )
            rest = {k: v for k, v in figures.items() if k not in _OF_EXECUTION}
            self._figures(None, "timing", rest)

    def _execution(
        self, timings: Sequence[TimingRecord], figures: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Return the row of an execution, without its id."""
        samples = np.asarray(json.loads(figures.get("total_samples_us") or "[]"), "<f8")
        median = float(np.median(samples)) if samples.size else None
        threads = max((t.threads for t in timings), default=0)
        machine = clean(str(figures.get("machine", "")))
        digest = clean(str(figures.get("digest", "")))
        return time.time(), machine, threads, digest, median, samples.tobytes()

    @override
    def tensors(self, tensors: Sequence[TensorStats]) -> None:
        with self._transaction():
            rows = []
            for t in tensors:
                edges, counts = (np.asarray(part).tolist() for part in t.histogram)
                data = None if t.data is None else np.ascontiguousarray(t.data)
                stored: tuple[str, str, int | None] = ("", "[]", None)
                if data is not None:
                    blob = self._ids.blob(data.tobytes())
                    stored = (data.dtype.name, ids_json(data.shape), blob)
                numbers = (_number(n) for n in (t.minimum, t.maximum, t.mean))
                rows.append(
                    (
                        self._value(t.value),
                        t.stage,
                        *numbers,
                        int(t.nan),
                        int(t.inf),
                        _encode(edges),
                        _encode(counts),
                        *stored,
                    )
                )
            self._queue_rows(f"INSERT INTO tensor_stats VALUES (NULL, {', '.join('?' * 12)})", rows)

    @override
    def framework(self, records: Sequence[FrameworkRecord]) -> None:
        with self._transaction():
            self._queue_rows(
                f"INSERT INTO framework_value VALUES (NULL, {', '.join('?' * 8)})",
                [
                    (
                        self._value(r.value),
                        r.framework,
                        clean(r.node),
                        int(r.same),
                        r.error,
                        ids_json(r.index),
                        _number(r.theirs),
                        _number(r.ours),
                    )
                    for r in records
                ],
            )

    @override
    def quantisation(self, record: QuantisationRecord) -> None:
        with self._transaction():
            rows = [
                (
                    self._value(r.value),
                    self._value(r.integers),
                    r.stage,
                    *map(_number, (r.sqnr_db, r.cosine, r.saturated, *r.observed, *r.range)),
                    *(_encode(np.asarray(part).tolist()) for part in r.histogram),
                    _number(r.alone_db),
                )
                for r in record.values
            ]
            places = ", ".join("?" * 14)
            self._queue_rows(f"INSERT INTO quantised_value VALUES (NULL, {places})", rows)
            left = [(self._op(r.op), clean(r.reason)) for r in record.left]
            self._queue_rows("INSERT OR REPLACE INTO float_op VALUES (?, ?)", left)
            found = {"quantised_results": record.results, "quantised_sqnr_db": record.sqnr_db}
            self._figures(None, "run", {k: v for k, v in found.items() if v is not None})

    @override
    def iterations(self, rows: Sequence[IterationRecord]) -> None:
        with self._transaction():
            self._queue_rows(
                "INSERT OR REPLACE INTO iteration VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (r.number, float(r.loss), r.seconds, r.root, r.rate, r.loss_scale, r.skipped)
                    for r in rows
                ],
            )

    @override
    def figures(self, figures: Mapping[str, Any]) -> None:
        with self._transaction():
            self._figures(None, "run", figures)

    def _figures(self, stage: int | None, section: str, figures: Mapping[str, Any]) -> None:
        rows = [(stage, section, clean(name), _scalar(value)) for name, value in figures.items()]
        self._queue_rows("INSERT INTO figure VALUES (?, ?, ?, ?)", rows)

    @override
    def progress(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - self._last_progress >= PROGRESS_INTERVAL:
            self._last_progress = now
            self._event("progress", {"what": what, "done": done, "total": total})

    @override
    def end(self, status: str, message: str = "") -> None:
        if self._db is None:
            return
        with self._transaction():
            self._meta(
                {"status": status, "message": message, "seconds": time.time() - self._start_time}
            )
        self._event("end", {"status": status, "message": message})
        self.close()

    def close(self) -> None:
        """Merge everything into one file, which is then complete; a second call does nothing.

        Raises UserError if the disk is full: the -wal file then holds the rest.
        """
        with self._lock:
            db, self._db = self._db, None
            if db is None:
                return
            self._ids = Interner(self._source_text)
            self._rewrites, self._functions, self._present = {}, {}, {}
            try:
                if _file_id(self.path) == self._file:  # else the -wal at this path is another's
                    self._merge_files(db)
            finally:
                db.close()

    def _merge_files(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            deadline = time.monotonic() + CLOSE_PATIENCE
            # A reader may delay this for a moment; the file is complete by now, and only its -wal
            # and -shm companions remain.
            while not _try_merge(db) and time.monotonic() <= deadline:
                time.sleep(0.02)
        except sqlite3.Error as problem:
            raise UserError(
                f"the recording is complete, but not in one file: {problem}",
                str(self.path),
                "free disk space; keep the -wal file next to it, which is a part of it",
            ) from None

    # -- writing ---------------------------------------------------------------------------------

    def _transaction(self) -> _Transaction:
        return _Transaction(self)

    def _queue_rows(self, statement: str, rows: Sequence[tuple]) -> None:
        if rows:
            self._pending.append((statement, rows))

    def _meta(self, facts: Mapping[str, Any]) -> None:
        rows = [(key, _encode(value)) for key, value in facts.items()]
        self._queue_rows("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def _event(self, kind: str, payload: Mapping[str, Any]) -> None:
        with self._transaction():
            row = (time.time() - self._start_time, kind, _encode(payload))
            self._queue_rows("INSERT INTO event VALUES (NULL, ?, ?, ?)", [row])

    def _op(self, op: Op | None) -> int | None:
        return None if op is None else self._ids.op(op)

    def _value(self, value: Value | None) -> int | None:
        return None if value is None else self._ids.value(value)

    def _begin_rows(self) -> None:
        self._lock.acquire()
        self._pending: list[tuple[str, Sequence[tuple]]] = []

    def _end_rows(self, write: bool) -> None:
        """Write the collected rows in one transaction, the interned rows first."""
        try:
            if write and self._db is not None:
                self._write(self._db)
        finally:
            self._lock.release()

    def _write(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("BEGIN IMMEDIATE")
            for statement, rows in (*self._ids.take(), *self._pending):
                db.executemany(statement, rows)
            db.execute("COMMIT")
        except sqlite3.Error as problem:
            self._db = None
            db.close()  # rolls back; the file is usable, and nothing more is written to it
            fix = "free disk space; stages recorded before this one are kept"
            raise UserError(f"cannot record: {problem}", str(self.path), fix) from None


class _Transaction:
    """A context manager that collects rows, then writes them at once."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._begin_rows()

    def __exit__(self, kind, problem, trace) -> None:
        self._recorder._end_rows(write=kind is None)


def _try_merge(db: sqlite3.Connection) -> bool:
    """Merge into one file; return whether no other process had it open, as that requires."""
    try:
        db.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as problem:
        if problem.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return False
    return True


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at ``path``, or None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def writer_id() -> str:
    """Return ``pid@machine`` of this process; the machine as a short hash of its name."""
    return f"{os.getpid()}@{machine_id()}"


def machine_id() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _number(value: float | np.floating | None) -> float | None:
    """Return a float, or None for NaN and None."""
    return None if value is None or value != value else float(value)


def _scalar(value: Any) -> Any:
    """Return a figure as SQLite stores it: int, float or text."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (int, np.integer)):
        return int(value) if -(2**63) <= value < 2**63 else float(value)
    if isinstance(value, (float, np.floating)):
        return _number(value)
    return value if value is None else clean(value) if isinstance(value, str) else _encode(value)
