"""The library of recordings: a folder in the cache, newest first, and where uploads go."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sample_models
from core_compiler.errors import UserError
from core_compiler.record import schema
from core_compiler.record.file import is_running
from core_compiler.record.recorder import machine_id
from core_compiler.runtime.cache_folder import default_root
from workbench import divergences, first_bad_pass
from workbench.models import FILES

#: Files that can be dropped on the page, and how large one may be (bytes).
KINDS = (".run", ".npz", *FILES)
MAX_UPLOAD = 8 << 30
#: How many recordings the start page lists.
MAX_LISTED = 50
#: Recordings that come with the sample models (`make gpu-recordings`).
SHIPPED = Path(sample_models.__file__).parent / "recordings"


@dataclass(frozen=True)
class Entry:
    """A recording in the library; ``checks`` counts verdicts, ``device`` is the GPU it was made on
    ("" where none is named), ``mode`` is ``inference`` or ``training``, ``error``: why it cannot be
    read."""

    name: str
    path: str
    model: str
    target: str
    began: float
    size: int
    status: str
    stages: int
    checks: dict[str, int]
    total_ms: float | None
    error: str = ""
    device: str = ""
    mode: str = ""


class Library:
    """The folder ``recordings/`` of the cache, and ``uploads/`` beside it."""

    def __init__(self, root: Path | None = None):
        self.root = (root or default_root()).absolute()
        self.folder = self.root / "recordings"
        self._known: dict[tuple[str, int, int], Entry] = {}

    def new_path(self, model: str) -> Path:
        """Where a new recording of ``model`` goes: its name, the date, a number if need be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[:60] or "model"
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for number in range(1000):
            path = self.folder / f"{stem}-{stamp}{f'-{number}' if number else ''}.run"
            if not path.exists():
                return path
        raise UserError("too many recordings at once", str(self.folder), "wait a moment")

    def name(self, path: Path) -> str:
        """How the URL names a recording: short inside the library, else its whole path."""
        path = path.absolute()
        return path.name if path.parent == self.folder else str(path)

    def find(self, name: str) -> Path:
        """The path of a name that :meth:`name` gave."""
        path = Path(name).expanduser()
        return path if path.is_absolute() else self.folder / path.name

    def entries(self) -> list[Entry]:
        """The recordings, newest first."""
        return sorted(self._entries(self.folder), key=lambda e: (-e.began, e.name))[:MAX_LISTED]

    def recorded(self) -> list[Entry]:
        """The recordings that came with the sample models, by name: made on a GPU."""
        return sorted(self._entries(SHIPPED), key=lambda e: e.name)

    def _entries(self, folder: Path) -> list[Entry]:
        found = []
        for path, stat in _listed(folder):
            key = (str(path), stat.st_size, stat.st_mtime_ns)
            entry = self._known.get(key)
            if entry is None or entry.status == "recording":
                entry = self._known[key] = _read(path, stat)
            found.append(entry)
        return found

    def remove(self, name: str) -> None:
        """Delete a recording of the library."""
        path = self.folder / Path(name).name
        if path.suffix == ".run":
            for part in ("", "-wal", "-shm"):
                Path(f"{path}{part}").unlink(missing_ok=True)
            for results in (divergences.RESULTS, first_bad_pass.RESULTS):
                results.path_of(path).unlink(missing_ok=True)

    def upload_path(self, name: str) -> Path:
        """Where an uploaded file goes; UserError where it is of no kind that can be opened."""
        clean = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(name.replace("\\", "/")))[-80:]
        if Path(clean).suffix.lower() not in KINDS:
            raise UserError("this file cannot be opened", name[-120:],
                            f"drop one of {', '.join(KINDS)}")  # fmt: skip
        uploads = self.root / "uploads"
        uploads.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-"), dir=uploads))
        return folder / clean.lstrip("-.")


def _listed(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(".run"):
            try:
                yield Path(entry.path), entry.stat()
            except OSError:
                continue


def _read(path: Path, stat: os.stat_result) -> Entry:
    """A line about a recording, read with a few cheap questions."""
    blank = Entry(path.name, str(path), path.stem, "", stat.st_mtime, stat.st_size, "", 0, {}, None)
    try:
        with_mode = f"file:{quote(str(path))}?mode=ro"
        db = sqlite3.connect(with_mode, uri=True, timeout=1)
        try:
            schema.harden(db)
            meta = {k: json.loads(v) for k, v in db.execute("SELECT key, value FROM meta")}
            checks = dict(db.execute("SELECT verdict, count(*) FROM check_result GROUP BY verdict"))
            stages = db.execute("SELECT count(*) FROM stage").fetchone()[0]
            total = db.execute("SELECT value FROM figure WHERE name = 'total_ms'").fetchone()
        finally:
            db.close()
        status = str(meta.get("status", ""))
        if status == "recording" and not is_running(str(meta.get("writer", "")), machine_id()):
            status = "interrupted"
        return Entry(
            path.name, str(path), str(meta.get("model", path.stem)), str(meta.get("target", "")),
            _float(meta.get("began")) or stat.st_mtime, stat.st_size, status, int(stages),
            {str(k): int(v) for k, v in checks.items()}, _float(total[0]) if total else None,
            device=_device(meta), mode=str(meta.get("mode", "")),
        )  # fmt: skip
    except (sqlite3.Error, ValueError, TypeError, KeyError) as problem:
        return Entry(**{**vars(blank), "status": "unreadable", "error": str(problem)[:200]})


def _device(meta: dict[str, Any]) -> str:
    device = meta.get("device")
    return str(device.get("name", "")) if isinstance(device, dict) else ""


def _float(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None
