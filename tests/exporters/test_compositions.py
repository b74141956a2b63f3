"""Compositions mean what the ops mean: both are evaluated by the reference, no format involved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.exporters.compositions import scatters
from core_compiler.exporters.mlir.linalg import Linalg
from core_compiler.exporters.mlir.tosa import Tosa
from core_compiler.exporters.onnx import ops as onnx
from core_compiler.ir import Block, Value, WeightStore, dtype, tensor
from core_compiler.ops import Builder, evaluate
from core_compiler.ops.base import definition
from core_compiler.ops.evaluation import evaluate_block
from tests.examples import examples
from tests.exporters import corners
from tests.exporters.iree import differing
from tests.ops.samples import SAMPLES, Sample
from tests.ops.samples.base import generator, sample

COMPOSED = {**onnx.COMPOSED, **Tosa.COMPOSED, **Linalg.COMPOSED}
_CLOSE = {"f64": 4e-12, "f32": 4e-6, "f16": 2e-3, "bf16": 1.6e-2}
#: Compositions that only move, compare and count, or that add in the op's own order.
_EXACT = ("sort", "argsort", "topk", "cummax", "cummin", "sign", "rem", "mod", "dynamic_slice",
          "dynamic_update_slice", "random_bits", "random_uniform", "random_normal", "contract",
          "max_pool", "ne", "is_finite", "trunc")  # fmt: skip


def composed(case: Sample) -> tuple[np.ndarray, ...]:
    """What the composition of a sample's op gives."""
    op, store = case.op(), WeightStore()
    builder = Builder(store)
    declared = definition(op)
    settled = op.with_(attributes=declared.normalise(op.attributes))
    made = COMPOSED[case.kind](builder, declared.view(settled))
    outputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    block = Block(op.operands, tuple(builder.ops), outputs)
    return evaluate_block(block, case.operands, store)


#: Composed for one sort of numbers alone; others have words.
_INTEGERS_ALONE, _FLOATS_ALONE = ("core.matmul",), ("core.rem", "core.mod")


def fits(case: Sample) -> bool:
    """Whether a dialect composes the sample: functions and divisions in f32 alone."""
    floats = [dtype(a.dtype).is_float for a in case.operands]
    if case.kind in _INTEGERS_ALONE and any(floats):
        return False
    if case.kind in _FLOATS_ALONE and not all(floats):
        return False
    return case.kind in COMPOSED and all(a.dtype != np.float64 for a in case.operands)


CASES = [s for s in SAMPLES if fits(s)]


def test_every_composition_has_a_case():
    assert {s.kind for s in CASES} == set(COMPOSED)


@pytest.mark.sampled(72)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_op(case: Sample):
    kind = case.op().results[0].type.dtype
    exact = case.kind.removeprefix("core.") in _EXACT or not kind.is_float
    found, wanted = composed(case), evaluate(case.op(), case.operands)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        assert differing(got, want, 0.0 if exact else _CLOSE[kind.name]) == ""


CORNERS = [
    s
    for name in ("f32", "bf16", *corners.INTEGERS)
    for s in (corners.integers(name) if name in corners.INTEGERS else corners.floats(name))
    if s.kind in COMPOSED and fits(s)
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CORNERS, ids=str)
def test_agrees_in_the_corners(case: Sample):
    for got, want in zip(composed(case), evaluate(case.op(), case.operands), strict=True):
        assert differing(got, want, 0.0) == ""


# -- elementary functions: relative error everywhere, and special values ---------------------------

