"""What fits one kernel, and equal kernels for equal access patterns."""

from __future__ import annotations

import pytest

from core_compiler.ir import Function, Module
from core_compiler.ir.core import structure_key
from core_compiler.lowering.lower import join_refusal, lower_group
from tests.kernels.kernel_helpers import group, normal


def ops_of(build, *arrays):
    return group(build, *arrays).regions[0].ops


def joined(build, *arrays, cut: int, outputs=()):
    """The answer for a group cut after its first ``cut`` ops."""
    ops = ops_of(build, *arrays)
    kept = [ops[n].result for n in outputs]
    return join_refusal(ops[:cut], ops[cut:], kept)


def test_elementwise_chains_join():
    assert joined(lambda b, x: b.exp(b.neg(x)), normal(4, 5), cut=1) is None


def test_an_epilogue_joins_a_product():
    build = lambda b, x, w, c: b.relu(  # noqa: E731
        b.add(b.matmul(x, w), b.broadcast(c, shape=(4, 6), dims=(1,)))
    )
    assert joined(build, normal(4, 5), normal(5, 6), normal(6), cut=1) is None


def test_rows_of_one_shape_join():
    build = lambda b, x: b.softmax(b.neg(x), axis=1)  # noqa: E731
    assert joined(build, normal(4, 5), cut=1) is None


@pytest.mark.parametrize(
    ("build", "arrays", "cut", "reason"),
    [
        (lambda b, x, w: b.matmul(b.exp(x), w), [normal(4, 5), normal(5, 6)], 1, "run again"),
        (
            lambda b, x, w, v: b.matmul(b.matmul(x, w), v),
            [normal(4, 5), normal(5, 6), normal(6, 3)],
            1,
            "inside another's loop|different rows|cannot share a kernel",
        ),
        (lambda b, x: b.sort(b.neg(x), axis=1), [normal(4, 5)], 1, "kernel of its own"),
        (
            lambda b, x: b.sub(
                b.sub(x, b.broadcast(b.reduce_max(x, axes=(1,)), shape=(4, 5), dims=(0,))),
                b.broadcast(b.reduce_max(x, axes=(0,)), shape=(4, 5), dims=(1,)),
            ),
            [normal(4, 5)],
            3,
            "different rows",
        ),
        (
            lambda b, x, w: b.add(y := b.matmul(x, w), b.reverse(y, axes=(1,))),
            [normal(4, 5), normal(5, 6)],
            1,
            "read at several indices",
        ),
        (
            lambda b, x, w, z: b.concat(b.matmul(x, w), z, axis=0),
            [normal(4, 5), normal(5, 6), normal(9, 6)],
            1,
            "has 24 elements, .* would compute 78",
        ),
    ],
    ids=[
        "prologue of a product",
        "product of a product",
        "sort",
        "rows and columns",
        "product and its mirror image",
        "product beside rows of another",
    ],
)
def test_refusals_say_why(build, arrays, cut, reason):
    import re

    answer = joined(build, *arrays, cut=cut)
    assert answer is not None and re.search(reason, answer.reason), answer
    assert answer.op is not None


def key(op) -> str:
    function = lower_group(op).function
    return structure_key(Module({"k": Function("k", function.body, "kernel", function.attributes)}))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            group(lambda b, x, y: b.add(x, y), normal(4, 5), normal(4, 5)),
            group(lambda b, x, y: b.add(x, y), normal(2, 3, 7), normal(2, 3, 7)),
        ),
        (
            group(lambda b, x: b.softmax(x, axis=1), normal(4, 5)),
            group(lambda b, x: b.softmax(x, axis=2), normal(2, 3, 700)),
        ),
        (
            group(lambda b, x: b.reduce_sum(x, axes=(1, 2)), normal(4, 5, 6)),
            group(lambda b, x: b.reduce_sum(x, axes=(1,)), normal(9, 77)),
        ),
        (
            group(lambda b, x, w: b.matmul(x, w), normal(4, 5), normal(5, 6)),
            group(lambda b, x, w: b.matmul(x, w), normal(40, 500), normal(500, 60)),
        ),
    ],
    ids=["elementwise", "softmax", "sum", "product"],
)
def test_equal_access_patterns_share_a_kernel(first, second):
    assert key(first) == key(second)


def test_a_broadcast_operand_is_another_kernel():
    plain = group(lambda b, x, y: b.add(x, y), normal(4, 5), normal(4, 5))
    spread = group(
        lambda b, x, y: b.add(x, b.broadcast(y, shape=(4, 5), dims=(1,))), normal(4, 5), normal(5)
    )
    assert key(plain) != key(spread)
