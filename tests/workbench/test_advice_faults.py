"""Advice on passes that are wrong, and what is said where looking itself fails."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record.recorder import Recorder
from tests.debug.planted import ReluOfSum
from tests.passes.programs import program
from widgets.requests import Requests
from workbench import advice
from workbench.export import report
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import memory, overview


def clamped_sum(b, x, y):
    return b.relu(b.add(x, y))


def record(path: Path, sums: list[float]) -> Path:
    """A checked compile with a pass that claims to keep bits and takes clamped ``sums`` for their
    magnitudes."""
    inputs = [np.float32(sums), np.zeros(len(sums), np.float32)]
    options = Options(check=True, edit=PipelineEdit(insert=((0, ReluOfSum()),)))
    module = program(clamped_sum, *[f"{len(sums)}xf32"] * 2)
    made = compilation.start(module, "cpu", options, inputs).finish()
    with Recorder(path) as recorder:
        made.report(recorder, spec="digits-mlp", model="planted", target="cpu")
    return path


@pytest.fixture(params=[[1, -2], [-1, -2]], ids=["wrong", "wrong where all were 0"])
def wrong(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return record(tmp_path / "wrong.run", request.param)


def test_a_pass_that_breaks_its_promise_of_bits_is_named(command: Any, wrong: Path) -> None:
    listed = command.json("advise", wrong)["advice"]
    told = [each for each in listed if each["hazard"]]
    assert [each["hazard"] for each in told] == ["precision loss"]
    assert "changes the result" in listed[0]["title"]  # what the check itself says comes first
    (error, check) = told[0]["evidence"]
    assert error["text"].startswith("error of the outputs: 0 before relu_of_sum")
    assert check["text"].startswith("relu(x + y) => abs(x + y)")
    assert "expected bitwise equality" in check["text"]
    assert "relu_of_sum moves the outputs" in command.text("show", wrong, "overview")
    assert "relu_of_sum moves the outputs" in command.text("advise", wrong)


def test_exported_findings_and_advice_have_their_links(
    command: Any, wrong: Path, tmp_path: Path
) -> None:
    shown = command.json("show", wrong, "overview")["data"]
    for name in ("findings", "advice"):
        path = tmp_path / f"{name}.csv"
        command.json("export", wrong, "-o", path)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows and [(row["title"], json.loads(row["go"])) for row in rows] == [
            (each["title"], each["go"]) for each in shown[name]
        ]


def test_the_page_is_answered_where_the_error_is_infinite(tmp_path: Path) -> None:
    run = Run(record(tmp_path / "wrong.run", [-1, -2]))
    requests = Requests(lambda request: overview.answer((run,), ViewState(), request))
    (told,) = json.loads(requests.answer('[{"id": 1, "session": "a"}]') or "")
    run.close()
    (found,) = told["value"]
    assert found["title"] == "relu_of_sum moves the outputs without bound"
    assert found["cost"]["value"] == "inf"


def test_a_report_is_written_of_it(wrong: Path, tmp_path: Path) -> None:
    made = report.write(wrong, tmp_path / "wrong.html")
    assert made.boot["messages"].get("overview") is None


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(
        advice, "HAZARDS", {**advice.HAZARDS, "unfused chain": fails, "grid": fails}
    )
    monkeypatch.setattr(memory, "data", fails)


def test_a_fault_of_one_hazard_is_said_and_leaves_the_others(
    broken: None, command: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = record(tmp_path / "wrong.run", [1, -2])
    with caplog.at_level(logging.ERROR):
        text = command.text("advise", path)
    assert "The search for the hazard 'unfused chain' failed" in text
    assert "ZeroDivisionError: a fault of ours" in text and "the hazard 'grid' failed" in text
    assert "relu_of_sum moves the outputs" in text
    assert len([r for r in caplog.records if "the search for the hazard" in r.getMessage()]) == 2


def test_a_report_survives_a_view_that_fails(broken: None, tmp_path: Path) -> None:
    path = record(tmp_path / "wrong.run", [1, -2])
    made = report.write(path, tmp_path / "wrong.html")
    assert set(made.boot["messages"]) >= {"memory"}
    assert made.boot["messages"]["memory"]["what"] == "ZeroDivisionError: a fault of ours"
    assert "overview" in made.chunks and "graph/0" in made.chunks
