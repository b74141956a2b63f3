"""The recordings that lie beside those that were opened from outside the library: whoever writes
with ``-o`` into a folder finds all of that folder in the page."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from workbench.app import run_entry
from workbench.app.run_entry import Entry

#: How many folders are looked into, the one that was used last first, and how many recordings of
#: each are listed, the newest first.
FOLDERS, LISTED = 3, 50


class Neighbours:
    """``may_open`` says whether the page may open a path; what it may not is not listed."""

    def __init__(self, may_open: Callable[[Path], bool]):
        self._may_open = may_open
        self._folders: list[Path] = []
        self._known: dict[tuple[str, int, int], Entry] = {}  # by path, size and time of change
        self._lock = threading.Lock()

    def opened(self, path: Path) -> None:
        """A recording outside the library was opened."""
        folder = path.absolute().parent
        with self._lock:
            self._folders = [folder, *(f for f in self._folders if f != folder)][:FOLDERS]

    def entries(self, model: str = "") -> list[Entry]:
        """What lies beside them (of a ``model``, where one is named); an entry's name is its whole
        path, which opens it."""
        with self._lock:
            found = [entry for folder in self._folders for entry in self._listed(folder)]
        return [entry for entry in found if not model or entry.model == model]

    def _listed(self, folder: Path) -> Iterator[Entry]:
        stats: list[tuple[os.stat_result, Path]] = []
        with suppress(OSError), os.scandir(folder) as files:
            for file in files:
                with suppress(OSError):
                    if file.name.endswith(".run") and file.is_file():
                        stats.append((file.stat(), Path(file.path)))
        stats.sort(key=lambda each: each[0].st_mtime, reverse=True)
        for stat, path in stats[:LISTED]:
            if not self._may_open(path):
                continue
            key = str(path), stat.st_size, stat.st_mtime_ns
            with suppress(OSError):
                if key not in self._known or self._known[key].status == "recording":
                    self._known[key] = run_entry.read(path, str(path))
                yield self._known[key]
