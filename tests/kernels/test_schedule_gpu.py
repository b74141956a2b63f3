"""GPU schedules in the kernel interpreter: every step keeps the bits, at whole and edge tiles."""

from __future__ import annotations

import re

import pytest

from core_compiler.codegen.cuda.source import generate
from core_compiler.codegen.cuda.threads import thread_axes
from core_compiler.kernel_ir.abi import index_arguments, work_items
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.verifier import verify
from core_compiler.scheduling.schedules.gpu import product, schedule
from core_compiler.scheduling.schedules.product import read_product
from core_compiler.support.errors import InternalError
from tests.kernels.products import Case, convolution, heads, linear
from tests.slow import slow_but

TINY = product.TILINGS["small"][0]
CASES = {
    "edges": linear(9, 27, 19, "gelu"),
    "residual": linear(8, 6, 16, "residual"),
    "two chunks": linear(2, 259, 5),
    "one row": linear(1, 9, 19),
    "one column": linear(5, 9, 1),
    "heads": heads(5, 11, 7, 2),
    "3x3": convolution(5, 6, 3, 1, 4, residual=True),
    "3x3 two blocks": convolution(40, 5, 3, 2, 4),
    "1x1 stride 2": convolution(6, 9, 1, 2, 5),
    "two images": convolution(3, 6, 3, 2, 5, n=2),
    "NCHW": convolution(3, 6, 3, 1, 4, order=None),
    "groups": convolution(8, 6, 3, 1, 4, groups=2),
    "depthwise": convolution(6, 6, 3, 1, 4, groups=6),
}


#: The others take the kernel interpreter 10 to 30 seconds each.
QUICK = (
    "residual",
    "one row",
    "one column",
    "1x1 stride 2",
    "two images",
    "depthwise",
)
#: Of these the interpreter runs every eighth step.
LARGE = ("two chunks", "3x3 two blocks", "two images")


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_every_step_keeps_the_bits(name):
    case = Case(CASES[name])
    expected = case.meaning()
    scheduled = schedule(case.kernel, [case.sizes], tiles="small")
    tiled = name not in ("one row", "one column", "depthwise")
    assert ("a_slab" in str([s.name for s in scheduled.steps])) == tiled
    every = 8 if name in LARGE else 1
    for step in [*scheduled.steps[::every], scheduled.steps[-1]]:
        verify(step.function)
        got = case.interpreted(step.function, {}, case.sizes, case.data)
        assert got == expected, step.name


def test_the_tiles_of_a_launch_fill_the_processors():
    """Large tiles where there are many, small ones where large ones leave processors idle."""
    case = Case(linear(64, 8, 64))
    found = read_product(case.kernel)
    sizes = [v.name for v in index_arguments(case.kernel)]

    def chosen(m, n, processors=132):
        given = {"n0": m, "n1": n, "n2": 768}
        launch = [given.get(name, 1) for name in sizes]
        return product.choose(
            case.kernel, found, [launch], processors, product.TILINGS["default"]
        ).rows

    assert chosen(8192, 8192) == 128
    assert chosen(64, 768) < 128
    assert chosen(64, 768, processors=1) >= 64


def test_a_block_has_its_sums_in_registers_and_its_slabs_in_shared_memory():
    case = Case(linear(9, 27, 19))
    function = product.schedule(case.kernel, read_product(case.kernel), TINY).function
    apart = {v.name: n for v, n in thread_axes(function).items()}
    assert apart == {"acc": 2, "total": 2}
    text = generate(function).text
    assert "THREADS = 4 " in text and "registers_f32_32" in text and "shared_f32_128" in text
    assert text.count("barrier()") == 2  # the first slab is there; the next one is, this was read
    assert work_items(function, case.sizes) == 2 * 2


def _shared_kernel(build) -> str:
    """The source of a kernel whose blocks of 4 threads do ``build(kb, memory, y, block)``."""
    kb = KernelBuilder("phases")
    y = kb.buffer("y", ("n",), "f32", strides=(1,))
    n = kb.size("n")
    with kb.loop("block", 0, n, loop="block") as block:
        memory = kb.alloc((4,), "f32", space="shared", name="memory")
        build(kb, memory, y, block)
    function = kb.function()
    verify(function)
    return generate(function).text


def _fill(kb, memory) -> None:
    with kb.loop("fill", 0, 4, loop="thread") as t:
        kb.store(kb.number(1.0, "f32"), memory, t)


def _take(kb, memory, y, block) -> None:
    with kb.loop("take", 0, 4, loop="thread") as t:
        kb.store(kb.load(memory, kb.sub(3, t)), y, kb.add(kb.mul(block, 4), t))


def test_a_barrier_stands_between_what_threads_write_and_read():
    def one_side(kb, memory, y, block):
        _fill(kb, memory)
        with kb.branch(kb.eq(block, 0)):
            _take(kb, memory, y, block)  # a barrier here is none for the other blocks
            _fill(kb, memory)
        _take(kb, memory, y, block)

    text = _shared_kernel(one_side)
    met = re.findall(r"^ +(fill|take|barrier|if)(?:_\d+)?(?= =|\(| block)", text, re.MULTILINE)
    assert met == ["fill", "if", "barrier", "take", "barrier", "fill", "barrier", "take"]


def test_no_barrier_stands_between_reads():
    def only_reads(kb, memory, y, block):
        _fill(kb, memory)
        with kb.loop("again", 0, block):
            _take(kb, memory, y, block)

    assert _shared_kernel(only_reads).count("barrier()") == 1


def test_a_thread_cannot_reach_anothers_registers():
    kb = KernelBuilder("wrong")
    y = kb.buffer("y", ("n",), "f32", strides=(1,))
    n = kb.size("n")
    with kb.loop("block", 0, n, loop="block") as block:
        own = kb.alloc((4,), "f32", space="register", name="own")
        with kb.loop("t", 0, 4, loop="thread") as t:
            kb.store(kb.number(1.0, "f32"), own, t)
        with kb.loop("u", 0, 4, loop="thread") as u:
            kb.store(kb.load(own, kb.sub(3, u)), y, block)
    with pytest.raises(InternalError, match="private to one thread"):
        generate(kb.function())
