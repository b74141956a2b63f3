"""Two recordings side by side: figures, passes, kernels by what they compute, memory, numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from core_compiler.errors import UserError
from core_compiler.record.reader import Kernel, Stage
from workbench.model import edits
from workbench.queries import contracts, executions, numeric_results
from workbench.queries.kernel_table import GPU_FACTS
from workbench.queries.links import linked
from workbench.queries.numeric_results import said
from workbench.queries.pairs import Launched, Pair, launched, pairs
from workbench.queries.run import Run
from workbench.queries.work import roofs
from workbench.state.glossary import GLOSSARY
from workbench.state.view_state import Sight
from workbench.support import intervals

#: Pairs of launches beyond this many are counted, not listed.
MAX_PAIRS = 2_000
#: How many rows, the slowest, have an interval: each is a bootstrap of a millisecond.
MAX_INTERVALS = 100


def key(run: Run, sight: Sight, other: Run | None) -> tuple:
    return run.version, run.status, None if other is None else (other.version, other.status)


def data(run: Run, sight: Sight, other: Run | None) -> dict[str, Any]:
    """``a`` and ``b``: the two recordings; sections of rows with a value for each: ``facts``
    (texts; ``why`` says that one is not compared), ``figures``, ``passes``, ``kernels`` (pairs of
    kernels), ``launches`` (pairs of launches); ``by_work``: how many of these pairs only their work
    tells, ``by_nodes``: how many the framework's nodes.  Without a second recording there is only
    ``a``."""
    if other is None:
        return {"a": about(run), "b": None}
    found = pairs(run, other)
    return {
        "a": about(run), "b": about(other),
        "facts": _facts(run, other),
        "figures": _figures(run, other),
        "passes": passes(run, other),
        "launches": _with_intervals(
            run, other, [launch(run, other, pair) for pair in found[:MAX_PAIRS]], found[:MAX_PAIRS]
        ),
        "more_launches": max(0, len(found) - MAX_PAIRS),
        **_matched(run, other, found),
    }  # fmt: skip


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    found = linked(run, sight)
    return {} if found.kernel is None else {"kernel": found.kernel}


def about(run: Run) -> dict[str, Any]:
    """What one of two recordings is."""
    meta, found = run.meta(), roofs(run)
    return {
        "name": run.path.name, "path": str(run.path),
        "model": str(meta.get("model", run.path.stem)), "target": str(meta.get("target", "")),
        "measured": bool(run.timings()), "machine": "" if found is None else found.name,
        "threads": run.figures("timing").get("threads"),
        "not_executed": run.figures().get("not_executed"), "wrong": _wrong(run),
    }  # fmt: skip


def _wrong(run: Run) -> str:
    """Why the numbers of a recording are not to be trusted; "" where nothing says so."""
    failed = [s for s in run.stages() if s.verdicts.get("failed")]
    if failed:
        count = sum(s.verdicts["failed"] for s in failed)
        return f"{count} failed check{'' if count == 1 else 's'}, first in {failed[0].pass_name}"
    figures = run.figures()
    told = numeric_results.framework((), figures)
    if told is not None and told["beyond"]:
        return f"the import differs from {told['framework']} at {told['beyond']['node']}"
    if figures.get("verdict") == "differs":
        return f"the outputs differ from {figures.get('against', 'the peer')}"
    if executions.differing(run) is not None:
        return "two executions gave different bits"
    return "" if run.status in ("finished", "recording") else f"the run is {run.status}"


# -- texts ----------------------------------------------------------------------------------------


def _facts(run: Run, other: Run) -> list[dict[str, Any]]:
    """What the two are, and whether it is the same; versions only where they differ."""
    rows: list[dict[str, Any]] = []

    def row(name: str, hint: str, read: Callable[[Run], Any]) -> None:
        a, b = str(read(run) or ""), str(read(other) or "")
        if a or b:
            rows.append({"name": name, "hint": hint, "a": a, "b": b, "equal": a == b, "why": ""})

    def meta(name: str) -> Callable[[Run], Any]:
        return lambda each: each.meta().get(name)

    row("model", "", meta("model"))
    row("target", "", meta("target"))
    row("machine", "what was compiled for", lambda each: each.figures().get("machine_summary"))
    row("frontend", "", meta("frontend"))
    row("sizes", "", lambda each: _listed(each.meta().get("sizes")))
    row("pipeline", "edits of the default pipeline", lambda each: _edited(each.meta()))
    row("checks", "verdicts of all checks", _checks)
    row("numerics contract", "the version under which the bits were made", contracts.version)
    bits = len(rows)
    row("identity", "hash of everything that determines the result",
        lambda each: each.figures().get("identity"))  # fmt: skip
    row("output digest", "the bits of the outputs on the example inputs",
        lambda each: each.figures().get("digest"))  # fmt: skip
    for each in rows[bits:]:
        each["why"] = contracts.refusal(run, other)
    for each in rows:
        if each["name"] == "checks":
            each["bad"] = ["failed" in each["a"], "failed" in each["b"]]
    a, b = (each.meta().get("versions") or {} for each in (run, other))
    rows += [
        {"name": name, "hint": "its version", "a": str(a.get(name) or ""),
         "b": str(b.get(name) or ""), "equal": False, "why": ""}
        for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name)
    ]  # fmt: skip
    return rows


def _listed(found: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in found.items()) if isinstance(found, Mapping) else ""


def _edited(meta: Mapping[str, Any]) -> str:
    """The edits of the pipeline and the target's options in words; "" for the pipeline as it is."""
    try:
        edit, target = edits.checked(meta.get("edit")), meta.get("target_options") or {}
    except UserError:  # of a recording that is not ours
        return "edited in a way that this version does not know"
    return edits.words(edit, target if isinstance(target, Mapping) else {})


