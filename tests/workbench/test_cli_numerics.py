"""`workbench numerics`: which pass changed the numbers; and how far two numbers are apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core_compiler.record import Recording
from tests.workbench.conftest import MODEL
from workbench.queries import numeric_results

FLOATS = {
    np.float16: st.floats(width=16, allow_nan=False, allow_infinity=False),
    np.float32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    np.float64: st.floats(allow_nan=False, allow_infinity=False),
}


def test_it_counts_the_checks_of_the_recording(command, recording):
    found = command.json("numerics", recording)
    with Recording.open(recording) as file:
        rows = file.query("SELECT verdict, count(*) FROM check_result GROUP BY verdict").rows
        stats = file.tensors()
    assert {v: n for v, n in found["verdicts"].items() if n} == dict(rows)
    by_pass = [sum(p["verdicts"].values()) for p in found["passes"]]
    assert sum(by_pass) == sum(found["verdicts"].values())
    assert [v["largest"] for v in found["values"]] == [
        max(abs(s.minimum), abs(s.maximum)) for s in stats
    ]
    assert [v["place"] for v in found["values"]][:3] == [0, 1, 2]


def test_the_checks_of_a_pass_are_asked_for_by_its_name(command, recording):
    found = command.json("numerics", recording, "--pass", "fuse_elementwise")
    with Recording.open(recording) as file:
        stage = next(s for s in file.stages() if s.pass_name == "fuse_elementwise")
    assert found["pass"] == "fuse_elementwise"
    assert sorted(c["rewrite"] for c in found["checks"]) == list(range(stage.rewrites))
    text = command.text("numerics", recording)
    assert "checks: " in text and "values on the example inputs" in text


def test_what_was_not_checked_is_one_line(command, tmp_path):
    path = tmp_path / "x.run"
    command.json("compile", *MODEL, "-o", path)
    code, out, err = command("numerics", path)
    assert (code, out) == (2, "") and "no rewrite was checked" in err and "--check" in err
    code, _, err = command("numerics", path, "--top", "-1")
    assert code == 2 and "--top" in err


@pytest.mark.slow
def test_the_values_of_the_import_are_compared_with_the_frameworks(command, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "x.run"
    told = command.json("compile", *MODEL, "--against", "torch", "-o", path)["against"]
    found = command.json("numerics", path)
    assert found["framework"] == told and told["framework"] == "torch"
    rows = found["framework_values"]
    assert (told["verdict"], told["beyond"], told["left_out"]) == ("within", None, 0)
    assert len(rows) == told["values"] > 3 and told["same"] == sum(r["same"] for r in rows)
    assert told["worst"]["error"] == max(r["error"] for r in rows) < 1e-5
    with Recording.open(path) as file:
        ops = {file.op_id(op) for op in file.module(0).main.body.ops}
    assert {r["op"] for r in rows if r["kind"] != "input"} <= ops
    assert all(r["absolute"] == abs(r["ours"] - r["theirs"]) for r in rows if not r["same"])
    shown = command.json("show", path, "numerics")["data"]["framework"]
    assert (shown["verdict"], shown["beyond"], shown["values"]) == ("within", [], told["values"])
    figures = {f["label"]: f for f in command.json("show", path, "overview")["data"]["figures"]}
    assert figures["import against its framework"]["text"] == "within"
    assert "against torch: " in command.text("numerics", path)
    code, out, err = command("compile", *MODEL, "--against", "onnxruntime")
    assert (code, out) == (2, "") and "use --against torch" in err
    code, _, err = command("compile", *MODEL, "--against", "caffe")
    assert code == 2 and "unknown framework 'caffe'" in err


def test_a_comparison_with_a_framework_is_recorded(command, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "x.run"
    told = command.json("run", *MODEL, "--against", "torch", "-o", path)
    found = command.json("numerics", path)
    assert found["peer"] == {
        "name": "torch",
        "error": told["worst_relative_error"],
        "ulp": told["worst_ulp"],
        "verdict": told["verdict"],
        "integers": [],
    }
    assert told["verdict"] == "within" and found["framework"] == told["values"]
    assert "against torch: within, worst relative error" in command.text("numerics", path)
    with Recording.open(path) as file:
        assert file.status == "finished" and file.timings()
        assert file.figures()["digest"] == told["digest"]


def test_integers_that_ties_make_others_have_no_relative_error(command, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "ties_model.py").write_text(TIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "x.run"
    told = command.json("run", "ties_model:make", "--against", "torch", "-o", path)
    assert (told["verdict"], told["worst_relative_error"], told["worst_ulp"]) == ("within", 0.0, 0)
    assert len(told["other_integers"]) == 1 and told["values"]["integers"] == ["topk"]
    text = command.text("numerics", path)
    assert f"worst ulp 0, other integers at {told['other_integers'][0]}" in text
    assert "with the same bits, other integers at topk" in text and "inf" not in text
    places = command.json("run", "ties_model:make_places", "--against", "torch")
    assert (places["verdict"], places["worst_relative_error"]) == ("within", 0.0)
    rows = command.json("show", path, "numerics")["data"]["beside"]
    (other,) = [row for row in rows if not row["same"]]
    assert other["error"] is None and other["theirs"] != other["ours"]


#: Equal numbers, of whose places torch's documentation leaves open which come first.
TIES = """
import torch

class Ties(torch.nn.Module):
    def forward(self, x):
        values, places = torch.topk((x * 2).round(), 5)
        return values, places

class Places(Ties):
    def forward(self, x):
        return super().forward(x)[1]

def make(kind=Ties):
    torch.manual_seed(0)
    return kind().eval(), (torch.randn(16, 32),)

def make_places():
    return make(Places)
"""


def test_an_older_recording_says_that_it_was_not_judged():
    figures = {"against": "torch", "worst_relative_error": 1e-7, "worst_ulp": 3}
    row = numeric_results.peer(figures)
    assert row is not None and row["verdict"] == "not judged"
    assert numeric_results.peer_line(row) == (
        "against torch: not judged, worst relative error 1e-07, worst ulp 3"
    )
    row = numeric_results.framework((), {"values_against": "torch"})
    assert row is not None and (row["verdict"], row["beyond"]) == ("not judged", None)
    assert numeric_results.framework(()) is None and numeric_results.peer({}) is None


@pytest.mark.parametrize("kind", FLOATS)
@given(data=st.data())
def test_ulps_count_the_floats_between(kind, data):
    old = data.draw(FLOATS[kind])
    steps = data.draw(st.integers(0, 5))
    new = kind(old)
    for _ in range(steps):
        with np.errstate(over="ignore"):
            new = np.nextafter(new, kind(np.inf))
    assume(np.isfinite(new))
    assert numeric_results.ulps(old, float(new), np.dtype(kind)) == steps
    assert numeric_results.ulps(float(new), old, np.dtype(kind)) == steps


def test_ulps_are_not_known_of_what_is_no_float():
    assert numeric_results.ulps(1.0, math.nan, np.dtype("f4")) is None
    assert numeric_results.ulps(1.0, math.inf, np.dtype("f4")) is None
    assert (
        numeric_results.ulps(1.0, 2.0, None) is None
        and numeric_results.ulps(None, 2.0, np.dtype("f4")) is None
    )
    assert numeric_results.ulps(-0.0, 0.0, np.dtype("f4")) == 0
