"""Index expressions: simplified, they have the values of integer arithmetic."""

from __future__ import annotations

import operator

from hypothesis import given
from hypothesis import strategies as st

from core_compiler.ops.affine import AffineExpr, Axis, Quotient, Remainder, axis_index

AXES = (Axis(0, 6), Axis(1, 8))
APPLY = {"//": operator.floordiv, "%": operator.mod, "*": operator.mul, "+": operator.add}
STEPS = st.tuples(st.sampled_from(sorted(APPLY)), st.sampled_from([1, 2, 3, 4, 8, 12]))


def value(e: AffineExpr, at: dict[Axis, int]) -> int:
    """What an expression says, term by term."""
    total = e.constant
    for atom, c in e.terms:
        if isinstance(atom, Axis):
            total += c * at[atom]
        elif isinstance(atom, Quotient):
            total += c * (value(atom.of, at) // atom.by)
        else:
            assert isinstance(atom, Remainder)
            total += c * (value(atom.of, at) % atom.by)
    return total


@given(st.lists(st.tuples(st.integers(1, 24), st.lists(STEPS, max_size=4)), min_size=1, max_size=3))
def test_sums_of_quotients_and_remainders(parts):
    total, first = AffineExpr(), axis_index(AXES[0]) * 8 + axis_index(AXES[1])
    for factor, steps in parts:
        e = first
        for operation, by in steps:
            e = APPLY[operation](e, by)
        total = total + e * factor
    for i in range(6):
        for j in range(8):
            wanted = 0
            for factor, steps in parts:
                k = i * 8 + j
                for operation, by in steps:
                    k = APPLY[operation](k, by)
                wanted += k * factor
            assert value(total, {AXES[0]: i, AXES[1]: j}) == wanted


def test_a_byte_of_two_numbers_in_a_block():
    k = axis_index(Axis(0, 96))
    assert (k % 32) % 2 == k % 2
    assert (k // 32) * 16 + (k % 32) // 2 == k // 2
