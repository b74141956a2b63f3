"""File transfers over HTTP: uploads, recordings, the list of runs.

Each request carries the page's token: it comes over the websocket, whose origin and host are
checked.
"""

from __future__ import annotations

import csv
import io
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from tornado.ioloop import IOLoop
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body
from typing_extensions import override

from core_compiler.record.file import RecordingFile
from core_compiler.support.errors import UserError
from workbench.app import hosts
from workbench.app.access import EDITOR
from workbench.app.uploaded import not_stored
from workbench.app.workspace import Workspace

T = TypeVar("T")

#: The size of the parts in which a file is sent (bytes), and the most runs in the list.
CHUNK = 1 << 20
MAX_ROWS = 100_000
COLUMNS = ("name", "model", "variant", "target", "device", "mode", "began", "status",
           "compile_s", "total_ms", "peak_bytes", "kernels", "worst_error", "stages", "iterations",
           "size", "pinned", "tags", "note")  # fmt: skip


class Guarded(RequestHandler):
    """A handler for requests with the page's token, by users with the required role."""

    changes = False

    @override
    def initialize(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.user = ""

    @override
    def prepare(self) -> None:
        hosts.refuse_unknown(self)
        sent_token = self.request.headers.get("X-Workbench-Token", "") or self.get_query_argument(
            "token", ""
        )
        if not secrets.compare_digest(sent_token.encode(), self.workspace.token.encode()):
            raise HTTPError(403)
        access = self.workspace.access
        user = access.user_of(self)
        self.user, role = user or "", access.role(user)
        if role is None or (self.changes and role != EDITOR):
            raise HTTPError(403)


@stream_request_body
class Upload(Guarded):
    """The upload handler.

    ``PUT /upload?name=``: a dropped file, streamed to disk; a recording goes to the library. ``GET
    /upload?name=&size=``: whether such a file would be accepted, before much data is sent.
    """

    changes = True

    @override
    def initialize(self, workspace: Workspace) -> None:
        super().initialize(workspace)
        self.file: IO[bytes] | None = None
        self.path: Path | None = None  # of the incoming file, until it is complete
        self.problem: UserError | None = None
        self.refused: HTTPError | None = None
        self.received = 0

    @override
    async def prepare(self) -> None:  # type: ignore[override]
        if self.request.method not in ("PUT", "GET"):
            raise HTTPError(405)
        connection: Any = self.request.connection  # HTTP/1.1's; Tornado's base class declares less
        connection.set_max_body_size(self.workspace.max_upload)
        try:
            super().prepare()
        except HTTPError as error:  # reported at the end: a sending client would not read it
            self.refused = error
            return
        name, uploads = self.get_query_argument("name", ""), self.workspace.uploads
        if self.request.method == "GET":
            size = _count(self.get_query_argument("size", ""))
            await self._attempt(partial(uploads.check, name, size, self.user))
            return
        size = _count(self.request.headers.get("Content-Length", ""))
        self.path = await self._attempt(partial(uploads.begin, name, size, self.user))
        if self.path is not None:
            try:
                self.file = self.path.open("wb")
            except OSError as error:
                self._fail(error)

    async def _attempt(self, work: Callable[[], T]) -> T | None:
        """Return the result of ``work`` in a thread (it reads many files); None after an error."""
        try:
            return await IOLoop.current().run_in_executor(None, work)
        except UserError as error:
            self.problem = error
            return None

    @override
    def data_received(self, chunk: bytes) -> None:
        if self.file is None:
            return
        self.received += len(chunk)
        try:
            self.file.write(chunk)
        except OSError as error:
            self._fail(error)

    @override
    def get(self) -> None:
        self._answer({})

    @override
    async def put(self) -> None:
        try:
            if self.file is not None:
                self.file.close()
        except OSError as error:  # the disk is full
            self._fail(error)
        upload_path, self.file, self.path = self.path, None, None  # even if the client has gone
        path = upload_path
        if upload_path is not None:
            try:
                if upload_path.suffix.lower() == ".run":  # it is read, an old version completely
                    path = await self._attempt(
                        partial(self.workspace.library.import_upload, upload_path)
                    )
            finally:
                self.workspace.uploads.end(upload_path)
        self._answer({"path": str(path), "size": self.received})

    def _answer(self, done: dict[str, Any]) -> None:
        if self.refused is not None:
            raise self.refused
        self.write(done if self.problem is None else self.problem.to_json())

    @override
    def on_connection_close(self) -> None:
        self._drop()
        super().on_connection_close()

    def _fail(self, error: OSError) -> None:
        assert self.path is not None
        self.problem = not_stored(error, self.path.name)
        self._drop()

    def _drop(self) -> None:
        """Delete the partial upload."""
        if self.file is not None:
            with suppress(OSError):
                self.file.close()
        if self.path is not None:
            self.workspace.uploads.drop(self.path)
        self.file = self.path = None


def _count(text: str) -> int | None:
    """Return a number of bytes given as text; None if it is invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


class Download(Guarded):
    """The download handler, ``GET /file?run=``: a recording as one file, even if unfinished."""

    @override
    async def get(self) -> None:
        try:
            path = self.workspace.path(self.get_query_argument("run", ""))
            with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
                complete = await IOLoop.current().run_in_executor(
                    None, _complete_file, path, Path(folder)
                )
                await self._send(complete, path.name)
        except UserError as error:
            self.set_status(404)
            self.write(error.to_json())

    async def _send(self, file: Path, name: str) -> None:
        self.set_header("Content-Type", "application/vnd.sqlite3")
        self.set_header("Content-Disposition", f'attachment; filename="{_ascii_name(name)}"')
        self.set_header("Content-Length", str(file.stat().st_size))
        with file.open("rb") as content:
            while part := content.read(CHUNK):
                self.write(part)
                try:
                    await self.flush()
                except StreamClosedError:
                    return


def _complete_file(path: Path, folder: Path) -> Path:
    """Return a complete recording itself; one that is being written is copied into ``folder``."""
    recording = RecordingFile(path)
    try:
        if not Path(f"{path}-wal").exists():
            return path
        recording.export(folder / "copy.run")
        return folder / "copy.run"
    finally:
        recording.close()


def _ascii_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


def _cell(value: Any) -> Any:
    """Return a cell that a spreadsheet does not treat as a formula: run names are untrusted."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


class Table(Guarded):
    """The handler of ``GET /runs.csv?find=``: all runs that a search finds."""

    @override
    async def get(self) -> None:
        find = self.get_query_argument("find", "")
        try:
            text = await IOLoop.current().run_in_executor(None, self._rows, find)
        except UserError as error:
            self.set_status(400)
            self.write(error.to_json())
            return
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="runs.csv"')
        self.write(text)

    def _rows(self, find: str) -> str:
        text = io.StringIO()
        rows = csv.writer(text)
        rows.writerow(COLUMNS)
        for entry in self.workspace.library.listing(find, MAX_ROWS).entries:
            values = {**asdict(entry), "tags": " ".join(entry.tags)}
            rows.writerow([_cell(values[name]) for name in COLUMNS])
        return text.getvalue()
