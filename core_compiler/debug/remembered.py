"""An on-disk cache of checks that passed and need not run again.

There is a file for each kind of check and digest of the sources that affect it, one key per line.
Only good verdicts are kept: faults are found again.  If the folder cannot be written, checks are
repeated.
"""

from __future__ import annotations

import functools
import os

from core_compiler.runtime.cache_folder import default_root
from core_compiler.runtime.kernel_cache import digest_of

#: The sources that define a kernel and its semantics.
KERNEL_SOURCES = ("numerics/**/*.py", "kernel_ir/*.py", "lowering/*.py", "scheduling/**/*.py")


class PassedChecks:
    """The keys (hexadecimal digests) of one ``kind`` of check that passed.

    ``sources`` are patterns of our own files whose text affects the verdicts.
    """

    def __init__(self, kind: str, sources: tuple[str, ...]):
        self.path = default_root() / "tried" / f"{kind}-{_digest(sources)[:32]}.keys"
        try:
            self._keys = set(self.path.read_text().split())
        except (OSError, UnicodeDecodeError):
            self._keys = set()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """Add a key, for other processes too (one short append per key)."""
        self._keys.add(key)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, f"{key}\n".encode())
            finally:
                os.close(descriptor)
        except OSError:
            pass


@functools.cache
def _digest(sources: tuple[str, ...]) -> str:
    return digest_of(sources)
