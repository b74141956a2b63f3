"""Two recordings side by side: figures, passes, kernels by the work they do, memory, numerics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from core_compiler.support.errors import UserError
from workbench.model import edits
from workbench.queries import contracts, numeric_results, quantisation
from workbench.queries.compared import about, launch, matched, passes, with_intervals
from workbench.queries.links import linked
from workbench.queries.numeric_results import json_number
from workbench.queries.pairs import launched, pairs
from workbench.queries.run import Run, Runs, shown
from workbench.state.glossary import GLOSSARY
from workbench.state.view_state import ViewState
from workbench.support import intervals

#: Pairs of launches beyond this number are counted, not listed.
MAX_PAIRS = 2_000


def key(run: Run, state: ViewState) -> tuple:
    return run.version, run.status


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the two recordings ``a`` and ``b``, and sections of rows with a value for each.

    The sections are ``facts`` (texts; ``why`` explains that one is not compared), ``figures``,
    ``passes``, ``kernels`` (pairs of kernels), ``launches`` (pairs of launches); ``by_work`` and
    ``by_nodes``: how many of these pairs were matched by work alone, and by the framework's nodes.
    Without a second recording there is only ``a``.
    """
    run, other = shown(runs)
    if other is None:
        return {"a": about(run), "b": None}
    found = pairs(run, other)
    return {
        "a": about(run),
        "b": about(other),
        "facts": _facts(run, other),
        "figures": _figures(run, other),
        "passes": passes(run, other),
        "launches": with_intervals(
            run, other, [launch(run, other, pair) for pair in found[:MAX_PAIRS]], found[:MAX_PAIRS]
        ),
        "more_launches": max(0, len(found) - MAX_PAIRS),
        **matched(run, other, found),
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    run = runs[0]
    found = linked(run, state)
    return {} if found.kernel is None else {"kernel": found.kernel}


# -- texts ----------------------------------------------------------------------------------------


def _facts(run: Run, other: Run) -> list[dict[str, Any]]:
    """Return the facts of the two, and whether they are equal; versions only if they differ."""
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
    row(
        "identity",
        "hash of everything that determines the result",
        lambda each: each.figures().get("identity"),
    )
    row(
        "output digest",
        "the bits of the outputs on the example inputs",
        lambda each: each.figures().get("digest"),
    )
    for each in rows[bits:]:
        each["why"] = contracts.refusal(run, other)
    for each in rows:
        if each["name"] == "checks":
            each["bad"] = ["failed" in each["a"], "failed" in each["b"]]
    a, b = (each.meta().get("versions") or {} for each in (run, other))
    rows += [
        {
            "name": name,
            "hint": "its version",
            "a": str(a.get(name) or ""),
            "b": str(b.get(name) or ""),
            "equal": False,
            "why": "",
        }
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    ]
    return rows


def _listed(found: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in found.items()) if isinstance(found, Mapping) else ""


def _edited(meta: Mapping[str, Any]) -> str:
    """Return the edits of the pipeline and the target's options as text.

    Returns "" for the default pipeline.
    """
    try:
        edit, target = edits.checked(meta.get("edit")), meta.get("target_options") or {}
    except UserError:  # of a foreign recording
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
    """Return a reader of a figure of a stage, counted among the stages that have it."""

    def read(run: Run) -> Any:
        found = [s.figures[figure] for s in run.stages() if s.figures.get(figure)]
        return found[at] if found else None

    return read


def _predicted(run: Run) -> float | None:
    known = [w.work.predicted_us for w in launched(run) if w.work.predicted_us is not None]
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


#: Figures for which more is better, and those for which neither is; for all others less is better.
_MORE = frozenset({"checks that kept every bit", "SQNR of the outputs"})
_NEITHER = frozenset(
    {
        "launches",
        "kernels",
        "ops imported",
        "ops at the end",
        "arithmetic",
        "rewrites",
        "inputs",
        "outputs",
        "checks within tolerance",
        "unchecked rewrites",
        "lower bound",
    }
)
#: Section, name (`workbench.state.glossary` has its unit and meaning), reader.
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
    ("numbers", "SQNR of the outputs", _of("run", quantisation.SQNR)),
    ("numbers", "checks that kept every bit", _verdicts("bitwise")),
    ("numbers", "checks within tolerance", _verdicts("within")),
    ("numbers", "failed checks", _verdicts("failed")),
    ("numbers", "unchecked rewrites", _verdicts("unchecked")),
)


def _figures(run: Run, other: Run) -> list[dict[str, Any]]:
    rows = []
    for section, name, read in _FIGURES:
        a, b = _number(read(run)), _number(read(other))
        if a is not None or b is not None:
            term = GLOSSARY["compare"][name]
            better = "more" if name in _MORE else "" if name in _NEITHER else "less"
            rows.append(
                {
                    "section": section,
                    "name": name,
                    "unit": term.unit,
                    "hint": term.hint,
                    "a": a,
                    "b": b,
                    "better": better,
                }
            )
            if name == "time per execution":
                rows[-1] |= _of_executions(run, other)
    return rows


def _of_executions(run: Run, other: Run) -> dict[str, Any]:
    """Return the intervals of both medians and of the second's speedup."""
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
    return None if found != found else json_number(found)


# -- passes ---------------------------------------------------------------------------------------


# -- kernels --------------------------------------------------------------------------------------


# -- choices for comparison -----------------------------------------------------------------------


def choices(entries: Iterable[Any]) -> dict[str, Any]:
    """Return the ``detail`` of the view: the library's recordings."""
    return {"recordings": [asdict(entry) for entry in entries]}
