"""Occupancy: the number of a kernel's warps resident on a multiprocessor of an NVIDIA GPU.

Source: CUDA C++ programming guide, "Compute capabilities: technical specifications", and the
occupancy calculator's allocation granularities.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """The limits of a multiprocessor.

    Resident ``warps`` and ``blocks``, ``shared`` bytes (and those reserved by the system per
    block), 32-bit ``registers``.
    """

    warps: int
    blocks: int
    shared: int
    taken: int
    registers: int = 65536


#: By ten times the compute capability; an unlisted one uses the nearest older one.
LIMITS = {
    75: Multiprocessor(32, 16, 64 << 10, 0),
    80: Multiprocessor(64, 32, 164 << 10, 1024),
    86: Multiprocessor(48, 16, 100 << 10, 1024),
    89: Multiprocessor(48, 24, 100 << 10, 1024),
    90: Multiprocessor(64, 32, 228 << 10, 1024),
    100: Multiprocessor(64, 32, 228 << 10, 1024),
    120: Multiprocessor(48, 24, 100 << 10, 1024),
}


def multiprocessor(capability: tuple[int, int]) -> Multiprocessor:
    number = 10 * capability[0] + capability[1]
    known = [n for n in LIMITS if n <= number]
    return LIMITS[max(known, default=min(LIMITS))]


def resident_blocks(
    capability: tuple[int, int], threads: int, registers: int, shared: int
) -> tuple[int, str]:
    """Return the number of resident blocks of ``threads`` threads, and the limiting resource.

    That is ``warps``, ``blocks``, ``registers`` (of a thread) or ``shared`` (bytes of a block).
    """
    have = multiprocessor(capability)
    warps = -(-threads // WARP)
    # Registers are allocated in units of 256 per warp, shared memory in units of 128 bytes.
    of_warp = -(-registers * WARP // 256) * 256
    limits = {"warps": have.warps // warps, "blocks": have.blocks}
    if of_warp:
        limits["registers"] = have.registers // of_warp // warps
    of_block = -(-shared // 128) * 128 + have.taken
    if shared:
        limits["shared"] = have.shared // of_block
    least = min(limits, key=lambda name: limits[name])
    return limits[least], least


def occupancy(
    capability: tuple[int, int], threads: int, registers: int, shared: int
) -> tuple[float, str]:
    """Return the resident warps as a fraction of the maximum, and the limiting resource."""
    blocks, why = resident_blocks(capability, threads, registers, shared)
    return blocks * -(-threads // WARP) / multiprocessor(capability).warps, why
