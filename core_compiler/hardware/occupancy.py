"""How many warps of a kernel fit a streaming multiprocessor of an NVIDIA GPU at once.

Source: CUDA C++ programming guide, "Compute capabilities: technical specifications", and the
occupancy calculator's allocation granularities.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Limits of one multiprocessor: resident ``warps`` and ``blocks``, ``shared`` bytes (and those
    that the system takes of every block), 32-bit ``registers``."""

    warps: int
    blocks: int
    shared: int
    taken: int
    registers: int = 65536


#: By compute capability times ten; one that is not listed is taken as the nearest older one.
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
    """How many blocks of ``threads`` are resident at once, and what allows no more: ``warps``,
    ``blocks``, ``registers`` (of a thread) or ``shared`` (bytes of a block)."""
    have = multiprocessor(capability)
    warps = -(-threads // WARP)
    # Registers come in units of 256 for each warp, shared memory in units of 128 bytes.
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
    """Resident warps as a part of the most there can be, and what limits them."""
    blocks, why = resident_blocks(capability, threads, registers, shared)
    return blocks * -(-threads // WARP) / multiprocessor(capability).warps, why
