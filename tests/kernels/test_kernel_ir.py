"""Kernel IR: the builder folds and checks, the verifier and the interpreter name what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import Block
from core_compiler.kernel_ir.abi import parallel_nest, scratch_bytes, work_items
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.interpreter import KernelFault, interpret
from core_compiler.kernel_ir.ops import KernelTypeError
from core_compiler.kernel_ir.verifier import KernelError, verify


def vector_kernel(body, name="k"):
    """``for i in [0, n) parallel: body(kb, x, y, i)`` over two vectors."""
    kb = KernelBuilder(name)
    x, y = (kb.buffer(b, ("n",), "f32", strides=(1,)) for b in "xy")
    n = kb.size("n")
    with kb.loop("i", 0, n, loop="parallel") as i:
        body(kb, x, y, i)
    return kb.function()


def test_index_arithmetic_folds():
    kb = KernelBuilder()
    n = kb.size("n")
    assert kb.add(n, 0) is n
    assert kb.mul(1, n) is n
    assert kb.known(kb.add(2, kb.mul(3, 4))) == 14
    assert kb.known(kb.mul(n, 0)) == 0
    assert kb.min(n, n) is n


def test_equal_pure_ops_are_shared_but_signed_zeros_are_not():
    kb = KernelBuilder()
    assert kb.number(1.0, "f32") is kb.number(1.0, "f32")
    assert kb.number(0.0, "f32") is not kb.number(-0.0, "f32")


def test_arithmetic_on_narrow_floats_is_refused():
    kb = KernelBuilder()
    x = kb.cast(kb.number(1.0, "f32"), "bf16")
    with pytest.raises(KernelTypeError, match="cast to f32 first"):
        kb.add(x, x)


def test_a_load_needs_one_index_an_axis():
    kb = KernelBuilder()
    x = kb.buffer("x", ("n", "m"), "f32", strides=("m", 1))
    kb.size("n"), kb.size("m")
    with pytest.raises(KernelTypeError, match="2 indices, got 1"):
        kb.load(x, 0)


def test_verify_refuses_a_value_used_before_it_is_defined():
    function = vector_kernel(lambda kb, x, y, i: kb.store(kb.neg(kb.load(x, i)), y, i))
    verify(function)
    (loop,) = [op for op in function.body.ops if op.kind == "kernel.for"]
    ops = tuple(reversed(loop.regions[0].ops))
    broken = loop.with_(regions=(Block(loop.regions[0].arguments, ops, ()),))
    body = tuple(broken if op is loop else op for op in function.body.ops)
    with pytest.raises(KernelError, match="before it is defined"):
        verify(function.with_(body=function.body.with_(ops=body)))


def test_verify_refuses_iterations_that_all_store_to_one_place():
    with pytest.raises(KernelError, match="same element"):
        verify(vector_kernel(lambda kb, x, y, i: kb.store(kb.load(x, i), y, 0)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda kb, x, y, i: kb.store(kb.load(x, kb.add(i, 1)), y, i), "index 4"),
        (lambda kb, x, y, i: kb.store(kb.load(x, i), y, kb.sub(i, 1)), "outside the shape"),
        (lambda kb, x, y, i: kb.store(kb.load(kb.alloc((4,), "f32"), 2), y, i), "never written"),
        (lambda kb, x, y, i: kb.store(kb.load(x, i), y, kb.floordiv(i, 2)), "two parallel"),
        (lambda kb, x, y, i: kb.store(kb.load(y, i), y, i), "never written"),
    ],
    ids=[
        "read past the end",
        "write before the start",
        "unwritten scratch",
        "race",
        "unwritten output",
    ],
)
def test_interpreter_names_undefined_behaviour(body, message):
    buffers = [np.arange(4, dtype=np.float32), np.zeros(4, np.float32)]
    with pytest.raises(KernelFault, match=message):
        interpret(vector_kernel(body), buffers, [4])


def test_the_first_unwritten_element_of_a_vector_is_named():
    kb = KernelBuilder("vector")
    y = kb.buffer("y", ("n",), "f32", strides=(1,))
    n = kb.size("n")
    memory = kb.alloc((2, 8), "f32")
    kb.store(kb.number(1.0, "f32"), memory, 1, 3)
    kb.store(kb.load(memory, 1, 3, width=4), y, 0, count=n)
    with pytest.raises(KernelFault, match=r"reads element \(1, 4\), which was never written"):
        interpret(kb.function(), [np.zeros(4, np.float32)], [4])


def test_scratch_is_not_carried_between_parallel_iterations():
    kb = KernelBuilder("carry")
    y = kb.buffer("y", ("n",), "f32", strides=(1,))
    n = kb.size("n")
    memory = kb.alloc((1,), "f32")
    with kb.loop("i", 0, n, loop="parallel") as i:
        with kb.branch(kb.eq(i, 0)):
            kb.store(kb.number(1.0, "f32"), memory, 0)
        kb.store(kb.load(memory, 0), y, i)
    with pytest.raises(KernelFault, match="another parallel iteration"):
        interpret(kb.function(), [np.zeros(3, np.float32)], [3])


def test_counted_vector_accesses_leave_other_lanes_alone():
    kb = KernelBuilder("tail")
    x, y = (kb.buffer(b, ("n",), "f32", strides=(1,)) for b in "xy")
    n = kb.size("n")
    value = kb.load(x, 0, width=8, count=n)
    kb.store(kb.add(value, kb.number(1.0, value.type)), y, 0, count=n)
    made = np.zeros(5, np.float32)
    interpret(kb.function(), [np.arange(5, dtype=np.float32), made], [5])
    assert made.tolist() == [1, 2, 3, 4, 5]


def test_work_items_and_scratch_of_a_launch():
    kb = KernelBuilder("items")
    y = kb.buffer("y", ("n", "m"), "f32", strides=("m", 1))
    n, m = kb.size("n"), kb.size("m")
    with kb.loop("i", 0, n, loop="parallel") as i:  # noqa: SIM117
        with kb.loop("block", 0, m, 16, loop="parallel") as block:
            memory = kb.alloc(("m",), "f32", m)
            kb.store(kb.number(0.0, "f32"), memory, 0)
            with kb.loop("j", block, kb.min(kb.add(block, 16), m)) as j:
                kb.store(kb.load(memory, 0), y, i, j)
    function = kb.function()
    verify(function)
    assert [loop["name"] for loop in parallel_nest(function)] == ["i", "block"]
    assert work_items(function, [3, 40]) == 3 * 3
    assert work_items(function, [3, 0]) == 0
    assert scratch_bytes(function, [3, 40]) == 192  # 160 bytes in units of 64


def copy_by_merged_views():
    """``y[i, j] = x[i, j]`` by element numbers, of matrices whose rows are ``row`` apart."""
    kb = KernelBuilder("merged")
    matrices = [kb.buffer(name, ("n", "m"), "f32", strides=("row", 1)) for name in "xy"]
    n, m, _ = (kb.size(name) for name in ("n", "m", "row"))
    start = [kb.index(0)] * 2
    x, y = (kb._append("kernel.view", [a, *start], {"merged": 2})[0] for a in matrices)
    with kb.loop("p", 0, kb.mul(n, m), loop="vector") as p:
        kb.store(kb.load(x, p), y, p)
    return kb.function()


def test_a_view_merges_dense_axes_only():
    function = copy_by_merged_views()
    verify(function)
    x, y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    interpret(function, [x, y], [2, 3, 3])
    assert y.tolist() == x.tolist()
    apart = [np.zeros(8, np.float32) for _ in "xy"]
    with pytest.raises(KernelFault, match=r"axes 0 and 1 of \(2, 3\) are not dense"):
        interpret(function, apart, [2, 3, 5])


def test_a_view_merges_no_more_axes_than_it_keeps():
    kb = KernelBuilder()
    x = kb.buffer("x", (4,), "f32", strides=(1,))
    with pytest.raises(KernelTypeError, match="cannot merge 2 of 1 axes"):
        kb._append("kernel.view", [x, kb.index(0)], {"merged": 2})
