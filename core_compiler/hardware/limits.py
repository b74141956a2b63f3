"""The roofs of a machine: peak operations and bytes per second, measured or from its description.

A kernel's limit is the lower roof (Williams, Waterman, Patterson: "Roofline", CACM 2009): the time
that its arithmetic or its compulsory bytes need, whichever is longer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from core_compiler.hardware.machine import Machine

Curve = tuple[tuple[int, float], ...]

#: A launch above this percentage of measured limits proves them too low: two measurements of one
#: thing on a quiet machine differ by less.
MAX_PERCENT = 105.0


@dataclass(frozen=True)
class Limits:
    """Measured roofs with ``threads`` threads.

    ``flops``: f32 operations per second (an fma is two).  ``read`` and ``copy``: rows of (bytes
    touched, bytes per second), a copied byte counted twice.
    """

    threads: int
    flops: float
    read: Curve
    copy: Curve

    def bandwidth(self, footprint: float) -> float:
        """Return bytes per second for a kernel that touches ``footprint`` bytes (interpolated)."""
        return max(_interpolate(self.read, footprint), _interpolate(self.copy, footprint))

    def peak_flops(self, bits: int = 32) -> float:
        """Return operations per second on ``bits``-bit elements: 32 / bits per f32 lane."""
        return self.flops * 32 / max(bits, 32)

    def least_seconds(self, flops: float, nbytes: float, bits: int = 32) -> float:
        """Return the time under the lower roof: nothing that does this work is faster."""
        memory = nbytes / self.bandwidth(nbytes) if nbytes else 0.0
        return max(flops / self.peak_flops(bits), memory)

    def percent(self, seconds: float, flops: float, nbytes: float, bits: int = 32) -> float:
        """Return the percentage of the limit reached; 0 if a kernel has no work to count."""
        return 100 * self.least_seconds(flops, nbytes, bits) / seconds if seconds > 0 else 0.0

    def passed(self, percent: float) -> bool:
        """Return whether a percentage of the limit proves it too low.

        The limit of a description has no rates per footprint and does not apply to data from a
        cache.
        """
        return len(self.read) > 1 and percent > MAX_PERCENT


def best(one: Limits, other: Limits) -> Limits:
    """Return the elementwise maximum of two measurements of one machine.

    Other load only lowers a measurement.  Returns ``other`` if their footprints differ.
    """
    if [[s for s, _ in c] for c in (one.read, one.copy)] != [
        [s for s, _ in c] for c in (other.read, other.copy)
    ]:
        return other
    return Limits(
        one.threads,
        max(one.flops, other.flops),
        _best(one.read, other.read),
        _best(one.copy, other.copy),
    )


def _best(one: Curve, other: Curve) -> Curve:
    return tuple((s, max(a, b)) for (s, a), (_, b) in zip(one, other, strict=True))


def of_machine(machine: Machine) -> Limits | None:
    """Return the roofs of a machine's description, or None if it lacks figures.

    Nothing is measured: clocks times widths, and the bandwidth of its last memory.
    """
    units = [u for u in machine.units if u.clock and u.fma_per_cycle and u.width_bytes]
    memory = machine.tiers[-1].bandwidth
    if not units or memory is None:
        return None
    flops = sum(u.flops(32) for u in units)
    curve = ((1, memory.base),)
    return Limits(1, flops, curve, curve)


def _interpolate(curve: Curve, footprint: float) -> float:
    sizes, rates = zip(*curve, strict=True)
    return float(np.interp(np.log2(max(footprint, 1)), np.log2(sizes), rates))


def from_json(data: bytes | str) -> Limits:
    """Return limits from JSON text (of ``dataclasses.asdict``), as cached and recorded."""
    items = json.loads(data)
    curves = {n: tuple((int(s), float(r)) for s, r in items[n]) for n in ("read", "copy")}
    return Limits(int(items["threads"]), float(items["flops"]), **curves)
