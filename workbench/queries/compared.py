"""Comparison of two recordings: facts, passes by name, kernels by the work they do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from core_compiler.record.reader import Kernel, Stage
from workbench.queries import executions, numeric_results
from workbench.queries.kernel_table import GPU_FACTS
from workbench.queries.numeric_results import json_number
from workbench.queries.pairs import Launched, Pair, pairs
from workbench.queries.run import Run
from workbench.queries.work import roofs, sign
from workbench.support import intervals, units

#: The number of rows, slowest first, that get an interval: each is a bootstrap of a millisecond.
MAX_INTERVALS = 100


def about(run: Run) -> dict[str, Any]:
    """Return the facts that describe one of two recordings."""
    meta, found = run.meta(), roofs(run)
    return {
        "name": run.path.name,
        "path": str(run.path),
        "model": str(meta.get("model", run.path.stem)),
        "target": str(meta.get("target", "")),
        "measured": bool(run.timings()),
        "machine": "" if found is None else found.name,
        "threads": run.figures("timing").get("threads"),
        "not_executed": run.figures().get("not_executed"),
        "wrong": _wrong(run),
    }


def _wrong(run: Run) -> str:
    """Return why the values of a recording cannot be trusted; "" if nothing indicates it."""
    failed = [s for s in run.stages() if s.verdicts.get("failed")]
    if failed:
        count = sum(s.verdicts["failed"] for s in failed)
        return f"{units.counted(count, 'failed check')}, first in {failed[0].pass_name}"
    figures = run.figures()
    comparison = numeric_results.framework((), figures)
    if comparison is not None and comparison["beyond"]:
        return (
            f"the import differs from {comparison['framework']} at {comparison['beyond']['node']}"
        )
    if figures.get("verdict") == "differs":
        return f"the outputs differ from {figures.get('against', 'the peer')}"
    if executions.differing(run) is not None:
        return "two executions gave different bits"
    return "" if run.status in ("finished", "recording") else f"the run is {run.status}"


def passes(run: Run, other: Run) -> list[dict[str, Any]]:
    """Return the passes by name, in the first recording's order.

    The side that lacks a pass is None.
    """
    first, second = ({s.pass_name: s for s in each.stages()} for each in (run, other))
    names = list(first)
    for at, name in enumerate(second):  # its position in the second: after the passes before it
        if name not in first:
            before = [n for n in list(second)[:at] if n in names]
            names.insert(names.index(before[-1]) + 1 if before else 0, name)
    return [
        {"name": name, "a": _stage(first.get(name)), "b": _stage(second.get(name))}
        for name in names
    ]


def _stage(stage: Stage | None) -> dict[str, Any] | None:
    if stage is None:
        return None
    return {
        "index": stage.index,
        "ops": stage.ops,
        "rewrites": stage.rewrites,
        "ms": 1e3 * stage.seconds,
        "error": json_number(stage.worst_error),
    }


def kernels_of(run: Run, other: Run) -> dict[str, Any]:
    """Return ``kernels``, the pairs of kernels that compute the same.

    ``by_work`` and ``by_nodes`` as in `workbench.views.compare.data`.
    """
    return matched(run, other, pairs(run, other))


def matched(run: Run, other: Run, found: Sequence[Pair]) -> dict[str, Any]:
    return {
        "kernels": _kernels(run, other, found),
        "by_work": sum(pair.by_work for pair in found),
        "by_nodes": sum(bool(p.first and p.second) and not p.by_work for p in found),
    }


def _kernels(run: Run, other: Run, found: Iterable[Pair]) -> list[dict[str, Any]]:
    """Return the pairs of launches, grouped by the kernels that they launch."""
    groups: dict[tuple, list[Pair]] = {}
    for pair in found:
        names = tuple(
            tuple(sorted({e.work.kernel for e in side})) for side in (pair.first, pair.second)
        )
        groups.setdefault(names, []).append(pair)
    merged = [
        Pair(tuple(e for p in group for e in p.first), tuple(e for p in group for e in p.second))
        for group in groups.values()
    ]
    return with_intervals(run, other, [launch(run, other, each) for each in merged], merged)


def launch(run: Run, other: Run, pair: Pair) -> dict[str, Any]:
    """Return a pair of launches or kernels: title, position, and each side's figures."""
    every = pair.first or pair.second
    costliest = max(every, key=lambda e: (e.work.median_us or 0.0, e.work.predicted_us or 0.0))
    return {
        "title": costliest.title,
        "place": costliest.place,
        "op": costliest.op if pair.first else None,
        "a": _side(run, pair.first),
        "b": _side(other, pair.second),
        "speedup": None,
    }


def with_intervals(
    run: Run, other: Run, rows: list[dict[str, Any]], found: Sequence[Pair]
) -> list[dict[str, Any]]:
    """Return the rows of pairs; the slowest ones include the interval of their speedup."""
    spent = [max((row[side] or {}).get("us") or 0.0 for side in ("a", "b")) for row in rows]
    slowest = sorted(range(len(rows)), key=lambda i: -spent[i])[:MAX_INTERVALS]
    of_a, of_b = _samples(run), _samples(other)
    for i in slowest:
        a, b = (
            [samples[e.op] for e in side if e.op in samples]
            for side, samples in ((found[i].first, of_a), (found[i].second, of_b))
        )
        if a and b and len({*map(len, a)}) == len({*map(len, b)}) == 1:
            rows[i]["speedup"] = intervals.ratio(np.sum(a, axis=0), np.sum(b, axis=0))
    return rows


def _samples(run: Run) -> dict[int, np.ndarray]:
    """Return the samples of each launch by its op, in microseconds."""
    return {t.op: t.samples_us for t in run.timings() if t.op is not None}


def _side(run: Run, launches: tuple[Launched, ...]) -> dict[str, Any] | None:
    """Return the time (measured, else predicted), the rate and the resource use of the kernels."""
    if not launches:
        return None
    known = run.cached(
        ("kernels by name", run.version.kernels), lambda: {k.name: k for k in run.kernels()}
    )
    names = dict.fromkeys(e.work.kernel for e in launches)
    kernels = [known[n] for n in names if n in known]
    measured = [e.work.median_us for e in launches if e.work.median_us is not None]
    expected = [e.work.predicted_us for e in launches if e.work.predicted_us is not None]
    spent = sum(measured) if measured else None
    predicted = sum(expected) if expected else None
    us, flops = predicted if spent is None else spent, sum(e.work.flops for e in launches)
    return {
        "kernels": [{"id": k.id, "name": k.name} for k in kernels]
        or [{"id": None, "name": n} for n in names],
        "count": sum(e.work.runs for e in launches),
        "us": us,
        "measured": spent is not None,
        "sign": "" if spent is not None else sign(e.work for e in launches),
        "predicted_us": predicted,
        "gflops": flops / us / 1e3 if us else None,
        **_resource_use(kernels),
    }


def _resource_use(kernels: list[Kernel]) -> dict[str, float | None]:
    """Return the highest resource use of any of a GPU's kernels (the lowest occupancy)."""
    found: dict[str, float | None] = {}
    for fact in GPU_FACTS:
        values = [float(k.facts[fact]) for k in kernels if k.facts.get(fact) is not None]
        pick = min if fact == "occupancy" else max
        found[fact] = pick(values) if values else None
    return found
