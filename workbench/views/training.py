"""A training run, live: loss, time and digest of every iteration.

Two runs are compared up to their first difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from statistics import median
from typing import Any

from core_compiler.ir.events import IterationRecord
from core_compiler.training.run.reporting import KEY
from workbench.queries import contracts
from workbench.queries.run import Run, Runs, shown
from workbench.queries.training_run import is_training, not_finite
from workbench.state.view_state import ViewState
from workbench.views import Empty, missing

#: The number of iterations in one response: some 2 MB.
PAGE = 20_000
#: The time of an iteration is the mean over this many of the last ones.
RECENT = 20
#: Optional columns of iterations.
OPTIONAL = ("rate", "loss_scale", "skipped")


def key(run: Run, state: ViewState) -> tuple:
    return grown(run)


def grown(run: Run) -> tuple:
    """Return the progress of a training run, as a cache key."""
    return run.version.iterations, run.version.stages, run.status


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the runs ``a`` and ``b``, without iterations: the browser requests them.

    ``together``: their first difference, None without a second run.
    """
    run, other = shown(runs)
    need(run)
    comparable = other if other is not None and is_training(other) else None
    return {
        "a": about(run),
        "b": None if comparable is None else about(comparable),
        "refused": ""
        if comparable is other
        else f"{other and other.path.name} is not a training run",
        "together": None if comparable is None else together(run, comparable),
    }


def answer(runs: Runs, state: ViewState, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the iterations recorded since those that the browser has.

    ``request`` is ``{"kind": "rows", "side": "a" | "b", "after": id}``.
    """
    run, other = shown(runs)
    if request.get("kind") != "rows":
        raise ValueError(f"unknown request {request.get('kind')!r}")
    source = other if request.get("side") == "b" else run
    if source is None:
        raise ValueError("no second recording is open")
    last, rows = source.recording.iterations(int(request.get("after", 0)), PAGE)
    return {
        "side": request.get("side"),
        "path": str(source.path),
        "last": last,
        "more": len(rows) == PAGE,
        **columns(rows),
    }


def columns(rows: Iterable[IterationRecord]) -> dict[str, Any]:
    """Return iterations as lists; ``OPTIONAL`` columns only if one of the rows has a value."""
    rows = list(rows)
    made = {
        name: [getattr(row, name) for row in rows] for name in ("number", "loss", "seconds", "root")
    }
    for name in OPTIONAL:
        values = [getattr(row, name) for row in rows]
        if any(value is not None for value in values):
            made[name] = values
    return made


def whole(run: Run) -> dict[str, Any]:
    """Return the data including all iterations, for a page without a server."""
    return {**data((run,), ViewState()), "rows": columns(run.iterations().values())}


def need(run: Run) -> None:
    """Raise `Empty`, with the suggested fix, if ``run`` has no iterations."""
    if run.version.iterations:
        return
    if not is_training(run):
        raise missing.iterations(run)
    if run.live:
        raise Empty("The training step is being compiled: the first iteration follows shortly.")
    if KEY in run.meta():
        raise Empty(f"The run ended before its first iteration. {run.meta().get('message', '')}")
    raise Empty(
        "This training step was compiled but not run.",
        "From Python, "
        "core_compiler.training.fit.fit(step, data, ..., observer=Recorder(FILE)) "
        "records its iterations.",
    )


def facts(run: Run) -> dict[str, Any]:
    """Return the facts that a recording states about its run; {} if there are none."""
    found = run.meta().get(KEY)
    return found if isinstance(found, dict) else {}


def about(run: Run) -> dict[str, Any]:
    """Return the figures of a run.

    They are the iterations done and planned, seconds of one, examples per second, seconds left,
    the hashed values, and how it ended.
    """
    meta, plan, rows = run.meta(), facts(run), run.iterations()
    wanted, batch = (_count(plan.get(name)) for name in ("iterations", "batch"))
    last = rows.get(run.newest)  # a run resumed from a checkpoint repeats some
    before = (row for row in reversed(rows.values()) if row.number <= run.newest)
    recent = [row.seconds for row in islice(before, RECENT)]
    mean = sum(recent) / len(recent) if recent else 0.0
    done = 0 if last is None else last.number
    return {
        "name": run.path.name,
        "path": str(run.path),
        "recording": run.identity,
        "model": str(meta.get("model", run.path.stem)),
        "target": str(meta.get("target", "")),
        "status": run.status,
        "message": str(meta.get("message") or ""),
        "done": done,
        "wanted": wanted,
        "batch": batch,
        "count": len(rows),
        "last": run.version.iterations or 0,
        "loss": None if last is None else last.loss,
        "seconds": median(recent) if recent else None,
        "left": mean * max(0, wanted - done) if run.live and wanted else None,
        "receipts": str(plan.get("receipts") or "off"),
        "ops_every": _count(plan.get("ops_every")),
        "inject": str(plan.get("inject") or ""),
        "folder": str(plan.get("folder") or ""),
        "identity": identity(run),
        "digest": str(run.figures().get("state_digest", "")),
        "not_finite": not_finite(run),
    }


def identity(run: Run) -> str:
    """Return the numerics identity of the computation."""
    return str(run.figures().get("identity", ""))


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


# -- two runs -------------------------------------------------------------------------------------


def together(run: Run, other: Run) -> dict[str, Any]:
    """Return how far two runs have the same bits.

    ``by``: the evidence: ``receipts`` (each root covers all before it), ``losses`` if there are
    none, or "" if nothing can be compared, and ``why``; ``first`` and ``last`` iteration compared;
    ``parts``: the first that differs.
    """
    return run.cached(
        ("together", grown(run), other.path, other.identity, grown(other)),
        lambda: _together(run, other),
    )


def _together(run: Run, other: Run) -> dict[str, Any]:
    a, b = run.iterations(), other.iterations()
    shared = [n for n in a if n in b]
    made: dict[str, Any] = {"by": "", "why": "", "first": None, "last": None, "parts": None}
    if not shared:
        return {**made, "why": "the runs have no iteration in common"}
    if why := contracts.refusal(run, other):
        return {**made, "why": why}
    if identity(run) != identity(other):
        return {**made, "why": "they compute different programs (their numerics identities differ)"}
    rooted = [n for n in shared if a[n].root and b[n].root]
    if rooted and _cover_same_values(run, other, a, b, rooted[0]):
        parts = next((n for n in rooted if a[n].root != b[n].root), None)
        return {**made, "by": "receipts", "first": rooted[0], "last": rooted[-1], "parts": parts}
    parts = next((n for n in shared if a[n].loss != b[n].loss), None)
    why = "their receipts hash different values" if rooted else "without receipts"
    return {
        **made,
        "by": "losses",
        "why": why,
        "first": shared[0],
        "last": shared[-1],
        "parts": parts,
    }


def _cover_same_values(
    run: Run,
    other: Run,
    a: Mapping[int, IterationRecord],
    b: Mapping[int, IterationRecord],
    start: int,
) -> bool:
    """Return whether the roots of two runs cover the same things from iteration ``start`` on."""
    one, two = facts(run), facts(other)
    if any(one.get(name) != two.get(name) for name in ("receipts", "ops_every")):
        return False
    return a[start].root == b[start].root or _first_root(a) == _first_root(b) == start


def _first_root(rows: Mapping[int, IterationRecord]) -> int | None:
    return next((n for n, row in rows.items() if row.root), None)


# -- choices for comparison -----------------------------------------------------------------------


def choices(entries: Iterable[Any]) -> dict[str, Any]:
    """Return the recordings of training runs."""
    return {"recordings": [asdict(e) for e in entries if e.mode == "training"]}
