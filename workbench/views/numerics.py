"""The numerics: passes that changed bits and by how much, each check, statistics of each value."""

from __future__ import annotations

import math
from typing import Any

from workbench.queries import contracts, numeric_results, quantisation, value_pairs
from workbench.queries.links import follow, outermost
from workbench.queries.numeric_results import Row
from workbench.queries.run import Run, Runs, shown
from workbench.queries.value_statistics import MAX_VALUES, values
from workbench.state.view_state import ViewState
from workbench.views import Empty, missing

#: The most rows of a table that are sent; the view states how many there are.
MAX_CHECKS = 1_000


def key(run: Run, state: ViewState) -> tuple:
    version = run.version
    return (
        run.stage_number(state.stage),
        version.checks,
        version.figures,
        version.stages,
        run.status,
    )


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the numeric results of one recording.

    ``passes`` with their checks and errors, ``first`` of them that changed bits; ``checks`` of the
    shown ``stage``, ``values`` with statistics; ``framework``: the comparison of the import with
    the framework, ``beside``: each of its values (`workbench.queries.numeric_results` documents
    the rows); ``quantised``: whether the model is, ``lost``: what each value lost by that, and
    ``floats``: the ops left in floats (`workbench.queries.quantisation`); ``grows``: more passes
    may follow.
    """
    rows, found = _passes(run), values(run)
    counts = numeric_results.verdicts(rows)
    peer = numeric_results.peer(run.figures())
    beside = framework(run)
    quantised = quantisation.summary(run.stages(), run.figures())
    if not any(counts.values()) and not found and not beside and peer is None and not quantised:
        raise missing.checks(run)
    stage = run.stage_number(state.stage)
    checks = _checks(run, stage)
    changing = numeric_results.changing(rows)
    listed = sorted({v["stage"] for v in found})
    return {
        "stage": stage,
        "name": rows[stage]["name"] if rows else "",
        "passes": rows,
        "counts": counts,
        "first": changing[0] if changing else None,
        "peer": peer and numeric_results.json_rows([peer], "error")[0],
        "digest": str(run.figures().get("digest", "")),
        "grows": run.status == "recording",
        "checks": checks[:MAX_CHECKS],
        "checks_total": len(checks),
        "values": found[:MAX_VALUES],
        "values_total": len(found),
        "values_left": _left_out(run),
        "framework": _compared(run, beside),
        "beside": beside[:MAX_VALUES],
        "beside_total": len(beside),
        **_quantised(run, quantised),
        "bad": {what: sum(1 for v in found if v[what]) for what in ("nan", "inf")},
        "value_stages": [[s, run.stages()[s].pass_name] for s in listed],
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the rewrite, and the selected op's counterparts in stages with listed values."""
    run = runs[0]
    if state.op is None:
        return {"rewrite": state.rewrite, "ops": []}
    listed = [
        *(v["stage"] for v in (*values(run), *lost_values(run))),
        *([0] if framework(run) else []),
    ]
    stages = dict.fromkeys([run.stage_number(state.stage), *listed])
    ops = [state.op]
    for stage in stages:
        found = follow(run, state.op, stage)[:1]
        ops += [*found, *(outermost(run, op, stage) for op in found)]
    for stage in run.stages():  # a value in floats is made by an op beside the one that carries it
        if stage.pass_name.partition("#")[0] == quantisation.PASSES[-1]:
            ops += follow(run, state.op, stage.index)
    return {"rewrite": state.rewrite, "ops": list(dict.fromkeys(ops))}


def _passes(run: Run) -> list[Row]:
    version = run.version.stages, run.version.checks, run.version.figures
    return run.cached(
        ("numerics passes", version),
        lambda: numeric_results.json_rows(
            numeric_results.passes(run.stages(), run.figures()), "worst", "accumulated"
        ),
    )


def _checks(run: Run, stage: int) -> list[Row]:
    if not run.stages()[stage].verdicts:
        return []

    def make() -> list[Row]:
        rows = numeric_results.checks(
            run.recording, stage, run.rewrites(stage), run.source_location
        )
        return numeric_results.json_rows(rows, "error", "absolute", "old", "new")

    return run.cached(("numerics checks", stage, run.version.checks), make)


def framework(run: Run) -> list[Row]:
    """Return the import's values compared with the framework's, the largest differences first."""

    def make() -> list[Row]:
        rows = numeric_results.framework_values(run.recording, run.source_location)
        rows.sort(key=lambda r: -(math.inf if r["error"] is None else r["error"]))
        return numeric_results.json_rows(rows, "error", "absolute", "theirs", "ours")

    return run.cached(("numerics framework", run.version.figures), make)