_WIDE = np.concatenate(
    [
        np.geomspace(1e-30, 1e30, 4001),
        np.linspace(0, 12, 4001),
        np.linspace(80, 105, 501),
        [0, np.inf, np.nan, 1, 0.5, 2.0**24],
    ]
).astype(np.float32)
_ARGUMENTS = np.concatenate([_WIDE, -_WIDE])
#: function -> largest error, as a part of the result; near a function's own zeros of 1e-6.
FUNCTIONS = {
    "exp2": 1e-6,
    "log2": 1e-6,
    "log10": 1e-6,
    "expm1": 1e-6,
    "log1p": 1e-6,
    "cbrt": 1e-6,
    "tan": 1e-6,
    "sinh": 1e-6,
    "cosh": 1e-6,
    "asinh": 1e-6,
    "acosh": 2e-6,
    "atanh": 1e-6,
    "asin": 1e-6,
    "acos": 1e-6,
    "atan": 1e-6,
    "erfc": 2e-5,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "error"), FUNCTIONS.items())
def test_a_function_is_close_everywhere(name, error):
    case = sample(name, _ARGUMENTS, oracle=None)
    (got,), (want,) = composed(case), evaluate(case.op(), case.operands)
    _assert_close(got, want, error)


def test_arc_tangent_of_two_is_close_everywhere():
    few = np.concatenate([_ARGUMENTS[::97], [0, -0.0, np.inf, -np.inf, np.nan, 1, 3e38, -3e38]])
    y, x = (v.ravel().astype(np.float32) for v in np.meshgrid(few, few))
    case = sample("atan2", y, x, oracle=None)
    (got,), (want,) = composed(case), evaluate(case.op(), case.operands)
    _assert_close(got, want, 1e-6)


def _assert_close(got: np.ndarray, want: np.ndarray, error: float) -> None:
    normal = np.isfinite(want) & ((np.abs(want) > 1e-37) | (want == 0))
    same = (got == want) | ((got != got) & (want != want))
    np.testing.assert_array_equal(same[~np.isfinite(want)], True)
    off = np.abs(got[normal].astype(np.float64) - want[normal])
    assert (off <= error * np.maximum(np.abs(want[normal]), 1e-6)).all()
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


# -- properties ------------------------------------------------------------------------------------

_FLOATS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_FLOATS, min_size=1, max_size=8), st.lists(_FLOATS, min_size=1, max_size=8))
def test_a_remainder_is_exact(xs, ys):
    x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(xs, ys))
    for kind in ("rem", "mod"):
        case = sample(kind, x, y, oracle=None)
        assert differing(composed(case)[0], evaluate(case.op(), case.operands)[0], 0.0) == ""


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([-1.0, -0.0, 0.0, 1.0, np.nan, np.inf]), min_size=1, max_size=9),
    st.booleans(),
)
def test_an_order_is_stable(row, descending):
    x = np.array([row], np.float32)
    case = sample("argsort", x, oracle=None, axis=1, descending=descending)
    np.testing.assert_array_equal(composed(case)[0], evaluate(case.op(), case.operands)[0])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=7),
    st.sampled_from(["set", "add", "mul", "max", "min"]),
)
def test_updates_are_set_apart(rows, mode):
    """All rows distinct, and the table afterwards is the scatter's; row 4 is nowhere."""
    k, w = 4, len(rows)
    random = generator(tuple(rows), mode)
    table = random.integers(-9, 9, (1, k, 2)).astype(np.float32)
    updates = random.integers(-9, 9, (1, w, 2)).astype(np.float32)
    places = np.array([rows], np.int32)
    arguments = tuple(Value(tensor(a.shape, a.dtype)) for a in (table, places, updates))
    builder = Builder()
    outputs = scatters.make_rows_distinct(builder, *arguments, mode=mode)
    block = Block(arguments, tuple(builder.ops), outputs)
    make_rows_distinct, joined = evaluate_block(block, (table, places, updates))
    assert len(set(make_rows_distinct[0])) == w
    wide = np.concatenate([table[0], np.zeros((w, 2), np.float32)])
    wide[make_rows_distinct[0]] = joined[0]
    scatter = sample("scatter_nd", table[0], places[0][:, None], updates[0], oracle=None, mode=mode)
    np.testing.assert_array_equal(wide[:k], evaluate(scatter.op(), scatter.operands)[0])
