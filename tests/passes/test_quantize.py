"""Post-training quantisation: observe, insert quantisation, compute with integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.driver.quantization_report import report
from core_compiler.ir import Rewriter, dtype
from core_compiler.ir.refusal import Refusal
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.quantised import fixed_point
from core_compiler.passes.quantize import insert_quantization, integerize
from core_compiler.passes.quantize.observe import read_samples
from core_compiler.passes.quantize.parameters import Affine, Range, affine
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.passes import specs
from tests.passes.quantised import MODELS, QUICK, broken, compiled
from tests.slow import slow_but

I8, U8 = dtype("i8"), dtype("ui8")

# -- parameters ------------------------------------------------------------------------------------

ENDS = st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=True)


@given(ENDS, ENDS, st.sampled_from([I8, U8]), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_a_range_and_zero_are_covered(one, other, kind, symmetric):
    if symmetric and kind is U8:
        return
    seen = Range(min(one, other), max(one, other))
    made = affine(seen, kind, symmetric)
    assert made.scale >= np.finfo(np.float32).tiny
    assert made.low <= made.zero <= made.high  # 0 is an integer exactly
    low, high = ((q - made.zero) * made.scale for q in (made.low, made.high))
    slack = made.scale * 1.0001 + 1e-37
    assert low - slack <= min(seen.low, 0) and max(seen.high, 0) <= high + slack
    if symmetric:
        assert made.zero == 0 and made.low == -made.high


def test_a_range_of_zero_has_a_scale():
    assert affine(Range(0, 0), I8) == Affine(1.0, 0, I8, -128, 127)
    assert affine(Range(0, 0), I8, symmetric=True).zero == 0


@given(st.floats(2.0**-60, 2.0**28))
@settings(max_examples=examples(300), deadline=None)
def test_factors_are_the_nearest_of_31_bits(factor):
    found = fixed_point(factor)
    assert found is not None
    multiplier, shift = found
    assert 0 <= multiplier < 1 << 31 and 2 <= shift <= 62
    assert abs(multiplier / 2**shift - factor) <= max(factor * 2.0**-31, 2.0**-63)


@pytest.mark.parametrize("factor", [0.0, -1.0, float(1 << 29), float("inf"), float("nan")])
def test_factors_that_do_not_fit(factor):
    assert fixed_point(factor) is None


def test_the_least_factors_keep_the_bits_that_the_shift_leaves():
    assert fixed_point(2.0**-62) == (1, 62)
    assert fixed_point(2.0**-100) == (0, 62)


# -- models ----------------------------------------------------------------------------------------


OPTIONS = {"": {}, "symmetric": {"symmetric": True}, "percentile": {"method": "percentile"}}
FAST = [*((name, "") for name in QUICK), ("residual", "symmetric"), ("decoder", "percentile")]


@pytest.mark.parametrize(("name", "options"), slow_but(FAST, itertools.product(MODELS, OPTIONS)))
def test_every_rewrite_is_within_its_steps(name, options):
    made, model, samples = compiled(name, **OPTIONS[options])
    assert broken(made) == [] and made.finding is None
    found = report(made)
    assert found is not None and found["ops"] >= 1
    (ours,) = made(*samples[1]) if isinstance(made(*samples[1]), tuple) else (made(*samples[1]),)
    theirs = model(torch.from_numpy(samples[1][0])).detach().numpy()
    error = ((np.asarray(ours) - theirs) ** 2).sum() / (theirs**2).sum()
    assert error < 0.01  # 20 dB


class Quotient(torch.nn.Module):
    def forward(self, x):
        return x.relu() / (x.exp() + 1)


def test_nothing_is_left_in_floats_but_what_has_no_form():
    for name in MODELS:
        assert report(compiled(name, check=False)[0])["left_float"] == []
    model, x = Quotient(), np.ones((2, 3), np.float32)
    (left,) = report(cc.compile(model, (x,), quantize=cc.Quantization()))["left_float"]
    assert left["op"] == "core.div" and "has no form in integers" in left["reason"]
    assert left["line"].startswith(__file__)


def test_the_results_are_those_of_the_reference():
    made, _, samples = compiled("residual", check=False)
    meaning = [s for s in made.stages if s.step is None or s.step.half == "meaning"][-1]
    (expected,) = specs.outputs(meaning.module, list(samples[2]))
    assert np.asarray(made(*samples[2])).tobytes() == expected.tobytes()


def test_a_name_keeps_its_op_in_floats():
    plain = report(compiled("norms", check=False)[0])
    kept = report(compiled("norms", check=False, keep=("linear",))[0])
    assert kept["ops"] <= plain["ops"]


def test_percentiles_leave_outliers_out():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    x = torch.randn(64, 16).numpy()
    x[0, 0] = 1000.0
    scales = {}
    for method in ("minmax", "percentile"):
        quantize = cc.Quantization(method=method, percentile=99.0)
        made = cc.compile(model, (x,), quantize=quantize, finish=False)
        while made.stages[-1].name != "insert_quantization":
            made.step()
        ops = made.module.main.body.producers()
        first = next(o for o in made.module.main.body.ops if o.kind == "core.quantize")
        scales[method] = float(constant_array(ops[first.operands[1]], made.module.weights))
    assert scales["percentile"] < scales["minmax"] / 50


def test_weights_along_another_axis_are_refused(monkeypatch):
    """Scales of the input's channels cannot be taken out of the sum."""
    monkeypatch.setattr(insert_quantization, "weights_of", lambda op: (1, 1, 1))
    made, _, _ = compiled("residual", check=False)
    reasons = {row["reason"] for row in report(made)["left_float"]}
    assert any("are along axis" in reason for reason in reasons)


