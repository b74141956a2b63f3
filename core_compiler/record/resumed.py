"""Going on with a recording: a training run is resumed, its compile has been recorded before."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from core_compiler.errors import UserError
from core_compiler.record import schema
from core_compiler.record.file import RecordingFile, is_running
from core_compiler.record.recorder import Recorder, machine_id


class Resumed(Recorder):
    """Adds iterations, figures and the end of a run to the recording at ``path``; what is told of
    the compile is in it already and is not written again.

    ``identity``: the numerics identity of the training step that goes on.  ``accept`` is given the
    recording's facts and raises UserError where it must not go on (another numerics contract).
    UserError, and nothing is changed, also where the recording is of another step, is being
    written, or has an older schema.
    """

    def __init__(
        self, path: str | Path, identity: str,
        accept: Callable[[Mapping[str, Any]], None] = lambda meta: None,
    ):  # fmt: skip
        self._identity, self._accept = identity, accept
        super().__init__(path, source_text=False)

    def _create(self) -> sqlite3.Connection:
        with closing(RecordingFile(self.path)) as file:
            meta = {k: json.loads(v) for k, v in file.rows("tt", "SELECT * FROM meta")}
            recorded = file.rows(
                "v", "SELECT value FROM figure WHERE section = 'run' AND name = 'identity'"
            )
        where = str(self.path)
        elsewhere = "or record into another file"
        if meta.get("status") == "recording" and is_running(str(meta.get("writer")), machine_id()):
            raise UserError("the recording is being written by another process", where,
                            f"wait until that run has ended, {elsewhere}")  # fmt: skip
        if not recorded:
            raise UserError("the recording ends before its compile did", where,
                            f"delete it and record again, {elsewhere}")  # fmt: skip
        self._accept(meta)
        if recorded[-1:] != [(self._identity,)]:
            raise UserError("the recording is of another training step", where,
                            f"name the recording of the run that goes on, {elsewhere}")  # fmt: skip
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            if db.execute("PRAGMA user_version").fetchone() != (schema.VERSION,):
                raise UserError("the recording is of an older version, which is only read", where,
                                "resume into another file")  # fmt: skip
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
        except UserError:
            db.close()
            raise
        except sqlite3.Error as problem:
            db.close()
            raise UserError(f"cannot go on with the recording: {problem}", where,
                            "make it writable, or resume into another file") from None  # fmt: skip
        return db

    def begin(self, meta: Mapping[str, Any]) -> None:
        super().begin({**meta, "message": ""})  # how it ended before is past

    def stage(self, stage) -> None:
        pass

    def check(self, stage_index, results) -> None:
        pass

    def kernels(self, kernels) -> None:
        pass

    def buffers(self, buffers, figures) -> None:
        pass

    def tensors(self, tensors) -> None:
        pass
