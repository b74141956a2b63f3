"""Variance, standard deviation and what is centred: to rounding at any mean and any size, beside
NumPy in the widest float there is, torch, and onnxruntime's operands in f64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.numerics.reference import reduction
from core_compiler.ops import evaluate_block
from core_compiler.training.graph.autodiff import pullback
from tests.examples import examples
from tests.frontends.onnx_models import one_node, ours
from tests.ops.test_special_values import run
from tests.passes.programs import program

KINDS = ("variance", "standard_deviation", "centre")
#: Ulps that a result may be from the exact one, of its own size (centred values: of the largest).
ULPS = {"variance": 16, "standard_deviation": 8, "centre": 2}


def exact(kind: str, x: np.ndarray, axes, correction: float = 0) -> np.ndarray:
    """The result in the widest float of NumPy (80 bits on x86: a root of 64 is exact enough)."""
    wide = x.astype(np.longdouble)
    if kind == "centre":
        return wide - wide.mean(axes, keepdims=True)
    squares = (np.abs(wide - wide.mean(axes, keepdims=True)) ** 2).sum(axes)
    count = int(np.prod([x.shape[a] for a in axes]))
    variance = squares / np.longdouble(max(count - correction, 0))
    return variance if kind == "variance" else np.sqrt(variance)


@st.composite
def far_from_zero(draw):
    """Numbers whose mean is up to 1e7 deviations, of any size that f32 has, maybe one far out."""
    shape = draw(st.sampled_from([(1, 7), (3, 40), (2, 5, 33), (300, 3), (2, 4500)]))
    axes = draw(st.sampled_from([(0,), (1,), (0, 1), (len(shape) - 1,)]))
    ratio = draw(st.sampled_from([0.0, 1.0, 1e3, -1e5, 1e6, -1e7]))
    size = 10.0 ** draw(st.integers(-37, 37))
    x = np.random.default_rng(draw(st.integers(0, 2**32))).standard_normal(shape) + ratio
    if draw(st.booleans()):
        x.flat[0] = draw(st.sampled_from([0.0, -2 * ratio - 1e3]))
    x *= size / np.abs(x).max()
    return x.astype(np.float32), axes, draw(st.sampled_from([0, 1, 0.5]))


@settings(deadline=None, max_examples=examples(150))
@given(far_from_zero(), st.sampled_from(KINDS), st.sampled_from(["f32", "f64", "bf16", "f16"]))
def test_results_are_exact_to_rounding(drawn, kind, dtype):
    x, axes, correction = drawn
    with np.errstate(over="ignore"):
        x = x.astype({"f32": "f4", "f64": "f8", "f16": "f2", "bf16": ml_dtypes.bfloat16}[dtype])
    assume(np.isfinite(x.astype(np.float64)).all())
    given = {} if kind == "centre" else {"correction": correction}
    found = run(kind, x, axes=axes, **given)
    assert found.dtype == x.dtype
    with np.errstate(all="ignore"):
        wanted = exact(kind, x, axes, correction)
        limits = ml_dtypes.finfo(x.dtype)
        ulp, least = np.longdouble(limits.eps), np.longdouble(limits.smallest_subnormal)
        own = np.abs(wanted).max(axes, keepdims=True) if kind == "centre" else np.abs(wanted)
        near = np.abs(found.astype(np.longdouble) - wanted) <= ULPS[kind] * ulp * own + least
        too_large = np.abs(wanted) >= np.longdouble(limits.max) * (1 - ULPS[kind] * ulp)
        same = (np.isnan(wanted) & np.isnan(found)) | (np.isinf(found) & too_large)
    assert (near | same).all(), (found, wanted)


def test_equal_numbers_have_none():
    for number in (0.1, 1e30, 3.4e38, 1e-45, -7.0):
        x = np.full((7, 3), number, np.float32)
        for kind in KINDS:
            assert not run(kind, x, axes=(0,)).any()


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [0, 1, 2, 3])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_corners_are_torchs(name, correction):
    """Infinities, NaN, one element, none, a correction of all elements and more."""
    kind = {"var": "variance", "std": "standard_deviation"}[name]
    inf, nan = np.inf, np.nan
    rows = [
        [inf, 1.0],
        [nan, 1.0],
        [inf, inf],
        [inf, -inf],
        [3e38, -3e38],
        [1.0, 4.0],
        [2.0, 2.0],
        [3.0],
        [],
        [1e-45, 0.0],
        [1e19, -1e19],
    ]
    for row in rows:
        x = np.array([row], np.float32)
        theirs = getattr(torch, name)(torch.tensor(x), 1, correction=correction).numpy()
        found = run(kind, x, axes=(1,), correction=correction)
        np.testing.assert_allclose(found, theirs, rtol=3e-7, err_msg=f"{row}")


def test_the_reference_has_the_declarations_bits():
    random = np.random.default_rng(0)
    x = (random.standard_normal((5, 300, 4)) + 1e6).astype(np.float32)
    for axes in ((0,), (1,), (0, 2)):
        d, _ = reduction.centre(x, axes)
        assert d.tobytes() == run("centre", x, axes=axes).tobytes()
        for kind in KINDS[:2]:
            found = getattr(reduction, kind)(x, axes, 1)
            assert found.tobytes() == run(kind, x, axes=axes, correction=1).tobytes()


# -- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ratio", "size"), [(0, 1), (1e6, 1), (1e5, 1e20), (0, 1e37), (10, 1e-25)])
def test_gradients_are_autograds_in_f64(kind, ratio, size):
    random = np.random.default_rng(3)
    x = ((random.standard_normal((6, 50)) + ratio) * size).astype(np.float32)
    options = {} if kind == "centre" else {"correction": 1}
    module = program(lambda b, x: b.op(f"core.{kind}", (x,), axes=(1,), **options), "6x50xf32")
    dy = random.standard_normal(x.shape if kind == "centre" else 6).astype(np.float32)
    back = pullback(module)
    (found,) = evaluate_block(back.main.body, [x, dy], back.weights)
    wide = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    made = {
        "centre": lambda: wide - wide.mean(1, keepdim=True),
        "variance": lambda: wide.var(1),
        "standard_deviation": lambda: wide.std(1),
    }[kind]()
    made.backward(torch.tensor(dy, dtype=torch.float64))
    wanted = wide.grad.numpy()
    assert np.abs(found - wanted).max() <= 1e-6 * np.abs(wanted).max()


def test_the_slope_of_no_deviation_is_0_as_in_torch():
    x = np.full((2, 5), 0.1, np.float32)
    module = program(lambda b, x: b.standard_deviation(x, axes=(1,)), "2x5xf32")
    back = pullback(module)
    (found,) = evaluate_block(back.main.body, [x, np.ones(2, np.float32)], back.weights)
    there = torch.full((2, 5), 2.0, requires_grad=True)
    there.std(1, correction=0).sum().backward()
    assert not found.any() and not there.grad.any()


# -- whole compiles --------------------------------------------------------------------------------


def _spreads(x):
    return (
        x.var(1),
        x.std(0),
        torch.var_mean(x, 1)[0],
        torch.std_mean(x, (0, 1), correction=0)[0],
        x.std(),
        x.var(0, unbiased=False),
        x.std(1, keepdim=True),
    )


@pytest.mark.slow
def test_a_torch_model_far_from_zero_checks_green():
    model = type("Model", (torch.nn.Module,), {"forward": lambda self, x: _spreads(x)})()
    x = torch.randn(40, 60, generator=torch.Generator().manual_seed(0))
    compiled = cc.compile(model, (x + 1e6,), check=True)
    for numbers in (x + 1e6, x * 1e19, x * 1e-30, x):
        for found, wanted in zip(compiled(numbers), _spreads(numbers.double()), strict=True):
            np.testing.assert_allclose(found, wanted.float(), rtol=2e-6, atol=2e-45)


def test_onnx_mean_variance_normalization_far_from_zero():
    x = (np.random.default_rng(1).standard_normal((2, 3, 8, 9)) + 1e6).astype(np.float32)
    proto = one_node("MeanVarianceNormalization", {"x": x}, "y", axes=[0, 2, 3])
    (found,) = ours(proto, {"x": x})
    wide = x.astype(np.float64)
    centred = wide - wide.mean((0, 2, 3), keepdims=True)
    wanted = centred / (np.sqrt((centred**2).mean((0, 2, 3), keepdims=True)) + 1e-9)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
