"""Where barriers stand in the source of CUDA kernels: between what one thread leaves and another
reads, whichever way the block goes."""

from __future__ import annotations

import pytest

from core_compiler.codegen.cuda.source import generate
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.verifier import verify


def barriers(kb: KernelBuilder) -> list[str]:
    """The source's barriers, and the lines that access the block's memory."""
    function = kb.function()
    verify(function)
    lines = [line.split("#")[0].rstrip() for line in generate(function).text.splitlines()]
    return [line for line in lines if any(w in line for w in ("barrier()", "first", "second"))]


def memories(kb: KernelBuilder):
    return [kb.alloc((32,), "f32", space="shared", name=name) for name in ("first", "second")]


@pytest.mark.parametrize("trips", ["n", 0, 3])
def test_what_was_written_before_a_loop_that_may_not_run_is_met_after_it(trips):
    kb = KernelBuilder()
    x, y = (kb.buffer(name, (2, 32), "f32") for name in "xy")
    n = kb.size("n")
    with kb.loop("g", 0, 2, loop="block") as g:
        first, second = memories(kb)
        with kb.loop("t", 0, 32, loop="thread") as t:
            kb.store(kb.load(x, g, t), first, t)
        with kb.loop("k", 0, n if trips == "n" else trips) as k:
            with kb.loop("t", 0, 32, loop="thread") as t:
                kb.store(kb.load(x, g, k), second, t)
            with kb.loop("t", 0, 32, loop="thread") as t:
                kb.store(kb.load(second, kb.sub(31, t)), y, g, t)
        with kb.loop("t", 0, 32, loop="thread") as t:
            kb.store(kb.load(first, kb.sub(31, t)), y, g, t)
    found = barriers(kb)
    last = max(n for n, line in enumerate(found) if "load" in line and "first" in line)
    # After the loop, not at its end; one that does run has met barriers since.
    assert (found[last - 1] == "    barrier()") == (trips != 3)


def test_a_load_that_is_carried_past_a_barrier_is_read_after_it():
    kb = KernelBuilder()
    x, y = (kb.buffer(name, (2, 32), "f32") for name in "xy")
    with kb.loop("g", 0, 2, loop="block") as g:
        first, second = memories(kb)
        with kb.loop("t", 0, 32, loop="thread") as t:
            kb.store(kb.load(x, g, t), first, t)
        with kb.loop("t", 0, 32, loop="thread") as t:
            kb.store(kb.load(first, kb.sub(31, t)), second, t)
        # Both are read by the statement that stores their sum, after the barrier for the second.
        one = kb.load(first, g)
        kb.store(kb.add(one, kb.load(second, g)), y, g, 0)
        with kb.loop("t", 0, 32, loop="thread") as t:
            kb.store(kb.load(x, g, t), first, t)
    found = barriers(kb)
    both = next(n for n, line in enumerate(found) if "add_f32" in line)
    assert found[both - 1].strip() == found[both + 1].strip() == "barrier()"
