"""The timeline: one execution, each launch on each thread, above the live memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.exporters.trace import describe_placement, trace
from core_compiler.ops import REGISTRY
from core_compiler.record.reader import Kernel, Timing
from core_compiler.record.timeline import Timeline, live_bytes, timeline
from workbench.queries import compared
from workbench.queries.links import follow, kernel_by_name, launches, outermost, writer_of
from workbench.queries.pairs import Launched, Pair, pairs
from workbench.queries.run import Run, Runs, shown
from workbench.queries.work import Work, has_forecasts, roofs, work
from workbench.state import glossary
from workbench.state.view_state import ViewState
from workbench.views import missing

#: The dominant kinds of work of kernels, in the order of their colours.
CATEGORIES = ("contraction", "reduction", "elementwise", "data movement")
_BY_FAMILY = {
    "contraction": 0,
    "convolution": 0,
    "attention": 0,
    "reduction": 1,
    "window": 1,
    "sorting": 1,
    "normalization": 1,
    "loss": 1,
    "shape": 3,
    "indexing": 3,
}
_ELEMENTWISE = 2
#: What precedes a time of two recordings: nothing if it was measured.
_SIGNS = ("", "≥", "≈")


def key(run: Run, state: ViewState) -> tuple:
    version = run.version
    return version.timings, version.buffers, version.kernels, version.figures, run.status


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the ``data`` of the timeline (widgets/README.md); times in microseconds."""
    made = _timeline(run)
    if made is None:
        raise missing.execution(run)
    timings = made.timings
    names = list(dict.fromkeys(t.kernel for t in timings))
    number = {name: i for i, name in enumerate(names)}
    kernels = {k.name: k for k in run.kernels()}
    numbers = kernel_by_name(run)
    locations = [_place(run, t.op) for t in timings]
    files = list(dict.fromkeys(locations))
    order = {location: i for i, location in enumerate(files)}
    floats = {"median": "median_us", "min": "min_us", "p95": "p95_us"}
    found: dict[str, Any] = {
        "title": str(run.meta().get("model", run.path.stem)),
        "target": str(run.meta().get("target", "")),
        "note": _note(run, made),
        "terms": glossary.hints("timeline"),
        "recorded": made.repeat is not None,
        "total": made.total_us,
        "lanes": list(made.lanes),
        "categories": list(CATEGORIES),
        "kernels": {
            "name": names,
            "key": [numbers.get(name, -1) for name in names],
            "category": [category(run, kernels.get(name)) for name in names],
        },
        "places": files,
        "launches": {
            "op": np.array([-1 if t.op is None else t.op for t in timings], np.int32),
            "kernel": np.array([number[t.kernel] for t in timings], np.int32),
            "place": np.array([order[location] for location in locations], np.int32),
            **{
                name: np.array([_or_nan(getattr(t, field)) for t in timings])
                for name, field in floats.items()
            },
            "flops": np.array([t.flops for t in timings], np.float64),
            "bytes": np.array([t.bytes for t in timings], np.float64),
        },
        "spans": {
            "launch": made.launch,
            "lane": made.lane,
            "start": made.start_us,
            "duration": made.duration_us,
        },
    }
    shares = [_percent(w) for w in work(run)]
    if len(shares) == len(timings) and any(share is not None for share in shares):
        found["percent"] = np.array([share or 0.0 for share in shares])
    if not made.repeats:
        found["predicted"] = True
        bounds = [each.bound_by for each in work(run)]
        if len(bounds) == len(timings) and any(bounds):
            found["bounds"] = bounds
    if made.live_bytes is not None:
        found["live"] = made.live_bytes.astype(np.float64)
    return found


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the launches that the selection is or became; for a kernel, all."""
    run = runs[0]
    made = _timeline(run)
    if made is None:
        return {}
    if state.kernel is not None:
        ops: tuple[int, ...] = next((k.launches for k in run.kernels() if k.id == state.kernel), ())
    elif state.op is not None:
        ops = _launches_of(run, state.op)
    elif state.buffer is not None:
        maker = writer_of(run, state.buffer)
        ops = () if maker is None else (maker,)
    else:
        return {}
    indices = launch_indices(run)
    return {"launches": [indices[op] for op in ops if op in indices]}


def is_known(run: Run) -> bool:
    """Return whether there is a timeline: launches were timed, or their limits are known."""
    return _timeline(run) is not None


def launch_indices(run: Run) -> dict[int | None, int]:
    """Return the index of each launch in the columns of the data."""
    made = _timeline(run)
    timings = [] if made is None else made.timings
    return run.cached(
        ("timeline places", run.version.timings), lambda: {t.op: i for i, t in enumerate(timings)}
    )


def answer(runs: Runs, state: ViewState, request: Mapping[str, Any]) -> Any:
    """Return the recording as a trace for Perfetto (``kind`` trace)."""
    run = runs[0]
    if request.get("kind") != "trace":
        raise ValueError(f"unknown request {request.get('kind')!r}")
    return trace(run.recording)


def category(run: Run, kernel: Kernel | None) -> int:
    """Return the dominant kind of work of a kernel, an index into CATEGORIES.

    It is that of its most expensive op.
    """
    if kernel is None:
        return CATEGORIES.index("data movement")  # copies by the runtime
    kinds = dict.fromkeys(run.recording.op(op).kind for op in kernel.ops)
    families = [REGISTRY[kind].family for kind in kinds if kind in REGISTRY]
    found = [_BY_FAMILY.get(family, _ELEMENTWISE) for family in families]
    return min(found, default=_ELEMENTWISE)


def _timeline(run: Run) -> Timeline | None:
    version = run.version.timings, run.version.figures, run.version.buffers
    return run.cached(("timeline", version), lambda: timeline(run.recording) or _predicted(run))


def _predicted(run: Run) -> Timeline | None:
    """Return a predicted timeline: launches in sequence, each with its predicted time."""
    if not run.version.stages:
        return None
    todo = work(run)
    known = [w.predicted_us for w in todo if w.predicted_us is not None]
    if not todo or len(known) != len(todo):
        return None
    durations, none = np.array(known), np.empty(0)
    timings = [
        Timing(i, w.kernel, w.op, 0, w.flops, w.bytes, None, None, None, none)
        for i, w in enumerate(todo)
    ]
    lanes = np.zeros(len(todo), np.int32)
    return Timeline(
        np.arange(len(todo), dtype=np.int32),
        lanes,
        np.cumsum(durations) - durations,
        durations,
        timings,
        ("predicted",),
        live_bytes(run.recording, timings),
        None,
        0,
    )


def _note(run: Run, made: Timeline) -> str:
    roof = roofs(run)
    if made.repeats or roof is None:
        return describe_placement(made)
    if has_forecasts(work(run)):
        return f"not executed: launches back to back, each as long as predicted on {roof.name}"
    return (
        "not executed: launches back to back, each as long as its flops or bytes need on "
        f"{roof.name}"
    )


def _percent(launch: Work) -> float | None:
    if launch.least_us is None or not launch.median_us:
        return None
    return 100 * launch.least_us / launch.median_us


def _launches_of(run: Run, op: int) -> tuple[int, ...]:
    """Return the launches that an op is or became."""
    if not run.version.stages:
        return ()
    known, last = launches(run), run.version.stages - 1
    found = dict.fromkeys(outermost(run, o, last) for o in follow(run, op, last))
    return tuple(o for o in found if o in known)


def _place(run: Run, op: int | None) -> str:
    if op is None:
        return ""
    file, line = run.source_location(run.recording.op(op))
    return f"{file}:{line}" if file else ""


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


# -- two recordings ------------------------------------------------------------------------------


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return ``two``: both timelines, and the launches that compute the same.

    It has the timelines ``a`` and ``b``, their ``names``, and a row for each launch of A
    (``first``, an index into its columns) with each of B (``second``); ``guessed`` if only flops,
    bytes and order agree; ``pairs``: see :func:`_pairs`.
    """
    missing.need_both(run, other, lambda each: is_known(each), "launches")
    ones, twos = (launch_indices(each) for each in (run, other))
    found = pairs(run, other)
    rows = [
        (ones[a.op], twos[b.op], pair.by_work)
        for pair in found
        for a in pair.first
        for b in pair.second
        if a.op in ones and b.op in twos
    ]
    return {
        "two": {
            "a": _one(run, state),
            "b": _one(other, state),
            "names": [run.path.name, other.path.name],
            "first": np.array([row[0] for row in rows], np.int32),
            "second": np.array([row[1] for row in rows], np.int32),
            "guessed": np.array([row[2] for row in rows], np.uint8),
            "pairs": _pairs(run, other, found),
        }
    }


