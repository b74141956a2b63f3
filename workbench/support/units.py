"""Figures as text with their unit, in the style of the page (`dom.js`).

Three digits, times in the largest unit in which the number is at least 1, sizes with binary
prefixes.
"""

from __future__ import annotations

_TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))
_SIZES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_WORK = ((1e12, "Tflop"), (1e9, "Gflop"), (1e6, "Mflop"), (1e3, "kflop"), (1.0, "flop"))


def duration(microseconds: float) -> str:
    """Return a time as text: ``42.2 ms``."""
    return _scaled(microseconds, _TIMES)


def size(count: float) -> str:
    """Return a number of bytes as text: ``3.83 MiB``."""
    return _scaled(count, _SIZES)


def work(flops: float) -> str:
    """Return a number of operations as text: ``3.64 Gflop``."""
    return _scaled(flops, _WORK)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number of things as text: ``1 launch``, ``2 launches``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def launches(count: int) -> str:
    """Return a number of launches as text."""
    return counted(count, "launch", "launches")


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    by, unit = next((s for s in steps if abs(value) >= s[0]), steps[-1])
    shown = value / by
    return f"{shown:,.0f} {unit}" if abs(shown) >= 100 or shown == 0 else f"{shown:.3g} {unit}"
