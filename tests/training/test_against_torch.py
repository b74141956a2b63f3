"""``workbench train --against torch`` and ``--check``: losses, gradients and parameters beside
torch's, and what is said where one is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from core_compiler.debug.against_torch import _row
from core_compiler.training.optimisers.optimizers import SGD
from tests.debug.gradient_events import FAULTS, planted
from workbench.commands.cli import main

HERE = "tests.training.torch_tasks"


def train(capsys, name: str, *words: str) -> tuple[int, dict]:
    words = ("train", f"{HERE}:{name}", "--threads", "1", "--batch", "8", *words)
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def against(capsys, name: str, *words: str) -> tuple[int, dict]:
    return train(capsys, name, "--against", "torch", "--iterations", "3", *words)


def test_a_right_step_is_within_torchs_own_spread(capsys):
    code, found = against(capsys, "linear", "--optimizer", "adamw", "--clip-norm", "0.5")
    assert (code, found["verdict"]) == (0, "within")
    assert found["compared"] == {"loss": 3, "gradient": 4, "parameter": 4}
    assert {row["name"] for row in found["rows"] if row["kind"] == "gradient"} == {
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    }
    assert all(row["error"] <= row["allowed"] < 1e-4 for row in found["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "rmsprop", "lion"])
def test_tied_and_frozen_parameters_and_buffers_are_compared(optimizer, capsys):
    code, found = against(
        capsys,
        "tied",
        "--optimizer",
        optimizer,
        "--freeze",
        "head.bias",
        "--schedule",
        "cosine:iterations=5",
    )
    assert code == 0, found["first"]
    assert found["compared"]["buffer"] == 3  # mean, variance, the count of batches
    names = {row["name"] for row in found["rows"] if row["kind"] == "gradient"}
    assert "head.bias" not in names and "first.weight" in names


def test_what_overflows_in_torch_excuses_no_other_element():
    def row(ours):
        return _row("parameter", "w", np.array([1e39, 2.0]), [np.float32([np.inf, 2.0])], ours)

    assert row(np.float32([np.inf, 2.0])).verdict == "equal"
    assert row(np.float32([np.inf, 2.0 + 2.0**-22])).verdict == "within"
    assert row(np.float32([np.inf, 2.5])).verdict == "differs"
    assert row(np.float32([np.nan, 2.0])).verdict == "differs"


def test_what_is_0_in_f64_or_beside_a_large_gradient_excuses_nothing():
    def row(truth, theirs, ours, largest=1e9):
        return _row(
            "gradient", "b", np.float64(truth), [np.float32(theirs)], np.float32(ours), largest
        )

    assert row([0.25, 1], [0.25, 1], [-0.25, -1]).verdict == "differs"
    assert row([1e-16, 0], [1e-9, 0], [-3e-9, 0], 1.0).verdict == "within"
    assert row([0, 0], [1e-9, 0], [0.5, 0], 1.0).verdict == "differs"
    assert row([0, 0], [0, 0], [3e-9, 0], 1.0).verdict == "within"


def test_where_narrow_floats_decide_nothing_is_said():
    """Torch's run in f64 rounds to them too; what is far off differs all the same."""
    bf16, truth = 2.0**-7, np.array([1.0, 2.0])
    near, far = np.float32([1.0, 2.01]), np.float32([1.0, 2.5])
    there = [truth.astype(np.float32)]
    assert _row("gradient", "w", truth, there, near, 0.0, bf16).verdict == "not_compared"
    assert _row("gradient", "w", truth, there, near).verdict == "differs"
    assert _row("gradient", "w", truth, there, far, 0.0, bf16).verdict == "differs"


def test_parameters_that_no_narrow_floats_are_made_of_are_compared(capsys):
    code, found = against(capsys, "narrow", "--iterations", "1")
    assert code == 0
    verdicts = {row["name"]: row["verdict"] for row in found["rows"] if row["kind"] == "gradient"}
    assert verdicts["wide.weight"] in ("equal", "within")


