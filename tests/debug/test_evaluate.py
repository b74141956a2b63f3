"""Evaluating with sharing: results do not depend on what is kept, and equal bits are one array."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.debug.evaluate import Evaluator
from core_compiler.ir import Block, Value, WeightStore, tensor
from core_compiler.ops.builder import Builder
from tests.examples import examples


def _chain(kinds: list[str]) -> Block:
    """A block that applies ``kinds`` to its argument one after another and returns all results."""
    b, argument = Builder(), Value(tensor((4, 8), "f32"), "x")
    value, made = argument, []
    for kind in kinds:
        value = b.op(kind, [value, value] if kind == "core.add" else [value])
        made.append(value)
    return Block((argument,), tuple(b.ops), tuple(made))


@settings(max_examples=examples(30))
@given(
    st.lists(st.sampled_from(["core.neg", "core.abs", "core.exp", "core.add"]), min_size=1),
    st.sampled_from([1, 200, 1000, 1 << 30]),
    st.integers(1, 4),
)
def test_results_do_not_depend_on_what_is_kept(kinds, most, times):
    block = _chain(kinds)
    array = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    wanted = Evaluator(WeightStore()).block(block, [array])
    evaluator = Evaluator(WeightStore(), most)
    for _ in range(times):
        for want, got in zip(wanted, evaluator.block(block, [array]), strict=True):
            np.testing.assert_array_equal(want, got)
    assert evaluator._cache.bytes <= max(most, array.nbytes)


def test_what_follows_equal_bits_is_not_evaluated_again():
    evaluator = Evaluator(WeightStore())
    array = np.arange(32, dtype=np.float32).reshape(4, 8)
    [first] = evaluator.block(_chain(["core.neg"]), [array])
    once = evaluator.block(_chain(["core.exp"]), [first])[0]
    # The same numbers by another way: minus minus minus x.
    again = evaluator.block(_chain(["core.neg"] * 3), [array])[-1]
    assert again is first
    assert evaluator.block(_chain(["core.exp"]), [again])[0] is once


@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_only_equal_bits_are_shared(kind):
    evaluator = Evaluator(WeightStore())
    array = np.random.default_rng(0).integers(0, 2, (5, 7)).astype(kind)
    assert evaluator.shared(array) is array
    assert evaluator.shared(array.copy()) is array
    assert evaluator.shared(array.T.copy().T) is array  # another layout in memory
    for other in (
        array.reshape(7, 5).copy(),
        array.astype(np.int64),
        array[:, ::-1].copy(),
        array.T.copy(),
    ):
        assert evaluator.shared(other) is other
    changed = array.copy()
    changed[4, 6] = not changed[4, 6]
    assert evaluator.shared(changed) is changed


def test_signs_of_zero_and_nan_are_bits():
    evaluator = Evaluator(WeightStore())
    for array in (
        np.float32([0.0, 1.0]),
        np.float32([-0.0, 1.0]),
        np.float32([np.nan, 1.0]),
        np.float32([-np.nan, 1.0]),
    ):
        assert evaluator.shared(array) is array
        assert evaluator.shared(array.copy()) is array


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 1)])
def test_small_and_empty_arrays(shape):
    evaluator = Evaluator(WeightStore())
    array = np.ones(shape, np.float32)
    assert evaluator.shared(array.copy()).shape == shape
    wide = np.broadcast_to(np.float32(1), (1000, 1000))
    assert evaluator.shared(wide) is wide
