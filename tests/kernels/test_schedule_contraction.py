"""Products: every step of the schedule keeps the bits; machine code has the reference's bits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from core_compiler.codegen.cpu import generate
from core_compiler.kernel_ir.abi import work_items
from core_compiler.numerics.reference import contraction as reference
from core_compiler.scheduling.schedules import contraction
from core_compiler.scheduling.schedules.contraction import AVX512, Tiles
from core_compiler.scheduling.schedules.product import (
    ITEM_TILES,
    longest_chunk,
    read_product,
    work_item,
)
from core_compiler.scheduling.transforms import Refused
from tests.kernels.products import TINY, Case, byte_product, f32, group, heads, linear

GOLDEN = Path(__file__).parent / "golden"

SMALL = {
    "edges": linear(7, 11, 19, "gelu"),
    "residual": linear(4, 6, 8, "residual"),
    "causal": linear(7, 11, 19, "causal"),
    "two chunks": linear(2, 259, 5),
    "one row": linear(1, 9, 19),
    "one column": linear(5, 9, 1),
    "bf16": linear(7, 11, 19, "residual", "bf16"),
    "bf16, two chunks": linear(2, 259, 5, dtype="bf16"),
    "f16, one row": linear(1, 9, 19, dtype="f16"),
    "f8": linear(4, 6, 8, "none", "f8E4M3FN"),
    "bytes": byte_product(7, 11, 19),
    "bytes, the signed ones first": byte_product(4, 8, 9, "i8", "ui8"),
    "bytes, two chunks": byte_product(2, 259, 5),
    "signed bytes": byte_product(4, 6, 8, "i8", "i8"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "copied"])
@pytest.mark.parametrize("name", SMALL)
def test_every_step_keeps_the_bits(name, packed):
    case = Case(SMALL[name])
    expected = case.meaning()
    scheduled = contraction.schedule(case.kernel, TINY, packed)
    done = [step for step, got in case.each_step(scheduled) if got == expected]
    assert done == [s.name for s in scheduled.steps if s.kernel == case.kernel.name]
    assert len(done) > 15


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_transposed_views_keep_the_bits(dtype):
    case = Case(heads(5, 11, 7, 2, dtype))
    expected = case.meaning()
    scheduled = contraction.schedule(case.kernel, TINY, packed=False)
    assert "transpose_copy(k_cols, jj_cols, 4, 8)" in [s.name for s in scheduled.steps]
    assert all(got == expected for _, got in case.each_step(scheduled))


def test_cores_keep_the_bits_step_by_step():
    """A register tile's own steps, run in place of the tile in the whole kernel."""
    case = Case(linear(7, 11, 19))
    expected = case.meaning()
    scheduled = contraction.schedule(case.kernel, TINY)
    buffers = case.packed(scheduled)
    sizes = [*case.sizes, *scheduled.launch.more_sizes(case.sizes, 1)]
    checked = 0
    for step in scheduled.steps:
        if step.kernel in scheduled.cores and step.kernel.startswith("tile"):
            rows = int(step.kernel.split("_")[1].split("x")[0])
            if rows < 3 and "round_up" in step.name:
                continue  # a partial tile is exact from its last round_up on
            cores = {**scheduled.cores, step.kernel: step.function}
            assert case.interpreted(scheduled.function, cores, sizes, buffers) == expected, (
                step.name
            )
            checked += 1
    assert checked > 20


