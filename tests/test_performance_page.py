"""`docs/performance.md`: it is what its script makes of the records, and its figures are theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.performance_page import PAGE, RESULTS, Records, page

MACHINE = {"processor": "a processor", "threads": 2, "versions": {"torch": "9.0"}, "load": 0.25}


def write(folder: Path, name: str, **rows) -> None:
    (folder / name).write_text(json.dumps({"machine": MACHINE, **rows}))


def cells(text: str, heading: str, first: str) -> list[str]:
    """The cells of the row that begins with ``first`` in a section."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    (row,) = [line for line in section.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def model(name: str, ours: float, torch: float, **more) -> dict:
    row = {"model": name, "ours_ms": ours, "peers": {"torch": torch}, "errors": {"torch": 2e-7}}
    return {**row, "ratios": {"torch": torch / ours}, **more}


def op(case: str, ours: float, torch: float, share: float = 0.5) -> dict:
    times = {"ours_us": ours, "torch_us": torch, "ratio": torch / ours, "share": share}
    return {"family": "products", "case": case, "dtype": "f32", **times}


def test_the_page_is_what_the_records_say():
    """`python benchmarks/performance_page.py` writes it anew."""
    assert PAGE.read_text() == page()


def test_every_case_far_from_its_limit_has_a_reason_on_the_page():
    found = Records().newest("ops", "ops", lambda row: "ratio" in row)
    assert found is not None
    far = [row for row in found.rows if row.get("share", 1) < 0.6]
    assert far
    assert all(row["reason"] and row["reason"] in PAGE.read_text() for row in far)


def test_a_row_has_its_figures(tmp_path):
    rows = [
        model("one", 2.0, 3.0),
        model("two", 4.0, 1.0, dtype="bf16", batch=8, ours_least_ms=3.5, peers_least={"torch": 1}),
    ]
    write(tmp_path, "models-2026-01-02.json", models=rows)
    text = page(Records(tmp_path))
    assert cells(text, "Models", "one")[1:] == ["2", "3", "", "1.50", "", "2.0e-07"]
    assert cells(text, "Models", "two, bf16, batch 8")[1:3] == ["4 (3.5)", "1 (1)"]
    assert "models-2026-01-02.json), 2026-01-02: a processor, 2\nthreads, torch 9.0, load" in text
    assert "## Training" not in text and "## GPU" not in text


def test_a_table_is_of_the_newest_record_that_has_its_rows(tmp_path):
    write(tmp_path, "models-2026-01-02.json", models=[model("old", 1.0, 1.0)])
    write(tmp_path, "models-2026-03-01.json", decode=[])
    write(tmp_path, "models-2026-02-01.json", models=[model("new", 1.0, 2.0)])
    write(tmp_path, "ui-2026-04-01.json", models=[model("other", 1.0, 1.0)])
    text = page(Records(tmp_path))
    assert cells(text, "Models", "new")[4] == "2.00" and "| old |" not in text


def test_what_is_slower_is_listed_worst_first(tmp_path):
    ops = [op("even", 1, 1), op("worst", 10, 1, 0.01), op("bad", 4, 3), op("good", 1, 5)]
    broken = {"family": "products", "case": "broken", "dtype": "f32", "error": "no"}
    write(tmp_path, "ops-2026-01-02.json", ops=[*ops, broken])
    write(tmp_path, "models-2026-01-02.json", models=[model("slow", 4.0, 1.0), model("fast", 1, 2)])
    text = page(Records(tmp_path))
    lost = text.split("## Where we lose\n")[1]
    names = [line.split("|")[1].strip() for line in lost.splitlines() if line.startswith("| ")]
    assert names == ["op", "products: worst f32", "products: bad f32", "case", "slow beside torch"]
    assert "why): broken f32." in text
    assert cells(text, "Where we lose", "products: worst f32")[1:] == ["10.0", "1.0", "0.10", "1 %"]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("models-*.json")), ids=lambda p: p.stem)
def test_ratios_of_a_record_are_those_of_its_medians(path):
    for row in json.loads(path.read_text()).get("models", ()):
        for peer, ratio in row["ratios"].items():
            assert ratio == pytest.approx(row["peers"][peer] / row["ours_ms"], rel=1e-9)