def _compared(run: Run, rows: list[Row]) -> Row | None:
    """Return a summary of the comparison (see :func:`numeric_results.differing`).

    ``left_out``: values without a tensor of the same form there; ``beyond``: the fault at the
    first node that differs, as lines.
    """
    if not rows:
        return None
    comparison = numeric_results.framework((), run.figures()) or {
        "verdict": numeric_results.NOT_JUDGED
    }
    return {
        "name": rows[0]["framework"],
        **numeric_results.differing(rows),
        "left_out": comparison.get("left_out", 0),
        "verdict": comparison["verdict"].replace("_", " "),
        "beyond": numeric_results.beyond_lines(comparison["beyond"])
        if comparison.get("beyond")
        else [],
    }


def _quantised(run: Run, summary: Row | None) -> dict[str, Any]:
    """Return what is shown of quantisation; of each histogram its ends and counts."""
    lost = lost_values(run) if summary else []
    floats = quantisation.left_in_floats(run.recording, run.source_location) if summary else []
    if summary:
        summary = numeric_results.json_rows([{**summary, "waits": run.live}], "sqnr_db")[0]
    return {
        "quantised": summary,
        "lost": lost[:MAX_VALUES],
        "lost_total": len(lost),
        "floats": floats[:MAX_VALUES],
        "floats_total": len(floats),
    }


def lost_values(run: Run) -> list[Row]:
    """Return what each value lost by quantisation, worst first."""

    def make() -> list[Row]:
        rows = quantisation.losses(run.recording, run.source_location)
        for row in rows:
            edges = row.pop("edges")
            row["from"], row["to"] = (edges[0], edges[-1]) if edges else (0.0, 0.0)
        return numeric_results.json_rows(rows, "sqnr_db", "alone_db")

    return run.cached(("numerics lost", run.version.figures), make)


def _left_out(run: Run) -> int:
    figures = run.figures()
    return sum(int(n) for name, n in figures.items() if name.startswith(numeric_results.LEFT_OUT))


# -- two recordings ------------------------------------------------------------------------------

#: The most rows that are sent: those that differ come first.
MAX_ROWS = 2_000


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return the values of two recordings side by side.

    ``a`` and ``b``: names of the recordings, and whether they are ``quantised``; ``parts``: the
    stages that both have statistics of, with the number of values that only one side has
    (``only``); ``rows``: one per value, in program order, with its statistics on both sides,
    ``how`` it was matched and ``why``, whether it ``differs``, the largest ``difference`` of a
    statistic (or of an element, if both recorded the tensor: ``exact``, with ``ulps`` and the
    number of ``unequal`` elements); ``first`` of them that differs. ``outputs``: the digests of the
    results of their executions.
    """
    if why := contracts.refusal(run, other):
        raise Empty(why, contracts.remedy(run, other))
    rows, parts = value_pairs.values(run, other)
    if not parts:
        raise _missing_statistics(run, other)
    first = next((row for row in rows if row["differs"]), None)
    digests = [str(each.figures().get("digest", "")) for each in (run, other)]
    return {
        "two": True,
        "a": _about(run),
        "b": _about(other),
        "parts": parts,
        "rows": _chosen(rows),
        "total": len(rows),
        "first": first,
        "differing": sum(row["differs"] for row in rows),
        "exact": sum(row["exact"] for row in rows),
        "outputs": {"a": digests[0], "b": digests[1]},
    }


def _about(run: Run) -> dict[str, Any]:
    meta = run.meta()
    quantised = quantisation.summary(run.stages(), run.figures())
    return {
        "quantised": quantised and numeric_results.json_rows([quantised], "sqnr_db")[0],
        "name": run.path.name,
        "path": str(run.path),
        "about": f"{meta.get('model', run.path.stem)} · {meta.get('target', '')}",
    }


def _missing_statistics(run: Run, other: Run) -> Exception:
    missing_runs = [each for each in (run, other) if not value_pairs.by_stage(each)]
    if not missing_runs:
        return missing.nothing_in_common("statistics of the same stage")
    return missing.statistics(missing_runs[0], "A" if missing_runs[0] is run else "B")


def _chosen(rows: list[Row]) -> list[Row]:
    if len(rows) <= MAX_ROWS:
        return rows
    indices = sorted(range(len(rows)), key=lambda at: (not rows[at]["differs"], at))[:MAX_ROWS]
    return [rows[at] for at in sorted(indices)]
