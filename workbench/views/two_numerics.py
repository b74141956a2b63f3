"""The numbers of two recordings: statistics of the values that both know, side by side.

Recordings hold statistics of what checking evaluated, at a few stages; tensors only where whoever
recorded them said so.  Equal statistics do not prove equal bits, and the data say which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from core_compiler.debug.check import differing
from core_compiler.ir.diff import GUESSED
from core_compiler.ir.events import TensorStats
from workbench.queries import contracts, matching, numeric_results
from workbench.queries.matching import Same
from workbench.queries.numeric_results import Row
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import Empty, missing, numerics

#: Rows that are sent at the most: those that differ before the others.
MAX_ROWS = 2_000
#: Means that lie nearer than this part of the largest magnitude are the same: they are sums in f64,
#: whose order follows the layout in memory.
ROUNDING = 1e-13
#: Stages with statistics that both compiles have, in program order; what is left is the last one
#: before buffers.
IMPORT, GRADIENTS, COMPILED = "import", "gradients", "compiled"
_SIDE = ("value", "name", "type", "op", "kind", "kernel", "file", "line", "stage", "place",
         "minimum", "maximum", "mean", "nan", "inf", "bins")  # fmt: skip
_STATISTICS = ("minimum", "maximum", "mean")


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return tuple((r.version.checks, r.version.figures, r.version.stages, r.status)
                 for r in (run, other))  # fmt: skip


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``a`` and ``b``: names of the recordings; ``parts``: the stages that both have statistics of,
    with how many values only one side knows (``only``); ``rows``: a value each, in program order,
    with its statistics on both sides, ``how`` it was matched and ``why``, whether it ``differs``,
    the largest ``difference`` of a statistic (or of an element, where both kept the tensor:
    ``exact``, with ``ulps`` and how many elements are ``unequal``); ``first`` of them that differs.
    ``outputs``: the digests of the results as they were executed."""
    if why := contracts.refusal(run, other):
        raise Empty(why, contracts.remedy(run, other))
    rows, parts = values(run, other)
    first = next((row for row in rows if row["differs"]), None)
    digests = [str(each.figures().get("digest", "")) for each in (run, other)]
    return {
        "two": True, "a": _about(run), "b": _about(other), "parts": parts,
        "rows": _chosen(rows), "total": len(rows), "first": first,
        "differing": sum(row["differs"] for row in rows),
        "exact": sum(row["exact"] for row in rows),
        "outputs": {"a": digests[0], "b": digests[1]},
    }  # fmt: skip


def values(run: Run, other: Run) -> tuple[list[Row], list[dict[str, Any]]]:
    """All ``rows`` and the ``parts``, as :func:`data` has them; Empty where there are none."""
    parts = _stages(run, other)
    if not parts:
        raise _nothing(run, other)
    rows: list[Row] = []
    told = []
    for name, stages in parts.items():
        found, only = _part(run, other, name, stages)
        rows += found
        told.append({"name": name, "stages": list(stages), "matched": len(found), "only": only,
                     "guessed": sum(row["how"] == GUESSED for row in found)})  # fmt: skip
    return rows, told


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return numerics.selection(run, sight)


def _about(run: Run) -> dict[str, str]:
    meta = run.meta()
    return {"name": run.path.name, "path": str(run.path),
            "about": f"{meta.get('model', run.path.stem)} · {meta.get('target', '')}"}  # fmt: skip


def _nothing(run: Run, other: Run) -> Exception:
    lacking = [each for each in (run, other) if not _by_stage(each)]
    if not lacking:
        return missing.alike("statistics of the same stage")
    return missing.statistics(lacking[0], "A" if lacking[0] is run else "B")


def _chosen(rows: list[Row]) -> list[Row]:
    if len(rows) <= MAX_ROWS:
        return rows
    places = sorted(range(len(rows)), key=lambda at: (not rows[at]["differs"], at))[:MAX_ROWS]
    return [rows[at] for at in sorted(places)]


# -- which values ---------------------------------------------------------------------------------


def _by_stage(run: Run) -> dict[int, dict[int, Row]]:
    """Statistics by stage and value id, each in program order."""

    def make() -> dict[int, dict[int, Row]]:
        found: dict[int, dict[int, Row]] = {}
        for row in sorted(numerics.values(run), key=lambda r: (r["stage"], r["place"])):
            found.setdefault(row["stage"], {})[row["value"]] = row
        return found

    return run.kept(("values by stage", run.version.checks, run.version.figures), make)


def _stages(run: Run, other: Run) -> dict[str, tuple[int, int]]:
    """The stages of both that have statistics and mean the same."""
    mine, theirs = ({_part_of(each, stage): stage for stage in _by_stage(each)}
                    for each in (run, other))  # fmt: skip
    return {name: (mine[name], theirs[name]) for name in (IMPORT, GRADIENTS, COMPILED)
            if name in mine and name in theirs}  # fmt: skip


