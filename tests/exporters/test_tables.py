"""Tables as CSV and Parquet, read back by readers that nobody here wrote."""

from __future__ import annotations

import csv
import math
import resource
import sqlite3
import struct
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core_compiler.exporters.tables import replacing, write
from core_compiler.record import Recording, schema
from core_compiler.record.tables import BATCH, BOOLEAN, INTEGER, REAL, TEXT, Column, Table
from core_compiler.support.errors import UserError
from tests.examples import examples

LAYOUT = (
    Column("whole", INTEGER),
    Column("number", REAL),
    Column('a,"name"', TEXT),
    Column("yes", BOOLEAN),
)
CELLS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(),
    st.none() | st.text(max_size=8) | st.sampled_from(["", '"', "\r", "\n", "=1+1", "a,b", "nan"]),
    st.none() | st.booleans(),
)
FAST = settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def made(rows) -> Table:
    return Table("made", "a row", LAYOUT, lambda: iter(rows))


def bits(value):
    """A value that equals another only where it is the same to the bit (NaN is NaN)."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


def parquet():
    return pytest.importorskip("pyarrow.parquet", reason="pyarrow (extra parquet) writes Parquet")


@FAST
@given(st.lists(CELLS, max_size=5))
def test_csv_comes_back_by_pythons_reader(tmp_path, rows):
    write(made(rows), tmp_path / "made.csv")
    with (tmp_path / "made.csv").open(encoding="utf-8", newline="") as stream:
        head, *found = csv.reader(stream, strict=True)
    assert head == [column.name for column in LAYOUT]
    for row, (whole, number, text, yes) in zip(found, rows, strict=True):
        assert row[0] == ("" if whole is None else str(whole))
        assert row[1] == "" if number is None else bits(float(row[1])) == bits(number)
        assert row[2] == (text or "")
        assert row[3] == ("" if yes is None else str(yes).lower())


@FAST
@given(st.lists(CELLS, max_size=5))
def test_csv_keeps_null_and_the_empty_text_apart(tmp_path, rows):
    arrow_csv = pytest.importorskip("pyarrow.csv", reason="pyarrow tells NULL from an empty text")
    import pyarrow

    rows = [(w, n, None if t is None else t.replace("\0", ""), y) for w, n, t, y in rows]
    write(made(rows), tmp_path / "made.csv")
    types = [pyarrow.int64(), pyarrow.float64(), pyarrow.string(), pyarrow.bool_()]
    found = arrow_csv.read_csv(
        tmp_path / "made.csv",
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict(zip((c.name for c in LAYOUT), types, strict=True)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    got = [tuple(map(bits, row.values())) for row in found.to_pylist()]
    assert got == [tuple(map(bits, row)) for row in rows]


@FAST
@given(st.lists(CELLS, max_size=5))
def test_parquet_comes_back(tmp_path, rows):
    reader = parquet()
    write(made(rows), tmp_path / "made.parquet")
    found = reader.read_table(tmp_path / "made.parquet")
    assert found.schema.names == [column.name for column in LAYOUT]
    assert [tuple(map(bits, row.values())) for row in found.to_pylist()] == [
        tuple(map(bits, row)) for row in rows
    ]


def test_lines_end_as_rfc_4180_says_and_quotes_stand_where_they_must(tmp_path):
    rows = [(1, 0.1, 'a "b", c', True), (None, math.inf, "", None), (None, None, None, False)]
    write(made(rows), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes() == (
        b'whole,number,"a,""name""",yes\r\n1,0.1,"a ""b"", c",true\r\n,inf,"",\r\n,,,false\r\n'
    )


def test_cells_that_a_spreadsheet_would_run_are_counted_and_stay_as_they_are(tmp_path):
    rows = [(-1, -2.0, text, None) for text in ("=cmd()", "+1", "-1", "@x", "\tx", "x=", "", None)]
    assert write(made(rows), tmp_path / "x.csv").formulas == 5
    with (tmp_path / "x.csv").open(newline="") as stream:
        assert [row[2] for row in csv.reader(stream)][1:3] == ["=cmd()", "+1"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_half_a_surrogate_pair_is_written_with_backslashes(tmp_path, ending):
    if ending == "parquet":
        parquet()
    write(made([(1, 1.0, "a\ud800b", None)]), tmp_path / f"x.{ending}")
    assert rb"a\ud800b" in (tmp_path / f"x.{ending}").read_bytes()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_disk_that_fills_leaves_what_was_there(tmp_path, ending):
    """The system refuses to write more than a limit, in the middle of the file."""
    if ending == "parquet":
        parquet()
    path = tmp_path / f"x.{ending}"
    path.write_text("before")
    rows = [(i, i / 7, f"{i * 7919 % 10007:x}" * 9, None) for i in range(8_000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write(made(rows), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "before"


def test_an_ending_that_stands_for_no_table_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"file extension '\.xlsx'.*\.csv or \.parquet"):
        write(made([]), tmp_path / "x.xlsx")


def test_a_draft_goes_whatever_happens(tmp_path):
    def half() -> None:
        with replacing(tmp_path / "x") as draft:
            draft.write_text("half")
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        half()
    assert not list(tmp_path.iterdir())


# -- of a recording -------------------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A recording with as many events as fill ten batches."""
    path = tmp_path / "filled.run"
    with closing(sqlite3.connect(path)) as connection:
        schema.create(connection)
        connection.execute("INSERT INTO meta VALUES ('status', '\"finished\"')")
        rows = (
            (i, i / 3, "progress", f'{{"done": {i}, "text": "{"x" * 200}"}}')
            for i in range(10 * BATCH)
        )
        connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", rows)
        figures = [
            (None, "run", "a", 1),
            (None, "run", "b", 0.1),
            (None, "run", "c", "1"),
            (None, "run", "d", None),
            (None, "run", "e", math.inf),
        ]
        connection.executemany("INSERT INTO figure VALUES (?, ?, ?, ?)", figures)
        connection.commit()
    return path


def tables_of(recording: Recording) -> dict[str, Table]:
    return {table.name: table for table in recording.tables()}


def test_a_large_table_is_never_in_memory_as_a_whole(filled, tmp_path):
    with Recording.open(filled) as recording:
        events = tables_of(recording)["event"]
        tracemalloc.start()
        try:
            assert write(events, tmp_path / "event.csv").rows == 10 * BATCH
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    size = (tmp_path / "event.csv").stat().st_size
    assert size > 4e6 > most  # a batch as rows, its texts, and the file's: not ten


def test_a_column_without_a_type_says_what_each_cell_was(filled):
    with Recording.open(filled) as recording:
        table = tables_of(recording)["figure"]
        assert [c.name for c in table.columns][-2:] == ["value", "value_type"]
        assert [row[-2:] for row in table.rows()] == [
            ("1", "integer"),
            ("0.1", "real"),
            ("1", "text"),
            (None, "null"),
            ("inf", "real"),
        ]


def test_a_cell_of_another_type_than_the_schema_says_is_damage(filled):
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("INSERT INTO value VALUES (1, 'no number', 'x')")
        connection.commit()
    with (
        Recording.open(filled) as recording,
        pytest.raises(UserError, match="damaged or was altered"),
    ):
        list(tables_of(recording)["value"].rows())


def test_every_table_of_the_schema_says_what_a_row_is():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.schema_sql())
        names = {
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
            )
        }
    from core_compiler.record.tables import WHAT

    assert names == set(WHAT)