def _pairs(run: Run, other: Run, found: Sequence[Pair]) -> dict[str, Any]:
    """Return the times of both for the same work, a row for each pair of Compare.

    ``title`` and ``place``; ``us`` of ``a`` and of ``b``, the medians of its launches (NaN: it has
    none), ``sign`` before them: 0 none, 1 ≥ (the least time on the machine), 2 ≈ (predicted);
    ``guessed``; and ``of_a`` and ``of_b``: the row of each launch (-1: none).
    """
    rows = [compared.launch(run, other, pair) for pair in found]

    def side(letter: str) -> dict[str, Any]:
        sides = [row[letter] for row in rows]
        return {
            "us": np.array([np.nan if e is None or e["us"] is None else e["us"] for e in sides]),
            "sign": np.array([_SIGNS.index(e["sign"]) if e else 0 for e in sides], np.uint8),
        }

    def of(each: Run, launches: Sequence[Sequence[Launched]]) -> np.ndarray:
        indices = launch_indices(each)
        belongs = np.full(len(indices), -1, np.int32)
        for row, group in enumerate(launches):
            for launch in group:
                if launch.op in indices:
                    belongs[indices[launch.op]] = row
        return belongs

    return {
        "title": [row["title"] for row in rows],
        "place": [row["place"] for row in rows],
        "a": side("a"),
        "b": side("b"),
        "guessed": np.array([pair.by_work for pair in found], np.uint8),
        "of_a": of(run, [pair.first for pair in found]),
        "of_b": of(other, [pair.second for pair in found]),
    }