CONFIGURATIONS = [
    AVX512,
    Tiles(rows=6, width=8, partial=(4, 2, 1)),
    *(
        pytest.param(tiles, marks=pytest.mark.slow)
        for tiles in (
            Tiles(rows=5, vectors=3, width=8, row_length=272, unroll=4, partial=(1,)),
            Tiles(rows=8, vectors=1, width=16, unroll=3, partial=(3,)),
        )
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("tiles", CONFIGURATIONS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((29, 531, 70), marks=pytest.mark.slow),
        (29, 300, 70),
        (1, 300, 33),
        (16, 256, 64),
    ],
    ids=str,
)
def test_machine_code_has_the_reference_bits(tiles, shape):
    m, k, n = shape
    case = Case(linear(m, k, n, "none"))
    a, b = case.data[0].reshape(m, k), case.data[1].reshape(k, n)
    expected = reference.matmul(a, b).tobytes()
    for packed in (True, False):
        scheduled = contraction.schedule(case.kernel, tiles, packed)
        for slices in (1, 2, 5):
            assert case.compiled(scheduled, slices, threads=slices) == expected


NARROW = [
    "bf16",
    *(pytest.param(d, marks=pytest.mark.slow) for d in ("f16", "f8E5M2", "f8E4M3FN")),
]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("rows", [1, 20, 60])
def test_narrow_products_have_the_bits_of_wide_ones_rounded_once(dtype, rows):
    """Few rows widen the panels' elements in registers, many rows widen a panel for all tiles."""
    k, n = 300, 40
    case = Case(linear(rows, k, n, "none", dtype))
    a, b = (x.astype(np.float32) for x in case.data[:2])
    expected = reference.matmul(a.reshape(rows, k), b.reshape(k, n))
    expected = expected.astype(case.data[0].dtype).tobytes()
    for packed in (True, False):
        scheduled = contraction.schedule(case.kernel, AVX512, packed, [case.sizes])
        widened = any(name.startswith("panels_") for name in scheduled.cores)
        assert widened == (rows > 4 * AVX512.rows or not packed)
        assert case.compiled(scheduled, 2) == expected


@pytest.mark.parametrize("kinds", [("ui8", "i8"), ("i8", "ui8"), ("i8", "i8")])
@pytest.mark.parametrize("shape", [(29, 531, 70), (1, 300, 33)], ids=str)
def test_products_of_bytes_wrap(shape, kinds):
    """Words of four terms where one operand is signed and the other not; in any order the same."""
    m, k, n = shape
    case = Case(byte_product(m, k, n, *kinds))
    a, b = (x.astype(np.int32) for x in case.data[:2])
    expected = (a.reshape(m, k) @ b.reshape(k, n)).tobytes()
    for packed in (True, False):
        scheduled = contraction.schedule(case.kernel, AVX512, packed, [case.sizes])
        tiles = [c for name, c in scheduled.cores.items() if name.startswith("tile_")]
        dots = [op for op in tiles[0].body.walk() if op.kind == "kernel.dot4"]
        assert bool(dots) == (kinds[0] != kinds[1])
        assert case.compiled(scheduled, 2) == expected


@pytest.mark.slow
def test_special_values_reach_the_result():
    case = Case(linear(20, 300, 40, "none"))
    a, b = (x for x in case.data[:2])
    a[::7], a[3::50], b[5::40], b[::11] = -0.0, 3e38, -np.inf, 1e-30
    a[::13] *= np.float32(1e-20)
    expected = reference.matmul(a.reshape(20, 300), b.reshape(300, 40))
    got = np.frombuffer(case.compiled(contraction.schedule(case.kernel)), np.float32)
    same = got.view(np.uint32) == expected.reshape(-1).view(np.uint32)
    assert np.all(same | (np.isnan(got) & np.isnan(expected.reshape(-1))))


def nameless(text: str) -> str:
    """Without the digits that outlined kernels are told apart by."""
    return re.sub(r"_[0-9a-f]{6}\b", "_000000", text)


def test_register_tile_source():
    """Golden text of the smallest register tile's generated source."""
    scheduled = contraction.schedule(Case(linear(30, 300, 40)).kernel)
    (tile,) = (f for name, f in scheduled.cores.items() if name.startswith("tile_2x"))
    assert nameless(generate(tile).text) == (GOLDEN / "tile_2x2x16.txt").read_text()


def test_names_of_the_steps():
    """The schedule, as a person reads it."""
    scheduled = contraction.schedule(Case(linear(30, 300, 40)).kernel)
    listed = "\n".join(s.name for s in scheduled.steps if not s.kernel.startswith("tile")) + "\n"
    assert nameless(listed) == (GOLDEN / "contraction_steps.txt").read_text()


def test_products_share_their_cores():
    names = [
        set(contraction.schedule(Case(op).kernel).cores)
        for op in (linear(30, 300, 40), linear(7, 20, 9, "gelu"), linear(128, 64, 64, "residual"))
    ]
    assert names[0] == names[1] == names[2]


def test_schedules_are_deterministic():
    texts = [
        generate(contraction.schedule(Case(linear(30, 300, 40, "gelu")).kernel).function).text
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("rows", "columns"), [(10, 24), (1, 1), (224, 2), (4, 64), (3, 3)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_work_items_cover_and_share(rows, columns, threads):
    mc, nc = work_item(1, rows, columns, threads, 20)
    items = -(-rows // mc) * -(-columns // nc)
    assert 1 <= mc <= min(rows, 20) and 1 <= nc <= columns and mc * nc <= ITEM_TILES
    slowest = -(-items // threads) * mc * nc
    assert slowest <= 1.5 * rows * columns / threads or mc * nc == 1, "no thread is idle for long"


def test_work_items_follow_the_sizes():
    case = Case(linear(128, 64, 96))
    scheduled = contraction.schedule(case.kernel)
    sizes = [*case.sizes, *scheduled.launch.more_sizes(case.sizes, 2)]
    assert work_items(scheduled.function, sizes) % 2 == 0
    assert longest_chunk(case.kernel, case.sizes) == 64


def test_what_is_no_product_is_refused():
    op = group([f32(4, 5)], lambda b, x: b.exp(x))
    with pytest.raises(Refused, match="has no product"):
        read_product(Case(op).kernel)
    with pytest.raises(Refused, match="has no product"):
        contraction.schedule(Case(linear(5, 1, 9)).kernel)


@pytest.mark.parametrize(
    ("rows", "height"),
    [((16,), 8), ((14,), 14), ((64, 128), 14), ((1,), 14), ((), 14), ((15,), 8), ((9,), 14)],
)
def test_tiles_fit_the_rows(rows, height):
    """Sixteen rows are two tiles of eight, not one of fourteen and a thin one."""
    assert AVX512.fitting(rows).rows == height
    assert TINY.fitting(rows).rows == TINY.rows