def test_where_torch_itself_goes_elsewhere_nothing_is_compared():
    truth, there = np.float64([1.0, 2.0]), np.float32([1.5, 2.0])
    ours = np.float32([1.0, 2.5])
    assert _row("loss", "7", truth, [there], ours).verdict == "not_compared"
    # Runs of torch from an ulp beside say how far rounding goes, where one does not.
    near, ours = np.float32([1.0, 2.0]), np.float32([1.0, 2.01])
    assert _row("loss", "7", truth, [near], ours).verdict == "differs"
    assert _row("loss", "7", truth, [near, np.float32([1.0, 2.012])], ours).verdict == "within"


def test_a_parameter_without_our_gradient_is_one_that_torch_trains(capsys):
    with planted("core.layer_norm", FAULTS["dropped"], place=2):
        code, found = against(capsys, "normal")
    assert (code, found["verdict"]) == (1, "differs")
    assert (found["first"]["kind"], found["first"]["name"]) == ("gradient", "1.bias")


def test_a_step_that_begins_with_other_weights_differs_at_the_start(capsys, monkeypatch):
    from core_compiler.training.graph import joint

    right = joint.build_joint

    def other(*arguments, **named):
        made = right(*arguments, **named)
        return replace(
            made,
            state=tuple(
                np.ascontiguousarray(a[..., ::-1]) if a.ndim == 2 else a for a in made.state
            ),
        )

    monkeypatch.setattr("core_compiler.driver.session.build_joint", other)
    code, found = against(capsys, "linear")
    assert (code, found["verdict"]) == (1, "differs")
    assert (found["first"]["kind"], found["first"]["name"]) == ("start", "0.weight")


@pytest.mark.slow
def test_a_parameter_that_only_rounding_moves_is_within(capsys):
    code, found = against(capsys, "centred", "--iterations", "1", "--rate", "0.1")
    assert code == 0, found["first"]
    still = [
        row
        for row in found["rows"]
        if row["kind"] == "parameter" and "parts" in row["name"] and "bias" in row["name"]
    ]
    assert len(still) == 10 and all(row["verdict"] != "differs" for row in still)


def test_a_wrong_gradient_differs_and_is_named_with_the_models_line(capsys):
    with planted("core.gelu", FAULTS["factor"]):
        code, found = against(capsys, "linear")
    assert (code, found["verdict"]) == (1, "differs")
    first = found["first"]
    assert (first["kind"], first["name"]) == ("gradient", "0.weight")
    assert first["got"] == pytest.approx(2 * first["want"], rel=1e-5)
    assert first["line"]


def test_a_wrong_update_differs_after_the_gradients(capsys, monkeypatch):
    right = SGD.update
    monkeypatch.setattr(SGD, "update", lambda o, p, g, s, n: right(o, p, g * 1.01, s, n))
    code, found = against(capsys, "linear", "--rate", "0.5")
    assert (code, found["verdict"]) == (1, "differs")
    assert all(row["verdict"] != "differs" for row in found["rows"] if row["kind"] == "gradient")
    assert found["first"]["kind"] in ("loss", "parameter")


def test_dropout_is_turned_off_and_its_op_is_compared_alone(capsys, monkeypatch):
    from core_compiler.frontends.pytorch.aten import table

    code, found = against(capsys, "dropout")
    assert code == 0
    assert found["notes"] == ["dropout is off: torch draws different masks"]
    right = table.TABLE["dropout"]
    monkeypatch.setitem(
        table.TABLE,
        "dropout",
        lambda b, x, p, train: b.mul(made := right(b, x, p, train), b.scalar_like(1 - p, made)),
    )
    code, found = against(capsys, "dropout")
    assert (code, found["verdict"]) == (1, "differs")
    assert "an element that both keep" in found["beyond"]["note"]


def test_a_checked_step_is_asked_for_what_it_carries_on(capsys, monkeypatch):
    from core_compiler.training.run.step import TrainingStep

    right = TrainingStep.__call__

    def forgets(step, *batch):
        before = [np.array(a) for a in step.state]
        loss = right(step, *batch)
        step.state[-1] = before[-1]
        return loss

    monkeypatch.setattr(TrainingStep, "__call__", forgets)
    code, found = train(capsys, "linear", "--check", "--iterations", "2", "--optimizer", "adam")
    assert code == 1
    (failure,) = found["failures"]
    assert failure["pass"] == "training step" and "differs from what the program" in failure["note"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("onnx", (), "the model is not a torch module"),
        ("linear", ("--precision", "bf16"), "stores values in bf16"),
        ("noise", (), "draws random numbers"),
    ],
)
def test_where_nothing_can_be_compared_the_exit_code_is_3(name, words, said, capsys):
    words = ("train", f"{HERE}:{name}", "--against", "torch", "--batch", "8", *words)
    assert main([*words]) == 3
    told = capsys.readouterr().err
    assert "nothing compared" in told and said in told


