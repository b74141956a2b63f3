"""Sums over images and pixels in two steps: the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ops import evaluate_block
from core_compiler.passes import split_reductions
from core_compiler.passes.split_reductions import SplitReductions
from tests.passes import specs
from tests.passes.programs import inputs, program

#: Shape, axes, orders.
SPLIT = {
    "a normalisation": ((3, 5, 8, 9), (0, 2, 3), ()),
    "named orders": ((3, 5, 8, 9), (0, 2, 3), ("sequence", "sequence")),
    "lanes twice": ((3, 5, 8, 9), (0, 2, 3), ("lanes", "lanes")),
    "three groups": ((2, 3, 4, 5, 70), (0, 2, 4), ()),
    "axes of one": ((3, 1, 5, 1, 72), (0, 1, 3, 4), ()),
}
WHOLE = {
    "one group": ((3, 5, 8, 9), (2, 3), ()),
    "all": ((3, 5, 8, 9), (0, 1, 2, 3), ()),
    "one image": ((1, 5, 8, 9), (0, 2, 3), ()),
}


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """The sums of these tensors are short."""
    monkeypatch.setattr(split_reductions, "LEAST_TERMS", 1)


def _module(case, dtype):
    shape, axes, orders = case
    text = "x".join(map(str, shape))
    return program(lambda b, x: b.reduce_sum(x, axes=axes, orders=orders), f"{text}x{dtype}")


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", SPLIT)
def test_the_same_terms_are_added_in_the_same_order(name, dtype):
    module = _module(SPLIT[name], dtype)
    after, rewrites = specs.apply(SplitReductions(), module)
    assert len(rewrites) == 1
    for special in (False, True):
        arrays = inputs(module, special=special)
        with np.errstate(all="ignore"):
            got, expected = (evaluate_block(m.main.body, arrays)[0] for m in (after, module))
        assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["bf16", "i32"])
def test_rounded_and_integer_sums_stay(dtype):
    assert not specs.apply(SplitReductions(), _module(SPLIT["a normalisation"], dtype))[1]


@pytest.mark.parametrize("name", WHOLE)
def test_sums_of_one_group_stay(name):
    assert not specs.apply(SplitReductions(), _module(WHOLE[name], "f32"))[1]


def test_short_sums_and_many_results_stay(monkeypatch):
    module = _module(SPLIT["a normalisation"], "f32")
    monkeypatch.setattr(split_reductions, "LEAST_TERMS", 73)
    assert not specs.apply(SplitReductions(), module)[1]
    monkeypatch.setattr(split_reductions, "LEAST_TERMS", 72)
    monkeypatch.setattr(split_reductions, "MOST_RESULTS", 4)
    assert not specs.apply(SplitReductions(), module)[1]
