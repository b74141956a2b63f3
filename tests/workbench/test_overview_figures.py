"""Figures of the overview that must agree with the checks beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core_compiler.debug.check import summary
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.ops import REGISTRY
from core_compiler.record.recorder import Recorder
from tests.passes.programs import inputs, program
from workbench.queries import contracts, numeric_results
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import overview


def test_a_rule_that_fails_on_special_values_only_is_not_called_exact(tmp_path, monkeypatch):
    declared = REGISTRY["core.neg"]
    changed = replace(declared, traits=declared.traits | {"never_negative_zero"})
    monkeypatch.setitem(REGISTRY, "core.neg", changed)
    module = program(lambda b, x: b.add(b.neg(x), b.scalar_like(0.0, x)), "3x4xf32")
    with Recorder(tmp_path / "wrong.run") as recorder:
        made = compilation.start(module, "cpu", Options(check=True), inputs(module))
        made.finish_and_report(recorder)
    assert summary(made.checks)["failed"] == 1
    run = Run(tmp_path / "wrong.run")
    figures = {f["label"]: f for f in overview.data((run,), ViewState())["figures"]}
    worst = figures["worst check error"]
    assert worst["bad"] and worst["hint"] == "in canonicalise, a failed check"
    run.close()


@pytest.mark.parametrize("name", ["verdict", f"{numeric_results.FRAMEWORK}_verdict"])
def test_a_comparison_that_differs_is_a_failed_check(tmp_path, name):
    """The compile or run exits with 1: its badge is not green."""
    module = program(lambda b, x: b.neg(x), "3x4xf32")
    for verdict, failed in (("within", 0), ("differs", 1)):
        path = tmp_path / f"{verdict}.run"
        with Recorder(path) as recorder:
            compilation.start(module, "cpu").finish_and_report(recorder)
            recorder.figures({name: verdict})
        run = Run(path)
        assert overview.data((run,), ViewState())["failed"] == failed
        run.close()


def test_every_recording_states_the_contract_of_its_bits(tmp_path):
    module = program(lambda b, x: b.neg(x), "3x4xf32")
    run = Run(compilation.start(module, "cpu").finish().record(tmp_path / "small.run"))
    assert contracts.version(run) == CONTRACT_VERSION
    run.close()
