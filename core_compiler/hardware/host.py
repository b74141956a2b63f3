"""What this machine says about itself: processors, vector width, caches, memory."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from core_compiler.hardware.machine import ComputeUnit, Figure, Machine, MemoryTier, shipped

_CPUS = Path("/sys/devices/system/cpu")
#: Vector register bytes by processor feature, widest first.
_WIDTHS = (("avx512f", 64), ("avx2", 32), ("avx", 32), ("sve", 16), ("neon", 16), ("sse2", 16))


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of data or unified cache: bytes in one instance, and how many CPUs share it."""

    level: int
    size: int
    line: int
    shared_by: int


@dataclass(frozen=True, slots=True)
class Host:
    """The host; ``llvm_name`` and ``features`` as LLVM spells them, ``memory`` in bytes."""

    model: str
    llvm_name: str
    features: tuple[str, ...]
    processors: int
    vector_bytes: int
    caches: tuple[Cache, ...]
    memory: int

    @property
    def identity(self) -> str:
        """What measured limits belong to: another processor or count of them is another machine."""
        caches = ",".join(f"L{c.level}:{c.size}/{c.shared_by}" for c in self.caches)
        return f"{self.model}|{self.llvm_name}|{','.join(self.features)}|{self.processors}|{caches}"


def detect() -> Host:
    """Ask the operating system and LLVM; what neither knows is 0 or empty."""
    import llvmlite.binding as llvm

    enabled = tuple(sorted(name for name, on in llvm.get_host_cpu_features().items() if on))
    width = next((size for name, size in _WIDTHS if name in enabled), 16)
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return Host(_model(), llvm.get_host_cpu_name(), enabled, processors or 1, width,
                caches(_CPUS / "cpu0" / "cache"), _memory())  # fmt: skip


def machine(host: Host | None = None) -> Machine:
    """The shipped ``cpu`` machine with the host's figures in place of its defaults."""
    host = detect() if host is None else host
    base = shipped("cpu")

    def seen(value: float, unit: str = "", note: str = "") -> Figure:
        return Figure(value, unit, "detected", note)

    unit: ComputeUnit = replace(
        base.units[0],
        count=seen(host.processors),
        width_bytes=seen(host.vector_bytes, "B", host.llvm_name),
    )
    tiers = [
        MemoryTier(
            f"l{c.level}", seen(c.size / 1024, "KiB"),
            "core" if c.level <= 2 and c.shared_by <= 2 else "chip",
            seen(-(-host.processors // c.shared_by)), line=seen(c.line, "B"),
        )
        for c in host.caches
    ]  # fmt: skip
    dram = replace(
        base.tier("dram"), capacity=seen(host.memory / 2**30, "GiB") if host.memory else None
    )
    return base.with_(
        summary=f"{host.model}, {host.processors} processors",
        units=(unit,),
        tiers=(*(tiers or base.tiers[:-1]), dram),
    )


def caches(folder: Path) -> tuple[Cache, ...]:
    """Data and unified caches of a CPU from Linux's sysfs, nearest first; () without one."""
    found = []
    for index in sorted(folder.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            found.append(Cache(
                int((index / "level").read_text()), _size((index / "size").read_text()),
                int((index / "coherency_line_size").read_text()),
                _count((index / "shared_cpu_list").read_text()),
            ))  # fmt: skip
        except (OSError, ValueError):
            continue
    return tuple(sorted(found, key=lambda c: c.level))


def _size(text: str) -> int:
    """``32K`` or ``36608K`` or ``1M`` in bytes."""
    text = text.strip()
    scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    return int(text) if scale is None else int(text[:-1]) << scale


def _count(text: str) -> int:
    """How many CPUs a list such as ``0-3,8`` names."""
    spans = (part.split("-") for part in text.strip().split(","))
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)


def _model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
