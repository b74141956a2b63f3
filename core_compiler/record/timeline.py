"""An execution on one time axis: each launch on each thread, and the memory live meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.record.reader import Buffer, Recording, Timing

_COLUMNS = ("launch", "thread", "start", "duration")


@dataclass(frozen=True, eq=False)
class Timeline:
    """The spans of an execution, ordered by start.

    ``launch``, ``lane``    ``int32[spans]``: an index into ``timings``, and into ``lanes``.
    ``start_us``, ``duration_us``  ``float64[spans]``: microseconds since the first launch began.
    ``timings``             the launches in program order.
    ``lanes``               names: threads of a processor, or a GPU's stream.
    ``live_bytes``          ``int64[launches]``: temporary memory live at each launch; None without
                            a memory plan.
    ``repeat``, ``repeats`` which execution of how many it is; None: none was recorded span by span,
                            so the launches are drawn end to end, each with its median.
    ``last_iterations``     of loops only the last iteration is included, as there are too many.
    """

    launch: np.ndarray
    lane: np.ndarray
    start_us: np.ndarray
    duration_us: np.ndarray
    timings: Sequence[Timing]
    lanes: tuple[str, ...]
    live_bytes: np.ndarray | None
    repeat: int | None
    repeats: int
    last_iterations: bool = False

    @property
    def total_us(self) -> float:
        """The time from the first start to the last end."""
        return float(np.max(self.start_us + self.duration_us, initial=0.0))


def timeline(recording: Recording) -> Timeline | None:
    """Return the timeline of a recording, or None if nothing was executed."""
    timings = sorted(recording.timings(), key=lambda t: t.launch)
    if not any(t.median_us is not None for t in timings):
        return None
    gpu = recording.meta().get("target") == "cuda"
    spans = _recorded(recording.figures("timing").get("timeline"), len(timings))
    if spans is None:
        spans = _end_to_end(timings)
    order = np.argsort(spans["start"], kind="stable")
    lane = spans["thread"][order].astype(np.int32)
    count = int(lane.max(initial=0)) + 1
    names = ("stream",) if gpu and count == 1 else tuple(f"thread {i}" for i in range(count))
    return Timeline(
        spans["launch"][order].astype(np.int32),
        lane,
        spans["start"][order],
        spans["duration"][order],
        timings,
        names,
        live_bytes(recording, timings),
        spans["repeat"],
        spans["repeats"],
        bool(spans.get("last_iterations")),
    )


def _recorded(text: Any, launches: int) -> dict[str, Any] | None:
    """Return the recorded spans in microseconds, or None if there are no valid ones."""
    try:
        found = json.loads(str(text or "{}"))
        columns = {name: np.asarray(found[name], np.int64) for name in _COLUMNS}
        repeat, repeats = int(found["repeat"]), int(found["repeats"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    shapes = {column.shape for column in columns.values()}
    if len(shapes) != 1 or columns["launch"].ndim != 1 or not columns["launch"].size:
        return None
    if min(int(c.min()) for c in columns.values()) < 0 or columns["launch"].max() >= launches:
        return None
    if columns["thread"].max() > 1 << 16:
        return None
    times = {name: columns[name] / 1e3 for name in ("start", "duration")}
    return {
        **columns,
        **times,
        "repeat": repeat,
        "repeats": repeats,
        "last_iterations": found.get("last_iterations") is True,
    }


def _end_to_end(timings: Sequence[Timing]) -> dict[str, Any]:
    durations = np.array([t.median_us or 0.0 for t in timings])
    samples = max((t.samples_us.size for t in timings), default=0)
    return {
        "launch": np.arange(len(timings)),
        "thread": np.zeros(len(timings), np.int64),
        "start": np.cumsum(durations) - durations,
        "duration": durations,
        "repeat": None,
        "repeats": samples,
    }


def live_bytes(recording: Recording, timings: Sequence[Timing]) -> np.ndarray | None:
    """Return the bytes of temporaries live at each launch, by the memory plan."""
    buffers = [b for b in recording.buffers() if b.kind == "temporary"]
    if not buffers or not recording.stage_count():
        return None
    body = recording.module(recording.stage_count() - 1).main.body.ops
    position_of: Mapping[int | None, int] = {
        recording.op_id(op): position for position, op in enumerate(body)
    }
    curve = live_curve(buffers, len(body))
    return np.array(
        [curve[position_of[t.op]] if t.op in position_of else 0 for t in timings], np.int64
    )


def live_curve(buffers: Sequence[Buffer], positions: int) -> np.ndarray:
    """Return ``int64[positions]``: the bytes of ``buffers`` live at each program position."""
    change = np.zeros(positions + 1, np.int64)
    for buffer in buffers:
        if 0 <= buffer.start <= buffer.end < positions:
            change[buffer.start] += buffer.size
            change[buffer.end + 1] -= buffer.size
    return np.cumsum(change[:-1])
