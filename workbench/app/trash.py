"""Deleted runs, each in a folder of the store's ``trash/``, until restored or a month old."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core_compiler.support.errors import UserError

#: How long a deleted run is kept (seconds).
KEEP_SECONDS = 30 * 86400.0
_LABEL = "deleted.json"


@dataclass(frozen=True)
class Deleted:
    """A deleted run.

    The ``token`` that restores it, its ``name``, ``model`` and ``target``, ``when`` it was deleted
    (seconds since 1970) and its ``size`` in bytes.
    """

    token: str
    name: str
    model: str
    target: str
    when: float
    size: int


class Trash:
    """The folder ``trash/`` of a store."""

    def __init__(self, folder: Path):
        self.folder = folder

    def put(self, name: str, model: str, target: str, files: Iterable[Path]) -> Deleted:
        """Move the files of a run, the recording first, into the trash; UserError."""
        token = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        entry_folder, moved, size = self.folder / token, [], 0
        facts = {"name": name, "model": model, "target": target, "when": time.time()}
        try:
            entry_folder.mkdir(parents=True)
            (entry_folder / _LABEL).write_text(json.dumps(facts), "utf-8")
            for file in files:
                with suppress(FileNotFoundError):
                    size += file.stat().st_size
                    os.rename(file, entry_folder / file.name)
                    moved.append(file)
        except OSError as error:
            for file in moved:
                with suppress(OSError):
                    os.rename(entry_folder / file.name, file)
            shutil.rmtree(entry_folder, ignore_errors=True)
            raise UserError(
                f"cannot delete the run: {error.strerror}", name, "make the store writable"
            ) from None
        if not moved:
            shutil.rmtree(entry_folder, ignore_errors=True)
            raise UserError("run not found", name, "see workbench runs")
        return Deleted(token, name, model, target, float(str(facts["when"])), size)

    def move_out(self, deleted: Deleted, to: Path) -> None:
        """Move the files of a deleted run next to the recording ``to``, which does not exist yet.

        UserError if they cannot be moved.
        """
        entry_folder, stem = (
            self.folder / deleted.token,
            Path(deleted.name).name.removesuffix(".run"),
        )
        to.parent.mkdir(parents=True, exist_ok=True)
        files = [f for f in entry_folder.iterdir() if f.name != _LABEL and f.name.startswith(stem)]
        # The recording last: it must not be read without its accompanying files.
        for file in sorted(files, key=lambda f: f.name.endswith(".run")):
            os.rename(file, to.with_name(to.name.removesuffix(".run") + file.name[len(stem) :]))
        shutil.rmtree(entry_folder, ignore_errors=True)

    def version(self) -> int:
        """Return a value that changes when a run is added or removed."""
        try:
            return self.folder.stat().st_mtime_ns
        except OSError:
            return 0

    def __len__(self) -> int:
        """Return the number of runs in it."""
        try:
            return sum(entry.is_dir() for entry in os.scandir(self.folder))
        except OSError:
            return 0

    def content(self) -> list[Deleted]:
        """Return the deleted runs, the newest first."""
        try:
            entry_folders = [p for p in self.folder.iterdir() if p.is_dir()]
        except OSError:
            return []
        found = (self._read(entry_folder) for entry_folder in entry_folders)
        return sorted((d for d in found if d is not None), key=lambda d: (-d.when, d.token))

    def empty(self, older: float = 0.0) -> int:
        """Delete permanently the runs deleted ``older`` or more seconds ago; return the count."""
        expired = [d for d in self.content() if time.time() - d.when >= older]
        for deleted in expired:
            shutil.rmtree(self.folder / deleted.token, ignore_errors=True)
        return len(expired)

    def drop(self, token: str) -> bool:
        """Delete one permanently; return whether the token was found."""
        exists = any(deleted.token == token for deleted in self.content())
        if exists:
            shutil.rmtree(self.folder / token, ignore_errors=True)
        return exists

    def _read(self, entry_folder: Path) -> Deleted | None:
        try:
            facts = json.loads((entry_folder / _LABEL).read_text("utf-8"))
            size = sum(f.stat().st_size for f in entry_folder.iterdir() if f.name != _LABEL)
            return Deleted(
                entry_folder.name,
                str(facts["name"]),
                str(facts["model"]),
                str(facts["target"]),
                float(facts["when"]),
                size,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