# -- what is refused ---------------------------------------------------------------------------


def _refusal(build, *types) -> str:
    module = specs.reach("canonicalise", build, *types).module
    rewriter = Rewriter(module.main.body)
    last = next(o for o in reversed(module.main.body.ops) if o.kind == "core.quantize")
    found = integerize.integers(last, rewriter, module, Builder(module.weights))
    assert isinstance(found, Refusal)
    return str(found)


def _quantised_product(b, q, w, scale=0.1):
    s, out = (b.constant(np.float32(v)) for v in (0.1, scale))
    return b.quantize(b.matmul(b.dequantize(q, s), b.dequantize(w, s)), out, dtype="i8")


def test_sums_that_may_not_fit_in_32_bits_stay_in_floats():
    assert "adds 40000 terms" in _refusal(_quantised_product, "1x40000xi8", "40000x2xi8")
    assert "is of i16, not of bytes" in _refusal(_quantised_product, "1x4xi16", "4x2xi8")
    assert "are of i16" in _refusal(_quantised_product, "1x4xi8", "4x2xi16")


@pytest.mark.parametrize("scale", [0.0, -0.1, float("nan")])
def test_scales_that_are_not_positive_are_refused(scale):
    reason = _refusal(lambda b, q, w: _quantised_product(b, q, w, scale), "1x4xi8", "4x2xi8")
    assert "the scale of" in reason


# -- bad input -------------------------------------------------------------------------------------


def test_calibration_samples_that_are_refused():
    model, x = torch.nn.Linear(3, 2), np.ones((1, 3), np.float32)

    def calibrated(*samples):
        cc.compile(model, (x,), quantize=cc.Quantization(calibration=samples))

    with pytest.raises(UserError, match=r"sample 1: input .* has numbers that are not finite"):
        calibrated((x,), (np.full((1, 3), np.nan, np.float32),))
    with pytest.raises(UserError, match=r"calibration sample 0: 2 arrays, expected 1"):
        calibrated((x, x))
    with pytest.raises(UserError, match=r"sample 0: input 0 is float32 of shape \(1, 4\)"):
        calibrated((np.ones((1, 4), np.float32),))
    calibrated(torch.from_numpy(x), x)
    with pytest.raises(UserError, match="quantisation: unknown method 'entropy2'"):
        cc.compile(model, (x,), quantize=cc.Quantization(method="entropy2"))
    with pytest.raises(UserError, match="expected a percentile above 0"):
        cc.compile(model, (x,), quantize=cc.Quantization(method="percentile", percentile=0))


def test_what_is_not_quantised_is_said():
    model, x = torch.nn.Linear(3, 2), np.ones((1, 3), np.float32)
    with pytest.raises(UserError, match=r"to be a cc\.Quantization, got str"):
        cc.compile(model, (x,), quantize="int8")
    how = {"training": cc.Training(loss="cross_entropy"), "quantize": cc.Quantization()}
    with pytest.raises(UserError, match="a training step is not quantised after training"):
        cc.compile(model, (x, np.zeros(1, np.int64)), **how)


def test_files_of_samples(tmp_path):
    module = specs.reach("canonicalise", lambda b, x, y: b.add(x, y), *["2x3xf32"] * 2).module
    arguments = module.main.arguments
    path = tmp_path / "samples.npz"
    x = np.ones((2, 3), np.float32)
    np.savez(path, x=np.stack([x, 2 * x]), y=x)
    first, second = read_samples(path, arguments, None)
    assert (second[0] == 2).all() and (first[1] == second[1]).all()
    along = np.arange(18, dtype=np.float32).reshape(6, 3)
    np.savez(path, x=along, y=x)
    assert [s[0].tolist() for s in read_samples(path, arguments, None)] == [
        along[i : i + 2].tolist() for i in (0, 2, 4)
    ]
    bad = {
        "5 rows, no multiple of the input's 2": {"x": along[:5], "y": x},
        "unknown input 'z'": {"z": x},
        "no array 'y'": {"x": x},
        r"shape \(2, 4\), expected \(2, 3\)": {"x": np.ones((2, 4), np.float32), "y": x},
        "int64, expected f32": {"x": np.ones((2, 3), np.int64), "y": x},
        "another input 3": {"x": np.stack([x, x]), "y": np.stack([x, x, x])},
        "no samples": {"x": np.ones((0, 2, 3), np.float32), "y": np.ones((0, 2, 3), np.float32)},
    }
    for message, arrays in bad.items():
        np.savez(path, **arrays)
        with pytest.raises(UserError, match=message):
            read_samples(path, arguments, None)
    path.write_text("no archive")
    with pytest.raises(UserError, match=r"no \.npz file of arrays"):
        read_samples(path, arguments, None)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_samples(tmp_path / "absent.npz", arguments, None)
