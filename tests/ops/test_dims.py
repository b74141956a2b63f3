"""Arithmetic on symbolic sizes is arithmetic on the numbers they are bound to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_compiler.ops import dims

SIZES = {"a": 3, "b": 5, "c": 7}
DIMS = st.recursive(
    st.one_of(st.integers(0, 9), st.sampled_from(sorted(SIZES))),
    lambda inner: st.tuples(st.sampled_from(["add", "multiply", "subtract"]), inner, inner),
    max_leaves=8,
)


def made(tree):
    """(the dimension that ``dims`` computes, the number it stands for)"""
    if not isinstance(tree, tuple):
        return tree, SIZES.get(tree, tree)
    name, (left, a), (right, b) = tree[0], made(tree[1]), made(tree[2])
    number = {"add": a + b, "multiply": a * b, "subtract": a - b}[name]
    return getattr(dims, name)(left, right), number


@given(DIMS)
def test_binding_commutes_with_arithmetic(tree):
    dim, number = made(tree)
    assert dims.bind(dim, SIZES) == number


@given(DIMS, DIMS)
def test_sums_and_products_have_one_spelling(left, right):
    a, b = made(left)[0], made(right)[0]
    assert dims.add(a, b) == dims.add(b, a)
    assert dims.multiply(a, b) == dims.multiply(b, a)
    assert dims.subtract(dims.add(a, b), b) == dims.add(a, 0)


@given(DIMS, st.integers(1, 6))
def test_division_divides_or_refuses(tree, by):
    dim, number = made(tree)
    quotient = dims.floor_divide(dim, by)
    if isinstance(dim, int):
        assert quotient == number // by
    elif quotient is not None:
        assert dims.bind(quotient, SIZES) == number // by
    assert dims.floor_divide(dims.multiply(dim, by), by) == dims.add(dim, 0)


def test_spelling():
    assert dims.add("n", 3, "n", dims.multiply("b", "n", 2)) == "2*b*n+2*n+3"
    assert dims.subtract("n", "n") == 0
    assert dims.subtract(1, "n") == "-n+1"
    assert dims.bind("2*b*n-1", {"b": 4}) == "8*n-1"
    assert dims.symbols("2*b*n-1") == ("b", "n")
    assert dims.product(("n", 2, "n")) == "2*n*n"