def _part_of(run: Run, stage: int) -> str:
    name = run.stages()[stage].pass_name.partition("#")[0]
    return {"import": IMPORT, "differentiate": GRADIENTS}.get(name, COMPILED)


def _part(
    run: Run, other: Run, name: str, stages: tuple[int, int]
) -> tuple[list[Row], dict[str, int]]:
    ones, twos = _by_stage(run)[stages[0]], _by_stage(other)[stages[1]]
    tensors = [_tensors(each, stage) for each, stage in zip((run, other), stages, strict=True)]
    rows = []
    for same in _matched(run, other, stages):
        a, b = ones.get(same.first), twos.get(same.second)
        if a is not None and b is not None:
            kept = tensors[0].get(same.first), tensors[1].get(same.second)
            rows.append({"part": name, "how": same.how, "why": same.why, **_compared(a, b, *kept)})
    rows.sort(key=lambda row: row["a"]["place"])
    return rows, {"a": len(ones) - len(rows), "b": len(twos) - len(rows)}


def _matched(run: Run, other: Run, stages: tuple[int, int]) -> list[Same]:
    """The values (ids) of two stages that mean the same, each in one match: those that carry the
    meaning of one value of the import first, then what passes made of the same nodes."""
    key = "same values", str(other.path), other.identity, stages
    return run.kept(key, lambda: _match(run, other, stages))


def _match(run: Run, other: Run, stages: tuple[int, int]) -> list[Same]:
    found: list[Same] = [] if stages == (0, 0) else matching.same_meaning(run, other, stages)
    taken = {value for same in found for value in (same.first, same.second)}
    modules = run.index(stages[0]).module, other.index(stages[1]).module
    found += [same for same in matching.same_values(*modules)
              if taken.isdisjoint((same.first, same.second))]  # fmt: skip
    return [Same(run.value_id(same.first), other.value_id(same.second), same.how, same.why)
            for same in found]  # fmt: skip


# -- how far apart --------------------------------------------------------------------------------


def _tensors(run: Run, stage: int) -> Mapping[int, TensorStats]:
    """The values of a stage whose tensors were recorded, by id."""
    kept = run.recording.query("SELECT DISTINCT value FROM tensor_stats WHERE data IS NOT NULL",
                               max_rows=numerics.MAX_VALUES).rows  # fmt: skip
    found = run.recording.tensors([value for (value,) in kept]) if kept else []
    return {run.value_id(each.value): each for each in found
            if each.stage == stage and each.data is not None}  # fmt: skip


def _compared(a: Row, b: Row, one: TensorStats | None, two: TensorStats | None) -> Row:
    sides = {"a": {name: a[name] for name in _SIDE}, "b": {name: b[name] for name in _SIDE}}
    largest = max((row["largest"] for row in (a, b) if row["largest"] is not None), default=None)
    row: Row = {**sides, "exact": False, "ulps": None, "unequal": None}
    exact = None if one is None or two is None else _elements(one, two)
    row |= _statistics(a, b, largest) if exact is None else exact
    apart = row["difference"]
    row["relative"] = apart / largest if apart is not None and largest else None
    return row


def _statistics(a: Row, b: Row, largest: float | None) -> Row:
    """The largest difference of a statistic (None where one side has none: nothing is finite), and
    whether any differs."""
    pairs = [(a[name], b[name]) for name in _STATISTICS]
    apart = [abs(x - y) for x, y in pairs if x is not None and y is not None]
    rounding = ROUNDING * (largest or 0.0)
    one_sided = any((x is None) != (y is None) for x, y in pairs)
    differs = (
        one_sided or a["nan"] != b["nan"] or a["inf"] != b["inf"]
        or a["minimum"] != b["minimum"] or a["maximum"] != b["maximum"]
        or (a["mean"] is not None and abs(a["mean"] - (b["mean"] or 0.0)) > rounding)
        or (a["type"] == b["type"] and a["bins"] != b["bins"])
    )  # fmt: skip
    found = max(apart, default=None) if differs else 0.0
    return {"difference": None if one_sided else found, "differs": bool(differs)}


def _elements(one: TensorStats, two: TensorStats) -> Row | None:
    """Two tensors element by element; None where they are not of one shape and dtype.  ``ulps`` and
    ``difference`` are the largest of elements that are finite on both sides."""
    a, b = one.data, two.data
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return None
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    apart = np.abs(np.subtract(x, y, out=np.zeros_like(x), where=finite))
    steps = None
    if getattr(one.value.type, "dtype").is_float:  # noqa: B009 (what has statistics has one)
        places = [numeric_results.places(each).astype(np.float64) for each in (a, b)]
        steps = int(np.max(np.abs(places[0] - places[1]), where=finite, initial=0.0))
    unequal = int(np.count_nonzero(differing(a, b)))
    return {"exact": True, "differs": unequal > 0, "unequal": unequal,
            "difference": float(np.max(apart, initial=0.0)), "ulps": steps}  # fmt: skip
