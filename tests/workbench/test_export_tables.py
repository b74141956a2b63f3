"""`workbench export --tables`: every table, as SQL and as the page have it."""

from __future__ import annotations

import csv
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from core_compiler.record.tables import BOOLEAN, INTEGER, REAL, TEXT
from workbench.commands import export_tables

_READ = {INTEGER: int, REAL: float, TEXT: str, BOOLEAN: {"true": True, "false": False}.__getitem__}


@pytest.fixture(scope="module")
def folder(recording, tmp_path_factory) -> Path:
    from workbench.commands.cli import main

    path = tmp_path_factory.mktemp("tables") / "all"
    assert main(["export", str(recording), "-o", str(path), "--tables", "csv"]) == 0
    return path


def index_of(folder: Path) -> dict:
    return json.loads((folder / "tables.json").read_text())


def rows_of(folder: Path, name: str) -> list[dict]:
    """The rows of a table, as the index says what its columns are; no text is empty for NULL."""
    (about,) = (t for t in index_of(folder)["tables"] if t["name"] == name)
    kinds = {c["name"]: c["kind"] for c in about["columns"]}
    with (folder / about["file"]).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    assert len(rows) == about["rows"]
    return [{c: None if t == "" else _READ[kinds[c]](t) for c, t in row.items()} for row in rows]


@pytest.mark.slow
def test_every_table_and_view_has_the_rows_that_sql_has(folder, recording):
    with closing(sqlite3.connect(recording)) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
            )
        ]
        written = [t["name"] for t in index_of(folder)["tables"] if t["family"] == "schema"]
        assert sorted(names) == sorted(written)
        for name in names:
            cursor = connection.execute(f'SELECT * FROM "{name}"')
            columns = [c[0] for c in cursor.description]
            found = rows_of(folder, name)
            for row, cells in zip(found, cursor.fetchall(), strict=True):
                for column, cell in zip(columns, cells, strict=True):
                    if f"{column}_bytes" in row:
                        content = cell if isinstance(cell, bytes) else cell.encode()
                        assert row[f"{column}_bytes"] == len(content)
                    elif f"{column}_type" in row and not isinstance(cell, str):
                        assert row[column] == (None if cell is None else repr(cell))
                    else:
                        assert row[column] == (None if cell == "" else cell)


def test_tables_of_the_page_say_what_commands_say(folder, recording, command):
    kernels = {k["name"]: k for k in command.json("kernels", recording)["kernels"]}
    for row in rows_of(folder, "kernels"):
        known = kernels.pop(row["name"])
        for column, key in (("launches", "count"), ("total_us",) * 2, ("gflop_per_s", "gflops")):
            assert row[column] == pytest.approx(known[key])
    assert not kernels

    passes = command.json("passes", recording)["passes"]
    for row, known in zip(rows_of(folder, "passes"), passes, strict=True):
        assert (row["stage"], row["pass"], row["rewrites"], row["exact"], row["time_s"]) == (
            known["index"],
            known["pass"],
            known["rewrites"],
            known["exact"],
            known["seconds"],
        )
        counts = {v: row[v] for v in ("bitwise", "within", "failed", "unchecked") if row[v]}
        assert counts == {v: n for v, n in known["verdicts"].items() if n}

    numerics = command.json("numerics", recording)
    values = rows_of(folder, "values")
    assert [(v["value"], v["minimum"]) for v in values] == [
        (v["value"], v["minimum"]) for v in numerics["values"]
    ]
    checks = [r for r in rows_of(folder, "checks") if r["pass"] == numerics["pass"]]
    assert [(r["rule"], r["verdict"], r["error"]) for r in checks] == [
        (c["rule"] or None, c["verdict"], c["error"]) for c in numerics["checks"]
    ]

    lines = command.json("lines", recording, "--top", 0)
    found = {(r["file"], r["line"]): r for r in rows_of(folder, "lines")}
    assert len(found) == len(lines["lines"])
    for line in lines["lines"]:
        row = found[line["file"], line["line"]]
        assert (row["own_us"], row["with_calls_us"], row["ops_at_end"], row["text"]) == (
            line["own"]["us"],
            line["total"]["us"],
            line["now"],
            line["text"],
        )

    memory = command.json("memory", recording)
    assert sorted(
        (b["size_bytes"], b["offset_bytes"], b["first"]) for b in rows_of(folder, "buffers")
    ) == sorted((b["size"], b["offset"], b["start"]) for b in memory["buffers"])


