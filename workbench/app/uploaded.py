"""Files uploaded for a compile or a search.

Each has a folder of its own in the store's ``uploads/``, until it is deleted or has not been used
for a month.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core_compiler.frontends.open import FILES
from core_compiler.support.errors import UserError
from workbench.app import run_entry
from workbench.app.trash import KEEP_SECONDS

#: The types of files that can be dropped on the page, and the maximum size (bytes).
KINDS = (".run", ".npz", *FILES)
MAX_UPLOAD = 8 << 30


@dataclass(frozen=True)
class Uploaded:
    """An uploaded file.

    The ``token`` that deletes it, its ``name``, ``size`` in bytes, ``when`` it was last used
    (seconds since 1970), and the user who uploaded it (``by``; "": not signed in).
    """

    token: str
    name: str
    size: int
    when: float
    by: str


class UploadFolder:
    """The folder ``uploads/`` of a store."""

    def __init__(self, folder: Path):
        self.folder = folder

    def new_path(self, name: str, by: str = "") -> Path:
        """Return the path for a file that ``by`` uploads; UserError for an unsupported type."""
        clean = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(name.replace("\\", "/")))[-80:]
        if Path(clean).suffix.lower() not in KINDS:
            raise UserError(
                "unrecognised file extension",
                name[-120:],
                f"drop a file of type {', '.join(KINDS)}",
            )
        self.tidy()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            folder = tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-"), dir=self.folder)
            path = Path(folder) / clean.lstrip("-.")
            if by:
                run_entry.record_uploader(path, by)
        except OSError as error:
            raise not_stored(error, name[-120:]) from None
        return path

    def files(self) -> Iterator[Path]:
        """Yield all of them, in no particular order."""
        for file in self.folder.glob("*/*"):
            if file.suffix != ".json":  # facts about a file
                yield file

    def content(self) -> list[Uploaded]:
        """Return all of them, the most recently used first."""
        found = []
        for file in self.files():
            with suppress(OSError):
                size, when = file.stat().st_size, file.parent.stat().st_mtime
                by = run_entry.uploader(file)
                found.append(Uploaded(file.parent.name, file.name, size, when, by))
        return sorted(found, key=lambda each: (-each.when, each.token))

    def version(self) -> int:
        """Return a value that changes when a file is added, removed or used."""
        try:
            times = [os.stat(self.folder), *(each.stat() for each in os.scandir(self.folder))]
        except OSError:
            return 0
        return hash(tuple(sorted(each.st_mtime_ns for each in times)))

    def __len__(self) -> int:
        return sum(1 for _ in self.files())

    def drop(self, token: str) -> str:
        """Delete one; return its name, "" if it was not found."""
        name = next((each.name for each in self.content() if each.token == token), "")
        if name:
            shutil.rmtree(self.folder / token, ignore_errors=True)
        return name

    def used(self, file: Path) -> None:
        """Note that a file is used: an uploaded one is kept for 30 more days."""
        if file.parent.parent == self.folder:
            with suppress(OSError):
                os.utime(file.parent)

    def tidy(self) -> None:
        """Delete files that have not been used for 30 days."""
        with suppress(OSError):
            for each in os.scandir(self.folder):
                with suppress(OSError):
                    if time.time() - each.stat().st_mtime >= KEEP_SECONDS:
                        shutil.rmtree(each.path, ignore_errors=True)


def not_stored(error: OSError, name: str) -> UserError:
    """Return the error for a file that the store cannot write."""
    return UserError(
        f"cannot store the file: {error.strerror}",
        name,
        "free disk space, or make the store writable",
    )
