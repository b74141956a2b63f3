"""The library of runs: a folder of recordings with an index, imported uploads, and the trash."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import sample_models
from core_compiler.record.file import RecordingFile
from core_compiler.runtime.cache_folder import default_root
from core_compiler.support.errors import UserError
from workbench.app import run_entry, run_query, trash
from workbench.app.run_entry import Entry
from workbench.app.run_index import MAX_TREND, Found, Index
from workbench.app.trash import Deleted, Trash
from workbench.app.uploaded import UploadFolder, not_stored

Tags = Callable[[tuple[str, ...]], Iterable[str]]

#: The number of recordings that the views offer for comparison.
MAX_OFFERED = 50
#: Recordings shipped with the sample models (`make gpu-recordings`).
SHIPPED = Path(sample_models.__file__).parent / "recordings"


def stem_of(model: str) -> str:
    """Return a file name for a model, whose name may be a path or any text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[:60] or "model"


class Library:
    """A store in ``root`` (default: the cache folder).

    It has ``recordings/`` (made here), ``recordings/imported/`` (uploaded), ``library.sqlite``
    (their index), ``trash/`` and ``uploads/``.
    """

    def __init__(self, root: Path | None = None):
        self.root = (root or default_root()).absolute()
        self.folder = self.root / "recordings"
        self.imported = self.folder / "imported"
        self.uploads = UploadFolder(self.root / "uploads")
        self.index = Index(
            self.root / "library.sqlite", {"": self.folder, "imported/": self.imported}
        )
        self.trash = Trash(self.root / "trash")
        self._moving = threading.Lock()  # a free name stays free until it is taken
        self._shipped: dict[tuple[str, int, int], Entry] = {}

    # -- names -----------------------------------------------------------------------------------

    def new_path(self, model: str) -> Path:
        """Return the path of a new recording of ``model``: its name and date, made unique."""
        return self._free(self.folder / f"{stem_of(model)}-{time.strftime('%Y%m%d-%H%M%S')}.run")

    def _free(self, path: Path) -> Path:
        """Return ``path``, with a number if that file exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        for number in range(1000):
            free = path.with_name(f"{path.stem}{f'-{number}' if number else ''}.run")
            if not free.exists():
                return free
        raise UserError("too many recordings at once", str(path.parent), "wait a moment")

    def name(self, path: Path) -> str:
        """Return the name of a recording in the URL: short inside the library, else its path."""
        path = path.absolute()
        if path.parent == self.imported:
            return f"imported/{path.name}"
        return path.name if path.parent == self.folder else str(path)

    def find(self, name: str) -> Path:
        """Return the path of a name from :meth:`name`; UserError if it is invalid."""
        path = file_of(name)
        if path.is_absolute():
            return path
        return (self.imported if path.parts[:-1] == ("imported",) else self.folder) / path.name

    def _require_run(self, name: str) -> Path:
        """Return the path of a run of the library; UserError if it is not found."""
        path = self.find(name)
        is_ours = path.parent in (self.folder, self.imported) and path.suffix == ".run"
        if not is_ours or not path.is_file():
            raise UserError("run not found in the library", name[:200], "see workbench runs")
        return path

    # -- listings --------------------------------------------------------------------------------

    def listing(self, text: str = "", limit: int = 50, offset: int = 0) -> Found:
        """Return a page of the runs that a query finds, from the index as it is now."""
        return self.index.find(text, limit, offset)

    def version(self) -> tuple:
        """Return a value that changes with the index, trash and uploads, from any process."""
        return self.index.version(), self.trash.version(), self.uploads.version()

    def entries(self, text: str = "", limit: int = MAX_OFFERED) -> list[Entry]:
        """Return the runs that a query finds after a scan: pinned ones, then the newest."""
        self.index.refresh(seconds=1.0)
        return self.index.find(text, limit).entries

    def runs_of_model(self, model: str, limit: int = MAX_OFFERED) -> list[Entry]:
        """Return the readable recordings of a model, pinned ones and then the newest first."""
        self.index.refresh(seconds=1.0, quick=True)
        name = model[: run_entry.MAX_NAME].replace('"', "")  # the index stores no more of it
        found = self.index.find(f'model:="{name}"', limit).entries
        return [entry for entry in found if entry.status not in ("", "unreadable")]

    def trend(self, text: str) -> dict[str, Any]:
        """Return the runs of one model, variant and target, the oldest first.

        The keys are ``model``, ``variant``, ``target``, ``runs`` and their ``total`` number; if
        the query finds several such groups, these are ``groups`` (model, variant, target, number,
        a query for each).
        """
        groups = self.index.groups(text)
        if len(groups) != 1:
            return {"groups": [[*g, run_query.exactly(*g[:3])] for g in groups]}
        (model, variant, target, total) = groups[0]
        found = self.index.find(text, MAX_TREND, group=(model, variant, target)).entries
        runs = sorted(found, key=lambda e: (e.began, e.name))
        return {
            "model": model,
            "variant": variant,
            "target": target,
            "total": total,
            "runs": [asdict(run) for run in runs if run.status],
        }

    def recorded(self) -> list[Entry]:
        """Return the recordings shipped with the sample models, by name: made on a GPU."""
        found = []
        for path in sorted(SHIPPED.glob("*.run")):
            stat = path.stat()
            key = (str(path), stat.st_size, stat.st_mtime_ns)
            if key not in self._shipped:
                self._shipped[key] = run_entry.read(path, path.name)
            found.append(self._shipped[key])
        return found

    # -- changes ---------------------------------------------------------------------------------

    def annotate(
        self,
        name: str,
        *,
        tags: Iterable[str] | Tags | None = None,
        note: str | None = None,
        pinned: bool | None = None,
    ) -> None:
        """Replace a run's tags (or apply a function to them), note or pin; UserError."""
        path = self._require_run(name)

        def change() -> None:
            wanted = tags(run_entry.about(path)["tags"]) if callable(tags) else tags
            changes = run_entry.checked(tags=wanted, note=note, pinned=pinned)
            run_entry.annotate(path, changes)

        self.index.update(self.name(path), change)

    def remove(self, name: str) -> Deleted:
        """Move a run and its accompanying files into the trash.

        UserError while it is being written.
        """
        path = self._require_run(name)
        entry = run_entry.read(path, self.name(path))
        if entry.status == "recording" and not entry.elsewhere:
            raise UserError("this run is still being recorded", entry.name, "cancel it first")
        self._tidy()
        deleted = self.trash.put(entry.name, entry.model, entry.target, files_of(path))
        self.index.update(entry.name)
        return deleted

    def restore(self, token: str) -> str:
        """Restore a deleted run; return its name, a new one if its own has been taken."""
        deleted = next((d for d in self.trash.content() if d.token == token), None)
        if deleted is None:
            raise UserError("deleted run not found", token[:80], "see workbench runs --trash")
        parent = self.imported if deleted.name.startswith("imported/") else self.folder
        try:
            with self._moving:
                to = self._free(parent / Path(deleted.name).name)
                self.trash.move_out(deleted, to)
        except OSError as error:
            raise not_stored(error, deleted.name) from None
        self.index.update(self.name(to))
        return self.name(to)

    def discard(self, token: str) -> str:
        """Delete an uploaded file permanently and return its name; UserError if it is not found."""
        name = self.uploads.drop(token)
        if not name:
            raise UserError("upload not found", token[:60], "see workbench runs --uploads")
        return name

    def purge(self, token: str) -> int:
        """Delete a run in the trash permanently, or all if ``token`` is ""; return their number.

        UserError if the token is not found.
        """
        if not token:
            return self.trash.empty()
        if not self.trash.drop(token):
            raise UserError("deleted run not found", token[:80], "see workbench runs --trash")
        return 1

    def deleted(self) -> list[Deleted]:
        """Return the trash; entries older than 30 days are removed first."""
        self._tidy()
        return self.trash.content()

    def _tidy(self) -> None:
        """Remove entries that were deleted or uploaded 30 days ago and not used since."""
        self.trash.empty(trash.KEEP_SECONDS)
        self.uploads.tidy()

    # -- uploads ---------------------------------------------------------------------------------

    def uploaded(self) -> Iterator[tuple[Path, int]]:
        """Yield every uploaded file and its size in bytes.

        These are models and imported recordings, also those in the trash.
        """
        tokens = (d.token for d in self.trash.content() if d.name.startswith("imported/"))
        files = chain(
            self.uploads.files(),
            self.imported.glob("*.run"),
            *((self.trash.folder / token).glob("*.run") for token in tokens),
        )
        for file in files:
            with suppress(OSError):
                yield file, file.stat().st_size

    def import_recording(self, path: Path) -> str:
        """Copy a foreign recording into the library, among the imported ones; return its name.

        UserError if it is not a recording.
        """
        recording = RecordingFile(path)
        try:
            to = self._free(self.imported / f"{path.stem}.run")
            recording.export(to)
        finally:
            recording.close()
        return self.name(to)

    def import_upload(self, upload: Path) -> Path:
        """Move an uploaded recording into the library, among the imported ones.

        Code that an imported recording names never runs without consent.

        UserError if it is not a recording; the upload is then deleted.
        """
        try:
            RecordingFile(upload).close()
            with self._moving:
                path = self._free(self.imported / f"{upload.stem}.run")
                with suppress(FileNotFoundError):
                    os.rename(run_entry.about_path(upload), run_entry.about_path(path))
                os.rename(upload, path)
        except OSError as error:
            raise not_stored(error, upload.name) from None
        finally:
            shutil.rmtree(upload.parent, ignore_errors=True)
        return path


def file_of(text: str) -> Path:
    """Return the path that a user entered; UserError if it is invalid."""
    try:
        if "\0" not in text:
            return Path(text).expanduser()
    except RuntimeError:  # ~ of an unknown user
        pass
    raise UserError(
        "file not found", text[:300].replace("\0", "\N{REPLACEMENT CHARACTER}"), "check the path"
    )


def files_of(path: Path) -> list[Path]:
    """Return a recording and its accompanying files."""
    from workbench.model import (  # import numba, which a list does not need
        divergences,
        first_bad_pass,
    )

    results = (each.RESULTS.path_of(path) for each in (divergences, first_bad_pass))
    companions = *results, run_entry.about_path(path)
    return [path, *(Path(f"{path}{part}") for part in ("-wal", "-shm")), *companions]
