"""The memory available to this process, checked before any large allocation."""

from __future__ import annotations

import os
from pathlib import Path

from core_compiler.support.errors import CANNOT_HERE, UserError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Return free memory in bytes: the kernel's estimate, or the control group's rest, if less."""
    found = [n for n in (_from_meminfo(), _from_cgroup()) if n is not None]
    if found:
        return min(found)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require(size: int, what: str, fix: str = "use a smaller model or batch") -> None:
    """Raise UserError (exit code 3) if ``size`` bytes exceed the free memory of this machine."""
    free = available_bytes()
    if size > free:
        raise UserError(
            f"needs {show_bytes(size)} of memory, {show_bytes(free)} are available",
            what,
            fix,
            CANNOT_HERE,
        )


def show_bytes(size: int) -> str:
    """Return ``1536`` as ``1.5 KiB``."""
    for unit, scale in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << scale:
            return f"{size / (1 << scale):.1f} {unit}"
    return f"{size} B"


def _from_meminfo() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _from_cgroup() -> int | None:
    """Return the limit minus the use of this process's control group (version 2).

    Page cache counts as free.
    """
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