def _checks(run: Run) -> str:
    counts: Counter[str] = Counter()
    for stage in run.stages():
        counts.update(stage.verdicts)
    return ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in numeric_results.ORDER if counts[verdict]
    )


# -- figures --------------------------------------------------------------------------------------

Read = Callable[[Run], Any]


def _of(section: str, name: str) -> Read:
    return lambda run: run.figures(section).get(name)


def _stages(figure: str, at: int) -> Read:
    """A figure of a stage, counted among those that have something of it."""

    def read(run: Run) -> Any:
        found = [s.figures[figure] for s in run.stages() if s.figures.get(figure)]
        return found[at] if found else None

    return read


def _predicted(run: Run) -> float | None:
    known = [w.work.least_us for w in launched(run) if w.work.least_us is not None]
    return sum(known) / 1e3 if known else None


def _worst(run: Run) -> float | None:
    found = [s.worst_error for s in run.stages() if s.worst_error is not None]
    return max(found, default=None)


def _accumulated(run: Run) -> float | None:
    found = [v for n, v in run.figures().items() if n.startswith("accumulated_error/")]
    return found[-1] if found else None


def _verdicts(verdict: str) -> Read:
    def count(run: Run) -> int | None:
        checked = [s.verdicts for s in run.stages() if s.verdicts]
        return sum(v.get(verdict, 0) for v in checked) if checked else None

    return count


#: Figures of which more is better, and those of which neither more nor less is: of all others less.
_MORE = frozenset({"checks that kept every bit"})
_NEITHER = frozenset({
    "launches", "kernels", "ops imported", "ops at the end", "arithmetic", "rewrites", "inputs",
    "outputs", "checks within tolerance", "unchecked rewrites", "lower bound",
})  # fmt: skip
#: Section, name (`workbench.state.glossary` has the unit and what it is), how it is read.
_FIGURES: tuple[tuple[str, str, Read], ...] = (
    ("speed", "time per execution", _of("timing", "total_ms")),
    ("speed", "fastest execution", _of("timing", "total_min_ms")),
    ("speed", "predicted time", _predicted),
    ("speed", "launches", lambda run: sum(e.work.runs for e in launched(run)) or None),
    ("speed", "kernels", lambda run: sum(1 for k in run.kernels() if k.launches) or None),
    ("speed", "compile time", _of("run", "compile_seconds")),
    ("memory", "peak memory", _of("memory", "arena_bytes")),
    ("memory", "lower bound", _of("memory", "lower_bound_bytes")),
    ("memory", "weights", _of("memory", "weight_bytes")),
    ("memory", "inputs", _of("memory", "input_bytes")),
    ("memory", "outputs", _of("memory", "output_bytes")),
    ("work", "ops imported", _stages("ops", 0)),
    ("work", "ops at the end", _stages("ops", -1)),
    ("work", "arithmetic", _stages("flops", -1)),
    ("work", "rewrites", lambda run: sum(s.rewrites for s in run.stages())),
    ("numbers", "worst check error", _worst),
    ("numbers", "end-to-end error", _accumulated),
    ("numbers", "checks that kept every bit", _verdicts("bitwise")),
    ("numbers", "checks within tolerance", _verdicts("within")),
    ("numbers", "failed checks", _verdicts("failed")),
    ("numbers", "unchecked rewrites", _verdicts("unchecked")),
)  # fmt: skip


def _figures(run: Run, other: Run) -> list[dict[str, Any]]:
    rows = []
    for section, name, read in _FIGURES:
        a, b = _number(read(run)), _number(read(other))
        if a is not None or b is not None:
            term = GLOSSARY["compare"][name]
            better = "more" if name in _MORE else "" if name in _NEITHER else "less"
            rows.append({"section": section, "name": name, "unit": term.unit, "hint": term.hint,
                         "a": a, "b": b, "better": better})  # fmt: skip
            if name == "time per execution":
                rows[-1] |= _of_executions(run, other)
    return rows


