"""The cache on disk: entries named by the hash of their inputs, checked on every read.

An entry is a folder of plain files (a kernel's source, its object code and its assembly are stored
together and can be opened by hand) with a ``manifest.json`` that holds each file's length and
CRC-32.  These detect a damaged file (anyone who can write to the folder could also write a
manifest).  Folders appear by one ``rename``, so a reader sees a whole entry or none, and several
processes may share the cache without locks. A file that does not match is removed with its entry
and reported as absent: the caller recomputes it.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.support.mapped import PIECE, release_mapping

MANIFEST = "manifest.json"
DEFAULT_LIMIT = 4 << 30
#: Minimum interval in seconds between renewals of an entry's age on reads.  One write per read
#: would be waste, but the entries of a compile must outlive those that others write until it loads
#: them.
RENEW_AFTER = 60
#: The folder is measured again after this fraction of the limit was written.
MEASURE_EVERY = 1 / 16
#: Files of at least this many bytes are memory-mapped.
MAP_FROM = 16 << 20


def default_root() -> Path:
    """Return ``$COMPILER_WORKBENCH_CACHE``, or ``compiler-workbench`` in the user's cache."""
    chosen = os.environ.get("COMPILER_WORKBENCH_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "compiler-workbench"


def default_limit() -> int:
    """Return ``$COMPILER_WORKBENCH_CACHE_LIMIT`` in bytes, else 4 GiB."""
    text = os.environ.get("COMPILER_WORKBENCH_CACHE_LIMIT", "")
    if not text:
        return DEFAULT_LIMIT
    if not text.isdigit():
        raise UserError(
            f"expected a number of bytes, got {text!r}",
            "COMPILER_WORKBENCH_CACHE_LIMIT",
            "set it to an integer, such as 4294967296",
        )
    return int(text)


class CacheFolder:
    """Entries ``(kind, key) -> {file name: bytes}`` under ``root``, at most ``limit`` bytes in all.

    ``kind`` and ``key`` are short names of ``[A-Za-z0-9._-]``; keys are hashes made by the caller.
    If the limit is exceeded, the least recently read entries are removed first.
    """

    def __init__(self, root: Path | str | None = None, limit: int | None = None):
        self.root = Path(root) if root is not None else default_root()
        self.limit = default_limit() if limit is None else limit
        self._bytes_written = self.limit  # measure at the first write of a process

    def path(self, kind: str, key: str) -> Path:
        """Return the path of the entry's folder, which need not exist."""
        return self.root / kind / key[:2] / key

    def get(self, kind: str, key: str, file: str) -> bytes | None:
        """Return one file of an entry, checked, or None if the entry is absent or was damaged."""
        files = self.get_all(kind, key, (file,))
        return None if files is None else bytes(files[file])

    def get_all(
        self, kind: str, key: str, names: tuple[str, ...] | None = None
    ) -> dict[str, bytes | mmap.mmap] | None:
        """Return the files ``names`` (default: all) of an entry, or None if absent or damaged."""
        folder = self.path(kind, key)
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
            sums = manifest["files"]
            found = {n: _read(folder / n) for n in (sums if names is None else names)}
            sound = all(_sum(data) == sums[n] for n, data in found.items())
        except FileNotFoundError:
            if (folder / MANIFEST).exists():  # a file is missing inside an entry
                self.remove(kind, key)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            self.remove(kind, key)
            return None
        self._renew(folder)
        return found

    def put(self, kind: str, key: str, files: Mapping[str, bytes]) -> Path:
        """Store an entry, unless one of that name exists, and return its folder."""
        folder = self.path(kind, key)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self.root))
        except OSError as error:
            raise UserError(
                f"cannot write to the cache ({error.strerror})",
                str(self.root),
                "set COMPILER_WORKBENCH_CACHE to a writable folder",
                CANNOT_HERE,
            ) from None
        try:
            for name, data in files.items():
                (draft / name).write_bytes(data)
            manifest = {"files": {name: _sum(data) for name, data in files.items()}}
            (draft / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
            os.chmod(draft, 0o755)
            self._publish(draft, folder)
        except OSError as error:
            raise UserError(
                f"cannot write to the cache ({error.strerror})",
                str(self.root),
                "free disk space, or set COMPILER_WORKBENCH_CACHE to another folder",
                CANNOT_HERE,
            ) from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._bytes_written += sum(map(len, files.values()))
        if self._bytes_written >= self.limit * MEASURE_EVERY:
            self.trim()
        return folder

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry atomically (no reader sees half of it), then delete its files."""
        self._discard(self.path(kind, key))

    def keys(self, kind: str) -> list[str]:
        """Return the keys of all entries of a kind, sorted."""
        return sorted(entry.name for shelf in _listed(self.root / kind) for entry in _listed(shelf))

    def size(self) -> int:
        """Return the bytes of all entries."""
        return sum(size for _, size, _ in self._entries())

    def trim(self, limit: int | None = None) -> int:
        """Remove entries, least recently read first, down to ``limit``; return the bytes freed."""
        limit = self.limit if limit is None else limit
        entries = sorted(self._entries())
        self._bytes_written, excess, freed = 0, sum(size for _, size, _ in entries) - limit, 0
        for _, size, folder in entries:
            if freed >= excess:
                break
            self._discard(folder)
            freed += size
        self._remove_old_drafts()
        return freed

    def _publish(self, draft: Path, folder: Path) -> None:
        for _ in range(3):
            try:
                os.rename(draft, folder)
                return
            except OSError:
                if (folder / MANIFEST).exists():
                    return  # another process was first: same key, same content
                self._discard(folder)  # a leftover without a manifest
        raise OSError(0, "an entry cannot be replaced")

    def _discard(self, folder: Path) -> None:
        try:
            trash = Path(tempfile.mkdtemp(prefix=".gone-", dir=self.root))
            os.rename(folder, trash / folder.name)
        except OSError:
            pass  # another process removed it
        else:
            shutil.rmtree(trash, ignore_errors=True)

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Return ``(last read, bytes, folder)`` of each entry."""
        found = []
        kinds = (kind for kind in _listed(self.root) if not kind.name.startswith("."))
        for folder in (e for kind in kinds for shelf in _listed(kind) for e in _listed(shelf)):
            try:
                read = (folder / MANIFEST).stat().st_mtime
                size = sum(p.stat().st_size for p in folder.iterdir())
            except OSError:
                continue  # removed in the meantime
            found.append((read, size, folder))
        return found

    def _renew(self, folder: Path) -> None:
        manifest, now = folder / MANIFEST, time.time()
        try:
            if now - manifest.stat().st_mtime > RENEW_AFTER:
                os.utime(manifest, (now, now))
        except OSError:
            pass  # a read-only cache is still a cache

    def _remove_old_drafts(self) -> None:
        """Remove drafts of killed processes that are at least a day old."""
        for leftover in _listed(self.root):
            try:
                if not leftover.name.startswith((".draft-", ".gone-")):
                    continue
                old = time.time() - leftover.stat().st_mtime > 86400
            except OSError:
                continue
            if old:
                shutil.rmtree(leftover, ignore_errors=True)


def _listed(folder: Path) -> list[Path]:
    """Return a folder's contents; empty if it was removed (``Path.glob`` would raise)."""
    try:
        return [Path(entry.path) for entry in os.scandir(folder)]
    except OSError:
        return []


def _read(path: Path) -> bytes | mmap.mmap:
    """Return a file's bytes; a large one (a model's weights) is memory-mapped, not copied."""
    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size < MAP_FROM:
            return stream.read()
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _sum(data: bytes | mmap.mmap) -> list[int]:
    found = 0
    with memoryview(data) as read:
        for start in range(0, len(read), PIECE):
            found = zlib.crc32(read[start : start + PIECE], found)
            if isinstance(data, mmap.mmap):  # the weights of a model need not be in memory for it
                release_mapping(data, start, min(PIECE, len(data) - start))
    return [len(data), found]
