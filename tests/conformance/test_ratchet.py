"""The ratchet: what the records in ``tests/results`` call passed must pass, on both paths.

The quick tests run a part of the recorded passes, the slow ones all.  After an improvement,
``python -m tests.conformance.update`` rewrites the records.  A record names the versions it was
made with; with another version of the suite's library installed, the cases that both have are
compared, and a warning says so.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

from tests.conformance import onnx_nodes, opinfo, opinfo_gradients, outcomes
from tests.conformance.outcomes import Case, Outcome, Wrong
from tests.conformance.update import SUITES, run
from tests.slow import slow_but

#: Every how many of the recorded passes the quick tests run.
QUICK = {
    ("onnx_nodes", "reference"): 480,
    ("onnx_nodes", "cpu"): 3072,
    ("opinfo", "reference"): 1536,
    ("opinfo", "cpu"): 3072,
    ("opinfo_gradients", "reference"): 240,
    ("opinfo_gradients", "cpu"): 960,
    ("jax_harnesses", "reference"): 576,
    ("jax_harnesses", "cpu"): 1152,
}


@pytest.mark.parametrize("suite", SUITES)
def test_a_record_says_what_came_of_every_case(suite):
    record = outcomes.load(suite)
    paths = [record["paths"][path] for held, path in QUICK if held == suite]
    for path in paths:
        statuses = [text.partition(":")[0] for text in path["cases"].values()]
        assert {s: statuses.count(s) for s in outcomes.STATUSES} == path["counts"]
        assert path["counts"]["failed"] == 0
        assert record["about"]["library"] in path["versions"]
    reference = record["paths"]["reference"]
    assert all(path["cases"].keys() <= reference["cases"].keys() for path in paths)


def _hold(suite: str, path: str, part: int) -> None:
    """Run every ``part``-th case that is recorded as passed: all pass, and none has vanished."""
    held = outcomes.recorded(suite, path)
    names = [name for name, text in held.items() if text == "passed"][::part]
    assert names, "nothing is recorded; run python -m tests.conformance.update"
    found = run(suite, path, names)
    gone, other = sorted(set(names) - set(found)), _other_version(suite, path)
    if other:
        warnings.warn(
            f"{other}: compared are the {len(found)} of {len(names)} cases that both "
            f"have, and samples may differ",
            stacklevel=1,
        )
    assert other or not gone, f"recorded cases that the suite has no longer: {gone[:5]}"
    assert found
    assert not outcomes.regressions(held, found), other


def _other_version(suite: str, path: str) -> str:
    """How the installed library of the suite differs from the record's; "" where it does not."""
    library, had = SUITES[suite].LIBRARY, outcomes.recorded_versions(suite, path)
    now = SUITES[suite].versions()[library]
    if had[library] == now:
        return ""
    return f"{library} {now} is installed, recorded is {had[library]}"


# Both paths together: a suite is slow to import, ONNX's (which other tests read too) the slowest.
@pytest.mark.parametrize("suite", slow_but([s for s in SUITES if s != "onnx_nodes"], SUITES))
def test_a_part_of_the_recorded_passes_still_pass(suite):
    for path in outcomes.PATHS:
        if (suite, path) in QUICK:
            _hold(suite, path, QUICK[suite, path])


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("suite", "path"), QUICK)
def test_all_recorded_passes_still_pass(suite, path):
    _hold(suite, path, 1)


def test_gradients_are_torchs_but_for_samples_of_ten_ops():
    """What ``python -m tests.conformance torch-grad`` found over all samples."""
    found = json.loads((outcomes.RESULTS / "conformance-torch-grad.json").read_text())
    failed = {opinfo_gradients.stem(each["name"]) for each in found["failed"]}
    assert found["passed"] + len(found["failed"]) == found["eligible"]
    assert found["passed"] >= 0.99 * found["eligible"]
    assert len(failed) <= 10
    assert not any(each["reason"].startswith("failed") for each in found["failed"])


