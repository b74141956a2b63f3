"""Files that were uploaded to be compiled or given to a search: each in a folder of its own in the
store's ``uploads/``, until somebody deletes it, or it has not been used for a month."""

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
from workbench.app.trash import KEPT

#: Files that can be dropped on the page, and how large one may be (bytes).
KINDS = (".run", ".npz", *FILES)
MAX_UPLOAD = 8 << 30


@dataclass(frozen=True)
class Uploaded:
    """A file: the ``token`` that it is deleted by, its ``name``, ``size`` in bytes, ``when`` it was
    used last (seconds since 1970), and who uploaded it (``by``; "": nobody who signed in)."""

    token: str
    name: str
    size: int
    when: float
    by: str


class UploadFolder:
    """The folder ``uploads/`` of a store."""

    def __init__(self, folder: Path):
        self.folder = folder

    def place(self, name: str, by: str = "") -> Path:
        """Where a file that ``by`` uploads goes; UserError where it is of no kind that can be
        opened."""
        clean = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(name.replace("\\", "/")))[-80:]
        if Path(clean).suffix.lower() not in KINDS:
            raise UserError("unrecognised file extension", name[-120:],
                            f"drop a file of type {', '.join(KINDS)}")  # fmt: skip
        self.tidy()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            folder = tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-"), dir=self.folder)
            path = Path(folder) / clean.lstrip("-.")
            if by:
                run_entry.sign(path, by)
        except OSError as error:
            raise not_stored(error, name[-120:]) from None
        return path

    def files(self) -> Iterator[Path]:
        """All of them, in no order."""
        for file in self.folder.glob("*/*"):
            if file.suffix != ".json":  # what is said about one
                yield file

    def content(self) -> list[Uploaded]:
        """All of them, the one used last first."""
        found = []
        for file in self.files():
            with suppress(OSError):
                size, when = file.stat().st_size, file.parent.stat().st_mtime
                by = run_entry.uploader(file)
                found.append(Uploaded(file.parent.name, file.name, size, when, by))
        return sorted(found, key=lambda each: (-each.when, each.token))

    def version(self) -> int:
        """Changes when a file comes, goes or is used."""
        try:
            times = [os.stat(self.folder), *(each.stat() for each in os.scandir(self.folder))]
        except OSError:
            return 0
        return hash(tuple(sorted(each.st_mtime_ns for each in times)))

    def __len__(self) -> int:
        return sum(1 for _ in self.files())

    def drop(self, token: str) -> str:
        """Delete one; its name, "" where it was not there."""
        name = next((each.name for each in self.content() if each.token == token), "")
        if name:
            shutil.rmtree(self.folder / token, ignore_errors=True)
        return name

    def used(self, file: Path) -> None:
        """A file is used: one that was uploaded is kept for 30 more days."""
        if file.parent.parent == self.folder:
            with suppress(OSError):
                os.utime(file.parent)

    def tidy(self) -> None:
        """What has not been used for 30 days goes."""
        with suppress(OSError):
            for each in os.scandir(self.folder):
                with suppress(OSError):
                    if time.time() - each.stat().st_mtime >= KEPT:
                        shutil.rmtree(each.path, ignore_errors=True)


def not_stored(error: OSError, name: str) -> UserError:
    """What is said where the store takes no file."""
    return UserError(f"cannot store the file: {error.strerror}", name,
                     "free disk space, or make the store writable")  # fmt: skip
