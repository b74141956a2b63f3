"""Double-buffered slabs on a GPU: what overlaps, what waits, and what a missing wait would do."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from core_compiler.codegen.cuda.compile import compile_source
from core_compiler.codegen.cuda.predict import CompiledLaunches
from core_compiler.codegen.cuda.source import generate
from core_compiler.hardware.machine import shipped
from core_compiler.hardware.prediction import GPUModel
from core_compiler.kernel_ir.abi import work_items
from core_compiler.lowering.lower import lower_group
from core_compiler.scheduling.schedules import gpu
from core_compiler.scheduling.schedules.gpu import product
from core_compiler.scheduling.schedules.product import read_product
from tests.cuda.helpers import ptx_of
from tests.cuda.ptx_instructions import Fault
from tests.cuda.ptx_interpreter import launch
from tests.kernels.kernel_helpers import group, group_buffers, normal, reference
from tests.slow import slow_but

ARRAYS = normal(9, 270), normal(270, 17)
NARROW = tuple(a.astype(ml_dtypes.bfloat16) for a in ARRAYS)


def source(arrays, capability):
    op = group(lambda b, x, w: b.matmul(x, w), *arrays)
    lowered = lower_group(op)
    made = gpu.schedule(lowered.function, [lowered.sizes], tiles="small", capability=capability)
    return op, lowered, made.function


def executed(edit=lambda ptx: ptx) -> None:
    """Run the product's PTX for compute capability 9.0 after an edit; compare the bits."""
    op, lowered, function = source(ARRAYS, (9, 0))
    ptx, threads = ptx_of(generate(function).text, (9, 0))
    buffers, (result,) = group_buffers(op, lowered, ARRAYS)
    launch(edit(ptx), work_items(function, lowered.sizes), threads, [*buffers, *lowered.sizes])
    assert result.tobytes() == reference(op, ARRAYS)[0].tobytes()


def without(pattern: str):
    """Return an edit that removes the lines with a pattern, of which there must be some."""

    def edit(ptx: str) -> str:
        made, count = re.subn(rf"(?m)^\s*{pattern}.*$", "", ptx)
        assert count >= 2
        return made

    return edit


def test_a_missing_wait_or_barrier_is_an_error():
    executed()
    with pytest.raises(Fault, match="copy that no thread has waited for"):
        executed(without(r"cp\.async\.wait_group"))
    with pytest.raises(Fault, match="copy that no thread has waited for"):
        executed(without(r"cp\.async\.commit_group"))
    with pytest.raises(Fault, match="another thread's asynchronous copy"):
        executed(without(r"bar\.sync"))


#: A thread copies two words in two groups, and reads the first one.
TWO_GROUPS = """.visible .entry kernel(
    .param .u64 argument_0
)
{
    .reg .f32 %f<2>;
    .reg .b64 %rd<3>;
    .shared .align 16 .b8 memory[8];
    ld.param.u64 %rd1, [argument_0];
    cvta.to.global.u64 %rd2, %rd1;
    cp.async.ca.shared.global [memory], [%rd2], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [memory+4], [%rd2+4], 4, SOURCE;
    cp.async.commit_group;
    cp.async.wait_group PENDING;
    ld.shared.f32 %f1, [memory+READ];
    st.global.f32 [%rd2+8], %f1;
    ret;
}
"""


@pytest.mark.parametrize(
    ("pending", "read", "size", "wanted"),
    [
        (0, 0, 4, 1.0),
        (0, 4, 4, 2.0),
        (1, 0, 4, 1.0),
        (1, 4, 4, None),
        (2, 0, 4, None),
        (0, 4, 0, 0.0),
    ],
)
def test_groups_take_place_in_order(pending, read, size, wanted):
    """PTX ISA, cp.async.wait_group: at most so many of the most recent groups are pending."""
    data = np.array([1, 2, 3], np.float32)
    text = TWO_GROUPS.replace("PENDING", str(pending)).replace("READ", str(read))
    text = text.replace("SOURCE", str(size))
    if wanted is None:
        with pytest.raises(Fault, match="no thread has waited"):
            launch(text, 1, 1, [data])
    else:
        launch(text, 1, 1, [data])
        assert data[2] == wanted


@pytest.mark.parametrize(
    ("arrays", "capability", "copies"),
    [
        (ARRAYS, (9, 0), True),
        (ARRAYS, (8, 0), True),
        (ARRAYS, (7, 5), False),
        (NARROW, (9, 0), False),
    ],
    ids=["sm_90", "sm_80", "sm_75", "bf16"],
)
def test_a_slab_has_one_barrier_and_its_copy_runs_meanwhile(arrays, capability, copies):
    text = generate(source(arrays, capability)[2]).text
    assert ("copy_f32(" in text) == ("wait_for_copies()" in text) == copies
    slab = text[text.index("while slab <") : text.index("slab = slab")]
    assert slab.count("barrier()") == 1
    ahead = (
        "copy_f32(a_slab"
        if copies
        else "store_%s(a_slab_next" % ("f32" if arrays is ARRAYS else "bf16")
    )
    assert slab.index(ahead) < slab.index("while kk <") < slab.index("barrier()")
    if not copies:  # from registers to the other half, once the arithmetic is done
        assert slab.index("while kk <") < slab.index("store_f32(a_slab,")


#: The others take seconds each to compile.
TILES = {f"{t.rows}x{t.columns}": t for t in product.TILINGS["default"]}


@pytest.mark.parametrize("tiles", slow_but(("16x64",), TILES))
@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_prediction_counts_all_products_and_overlaps_copies(tiles, asynchronous):
    m, n, k = 256, 256, 512
    op = group(lambda b, x, w: b.matmul(x, w), normal(m, k), normal(k, n))
    lowered = lower_group(op)
    kernel, found, chosen = lowered.function, read_product(lowered.function), TILES[tiles]
    function = product.schedule(kernel, found, chosen, asynchronous).function
    made = compile_source(generate(function), (9, 0))
    ops = list(function.body.walk())
    lines = [(line, ops[number]) for line, _, number, _ in made.lines]
    launches = CompiledLaunches.of(function, made.assembly, made.assembly_lines, lines, made.facts)
    model = GPUModel.of(shipped("h100"))
    warps = chosen.threads // 32
    work, note = launches._work(model, tuple(lowered.sizes), warps, frozenset())
    blocks = work_items(function, lowered.sizes)
    per_thread = work.instructions["fp32"]
    assert note == "" and per_thread * 32 * warps * blocks == m * n * k
    # A second cache that is as slow again would delay each slab; most of it overlaps arithmetic.
    later = model.pipes.latency["l2"]
    pipes = replace(model.pipes, latency={**model.pipes.latency, "l2": 2 * later})
    slower, _ = launches._work(
        replace(model, name="slower", pipes=pipes), tuple(lowered.sizes), warps, frozenset()
    )
    assert slower.cycles - work.cycles < (k // chosen.depth) * later / 2
