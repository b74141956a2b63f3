"""Kernels of other families, one thread an element of the output: the reference's bits."""

from __future__ import annotations

import pytest

from tests.cuda.helpers import CAPABILITIES, on_gpu
from tests.cuda.lint import complaints
from tests.kernels.kernel_helpers import assert_same_bits, group, normal, reference


def below_the_diagonal(b, x, w):
    product = b.matmul(x, w)
    rows, columns = (b.iota(shape=product.type.shape, dtype="i32", axis=a) for a in (0, 1))
    return b.select(b.le(columns, rows), product, b.scalar_like(float("-inf"), product))


GROUPS = {
    "transpose": (lambda b, x: b.transpose(x, permutation=(1, 0)), normal(33, 50)),
    "row_sum": (lambda b, x: b.reduce_sum(x, axes=(1,)), normal(4, 70)),
    "long_row_sum": (lambda b, x: b.reduce_sum(x, axes=(1,)), normal(2, 4101)),
    "softmax": (lambda b, x: b.softmax(x, axis=1), normal(4, 70)),
    "softmax of one row": (lambda b, x: b.softmax(x, axis=0), normal(70)),
    "sum of all": (lambda b, x: b.reduce_sum(x, axes=(0, 1)), normal(3, 70)),
    "column_sum": (lambda b, x: b.reduce_sum(x, axes=(0,)), normal(300, 5)),
    "product": (lambda b, x, w: b.relu(b.matmul(x, w)), normal(4, 270), normal(270, 5)),
    "product below the diagonal": (below_the_diagonal, normal(70, 20), normal(20, 70)),
    "running_sum": (lambda b, x: b.cumsum(x, axis=1), normal(2, 300)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_kernel_gives_the_references_bits(name):
    build, *given = GROUPS[name]
    op = group(build, *given)
    wanted = reference(op, given)
    for capability in CAPABILITIES:
        made, ptx = on_gpu(op, given, capability)
        assert_same_bits(made, wanted, f"{name} for {capability}")
        assert complaints(ptx) == []
