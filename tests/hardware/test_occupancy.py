"""Occupancy: the examples of NVIDIA's programming guide, and what limits a block."""

from __future__ import annotations

import pytest

from core_compiler.hardware.occupancy import occupancy, resident_blocks


def test_the_programming_guides_example():
    """ "If a kernel uses 64 registers and each block has 512 threads ... two blocks can reside ...
    as soon as the kernel uses one more register, only one block" (65536 registers)."""
    assert resident_blocks((8, 0), 512, 64, 0) == (2, "registers")
    assert resident_blocks((8, 0), 512, 65, 0)[0] == 1


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "expected"),
    [
        ((9, 0), 256, 32, 0, (1.0, "warps")),
        ((9, 0), 32, 32, 0, (0.5, "blocks")),
        ((7, 5), 1024, 32, 0, (1.0, "warps")),
        ((9, 0), 256, 168, 8320, (0.125, "registers")),
        ((8, 6), 128, 16, 48 << 10, (8 / 48, "shared")),
        ((8, 7), 128, 16, 48 << 10, (8 / 48, "shared")),  # as the nearest older one
    ],
)
def test_what_limits_a_block(capability, threads, registers, shared, expected):
    assert occupancy(capability, threads, registers, shared) == expected
