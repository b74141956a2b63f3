"""Files that go to the server and come from it over HTTP: uploads, recordings, the list of runs.

Each request brings the page's token: it comes over the websocket, whose origin is checked.
"""

from __future__ import annotations

import csv
import io
import secrets
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from tornado.ioloop import IOLoop
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from core_compiler.errors import UserError
from core_compiler.record.file import RecordingFile
from workbench.app.access import EDITOR
from workbench.app.workspace import Workspace

#: How much of a file is sent at a time (bytes), and how many runs the list has at most.
CHUNK = 1 << 20
MAX_ROWS = 100_000
COLUMNS = ("name", "model", "variant", "target", "device", "mode", "began", "status",
           "compile_s", "total_ms", "peak_bytes", "kernels", "worst_error", "stages", "iterations",
           "size", "pinned", "tags", "note")  # fmt: skip


class Guarded(RequestHandler):
    """Answers only who brings the page's token and, where people sign in, may do this."""

    changes = False

    def initialize(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def prepare(self) -> None:
        given = self.request.headers.get("X-Workbench-Token", "") or self.get_query_argument(
            "token", "")  # fmt: skip
        if not secrets.compare_digest(given.encode(), self.workspace.token.encode()):
            raise HTTPError(403)
        access = self.workspace.access
        role = access.role(access.user_of(self))
        if role is None or (self.changes and role != EDITOR):
            raise HTTPError(403)


@stream_request_body
class Upload(Guarded):
    """``PUT /upload?name=``: a dropped file, streamed to disk; a recording goes to the library."""

    changes = True

    def initialize(self, workspace: Workspace) -> None:
        super().initialize(workspace)
        self.file: IO[bytes] | None = None
        self.problem: UserError | None = None
        self.received = 0

    def prepare(self) -> None:
        if self.request.method != "PUT":
            raise HTTPError(405)
        super().prepare()
        connection: Any = self.request.connection  # HTTP/1.1's, of which Tornado's base says less
        connection.set_max_body_size(self.workspace.max_upload)
        try:
            self.path = self.workspace.library.upload_path(self.get_query_argument("name", ""))
            self.file = self.path.open("wb")
        except UserError as error:
            self.problem = error

    def data_received(self, chunk: bytes) -> None:
        if self.file is None:
            return
        self.received += len(chunk)
        try:
            self.file.write(chunk)
        except OSError as error:
            self.problem = UserError(f"the file cannot be stored ({error.strerror})",
                                     self.path.name, "free disk space")  # fmt: skip
            self._drop()

    def put(self) -> None:
        if self.file is not None:
            self.file.close()
        if self.problem is None and self.path.suffix.lower() == ".run":
            try:
                self.path = self.workspace.library.adopt(self.path)
            except UserError as error:
                self.problem = error
        if self.problem is not None:
            self.write(self.problem.to_json())
        else:
            self.write({"path": str(self.path), "size": self.received})

    def on_connection_close(self) -> None:
        self._drop()

    def _drop(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
            self.path.unlink(missing_ok=True)


class Download(Guarded):
    """``GET /file?run=``: a recording as one file, also one that is still being written."""

    async def get(self) -> None:
        try:
            path = self.workspace.path(self.get_query_argument("run", ""))
            with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
                whole = await IOLoop.current().run_in_executor(None, _whole, path, Path(folder))
                await self._send(whole, path.name)
        except UserError as error:
            self.set_status(404)
            self.write(error.to_json())

    async def _send(self, file: Path, name: str) -> None:
        self.set_header("Content-Type", "application/vnd.sqlite3")
        self.set_header("Content-Disposition", f'attachment; filename="{_plain(name)}"')
        self.set_header("Content-Length", str(file.stat().st_size))
        with file.open("rb") as content:
            while part := content.read(CHUNK):
                self.write(part)
                try:
                    await self.flush()
                except StreamClosedError:
                    return


def _whole(path: Path, folder: Path) -> Path:
    """A complete recording as it is; of one that is being written a copy in ``folder``."""
    recording = RecordingFile(path)
    try:
        if not Path(f"{path}-wal").exists():
            return path
        recording.export(folder / "copy.run")
        return folder / "copy.run"
    finally:
        recording.close()


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


class Table(Guarded):
    """``GET /runs.csv?find=``: all runs that a search finds."""

    def get(self) -> None:
        try:
            found = self.workspace.library.listing(self.get_query_argument("find", ""), MAX_ROWS)
        except UserError as error:
            self.set_status(400)
            self.write(error.to_json())
            return
        text = io.StringIO()
        rows = csv.writer(text)
        rows.writerow(COLUMNS)
        for entry in found.entries:
            values = {**asdict(entry), "tags": " ".join(entry.tags)}
            rows.writerow([values[name] for name in COLUMNS])
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="runs.csv"')
        self.write(text.getvalue())
