"""Detection of this machine's processors, vector width, caches and memory."""

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
    """A level of data or unified cache: bytes per instance, and the CPUs that share it."""

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
        """Return the key of measured limits: the processor model and the number of them."""
        caches = ",".join(f"L{c.level}:{c.size}/{c.shared_by}" for c in self.caches)
        return f"{self.model}|{self.llvm_name}|{','.join(self.features)}|{self.processors}|{caches}"


def detect() -> Host:
    """Query the operating system and LLVM; unknown figures are 0 or empty."""
    import llvmlite.binding as llvm

    enabled = tuple(sorted(name for name, on in llvm.get_host_cpu_features().items() if on))
    width = next((size for name, size in _WIDTHS if name in enabled), 16)
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return Host(
        _model(),
        llvm.get_host_cpu_name(),
        enabled,
        processors or 1,
        width,
        caches(_CPUS / "cpu0" / "cache"),
        _memory(),
    )


def machine(host: Host | None = None) -> Machine:
    """Return the shipped ``cpu`` machine with the host's figures in place of its defaults."""
    host = detect() if host is None else host
    base = shipped("cpu")

    def detected(value: float, unit: str = "", note: str = "") -> Figure:
        return Figure(value, unit, "detected", note)

    unit: ComputeUnit = replace(
        base.units[0],
        count=detected(host.processors),
        width_bytes=detected(host.vector_bytes, "B", host.llvm_name),
    )
    tiers = [
        MemoryTier(
            f"l{c.level}",
            detected(c.size / 1024, "KiB"),
            "core" if c.level <= 2 and c.shared_by <= 2 else "chip",
            detected(-(-host.processors // c.shared_by)),
            line=detected(c.line, "B"),
        )
        for c in host.caches
    ]
    dram = replace(
        base.tier("dram"), capacity=detected(host.memory / 2**30, "GiB") if host.memory else None
    )
    return base.with_(
        summary=f"{host.model}, {host.processors} processors",
        units=(unit,),
        tiers=(*(tiers or base.tiers[:-1]), dram),
    )


def caches(folder: Path) -> tuple[Cache, ...]:
    """Return a CPU's data and unified caches from Linux's sysfs, nearest first; () without one."""
    found = []
    for index in sorted(folder.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            found.append(
                Cache(
                    int((index / "level").read_text()),
                    _size((index / "size").read_text()),
                    int((index / "coherency_line_size").read_text()),
                    _count((index / "shared_cpu_list").read_text()),
                )
            )
        except (OSError, ValueError):
            continue
    return tuple(sorted(found, key=lambda c: c.level))


def _size(text: str) -> int:
    """Return the bytes of ``32K`` or ``36608K`` or ``1M``."""
    text = text.strip()
    scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    return int(text) if scale is None else int(text[:-1]) << scale


def _count(text: str) -> int:
    """Return the number of CPUs that a list such as ``0-3,8`` names."""
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
