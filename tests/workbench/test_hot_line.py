"""Where in a kernel's generated source the time goes."""

from __future__ import annotations

import pytest

from workbench.queries.kernel_texts import hot_line

NEST = """def kernel(args, lo, hi):
    a = buffer_f32(args, 0, 0)
    for item in range(lo, hi):
        pack(a)
        for j in range(8):
            # a comment is no work
            v = load(a, j)
            store(a, j, v)
    for item in range(lo, hi):
        store(a, item, 0.0)
"""
TILES = """def kernel(args, lo, hi):
    for item in range(lo, hi):
        invoke_23(pack_6x2x8, a)
        for ip in range(8):
            invoke_10(tile_6x2x8, a)
            for ii in range(6):
                for jj in range(16):
                    store(a, 1.0)
"""


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (NEST, 7),
        (TILES, 5),
        ("def kernel(args):\n    store(a, 1.0)\n", None),
        ("", None),
        ("while x:\n    y()\n", 2),
    ],
)
def test_the_hot_line(source: str, line: int | None) -> None:
    assert hot_line(source) == line
