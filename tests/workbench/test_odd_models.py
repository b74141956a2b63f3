"""What recordings of loops and of models that compute nothing say."""

from __future__ import annotations

import json
import runpy

import numpy as np
import onnxruntime
import pytest

from core_compiler.exporters.trace import trace
from core_compiler.record import Recording
from tests.workbench.odd_models import SIZE, TRIPS
from workbench.commands.cli import main

MODELS = "tests.workbench.odd_models"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    found = {}
    for name in ("loop", "flat", "passing"):
        found[name] = folder / f"{name}.run"
        assert (
            main(["compile", f"{MODELS}:{name}", "-o", str(found[name]), "--execute", "--check"])
            == 0
        )
    return found


def _said(capsys, *words) -> dict:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_loop_is_as_much_work_as_its_iterations_written_out(recorded, capsys):
    rows = {}
    for name in ("loop", "flat"):
        kernels = _said(capsys, "kernels", recorded[name])["kernels"]
        rows[name] = next(row for row in kernels if row["name"] == "matmul_tanh")
        assert rows[name]["count"] == TRIPS
    work = {}
    for name in ("loop", "flat"):
        with Recording.open(recorded[name]) as recording:
            work[name] = sum(t.flops for t in recording.timings() if t.kernel == "matmul_tanh")
            assert recording.stages()[-1].figures["flops"] >= 0
    assert work["loop"] == work["flat"] > 0
    compared = _said(capsys, "show", recorded["loop"], "compare", "--other", recorded["flat"])
    figures = {row["name"]: row for row in compared["data"]["figures"]}
    predicted = figures["predicted time"]
    assert predicted["a"] == pytest.approx(predicted["b"], rel=0.05)
    arithmetic = figures["arithmetic"]
    assert arithmetic["a"] == pytest.approx(arithmetic["b"], rel=1e-3)


@pytest.mark.slow
def test_the_timeline_has_every_iteration(recorded):
    with Recording.open(recorded["loop"]) as recording:
        events = trace(recording)["traceEvents"]
        threads = 1 + max(e["tid"] for e in events if e["ph"] == "X" and e["pid"] == 1)
        spans = [e for e in events if e["ph"] == "X" and e.get("name") == "matmul_tanh"]
    assert TRIPS <= len(spans) <= TRIPS * threads
    starts = sorted(e["ts"] for e in spans)
    assert len(set(starts)) >= TRIPS


def test_a_model_that_computes_nothing_has_no_kernels_and_no_hazard(recorded, capsys):
    assert _said(capsys, "advise", recorded["passing"])["advice"] == []
    for command, said in (
        ("kernels", "the program needs no kernels"),
        ("lines", "no line has a cost"),
    ):
        assert main([command, str(recorded["passing"])]) == 2
        assert said in capsys.readouterr().err
    assert main(["show", str(recorded["passing"]), "kernels", "--json"]) == 2
    assert "This program needs no kernels" in capsys.readouterr().out


def test_a_framework_that_cannot_be_compared_leaves_an_older_recording_alone(
    recorded, tmp_path, capsys
):
    path = tmp_path / "x.run"
    path.write_bytes(recorded["passing"].read_bytes())
    words = ["compile", f"{MODELS}:passing", "--against", "onnxruntime", "-o"]
    assert main([*words, str(path)]) == 2
    assert "use --against torch" in capsys.readouterr().err
    with Recording.open(path) as recording:
        assert recording.status == "finished" and recording.stage_count() > 1
    assert main([*words, str(tmp_path / "y.run")]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["x.run"]


@pytest.mark.parametrize("ending", ["onnx", "py"])
def test_what_gives_its_input_is_exported(recorded, tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    assert main(["export", str(recorded["passing"]), "-o", str(path)]) == 0
    x = np.linspace(-1, 1, SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)
    if ending == "onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: x})
    else:
        names = runpy.run_path(str(path))
        found = names["main"](x)
        found = found[0] if isinstance(found, tuple) else found
    assert np.array_equal(found, x)


def test_an_input_is_no_op(recorded, capsys):
    for words in (["op", recorded["loop"], "%x"], ["why-not", recorded["loop"], "%x", "%y"]):
        assert main([*map(str, words)]) == 2
        assert "%x is an input of the model, not the result of an op" in capsys.readouterr().err
