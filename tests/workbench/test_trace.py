"""The trace that `workbench export RUN -o x.trace.json` writes: the Trace Event Format.

docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: what each phase must have.
"""

from __future__ import annotations

import json
import sqlite3
from itertools import pairwise

import pytest

from core_compiler.exporters.trace import trace
from core_compiler.record import Recording
from core_compiler.record.timeline import timeline

#: Phase -> the fields it must have beside ``ph`` and ``pid``.
PHASES = {
    "X": ("name", "cat", "ts", "dur", "tid", "args"),
    "C": ("name", "ts", "args"),
    "M": ("name", "args"),
}
METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}


@pytest.fixture(scope="module")
def exported(recording, tmp_path_factory):
    from workbench.commands.cli import main

    path = tmp_path_factory.mktemp("traces") / "x.trace.json"
    assert main(["export", str(recording), "-o", str(path)]) == 0
    return json.loads(path.read_text(), parse_constant=pytest.fail)


def test_it_is_the_json_object_format(exported):
    assert exported["displayTimeUnit"] in ("ms", "ns")
    assert exported["traceEvents"]
    for event in exported["traceEvents"]:
        assert event["ph"] in PHASES and isinstance(event["pid"], int)
        assert set(PHASES[event["ph"]]) <= event.keys()
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["args"], dict)
        for time in ("ts", "dur"):
            assert time not in event or event[time] >= 0
        if event["ph"] == "M":
            assert METADATA[event["name"]] in event["args"]
        if event["ph"] == "C":
            assert all(isinstance(n, (int, float)) for n in event["args"].values())


def test_every_launch_is_on_a_named_thread_and_none_overlap(exported, recording):
    spans = [e for e in exported["traceEvents"] if e["ph"] == "X" and e["cat"] == "kernel"]
    with Recording.open(recording) as file:
        timings = {t.launch: t for t in file.timings()}
    assert {e["args"]["launch"] for e in spans} == set(timings)
    assert all(e["name"] == timings[e["args"]["launch"]].kernel for e in spans)
    named = {(e["pid"], e["tid"]) for e in exported["traceEvents"] if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in spans} <= named
    for lane in {e["tid"] for e in spans}:
        mine = sorted((e["ts"], e["dur"]) for e in spans if e["tid"] == lane)
        for (start, duration), (after, _) in pairwise(mine):
            assert start + duration <= after + 1e-6
    assert min(e["ts"] for e in spans) == 0


def test_passes_are_a_process_of_their_own(exported, recording):
    passes = [e for e in exported["traceEvents"] if e["ph"] == "X" and e["cat"] == "pass"]
    with Recording.open(recording) as file:
        assert [e["name"] for e in passes] == [s.pass_name for s in file.stages()]
    ends = [e["ts"] + e["dur"] for e in passes]
    assert ends == sorted(ends)


def test_the_counter_is_the_memory_plan(exported, recording):
    live = [e["args"]["bytes"] for e in exported["traceEvents"] if e["ph"] == "C"]
    with Recording.open(recording) as file:
        buffers = [b for b in file.buffers() if b.kind == "temporary"]
        body = file.module(file.stage_count() - 1).main.body.ops
        positions = [i for i, op in enumerate(body) if op.kind == "target.launch"]
    wanted = [sum(b.size for b in buffers if b.start <= p <= b.end) for p in positions]
    assert sorted(live) == sorted([*wanted, 0])


def changed(recording, tmp_path, statement):
    """A copy of the recording in which ``statement`` has run."""
    path = tmp_path / "changed.run"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    return Recording.open(path)


_TIMELINE = "UPDATE figure SET value = {} WHERE name = 'timeline'"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM figure WHERE name = 'timeline'",
        _TIMELINE.format("'[1]'"),
        _TIMELINE.format("""replace(value, '"start":[0', '"start":[-5')"""),
        _TIMELINE.format("""replace(value, '"launch":[0', '"launch":[99999')"""),
    ],
)
def test_without_a_recorded_execution_launches_stand_end_to_end(recording, tmp_path, statement):
    with changed(recording, tmp_path, statement) as file:
        found = timeline(file)
        assert found.repeat is None and found.lanes == ("thread 0",)
        medians = [t.median_us for t in found.timings]
        assert found.total_us == pytest.approx(sum(medians))
        assert found.start_us[1:].tolist() == pytest.approx(
            (found.start_us + found.duration_us)[:-1]
        )
        assert "end to end" in trace(file)["otherData"]["placed"]


def test_what_was_not_executed_has_its_passes_alone(recording, tmp_path):
    with changed(recording, tmp_path, "DELETE FROM launch_time") as file:
        assert timeline(file) is None
        events = trace(file)["traceEvents"]
    assert {e["cat"] for e in events if e["ph"] == "X"} == {"pass"}


def test_a_trace_is_not_a_recording(command, recording, tmp_path):
    code, _, error = command("export", recording, "-o", tmp_path / "x.txt")
    assert code == 2 and ".run" in error