def _of_executions(run: Run, other: Run) -> dict[str, Any]:
    """The intervals of both medians and of how many times as fast the second is."""
    samples = [
        np.array(()) if not each.executions() else each.executions()[-1].samples_us / 1e3
        for each in (run, other)
    ]
    a, b = map(intervals.median, samples)
    return {"interval_a": a, "interval_b": b, "speedup": intervals.ratio(*samples)}


def _number(value: Any) -> float | str | None:
    try:
        found = None if value is None else float(value)
    except (TypeError, ValueError):
        return None
    return None if found != found else said(found)


# -- passes ---------------------------------------------------------------------------------------


def passes(run: Run, other: Run) -> list[dict[str, Any]]:
    """Passes by name, in the first recording's order; None where a pass is only in one."""
    first, second = ({s.pass_name: s for s in each.stages()} for each in (run, other))
    names = list(first)
    for at, name in enumerate(second):  # where it stands in the second: after what is before it
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
        "index": stage.index, "ops": stage.ops,
        "rewrites": stage.rewrites, "ms": 1e3 * stage.seconds, "error": said(stage.worst_error),
    }  # fmt: skip


# -- kernels --------------------------------------------------------------------------------------


def kernels_of(run: Run, other: Run) -> dict[str, Any]:
    """``kernels``: pairs of kernels that compute the same; ``by_work`` and ``by_nodes`` as
    :func:`data` has them."""
    return _matched(run, other, pairs(run, other))


def _matched(run: Run, other: Run, found: Sequence[Pair]) -> dict[str, Any]:
    return {
        "kernels": _kernels(run, other, found),
        "by_work": sum(pair.by_work for pair in found),
        "by_nodes": sum(bool(p.first and p.second) and not p.by_work for p in found),
    }


def _kernels(run: Run, other: Run, found: Iterable[Pair]) -> list[dict[str, Any]]:
    """Pairs of launches, gathered by the kernels that they launch."""
    groups: dict[tuple, list[Pair]] = {}
    for pair in found:
        names = tuple(
            tuple(sorted({e.work.kernel for e in side})) for side in (pair.first, pair.second)
        )
        groups.setdefault(names, []).append(pair)
    whole = [
        Pair(tuple(e for p in group for e in p.first), tuple(e for p in group for e in p.second))
        for group in groups.values()
    ]
    return _with_intervals(run, other, [launch(run, other, each) for each in whole], whole)


def launch(run: Run, other: Run, pair: Pair) -> dict[str, Any]:
    """A pair of launches, or all of a pair of kernels: title, place, and each side's figures."""
    every = pair.first or pair.second
    dearest = max(every, key=lambda e: (e.work.median_us or 0.0, e.work.least_us or 0.0))
    return {
        "title": dearest.title, "place": dearest.place, "op": dearest.op if pair.first else None,
        "a": _side(run, pair.first), "b": _side(other, pair.second), "speedup": None,
    }  # fmt: skip


def _with_intervals(
    run: Run, other: Run, rows: list[dict[str, Any]], found: Sequence[Pair]
) -> list[dict[str, Any]]:  # fmt: skip
    """The rows of pairs, the slowest of them with the interval of their speedup."""
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
    """The samples of each launch by its op, in microseconds."""
    return {t.op: t.samples_us for t in run.timings() if t.op is not None}


def _side(run: Run, launches: tuple[Launched, ...]) -> dict[str, Any] | None:
    """Time (measured, else predicted), rate and what the kernels need."""
    if not launches:
        return None
    known = run.kept(("kernels by name", run.version.kernels),
                     lambda: {k.name: k for k in run.kernels()})  # fmt: skip
    names = dict.fromkeys(e.work.kernel for e in launches)
    kernels = [known[n] for n in names if n in known]
    measured = [e.work.median_us for e in launches if e.work.median_us is not None]
    least = [e.work.least_us for e in launches if e.work.least_us is not None]
    spent = sum(measured) if measured else None
    predicted = sum(least) if least else None
    us, flops = predicted if spent is None else spent, sum(e.work.flops for e in launches)
    return {
        "kernels": [{"id": k.id, "name": k.name} for k in kernels]
        or [{"id": None, "name": n} for n in names],
        "count": sum(e.work.runs for e in launches), "us": us, "measured": spent is not None,
        "predicted_us": predicted, "gflops": flops / us / 1e3 if us else None,
        **_needs(kernels),
    }  # fmt: skip


def _needs(kernels: list[Kernel]) -> dict[str, float | None]:
    """Of a GPU's kernels: the most that any of them needs (the least occupancy)."""
    found: dict[str, float | None] = {}
    for fact in GPU_FACTS:
        values = [float(k.facts[fact]) for k in kernels if k.facts.get(fact) is not None]
        pick = min if fact == "occupancy" else max
        found[fact] = pick(values) if values else None
    return found


# -- what can be compared with --------------------------------------------------------------------


def choices(entries: Iterable[Any]) -> dict[str, Any]:
    """The ``detail`` of the view: the library's recordings."""
    return {"recordings": [asdict(entry) for entry in entries]}
