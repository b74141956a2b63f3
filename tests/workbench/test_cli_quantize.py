"""`workbench compile --quantize` and `numerics`: what was lost, and what stayed in floats."""

from __future__ import annotations

import pytest

from core_compiler.record import Recording
from workbench.commands.compile_model import WORST

pytest.importorskip("torch", reason="the sample models are torch modules")
MODEL = ("digits-cnn", "--width", "0.25")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    from workbench.commands.cli import main

    made = tmp_path_factory.mktemp("quantised") / "digits.run"
    assert main(["compile", *MODEL, "--quantize", "int8", "-o", str(made)]) == 0
    return made


def test_a_compile_prints_the_loss_of_the_outputs_and_the_worst_layers(command, tmp_path):
    text = command.text("compile", *MODEL, "--quantize", "int8")
    found = command.json("compile", *MODEL, "--quantize", "int8", "--integer-only")["quantised"]
    assert f"quantised: {found['ops']} results in integers, 0 ops in floats" in text
    assert f"{found['sqnr_db']:.1f} dB at the outputs" in text
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("lost most"))
    for row, line in zip(found["losses"][:WORST], lines[head + 1 :], strict=False):
        assert line.startswith(row["op"]) and row["scope"] in line and row["line"] in line
        assert f"{row['sqnr_db']:.1f}" in line
    assert lines[head + WORST + 1 :] == [] and "left in floats" not in text


def test_ops_left_in_floats_are_listed_with_reasons(command):
    words = ("llama-4l", "--width", "0.125", "--depth", "1", "--size", "sequence=8")
    text = command.text("compile", *words, "--quantize", "int8")
    found = command.json("compile", *words, "--quantize", "int8")["quantised"]["left_float"]
    assert (
        f"{len(found)} op{'s' * (len(found) != 1)} in floats" in text and "left in floats" in text
    )
    assert any(row["reason"] in text and row["line"] in text for row in found)
    assert {row["op"] for row in found} == {"core.mul"}  # the angles of positions


def test_numerics_of_a_quantised_recording_needs_no_checks(command, path):
    found = command.json("numerics", path)
    with Recording.open(path) as file:
        recorded = file.quantisation()
    assert found["quantised"]["sqnr_db"] == recorded.sqnr_db
    assert [r["sqnr_db"] for r in found["lost"]] == [v.sqnr_db for v in recorded.values]
    assert found["left_in_floats"] == []
    text = command.text("numerics", path, "--top", "2")
    assert f"{recorded.sqnr_db:.1f} dB at the outputs" in text and "lost most" in text


def test_the_view_and_the_tables_are_exported(command, path, tmp_path):
    shown = command.json("show", path, "numerics")["data"]
    assert shown["lost_total"] == len(shown["lost"]) > 3
    assert command("export", path, "-o", tmp_path / "x.csv", "--table", "quantised_values")[0] == 0
    rows = (tmp_path / "x.csv").read_text().splitlines()
    assert len(rows) == shown["lost_total"] + 1 and "sqnr_db" in rows[0]
