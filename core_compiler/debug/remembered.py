"""What was tried and found right, on disk: keys of checks that need not be made again.

A file for each kind of check and digest of the sources that decide about it, one key a line.  Only
good verdicts are kept: what is wrong is found again.  A folder that cannot be written costs time.
"""

from __future__ import annotations

import functools
import os

from core_compiler.runtime.cache_folder import default_root
from core_compiler.runtime.kernel_cache import digest_of

#: The files that decide what a kernel is and means.
KERNEL_SOURCES = ("numerics/**/*.py", "kernel_ir/*.py", "lowering/*.py", "scheduling/**/*.py")


class Remembered:
    """The keys (hexadecimal digests) of one ``kind`` of check that are known to be right;
    ``sources`` are patterns of our own files whose text decides about them."""

    def __init__(self, kind: str, sources: tuple[str, ...]):
        self.path = default_root() / "tried" / f"{kind}-{_digest(sources)[:32]}.keys"
        try:
            self._keys = set(self.path.read_text().split())
        except (OSError, UnicodeDecodeError):
            self._keys = set()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """Remember a key, for other processes too (one short append a key)."""
        self._keys.add(key)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            place = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(place, f"{key}\n".encode())
            finally:
                os.close(place)
        except OSError:
            pass


@functools.cache
def _digest(sources: tuple[str, ...]) -> str:
    return digest_of(sources)