def test_a_run_that_is_kept_is_not_compared(capsys, tmp_path):
    words = ["train", f"{HERE}:linear", "--against", "torch", "--folder", str(tmp_path / "a")]
    assert main(words) == 2
    assert "--folder cannot be used with --against" in capsys.readouterr().err


# -- checks ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_checked_step_trains_and_says_what_was_checked(capsys):
    code, found = train(capsys, "linear", "--check", "--iterations", "2", "--optimizer", "adam")
    assert code == 0 and not found["failures"] and len(found["loss"]) == 2
    assert found["checks"]["failed"] == 0 and found["checks"]["within"] > 8


@pytest.mark.slow
def test_a_wrong_rule_is_a_failure_with_pass_op_line_and_values(capsys, tmp_path):
    path = tmp_path / "wrong.run"
    with planted("core.gelu", FAULTS["sign"]):
        code, found = train(capsys, "linear", "--check", "-o", str(path))
    assert code == 1 and found["checks"]["failed"] == 1 and not found["loss"]
    (row,) = found["failures"]
    assert (row["pass"], row["rule"]) == ("differentiate", "gradient of core.gelu")
    assert "core.gelu" in row["op"] and row["line"] and row["element"]
    assert row["got"] == pytest.approx(-row["want"], rel=1e-5)
    assert path.exists() and found["recording"] == str(path)


def test_nodes_of_a_step_are_compared_on_adversarial_values_too(capsys, monkeypatch):
    """A wrong translation whose losses and gradients on the batch are right."""
    from core_compiler.frontends.pytorch.aten import table

    right = table.TABLE["relu"]
    monkeypatch.setitem(
        table.TABLE, "relu", lambda b, x: b.min(right(b, x), b.scalar_like(1e30, x))
    )
    code, found = against(capsys, "tied", "--check")
    assert (code, found["verdict"]) == (1, "differs")
    assert all(row["verdict"] != "differs" for row in found["rows"])
    assert [row["pass"] for row in found["failures"]] == ["import"]
    assert "relu" in found["failures"][0]["rule"] and found["failures"][0]["line"]


def test_nodes_that_torch_cannot_run_by_themselves_are_a_note(capsys, monkeypatch):
    import torch

    from core_compiler.debug import framework

    def fails(*given):
        return torch.nn.Linear(2, 2)(torch.zeros(3))

    monkeypatch.setattr(framework, "compare", fails)
    code, found = against(capsys, "linear")
    assert code == 0 and found["beyond"] is None
    assert any(
        note.startswith("nodes are not compared: torch cannot run") for note in found["notes"]
    )


@pytest.mark.slow
def test_a_translation_that_torch_stands_in_for_fails_the_check(capsys, monkeypatch):
    """The numbers are right; ``train --check`` and the pytest fixtures' check say no all the same,
    as ``compile --check`` and ``bisect`` do."""
    import core_compiler as cc
    from core_compiler.frontends.pytorch.aten import table
    from tests.training import torch_tasks
    from workbench.testing import check_passes

    monkeypatch.setitem(table.TABLE, "gelu", lambda b, x, **more: b.reduce_sum(x, axes=(1,)))
    code, found = train(capsys, "linear", "--check")
    assert code == 1 and found["checks"]["failed"] == 1 and not found["loss"]
    (row,) = found["failures"]
    assert (row["pass"], row["rule"]) == ("import", "translation")
    assert "aten.gelu.default" in row["note"] and row["line"] and row["op"]
    model, (rows, _) = torch_tasks.linear()
    made = cc.compile(model, [rows[:8]], check=True)
    with pytest.raises(AssertionError, match=r"stage 0 import: failed: .*aten\.gelu"):
        check_passes(made)
