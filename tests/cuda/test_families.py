"""Kernels of other families than products and elementwise chains: the reference's bits."""

from __future__ import annotations

import pytest

from tests.cuda.helpers import CAPABILITIES, on_gpu
from tests.cuda.lint import complaints
from tests.kernels.kernel_helpers import assert_same_bits, group, integers, normal, reference
from tests.kernels.test_kernel_lowering import CASES, awkward, positive
from tests.slow import slow_but


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
QUICK = GROUPS.keys() - {"softmax of one row", "product below the diagonal", "long_row_sum"}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", slow_but(QUICK, GROUPS))
def test_a_kernel_gives_the_references_bits(name):
    build, *given = GROUPS[name]
    op = group(build, *given)
    wanted = reference(op, given)
    for capability in CAPABILITIES:
        made, ptx = on_gpu(op, given, capability)
        assert_same_bits(made, wanted, f"{name} for {capability}")
        assert complaints(ptx) == []


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
@pytest.mark.parametrize("name", CASES)
def test_every_lowering_gives_the_references_bits(name, capability):
    build, given = CASES[name]
    _check(name, build, given, capability)


#: Of those, for the quick tests: one of each kernel that no other quick test here executes, on
#: operands of which the interpreter is done soon.  Names are those of ``CASES``.
SMALL = {
    "softmax of columns": [normal(9, 5)],
    "statistics of a batch": [normal(3, 4, 5, 6)],
    "weights of a strided convolution in groups": [normal(1, 4, 5, 5), normal(1, 4, 3, 5)],
    "max pool back": CASES["max pool back"][1],
    "average pool back": CASES["average pool back"][1],
    "cumsum back, exclusive": [normal(2, 300, 2)],
    "sort": [awkward(4, 10)],
    "argsort down": [awkward(4, 10)],
    "top 5": [awkward(4, 10)],
    "cholesky": [positive(4)],
    "lu": [normal(5, 4)],
    "row order": CASES["row order"][1],
    "triangular solve, lower": CASES["triangular solve, lower"][1],
    "householder": [normal(5, 3)],
    "reflect": [normal(4, 2), normal(2), normal(4, 3)],
    "eigh": [normal(3, 3)],
    "orthogonal columns": [normal(4, 3)],
    "scatter add": [normal(5, 4), integers(-1, 6, (30, 1)), normal(30, 4)],
    "scatter along": CASES["scatter along"][1],
    "added at pairs of indices": [normal(5, 4, 3), integers(-1, 6, (30, 2)), normal(30, 3)],
    "random normal": CASES["random normal"][1],
}


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", SMALL)
def test_a_small_one_gives_the_references_bits(name):
    _check(name, CASES[name][0], SMALL[name], (9, 0))


def test_a_load_may_choose_among_buffers():
    """NVVM makes one load of those on the sides of a condition, for sm_120 at least."""
    _check("concat", *CASES["concat"], (12, 0))


def _check(name, build, given, capability) -> None:
    op = group(build, *given)
    made, ptx = on_gpu(op, given, capability)
    assert_same_bits(made, reference(op, given), f"{name} for {capability}")
    assert complaints(ptx) == []
