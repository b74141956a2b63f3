"""Gradients of ops whose operands have different dtypes: each has the dtype of its operand.

The oracle is the gradient of the same op in f64 (test_gradient_rules.py holds that against finite
differences), on numbers that every dtype in play holds.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from core_compiler.ir import dtype
from core_compiler.ops import evaluate_block
from core_compiler.training.graph.autodiff import pullback
from tests.ops.samples import Sample
from tests.ops.samples.base import generator
from tests.passes.dtypes import FLOATS, MEETINGS, DoesNotExist, retyped
from tests.training.test_gradient_rules import _as_f64, _chosen, _module, _within

#: Rounding to nearest is off by this share.
ROUNDING = {d: float(ml_dtypes.finfo(dtype(d).numpy).eps) / 2 for d in FLOATS}

#: How many of them a gradient may be off, of its largest element: of narrow ones four by the op
#: (test_gradient_rules.py) and one by the casts on either side, of wide ones those of all its
#: arithmetic.
MOST = {"f64": 64, "f32": 64, "f16": 6, "bf16": 6}


def held(array: np.ndarray, names) -> np.ndarray:
    """The nearest numbers that all of these dtypes hold, as f64."""
    for name in names:
        array = array.astype(dtype(name).numpy).astype(np.float64)
    return array


@pytest.mark.sampled(27)
@pytest.mark.parametrize("sample", _chosen(), ids=str)
def test_a_gradient_has_the_dtype_of_its_operand(sample: Sample):
    random = generator("dtypes", str(sample))
    wide = _as_f64(sample)
    narrow = [a.astype(np.float32) if a.dtype == np.float64 else a for a in wide]
    base, tried = _module(sample, narrow, dtype("f32")), 0
    for _ in range(6):
        names = [str(random.choice(FLOATS)) for _ in wide]
        meeting, sums = str(random.choice(sorted(MEETINGS))), bool(random.integers(2))
        try:
            module = retyped(
                base, lambda i, old, n=names: dtype(n[i]) if old.is_float else old, meeting, sums
            )
        except DoesNotExist:
            continue
        _agrees(sample, module, wide, random)
        tried += 1
        if tried == 2:
            return
    assert tried, "no casts make this op one of other dtypes"


def _agrees(sample: Sample, module, wide, random) -> None:
    inside = {v.type.dtype.name for op in module.main.body.ops for v in (*op.operands, *op.results)}
    used = [name for name in FLOATS if name in inside]
    exact = [held(a, used) if a.dtype == np.float64 else a for a in wide]
    given = [
        held(random.standard_normal(v.type.shape), used)
        for v in module.main.outputs
        if v.type.dtype.is_float
    ]
    back, forth = pullback(module), pullback(_module(sample, exact))
    floats = [v.type.dtype for v in module.main.arguments if v.type.dtype.is_float]
    assert [v.type.dtype for v in back.main.outputs] == floats
    arguments = [v.type.dtype.numpy for v in back.main.arguments]
    arrays = [a.astype(t) for a, t in zip([*exact, *given], arguments, strict=True)]
    found = evaluate_block(back.main.body, arrays, back.weights)
    there = evaluate_block(forth.main.body, [*exact, *given], forth.weights)
    share = max(MOST[name] * ROUNDING[name] for name in used)
    least = min((dtype(name).numpy for name in used), key=lambda kind: ml_dtypes.finfo(kind).max)
    for ours, theirs in zip(found, there, strict=True):
        ours, theirs = (_within(least, array) for array in (ours, theirs))
        bound = share * np.abs(theirs).max(initial=0)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
