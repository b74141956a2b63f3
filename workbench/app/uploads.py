"""Uploads by users: where they are written, and how much of them a server keeps.

The quota is computed from the store each time: uploaded models, imported recordings, and those in
the trash. The uploader is recorded next to each file, so that no other state must be kept
consistent.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from core_compiler.runtime.memory import show_bytes
from core_compiler.support.errors import UserError
from workbench.app import run_entry
from workbench.app.library import Library

_MAKE_ROOM = "delete uploaded models or imported runs and empty the trash, or "


class Uploads:
    """The uploads of a server into ``library``.

    ``quota``: bytes of all uploads (0: no limit), of each user with sign-in (``per_user``).
    """

    def __init__(self, library: Library, quota: int = 0, per_user: bool = False):
        self._library, self._quota, self._per_user = library, quota, per_user
        self._lock = threading.Lock()
        self._pending: dict[Path, tuple[str, int]] = {}  # the uploader, and the final size

    def check(self, name: str, size: int | None, user: str = "") -> None:
        """Raise UserError if ``size`` (bytes) is missing or exceeds the user's quota."""
        if not self._quota:
            return
        if size is None:
            raise UserError("missing size of the file", name[-120:], "send its Content-Length")
        used = self._used(user)
        if used + size > self._quota:
            over = show_bytes(used + size - self._quota)
            owner = "you have uploaded" if self._per_user else "uploads take"
            raise UserError(
                f"the file is {over} too large: it has {show_bytes(size)}, and {owner} "
                f"{show_bytes(used)} of {show_bytes(self._quota)}",
                name[-120:],
                f"{_MAKE_ROOM if size <= self._quota else ''}have the quota raised (--quota)",
            )

    def begin(self, name: str, size: int | None, user: str = "") -> Path:
        """Return the path for an upload that begins; its space is reserved.

        UserError as :meth:`check`, or if it cannot be stored.
        """
        with self._lock:  # of two at once the second sees the first
            self.check(name, size, user)
            path = self._library.uploads.new_path(name, user)
            self._pending[path] = user, size or 0
        return path

    def end(self, path: Path) -> None:
        """Note that an upload is complete."""
        self._pending.pop(path, None)  # from the loop, which must not wait for the lock

    def drop(self, path: Path) -> None:
        """Delete what was written of an upload that was aborted or is unusable."""
        shutil.rmtree(path.parent, ignore_errors=True)
        self.end(path)

    def stop(self) -> None:
        """Reject further uploads, because the server ends."""
        for path in [*self._pending]:
            self.drop(path)

    def _used(self, user: str) -> int:
        pending = dict(self._pending)
        stored = sum(
            size
            for path, size in self._library.uploaded()
            if path not in pending and self._counts(run_entry.uploader(path), user)
        )
        return stored + sum(size for by, size in pending.values() if self._counts(by, user))

    def _counts(self, by: str, user: str) -> bool:
        return not self._per_user or by == user