def test_rewrites_launches_and_samples_are_all_there(folder, command, recording):
    def count(sql: str) -> int:
        return command.json("query", recording, sql)["rows"][0][0]

    assert len(rows_of(folder, "rewrites")) == count("SELECT count(*) FROM rewrite")
    assert len(rows_of(folder, "launches")) == count("SELECT count(*) FROM timing")
    bytes_of = count("SELECT sum(length(samples)) FROM timing")
    samples = rows_of(folder, "samples")
    assert len(samples) == bytes_of / 8
    assert all(row["time_us"] > 0 for row in samples)


@pytest.mark.slow
def test_two_recordings_have_tables_of_what_compare_shows(two_blocks, tmp_path, command):
    a, b = two_blocks.run, two_blocks.plain
    folder = tmp_path / "two"
    made = command.json("export", a, "-o", folder, "--tables", "csv", "--other", b)
    assert made["other"] == b.name
    names = {t["name"] for t in made["tables"] if t["family"] == "compare"}
    shown = command.json("show", a, "compare", "--other", b)["data"]
    for section in ("facts", "figures", "passes", "kernels", "launches"):
        rows = rows_of(folder, f"two_{section}")
        assert len(rows) == len(shown[section]) > 0
        names.remove(f"two_{section}")
    for row, known in zip(rows_of(folder, "two_kernels"), shown["kernels"], strict=True):
        for side in ("a", "b"):
            known_side = known[side] or {"kernels": [], "count": None, "us": None}
            listed = json.loads(row[f"{side}_kernels"] or "[]")
            assert listed == [k["name"] for k in known_side["kernels"]]
            assert row[f"{side}_launches"] == known_side["count"]
            assert row[f"{side}_time_us"] == known_side["us"]
    assert [r["name"] for r in shown["facts"]] == [r["name"] for r in rows_of(folder, "two_facts")]
    assert len(rows_of(folder, "two_buffers")) > 0
    assert names == {"two_buffers", "two_values", "two_iterations", "two_lines", "two_rewrites"}
    for name, view in (("two_lines", "source"), ("two_rewrites", "rewrites")):
        known = command.json("show", a, view, "--other", b)["data"]["rows"]
        rows = rows_of(folder, name)
        key = "text" if view == "source" else "rule"
        assert [row[key] for row in rows] == [row[key] for row in known] and known

    alone = command.json("export", a, "-o", tmp_path / "two_passes.csv", "--other", b)
    assert alone["rows"] == len(shown["passes"])
    code, _, err = command("export", a, "-o", tmp_path / "two_passes.csv")
    assert code == 2 and "two_passes needs a second recording; pass --other RUN" in err
    code, _, err = command("export", a, "-o", tmp_path / "a.run", "--other", b)
    assert code == 2 and "add --tables csv" in err


def test_values_of_two_recordings_are_beside_each_other(recording, tmp_path, command):
    """A recording beside itself: every value that has statistics, and no difference."""
    command.json("export", recording, "-o", tmp_path / "a", "--tables", "csv", "--other", recording)
    rows, values = rows_of(tmp_path / "a", "two_values"), rows_of(tmp_path / "a", "values")
    assert {(r["a_stage"], r["a_value"]) for r in rows} == {
        (v["stage"], v["value"]) for v in values
    }
    for row in rows:
        assert not row["differs"] and row["difference"] == 0.0
        for name in ("value", "type", "minimum", "maximum", "mean"):
            assert row[f"a_{name}"] == row[f"b_{name}"]


