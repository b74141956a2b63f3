"""Additions to a complete recording: a resumed training run, or another execution of a program.

The events of the compile are in the recording already and are not written again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from typing_extensions import override

from core_compiler.ir.core import Module, Op
from core_compiler.ir.events import TimingRecord
from core_compiler.record import schema
from core_compiler.record.file import RecordingFile, is_running
from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder, machine_id
from core_compiler.support.errors import UserError

Accept = Callable[[Mapping[str, Any]], None]


class AppendingRecorder(Recorder):
    """A recorder that adds to the recording at ``path``.

    ``identity``: the numerics identity of the compile ("" if it is not compared); ``what``
    describes the recording's subject in messages.  ``accept`` is called with the recording's facts
    and raises UserError if nothing may be added.  Also raises UserError, and changes nothing, if
    the recording has another identity, is being written, or has an older schema.
    """

    def __init__(
        self, path: str | Path, identity: str, what: str, accept: Accept = lambda meta: None
    ):
        self._identity, self._what, self._accept = identity, what, accept
        super().__init__(path, source_text=False)

    @override
    def _create(self) -> sqlite3.Connection:
        with closing(RecordingFile(self.path)) as file:
            meta = {k: json.loads(v) for k, v in file.rows("tt", "SELECT * FROM meta")}
            recorded = file.rows(
                "v", "SELECT value FROM figure WHERE section = 'run' AND name = 'identity'"
            )
        where = str(self.path)
        alternative = "or record to another file"
        if meta.get("status") == "recording" and is_running(str(meta.get("writer")), machine_id()):
            raise UserError(
                "the recording is being written by another process",
                where,
                f"wait for that run to end, {alternative}",
            )
        if not recorded:
            raise UserError(
                "the recording ends before its compile finished",
                where,
                f"delete it and record again, {alternative}",
            )
        self._accept(meta)
        if self._identity and recorded[-1:] != [(self._identity,)]:
            raise UserError(
                f"the recording is of a different {self._what}",
                where,
                f"pass the recording of this {self._what}, {alternative}",
            )
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            if db.execute("PRAGMA user_version").fetchone() != (schema.VERSION,):
                raise UserError(
                    "the recording has an older schema, which is read-only",
                    where,
                    "record to another file",
                )
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
        except UserError:
            db.close()
            raise
        except sqlite3.Error as problem:
            db.close()
            raise UserError(
                f"cannot append to the recording: {problem}",
                where,
                "make it writable, or record to another file",
            ) from None
        return db

    @override
    def stage(self, stage) -> None:
        pass

    @override
    def check(self, stage_index, results) -> None:
        pass

    @override
    def kernels(self, kernels) -> None:
        pass

    @override
    def buffers(self, buffers, figures) -> None:
        pass

    @override
    def tensors(self, tensors) -> None:
        pass


class ResumedTrainingRecorder(AppendingRecorder):
    """A recorder that adds iterations, figures and the end of a run to a training recording."""

    def __init__(self, path: str | Path, identity: str, accept: Accept = lambda meta: None):
        super().__init__(path, identity, "training step", accept)

    @override
    def begin(self, meta: Mapping[str, Any]) -> None:
        super().begin({**meta, "message": ""})  # an earlier end no longer applies


class ExecutionRecorder(AppendingRecorder):
    """A recorder that adds an execution of the recorded program to its recording.

    ``module`` is the program compiled again, whose ops correspond to the recorded ones.
    ``digests``: whether the outputs are those of the recorded weights and inputs.  Raises UserError
    if the last stage of the recording is another program.
    """

    def __init__(self, path: str | Path, identity: str, module: Module, digests: bool = True):
        self._known, self._digests = _ids_of(path, module), digests
        super().__init__(path, identity, "program")

    @override
    def figures(self, figures: Mapping[str, Any]) -> None:
        super().figures(self._of_recorded(figures))

    @override
    def timings(self, timings: Sequence[TimingRecord], figures: Mapping[str, Any]) -> None:
        super().timings(timings, self._of_recorded(figures))

    def _of_recorded(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in figures.items() if k != "digest" or self._digests}

    @override
    def _op(self, op: Op | None) -> int | None:
        return None if op is None else self._known[op]

    @override
    def begin(self, meta: Mapping[str, Any]) -> None:
        pass

    @override
    def progress(self, what: str, done: int, total: int) -> None:
        pass

    @override
    def end(self, status: str, message: str = "") -> None:
        self.close()


def _ids_of(path: str | Path, module: Module) -> dict[Op, int]:
    """Map the ops of ``module`` to ids in a recording whose last stage is the same program.

    Raises UserError if it is another one.
    """
    with Recording.open(path) as recording:
        last = recording.stage_count() - 1
        recorded = [] if last < 0 else list(recording.module(last).walk())
        made = list(module.walk())
        if list(map(_shape, recorded)) != list(map(_shape, made)):
            raise UserError(
                "the compiled program differs from the recorded one",
                str(path),
                "compile the model again: the model, the compiler or its options have changed",
            )
        return {op: recording.op_id(found) for op, found in zip(made, recorded, strict=True)}


def _shape(op: Op) -> tuple[str, tuple[str, ...]]:
    return op.kind, tuple(str(value.type) for value in op.results)
