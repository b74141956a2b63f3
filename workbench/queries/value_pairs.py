"""Values of two recordings side by side, by their statistics.

Recordings contain statistics of the values that checks evaluated, at a few stages; tensors only if
the user requested them. Equal statistics do not prove equal bits: ``exact`` marks rows whose
elements were compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from core_compiler.debug.bits import differing
from core_compiler.ir.diff import GUESSED
from core_compiler.ir.events import TensorStats
from workbench.queries import matching, numeric_results, quantisation, value_statistics
from workbench.queries.matching import Counterpart
from workbench.queries.numeric_results import Row
from workbench.queries.run import Run

#: Means that differ by less than this fraction of the largest magnitude are equal: they are sums in
#: f64, whose order follows the layout in memory.
ROUNDING = 1e-13


#: Stages with statistics that both compiles have, in program order; the last one is the last stage
#: before buffers. Quantised values, from integers, are compared with those of the import if the
#: other model is not quantised.
IMPORT, INTEGERS, GRADIENTS, COMPILED = "import", "integers", "gradients", "compiled"


_SIDE = ("value", "name", "type", "op", "kind", "kernel", "file", "line", "stage", "place",
         "minimum", "maximum", "mean", "nan", "inf", "bins")  # fmt: skip


_STATISTICS = ("minimum", "maximum", "mean")


def values(run: Run, other: Run) -> tuple[list[Row], list[dict[str, Any]]]:
    """Return ``rows`` and ``parts``.

    ``rows``: the values that both have statistics of, in program order, with the statistics of
    both sides ``a`` and ``b``, ``how`` it was matched and ``why``, whether it ``differs``, the
    largest ``difference`` of a statistic (of an element, if both recorded the tensor: ``exact``,
    with ``ulps`` and the count of ``unequal`` elements). ``parts``: the stages that both have
    statistics of, with the number of values that only one side has (``only``).
    """
    parts = _stages(run, other)
    rows: list[Row] = []
    summaries = []
    for name, stages in parts.items():
        found, only = _part(run, other, name, stages)
        rows += found
        summaries.append(
            {
                "name": name,
                "stages": list(stages),
                "matched": len(found),
                "only": only,
                "guessed": sum(row["how"] == GUESSED for row in found),
            }
        )
    return rows, summaries


def by_stage(run: Run) -> dict[int, dict[int, Row]]:
    """Return statistics by stage and value id, each in program order."""

    def make() -> dict[int, dict[int, Row]]:
        found: dict[int, dict[int, Row]] = {}
        for row in sorted(value_statistics.values(run), key=lambda r: (r["stage"], r["place"])):
            found.setdefault(row["stage"], {})[row["value"]] = row
        return found

    return run.cached(("values by stage", run.version.checks, run.version.figures), make)


def _stages(run: Run, other: Run) -> dict[str, tuple[int, int]]:
    """Return the stages of both that have statistics and mean the same."""
    mine, theirs = (
        {_part_of(each, stage): stage for stage in by_stage(each)} for each in (run, other)
    )
    for one, two in ((mine, theirs), (theirs, mine)):
        if INTEGERS in two and IMPORT in one:
            one.setdefault(INTEGERS, one[IMPORT])
    return {
        name: (mine[name], theirs[name])
        for name in (IMPORT, INTEGERS, GRADIENTS, COMPILED)
        if name in mine and name in theirs
    }


def _part_of(run: Run, stage: int) -> str:
    name = run.stages()[stage].pass_name.partition("#")[0]
    known = {"import": IMPORT, "differentiate": GRADIENTS, quantisation.PASSES[-1]: INTEGERS}
    return known.get(name, COMPILED)


def _part(
    run: Run, other: Run, name: str, stages: tuple[int, int]
) -> tuple[list[Row], dict[str, int]]:
    ones, twos = by_stage(run)[stages[0]], by_stage(other)[stages[1]]
    tensors = [_tensors(each, stage) for each, stage in zip((run, other), stages, strict=True)]
    rows = []
    for same in _matched(run, other, stages):
        a, b = ones.get(same.first), twos.get(same.second)
        if a is not None and b is not None and _is_float(a) == _is_float(b):
            pair = tensors[0].get(same.first), tensors[1].get(same.second)
            rows.append({"part": name, "how": same.how, "why": same.why, **_compared(a, b, *pair)})
    rows.sort(key=lambda row: row["a"]["place"])
    return rows, {"a": len(ones) - len(rows), "b": len(twos) - len(rows)}


def _is_float(row: Row) -> bool:
    """Return whether a value is in floats: integers that stand for floats are other numbers."""
    kind = row["type"].rstrip(">").rpartition("x")[2].rpartition("<")[2]
    return not kind.startswith(("i", "ui"))


def _matched(run: Run, other: Run, stages: tuple[int, int]) -> list[Counterpart]:
    """Return the matching values (ids) of two stages, each in one match.

    Values that carry the same value of the import come first, then those that passes made of the
    same nodes.
    """
    key = "same values", str(other.path), other.identity, stages
    return run.cached(key, lambda: _match(run, other, stages))


def _match(run: Run, other: Run, stages: tuple[int, int]) -> list[Counterpart]:
    found: list[Counterpart] = [] if stages == (0, 0) else matching.same_meaning(run, other, stages)
    taken = {value for same in found for value in (same.first, same.second)}
    modules = run.index(stages[0]).module, other.index(stages[1]).module
    found += [
        same
        for same in matching.same_values(*modules)
        if taken.isdisjoint((same.first, same.second))
    ]
    return [
        Counterpart(run.value_id(same.first), other.value_id(same.second), same.how, same.why)
        for same in found
    ]


def _tensors(run: Run, stage: int) -> Mapping[int, TensorStats]:
    """Return the values of a stage whose tensors were recorded, by id."""
    recorded = run.recording.query(
        "SELECT DISTINCT value FROM tensor_stats WHERE data IS NOT NULL",
        max_rows=value_statistics.MAX_VALUES,
    ).rows
    found = run.recording.tensors([value for (value,) in recorded]) if recorded else []
    return {
        run.value_id(each.value): each
        for each in found
        if each.stage == stage and each.data is not None
    }


def _compared(a: Row, b: Row, one: TensorStats | None, two: TensorStats | None) -> Row:
    sides = {"a": {name: a[name] for name in _SIDE}, "b": {name: b[name] for name in _SIDE}}
    largest = max((row["largest"] for row in (a, b) if row["largest"] is not None), default=None)
    row: Row = {**sides, "exact": False, "ulps": None, "unequal": None}
    exact = None if one is None or two is None else _elements(one, two)
    row |= _statistics(a, b, largest) if exact is None else exact
    difference = row["difference"]
    row["relative"] = difference / largest if difference is not None and largest else None
    return row


def _statistics(a: Row, b: Row, largest: float | None) -> Row:
    """Return the largest difference of a statistic, and whether any differs.

    The difference is None if a side has no statistics: nothing is finite.
    """
    pairs = [(a[name], b[name]) for name in _STATISTICS]
    differences = [abs(x - y) for x, y in pairs if x is not None and y is not None]
    rounding = ROUNDING * (largest or 0.0)
    one_sided = any((x is None) != (y is None) for x, y in pairs)
    differs = (
        one_sided
        or a["nan"] != b["nan"]
        or a["inf"] != b["inf"]
        or a["minimum"] != b["minimum"]
        or a["maximum"] != b["maximum"]
        or (a["mean"] is not None and abs(a["mean"] - (b["mean"] or 0.0)) > rounding)
        or (a["type"] == b["type"] and a["bins"] != b["bins"])
    )
    found = max(differences, default=None) if differs else 0.0
    return {"difference": None if one_sided else found, "differs": bool(differs)}


def _elements(one: TensorStats, two: TensorStats) -> Row | None:
    """Compare two tensors element by element; None if their shape or dtype differs.

    ``ulps`` and ``difference`` are the largest over elements that are finite on both sides.
    """
    a, b = one.data, two.data
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return None
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    differences = np.abs(np.subtract(x, y, out=np.zeros_like(x), where=finite))
    max_ulps = None
    if getattr(one.value.type, "dtype").is_float:  # noqa: B009 (what has statistics has one)
        ordinals = [numeric_results.ordinals(each).astype(np.float64) for each in (a, b)]
        max_ulps = int(np.max(np.abs(ordinals[0] - ordinals[1]), where=finite, initial=0.0))
    unequal = int(np.count_nonzero(differing(a, b)))
    return {
        "exact": True,
        "differs": unequal > 0,
        "unequal": unequal,
        "difference": float(np.max(differences, initial=0.0)),
        "ulps": max_ulps,
    }
