"""Every surface lists the same findings of a recording."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

import core_compiler as cc
from workbench.advice import advise, findings
from workbench.export import report
from workbench.export.tables import PAGE
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import numerics, overview

NONE = 15


def _roots(x, n):
    """NaN of negative numbers, and divisions by zero."""
    import jax.numpy as jnp

    return jnp.sqrt(x) * 2, n // (n - n)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("findings") / "nan.run"
    x = np.linspace(-1, 1, 2 * NONE + 1, dtype=np.float32)
    x[NONE:] = np.abs(x[NONE:])
    cc.compile(_roots, (x, np.arange(4, dtype=np.int32)), check=True).record(path)
    return path


@pytest.fixture
def run(recorded):
    opened = Run(recorded)
    yield opened
    opened.close()


def _titles(found) -> list[str]:
    return [each["title"] if isinstance(each, dict) else each.title for each in found]


def test_what_is_listed(run):
    titles = _titles(findings.listed(run))
    assert any(re.fullmatch(rf"Value %\S+ has {NONE} NaN", title) for title in titles)
    assert any(title.startswith("integer division by zero") for title in titles)
    ranks = [each.rank for each in findings.listed(run)]
    assert ranks == sorted(ranks) and findings.listed(run)[0].severity == "error"


def test_the_overview_has_it(run):
    shown = overview.data((run,), ViewState())["findings"]
    advice = overview.answer((run,), ViewState(), {"kind": "advice"})
    assert sorted(_titles([*shown, *advice])) == sorted(_titles(findings.listed(run)))
    assert _titles(findings.problems(run)) == _titles(shown)
    assert _titles(advise(run)) == _titles(advice)


def test_the_commands_have_it(run, recorded, command):
    wanted = _titles(findings.listed(run))
    assert _titles(command.json("advise", recorded)["advice"]) == wanted
    numbers = command.json("numerics", recorded)["findings"]
    assert _titles(numbers) == _titles(findings.of_numbers(run))
    assert {t for t in wanted if "NaN" in t or "zero" in t} <= {*_titles(numbers)}
    for words in (("advise", recorded), ("show", recorded, "overview")):
        text = " ".join(command.text(*words).split())
        assert all(title in text for title in wanted), words
        assert "No hazards" not in text and "no findings" not in text
    text = " ".join(command.text("numerics", recorded).split())
    assert all(title in text for title in _titles(numbers))


def test_the_tables_and_the_view_of_numerics_have_it(run):
    rows = [*PAGE["findings"].rows(run), *PAGE["advice"].rows(run)]
    assert sorted(_titles(rows)) == sorted(_titles(findings.listed(run)))
    shown = numerics.data((run,), ViewState())
    first = next(v for v in shown["values"] if v["first_bad"])
    assert first["nan"] == NONE


def test_the_report_has_it(run, recorded, tmp_path):
    made = report.write(recorded, tmp_path / "report.html")
    raw = zlib.decompress(base64.b64decode(made.chunks["overview"]), wbits=-15)
    size = int.from_bytes(raw[:4], "little")
    held = json.loads(raw[4 : 4 + size])
    assert sorted(_titles([*held["findings"], *held["advice"]])) == sorted(
        _titles(findings.listed(run))
    )


def test_nothing_is_said_of_a_recording_with_nothing(tmp_path, command):
    path = tmp_path / "well.run"
    cc.compile(lambda x: (x + 1) * 2 - x, (np.ones(4, np.float32),), check=True).record(path)
    opened = Run(path)
    assert findings.listed(opened) == []
    opened.close()
    assert command.json("advise", path)["advice"] == []
    assert command.text("advise", path) == "No hazards found in this recording.\n"


def test_a_wrong_function_of_the_contract_is_a_finding_of_the_import(tmp_path, monkeypatch):
    from core_compiler.debug import elementary

    fault = elementary.Fault(3.0, (0.5,), 1.0, 1.0 + 3 * 2.0**-23)
    monkeypatch.setattr(elementary, "wrong", lambda name, dtype: fault)
    path = tmp_path / "wrong.run"
    cc.compile(_roots, (np.ones(3, np.float32), np.ones(4, np.int32)), check=True).record(path)
    opened = Run(path)
    first = findings.listed(opened)[0]
    opened.close()
    assert first.title == "An elementary function exceeds the error bound of the contract"
    assert "is off by 3 ulps; the contract states" in first.detail and first.go["stage"] == 0
