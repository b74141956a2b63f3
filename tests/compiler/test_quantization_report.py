"""Losses of quantisation: against torch and NumPy, and in the recording."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.driver.quantization_report import BINS, cosine, report, sqnr
from core_compiler.ir.events import Observer
from core_compiler.record import Recording

torch = pytest.importorskip("torch", reason="models and oracles are torch's")


class Network(torch.nn.Module):
    """A convolution, a running sum that stays in floats, a linear layer."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(2, 6, 3)
        self.last = torch.nn.Linear(6, 4)

    def forward(self, x):
        return self.last(torch.cumsum(torch.relu(self.first(x)).mean((2, 3)), -1))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(1)
    return Network().eval(), torch.randn(3, 2, 6, 6)


def compiled(network, **options):
    model, x = network
    return cc.compile(model, (x.numpy(),), quantize=cc.Quantization(**options))


def by_op(found):
    return {row["op"]: row for row in found["losses"]}


def decibels(exact: np.ndarray, other: np.ndarray) -> float:
    exact, other = exact.astype(np.float64), other.astype(np.float64)
    return float(10 * np.log10((exact**2).sum() / ((exact - other) ** 2).sum()))


@pytest.mark.parametrize(
    "options", [{}, {"symmetric": True}, {"method": "percentile", "percentile": 95.0}]
)
def test_the_loss_of_an_input_is_that_of_torchs_fake_quantisation(network, options):
    _, x = network
    row = by_op(report(compiled(network, **options)))["x"]
    low, high = row["range"]
    steps = 254 if options.get("symmetric") else 255
    scale = (high - low) / steps
    ends = (-127, 127) if options.get("symmetric") else (-128, 127)
    zero = round(ends[0] - low / scale)
    made = torch.fake_quantize_per_tensor_affine(x, scale, zero, *ends)
    assert row["sqnr_db"] == pytest.approx(decibels(x.numpy(), made.numpy()), abs=0.05)
    alike = torch.cosine_similarity(x.double().flatten(), made.double().flatten(), dim=0)
    assert row["cosine"] == pytest.approx(float(alike), abs=1e-6)
    beyond = (x < low - scale / 2) | (x > high + scale / 2)
    assert row["saturated"] == float(beyond.double().mean())
    assert (row["saturated"] > 0.02) == ("method" in options)


def test_the_loss_of_the_outputs_is_that_of_the_executed_program(network):
    model, x = network
    made = compiled(network)
    with torch.no_grad():
        expected = model(x).numpy()
    found = report(made)
    assert found["sqnr_db"] == pytest.approx(decibels(expected, made(x.numpy())[0]), abs=0.05)
    assert [row["op"] for row in found["left_float"]] == ["core.cumsum"]
    line = Network.forward.__code__.co_firstlineno + 1
    assert found["left_float"][0]["line"] == f"{__file__}:{line}"
    ratios = [row["sqnr_db"] for row in found["losses"]]
    assert ratios == sorted(ratios) and found["worst"] == found["losses"][0]
    scopes = {row["op"]: row["scope"] for row in found["losses"]}
    assert scopes["core.add"] == "last" and scopes["x"] == ""


def test_ratios_and_cosines_of_zeros():
    one, zero = np.ones(4, np.float32), np.zeros(4, np.float32)
    assert (sqnr(one, one), sqnr(zero, one)) == (np.inf, -np.inf)
    assert sqnr(one, zero) == 0 and sqnr(zero, zero) == np.inf
    assert np.isnan(cosine(one, zero)) and cosine(one, -one) == -1


def test_the_recording_has_what_was_measured(network, tmp_path):
    made = compiled(network)
    found = report(made)
    with Recording.open(made.record(tmp_path / "x.run")) as recording:
        recorded = recording.quantisation()
        assert (recorded.results, recorded.sqnr_db) == (found["ops"], found["sqnr_db"])
        assert [v.sqnr_db for v in recorded.values] == [r["sqnr_db"] for r in found["losses"]]
        stages = {s.index: s.pass_name for s in recording.stages()}
        for value in recorded.values:
            assert stages[value.stage] == "observe"
            assert str(value.integers.type).endswith("xi8>")
            edges, floats, dequantised = value.histogram
            assert len(edges) == BINS + 1 and len(floats) == BINS
            elements = int(np.prod(value.value.type.shape))
            assert sum(floats) == sum(dequantised) == elements
        (left,) = recorded.left
        assert left.op.kind == "core.cumsum"
        statistics = {s.value: s for s in recording.tensors() if stages[s.stage] == "integerize"}
        assert len(statistics) == len(recorded.values)
        inside = recording.module(next(iter(statistics.values())).stage).main.body.producers()
        assert {inside[v].kind for v in statistics} == {"core.dequantize"}


class Losses(Observer):
    """Counts how often losses are reported, and after how many stages."""

    def __init__(self):
        self.stages, self.reports = [], []

    def stage(self, stage):
        self.stages.append(stage.pass_name)

    def quantisation(self, record):
        self.reports.append((self.stages[-1], record))


def test_they_are_reported_once_before_the_passes_of_the_target(network):
    model, x = network
    made = cc.compile(model, (x.numpy(),), quantize=cc.Quantization(), finish=False)
    made.observer = seen = Losses()
    made.finish()
    ((after, record),) = seen.reports
    assert after == "integerize" and record.values
    # A rerun of passes of the target announces them, one from before quantises again.
    again = Losses()
    made.rerun(len(made.stages) - 2, observer=again).finish()
    assert [r for _, r in again.reports] == [record]
    before = Losses()
    made.rerun(3, made.options.edit, before).finish()
    assert [after for after, _ in before.reports] == ["integerize"]
    assert before.reports[0][1].sqnr_db == record.sqnr_db


def test_a_model_in_floats_has_no_report(network):
    model, x = network
    assert report(cc.compile(model, (x.numpy(),))) is None


def test_without_example_inputs_only_the_ops_are_known(network, tmp_path):
    model, x = network
    quantize = cc.Quantization(calibration=[(x.numpy(),)])
    made = cc.compile(model, (x.numpy(),), quantize=quantize, finish=False)
    made.inputs = None
    found = report(made.finish())
    assert found["sqnr_db"] is None and found["losses"] == [] and found["worst"] is None
    with Recording.open(made.record(tmp_path / "x.run")) as recording:
        assert recording.quantisation().sqnr_db is None