@pytest.mark.slow  # the database and torch's decompositions take seconds to import
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("softmax", True),
        ("nn.functional.conv2d", True),
        ("nn.functional.batch_norm", True),
        ("nn.functional.embedding", True),
        ("nn.functional.elu", True),
        ("linalg.qr", False),  # no core op
        ("fft.fft", False),  # complex results
        ("normal", False),  # random
    ],
)
def test_a_sample_counts_where_torch_lowers_it_to_core_ops(name, counts):
    (op,) = [
        o for o, _dtype, own in opinfo.ops(opinfo_gradients.DTYPES) if own == f"{name}-float32"
    ]
    samples = [sample for _number, sample in opinfo.all_samples(op, torch.float32)]
    assert any(opinfo_gradients.is_of_core_ops(op, sample) for sample in samples) == counts


def test_the_ratchet_names_a_case_that_stops_passing():
    held = {"a": "passed", "b": "wrong: x"}
    found = {
        "a": Outcome("wrong", "off by 1"),
        "b": Outcome("passed"),
        "c": Outcome("failed", "new"),
    }
    assert outcomes.regressions(held, found) == ["a: wrong: off by 1"]


@pytest.mark.slow  # the suite takes seconds to make its cases
@pytest.mark.parametrize(
    "name",
    [n for n, t in outcomes.recorded("onnx_nodes", "reference").items() if t.startswith("wrong")],
)
def test_where_we_differ_from_onnx_our_value_is_nearer_to_the_exact_one(name):
    """The specification gives attention as a formula and no order of roundings.  The suite's f16
    values are NumPy's, rounded after every step of softmax; ours are rounded once.  Both are held
    against the formula in f64, with the suite's own inputs."""
    (test,) = [t for t in onnx_nodes.tests() if t.name == name]
    model, ((inputs, (theirs,)),) = onnx_nodes.data(test)
    (ours,) = onnx_nodes.CompilerBackend.prepare(model).run(inputs)
    q, k, v = (x.astype(np.float64) for x in inputs)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[..., ~np.tri(*scores.shape[-2:], dtype=bool)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    exact = shares / shares.sum(-1, keepdims=True) @ v
    assert ours.dtype == theirs.dtype == np.float16
    assert np.abs(ours - exact).max() < np.abs(theirs - exact).max()
    differs = np.abs(ours - theirs.astype(np.float64)) > test.atol + test.rtol * np.abs(theirs)
    assert differs.any()
    assert (np.abs(ours - exact) < np.abs(theirs - exact))[differs].all()


class _Suite:
    """A suite of three cases whose outcomes and library version a test chooses."""

    SUITE, LIBRARY, installed = "made_up", "thing", "2.0"

    def __init__(self, **raises):
        self.raises = raises

    def cases(self, names=None):
        for name, error in self.raises.items():
            if names is None or name in names:
                yield Case(name, self._run(error))

    def _run(self, error):
        def run(execute):
            if error is not None:
                raise error

        return run

    def versions(self):
        return {self.LIBRARY: self.installed}

    def about(self):
        return {"suite": "made up", "library": self.LIBRARY}


@pytest.fixture
def suite(monkeypatch, tmp_path):
    """A made-up suite with a record of two passes, made with version 2.0 of its library."""
    made = _Suite(a=None, b=None, c=Wrong("off by 1"))
    monkeypatch.setattr(outcomes, "RESULTS", tmp_path)
    monkeypatch.setitem(SUITES, made.SUITE, made)
    outcomes.save(made, "cpu", run(made.SUITE, "cpu"))
    return made


def test_what_is_saved_is_what_was_found(suite):
    assert outcomes.recorded("made_up", "cpu") == {
        "a": "passed",
        "b": "passed",
        "c": "wrong: off by 1",
    }
    assert outcomes.recorded_versions("made_up", "cpu") == {"thing": "2.0"}
    _hold("made_up", "cpu", 1)


def test_a_pass_that_is_lost_and_a_case_that_vanishes_break_the_ratchet(suite):
    suite.raises["b"] = Wrong("off by 2")
    with pytest.raises(AssertionError, match="b: wrong: off by 2"):
        _hold("made_up", "cpu", 1)
    del suite.raises["b"]
    with pytest.raises(AssertionError, match=r"no longer: \['b'\]"):
        _hold("made_up", "cpu", 1)


def test_with_another_version_the_cases_that_both_have_are_compared_and_it_says_so(suite):
    suite.installed = "3.0"
    del suite.raises["b"]
    with pytest.warns(UserWarning, match=r"thing 3\.0 is installed, recorded is 2\.0: .* 1 of 2"):
        _hold("made_up", "cpu", 1)