def test_one_table_is_named_by_the_option_or_by_the_file(command, recording, tmp_path):
    by_name = command.json("export", recording, "-o", tmp_path / "kernels.csv")
    other = command.json("export", recording, "-o", tmp_path / "x.CSV", "--table", "kernels")
    assert by_name["rows"] == other["rows"] > 0
    assert (tmp_path / "kernels.csv").read_bytes() == (tmp_path / "x.CSV").read_bytes()
    assert "rows" in command.text("export", recording, "-o", tmp_path / "op.csv")


def test_help_lists_both_families_with_distinct_names(command, recording):
    found = command.json("export", recording, "--table", "help")
    names = [t["name"] for family in ("page", "schema") for t in found[family]]
    assert len(names) == len(set(names)) > 40
    text = command.text("export", recording, "--table", "help")
    assert all(f" {name} " in text for name in names)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-o", "{t}/kernles.csv"), "did you mean kernels"),
        (("-o", "{t}/x.csv"), "unknown table 'x'"),
        (("-o", "{t}/none/kernels.csv"), "folder not found"),
        (("-o", "{t}/kernels.xlsx", "--table", "kernels"), "does not end in .csv"),
        (("--table", "kernels"), "missing output file"),
        (("--tables", "csv"), "missing output folder"),
        (("-o", "{t}/a", "--tables", "csv", "--table", "kernels"), "one of the two"),
        (("-o", "{t}/a", "--tables", "csv", "--stage", "1"), "all stages"),
        (("-o", "{t}/none/a", "--tables", "csv"), "folder not found"),
        (("-o", "{t}/file", "--tables", "csv"), "not a folder"),
        (("-o", "{t}/mine", "--tables", "csv"), "other files (notes.txt)"),
        (("-o", "{t}/a", "--tables", "xlsx"), "invalid choice"),
        ((), "missing output file"),
    ],
)
def test_mistakes_are_told_before_any_work(command, recording, tmp_path, words, says):
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    before = sorted(p.name for p in tmp_path.rglob("*"))
    code, out, err = command("export", recording, *(w.format(t=tmp_path) for w in words))
    assert (code, out) == (2, "")
    assert says in err
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_without_pyarrow_the_remedy_is_named(command, recording, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = command("export", recording, "-o", tmp_path / "kernels.parquet")
    assert code == 3
    assert "compiler-workbench[parquet]" in err
    assert not list(tmp_path.iterdir())


class Few:
    """Stands for all tables: what is tested is the folder."""

    def __init__(self, tables):
        self.tables = tables

    def __call__(self, run, other=None):
        return {family: members[:1] for family, members in self.tables(run, other).items()}


@pytest.fixture
def few(monkeypatch):
    from workbench.export import tables

    monkeypatch.setattr(tables, "tables", Few(tables.tables))


def test_a_folder_of_ours_is_replaced_and_nothing_else(command, recording, tmp_path, few):
    out = tmp_path / "all"
    command.json("export", recording, "-o", out, "--tables", "csv")
    (out / "page" / "figures.csv").write_text("edited")
    command.json("export", recording, "-o", out, "--tables", "csv")
    assert (out / "page" / "figures.csv").read_text().startswith("label,")
    (out / "page" / "mine.csv").write_text("mine")
    code, _, err = command("export", recording, "-o", out, "--tables", "csv")
    assert code == 2
    assert "page/mine.csv" in err
    assert (out / "page" / "mine.csv").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["all"]


def test_an_export_that_fails_leaves_the_folder_that_was(
    command, recording, tmp_path, few, monkeypatch
):
    out = tmp_path / "all"
    command.json("export", recording, "-o", out, "--tables", "csv")
    before = {p: p.read_bytes() for p in out.rglob("*.*")}

    def full(*_):
        raise OSError(28, "No space left on device", str(out))

    monkeypatch.setattr(export_tables, "_written", full)
    code, _, err = command("export", recording, "-o", out, "--tables", "csv")
    assert code == 3
    assert "No space left" in err
    assert {p: p.read_bytes() for p in out.rglob("*.*")} == before
    assert [p.name for p in tmp_path.iterdir()] == ["all"]
