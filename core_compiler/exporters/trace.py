"""Recordings as traces for Perfetto (ui.perfetto.dev) and Chrome (about:tracing).

The format is the Trace Event Format's JSON object: complete events (``ph`` X), counters (C) and
names (M); ``ts`` and ``dur`` are microseconds.  Process 1 is the execution, with a track per thread
or stream and the live bytes as a counter; process 2 is the compilation, with a span per pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_compiler.ir import Op
from core_compiler.record import Recording
from core_compiler.record.timeline import Timeline, timeline

EXECUTION, COMPILE = 1, 2


def trace(recording: Recording) -> dict[str, Any]:
    """Return the trace as JSON-able data; without an execution it only contains the passes."""
    execution = timeline(recording)
    events = list(_passes(recording))
    if execution is not None:
        events = [*_execution(recording, execution), *events]
    meta = recording.meta()
    facts = ("model", "frontend", "target", "mode", "workbench", "contract")
    other = {name: str(meta[name]) for name in facts if name in meta}
    if execution is not None:
        other["placed"] = describe_placement(execution)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def describe_placement(execution: Timeline) -> str:
    """Return how the positions of the spans were determined."""
    if execution.repeat is None:
        return (
            "launches placed end to end, each with its median: no complete execution was recorded"
        )
    text = f"execution {execution.repeat + 1} of {execution.repeats}, the one nearest the median"
    return f"{text}; of loops only the last iteration" if execution.last_iterations else text


def _execution(recording: Recording, execution: Timeline) -> Iterator[dict[str, Any]]:
    target = str(recording.meta().get("target", ""))
    yield _name("process_name", f"execution on {target}", EXECUTION)
    yield {**_name("process_sort_index", "", EXECUTION), "args": {"sort_index": 0}}
    for lane, name in enumerate(execution.lanes):
        yield _name("thread_name", name, EXECUTION, lane)
    arguments = [_arguments(recording, t) for t in execution.timings]
    for launch, lane, start, duration in zip(
        execution.launch.tolist(),
        execution.lane.tolist(),
        execution.start_us.tolist(),
        execution.duration_us.tolist(),
        strict=True,
    ):
        yield {
            "name": execution.timings[launch].kernel,
            "cat": "kernel",
            "ph": "X",
            "ts": start,
            "dur": duration,
            "pid": EXECUTION,
            "tid": lane,
            "args": arguments[launch],
        }
    yield from _live(execution)


def _arguments(recording: Recording, timing) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "launch": timing.launch,
        "flops": timing.flops,
        "bytes": timing.bytes,
        "median_us": timing.median_us,
        "min_us": timing.min_us,
        "p95_us": timing.p95_us,
    }
    if timing.op is not None:
        fields["op"] = timing.op
        place = _place(recording.op(timing.op))
        if place:
            fields["model_line"] = place
    return fields


def _place(op: Op) -> str:
    nodes = () if op.origin is None else op.origin.nodes()
    return next((f"{n.file}:{n.line}" for n in nodes if n.file), "")


def _live(execution: Timeline) -> Iterator[dict[str, Any]]:
    """Yield the live bytes from each launch's first start on, ending with zero."""
    if execution.live_bytes is None:
        return
    seen: set[int] = set()
    for launch, start in zip(execution.launch.tolist(), execution.start_us.tolist(), strict=True):
        if launch not in seen:
            seen.add(launch)
            yield _counter(start, int(execution.live_bytes[launch]))
    yield _counter(execution.total_us, 0)


def _counter(at: float, live: int) -> dict[str, Any]:
    return {"name": "live bytes", "ph": "C", "ts": at, "pid": EXECUTION, "args": {"bytes": live}}


def _passes(recording: Recording) -> Iterator[dict[str, Any]]:
    yield _name("process_name", "compile", COMPILE)
    yield {**_name("process_sort_index", "", COMPILE), "args": {"sort_index": 1}}
    yield _name("thread_name", "passes", COMPILE, 0)
    ended = dict(recording.query("SELECT id, ended FROM stage").rows)
    for stage in recording.stages():
        seconds = min(stage.seconds, ended[stage.index])
        yield {
            "name": stage.pass_name,
            "cat": "pass",
            "ph": "X",
            "pid": COMPILE,
            "tid": 0,
            "ts": (ended[stage.index] - seconds) * 1e6,
            "dur": seconds * 1e6,
            "args": {
                "stage": stage.index,
                "rewrites": stage.rewrites,
                "ops": stage.ops,
                "half": stage.half,
            },
        }


def _name(what: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
