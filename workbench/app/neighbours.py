"""Recordings in the folders of those that were opened from outside the library.

A user who writes with ``-o`` into a folder finds all of that folder in the page.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from workbench.app import run_entry
from workbench.app.run_entry import Entry

#: The number of folders that are listed, the last used first, and of recordings in each, the newest
#: first.
FOLDERS, LISTED = 3, 50


class Neighbours:
    """The folders of opened recordings.

    ``may_open`` returns whether the page may open a path; other paths are not listed.
    """

    def __init__(self, may_open: Callable[[Path], bool]):
        self._may_open = may_open
        self._folders: list[Path] = []
        self._known: dict[tuple[str, int, int], Entry] = {}  # by path, size and modification time
        self._lock = threading.Lock()

    def opened(self, path: Path) -> None:
        """Note that a recording outside the library was opened."""
        folder = path.absolute().parent
        with self._lock:
            self._folders = [folder, *(f for f in self._folders if f != folder)][:FOLDERS]

    def entries(self, model: str = "") -> list[Entry]:
        """Return the recordings in these folders (of ``model``, if given).

        An entry's name is its path.
        """
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
