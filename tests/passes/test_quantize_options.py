"""Options of quantisation: what each promises, on a small model."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.driver.quantization_report import report
from core_compiler.passes.quantize.measure_sensitivity import SENSITIVITY
from core_compiler.passes.quantize.observe import evaluated
from core_compiler.pipelines.quantization import Quantization
from core_compiler.support.errors import UserError


class Layers(torch.nn.Module):
    """Convolutions with relus between (one depthwise), then a norm read by two products."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.deep = torch.nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.point = torch.nn.Conv2d(8, 6, 1)
        self.norm = torch.nn.LayerNorm(6)
        self.left, self.right = torch.nn.Linear(6, 5), torch.nn.Linear(6, 5)

    def forward(self, x):
        x = torch.relu(self.point(torch.relu(self.deep(torch.relu(self.first(x))))))
        x = self.norm(x.flatten(2).transpose(1, 2))
        return self.left(x) * torch.sigmoid(self.right(x))


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    model = Layers().eval()
    with torch.no_grad():
        model.first.weight[0] *= 50
        model.norm.weight[1] *= 40
    return model


SAMPLES = [
    (torch.randn(2, 3, 7, 7, generator=torch.Generator().manual_seed(s)).numpy(),) for s in range(3)
]


def _compiled(check: bool = True, **options):
    quantize = cc.Quantization(calibration=SAMPLES, **options)
    return cc.compile(_model(), SAMPLES[0], quantize=quantize, check=check)


def _stage(made, name):
    return next(s for s in made.stages if s.name.partition("#")[0] == name)


EVERY = {
    "mse": {"method": "mse", "weights": "mse"},
    "entropy": {"method": "entropy"},
    "gptq": {"rounding": "gptq"},
    "bias": {"correct_bias": True},
    "all": {
        "method": "mse",
        "rounding": "gptq",
        "correct_bias": True,
        "equalise": True,
        "smooth": 0.5,
        "keep_float": 1,
    },
}


@pytest.mark.parametrize("name", list(EVERY))
def test_every_rewrite_is_within_its_bound(name):
    made = _compiled(**EVERY[name])
    failed = [
        (made.stages[i].name, r.note)
        for i, rs in made.checks.items()
        for r in rs
        if r.verdict == "failed"
    ]
    assert failed == [] and made.finding is None


def test_equalising_and_smoothing_keep_every_bit():
    made = _compiled(equalise=True, smooth=0.5)
    first = _stage(made, "equalise_layers")
    assert len(first.rewrites) == 2 and len(_stage(made, "smooth_activations").rewrites) == 1
    before = made.stages[first.index - 1].module
    after = _stage(made, "observe").module
    for sample in SAMPLES:
        old, new = (dict(evaluated(m, sample))[m.main.outputs[0]] for m in (before, after))
        assert old.tobytes() == new.tobytes()


def test_equal_options_give_equal_programs():
    one, other = (_compiled(check=False, **EVERY["all"]) for _ in range(2))
    assert one.identity == other.identity


def test_the_most_sensitive_product_stays_in_floats():
    made = _compiled(check=False, keep_float=1)
    rows = made.facts[SENSITIVITY]
    assert [r.sqnr_db for r in rows] == sorted(r.sqnr_db for r in rows) and len(rows) == 5
    kept = [r for r in report(made)["left_float"] if r["reason"].startswith("kept: ")]
    assert kept[0]["op"] == rows[0].product.kind
    assert f"{rows[0].sqnr_db:.1f} dB" in kept[0]["reason"]


def test_sensitivities_are_in_the_report_and_the_lowest_is_the_product_that_is_kept():
    found = report(_compiled(check=False, keep_float=0))
    assert not found["left_float"]
    alone = [row["alone_db"] for row in found["losses"] if row["alone_db"] is not None]
    kept = report(_compiled(check=False, keep_float=1))["left_float"]
    assert len(alone) >= 3
    assert {row["reason"] for row in kept} == {
        f"kept: {min(alone):.1f} dB if it alone is quantised"
    }


def test_what_was_observed_is_noted_with_the_data():
    made = _compiled(check=False, method="mse")
    (note,) = (d.message for d in _stage(made, "observe").diagnostics)
    assert re.fullmatch(
        r"\d+ values observed on 3 samples, mse, SHA-256 [0-9a-f]{16}; \d+ ranges narrowed", note
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"method": "mes"}, "unknown method 'mes'"),
        ({"rounding": "up"}, "unknown rounding 'up'"),
        ({"smooth": "2"}, "expected smooth from 0 to 1, got 2"),
        ({"keep_float": "-1"}, "expected keep_float of 0 or more, got -1"),
        ({"keep_float": "x"}, "expected int, got 'x'"),
        ({"metod": "mse"}, "unknown option 'metod'"),
    ],
)
def test_invalid_options_are_one_line(texts, message):
    with pytest.raises(UserError, match=re.escape(message)) as found:
        Quantization.of_text(texts)
    assert "\n" not in str(found.value)


def test_options_are_read_from_text():
    found = Quantization.of_text({"method": "mse", "smooth": "0.5", "equalise": "true"})
    assert (found.method, found.smooth, found.equalise) == ("mse", 0.5, True)
    assert np.isclose(found.percentile, 99.99)
