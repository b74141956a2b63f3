"""The memory map: each placed buffer by address and program order, per tier, with the peak.

It shows what causes the peak, how each pass changed it, and the results of other planners on the
same buffers. For a training step it also shows where the backward pass begins, and the savings of
recomputation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from core_compiler.ir import Op
from core_compiler.ir.diff import GUESSED
from core_compiler.ir.target import OUTPUT, Output
from core_compiler.passes.find_lifetimes import live_peak, memory_owners, values_alive
from core_compiler.record.reader import Buffer, Stage
from core_compiler.training.graph.roles import Roles
from workbench.queries import compared
from workbench.queries.buffer_pairs import same_buffers
from workbench.queries.links import LAUNCH, launches, linked, writers, written_by
from workbench.queries.memory_plans import again, planners
from workbench.queries.numeric_results import as_number
from workbench.queries.pairs import launched
from workbench.queries.run import Run, Runs, shown
from workbench.state import glossary
from workbench.state.view_state import ViewState
from workbench.views import missing

#: Tiers in the order of their tabs, and their titles.
_TIERS = {"dram": "arena (DRAM)", "weights": "weights", "inputs": "inputs", "results": "results"}

#: The most ops over all stages that are examined for the peak by pass: seconds of work.
MAX_OPS = 150_000


def key(run: Run, state: ViewState) -> tuple:
    return run.version.buffers, run.version.figures, run.status


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the ``data`` of the memory view (widgets/README.md)."""
    buffers = run.buffers()
    if not buffers:
        raise missing.made_by(run, "plan_memory", "Memory is not planned", "memory plan")
    figures = run.figures("memory")
    present = dict.fromkeys(b.tier for b in buffers)
    tiers = [t for t in _TIERS if t in present] + sorted(set(present) - set(_TIERS))
    kinds = list(dict.fromkeys(b.kind for b in buffers))
    steps = max(b.end for b in buffers) + 1
    labels = _labels(run, steps)
    made = writers(run)
    columns = {
        "tier": [tiers.index(b.tier) for b in buffers],
        "start": [b.start for b in buffers],
        "end": [b.end + 1 for b in buffers],
        "category": [kinds.index(b.kind) for b in buffers],
    }
    sizes = {
        "offset": [b.offset for b in buffers],
        "size": [b.size for b in buffers],
        "unpadded": [b.unpadded_size for b in buffers],
    }
    ops = [written_by(run, b) for b in buffers]
    types = _types(run)
    launch_of = {each.op: each for each in launched(run)}
    return {
        "title": f"plan: {figures.get('planner', '')}",
        "terms": glossary.hints("memory"),
        "steps": steps,
        **labels,
        "tiers": [_tier(name, figures) for name in tiers],
        "categories": kinds,
        "buffers": {
            "key": np.array([b.id for b in buffers], np.int32),
            "name": [_name(run, b, made) for b in buffers],
            **{name: np.array(column, np.int32) for name, column in columns.items()},
            **{name: np.array(column, np.float64) for name, column in sizes.items()},
            "op": np.array([-1 if op is None else op for op in ops], np.int32),
            "type": [types.get(b.value, "") for b in buffers],
            "what": [launch_of[op].title if op in launch_of else "" for op in ops],
            "place": [_place(run, op) for op in ops],
        },
        "asks": True,
        **_loss_position(run),
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    run = runs[0]
    found = linked(run, state)
    return {} if found.buffer is None else {"buffer": found.buffer}


def answer(runs: Runs, state: ViewState, request: dict[str, Any]) -> Any:
    """Return ``passes``, ``planners`` or ``again``, on request.

    They are the peak after each pass, the arena of each planner, and the effect of recomputing
    launches of the forward pass. For two recordings these are in ``a`` and ``b``; ``passes`` also
    has ``stages``: the ``name`` of each pass and its stages in ``a`` and ``b``, None on the side
    that lacks it, in the order of Compare.
    """
    kind = str(request.get("kind"))
    query = {"passes": passes, "planners": planners, "again": again}[kind]
    run, other = shown(runs)
    if other is None:
        return query(run)
    both = {"a": query(run), "b": query(other)}
    if kind != "passes":
        return both
    stages = [
        {"name": row["name"], **{side: row[side] and row[side]["index"] for side in "ab"}}
        for row in compared.passes(run, other)
    ]
    return {**both, "stages": stages}


def passes(run: Run) -> list[dict[str, Any]]:
    """Return the most bytes alive at once after each pass, and the op at which that occurs.

    Ops are assumed to execute one by one (`find_lifetimes.values_alive`); ``changed``: whether the
    pass changed the peak. For very large models only the last passes are examined: ``MAX_OPS``.
    """
    return run.cached(("peaks", run.version.stages), lambda: _passes(run))


def _passes(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for stage in _within_reach(run.stages()):
        before = rows[-1] if rows else None
        if before is None or stage.changed:
            ops = (body := run.recording.module(stage.index).main.body).ops
            peak, at = live_peak(values_alive(body))
            op = run.op_id(ops[at]) if at < len(ops) else None
        else:
            peak, op = before["bytes"], before["op"]
        rows.append(
            {
                "stage": stage.index,
                "pass": stage.pass_name,
                "bytes": peak,
                "op": op,
                "changed": before is not None and peak != before["bytes"],
            }
        )
    return rows


def _loss_position(run: Run) -> dict[str, int]:
    """Return the program position at which the loss of a training step is made."""
    main = run.recording.module(run.stages()[-1].index).main
    if "results" not in main.attributes:
        return {}
    loss = Roles.of(main).results.index(("loss", -1))
    roots = memory_owners(main.body.ops)
    held = {
        roots.get(v, v)
        for op in main.body.ops
        if op.kind == OUTPUT and Output(op).index == loss
        for v in op.operands
    }
    for at, op in enumerate(main.body.ops):
        if op.kind == LAUNCH and not held.isdisjoint(roots.get(v, v) for v in op.operands):
            return {"border": at}
    return {}


def _within_reach(stages: list[Stage]) -> list[Stage]:
    """Return the last stages that have at most ``MAX_OPS`` ops in total, at least one."""
    ops = 0
    for at in range(len(stages) - 1, -1, -1):
        ops += stages[at].ops if stages[at].changed else 0
        if ops > MAX_OPS:
            return stages[min(at + 1, len(stages) - 1) :]
    return stages


def _place(run: Run, op: int | None) -> str:
    """Return the file and line of the model that an op of the last stage came from."""
    found = None if op is None else run.index(run.version.stages - 1).ops.get(op)
    file, line = ("", 0) if found is None else run.source_location(found)
    return f"{file}:{line}" if file else ""


def _tier(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": _TIERS.get(name, name)}
    bound = as_number(figures.get("lower_bound_bytes"))
    if name == "dram" and bound is not None:
        found["lower_bound"] = bound
    return found


def _labels(run: Run, steps: int) -> dict[str, Any]:
    """Return the op at each program position of live intervals: the last stage's main."""
    ops = run.index(run.version.stages - 1).module.main.body.ops
    if not any(op.kind == LAUNCH for op in ops):
        return {}
    return {
        "step_op": np.array([run.op_id(op) for op in ops[:steps]], np.int32),
        "step_label": [_label(op) for op in ops[:steps]],
    }


def _label(op: Op) -> str:
    if op.kind == LAUNCH:
        return f"launch {op.get('kernel', '')}"
    return op.kind.rpartition(".")[2]


def _name(run: Run, buffer: Buffer, made: Mapping[int, int]) -> str:
    """Return a buffer's name and the kernel that fills it."""
    name = buffer.name or ("" if buffer.value is None else f"%{buffer.value}")
    maker = None if buffer.value is None else made.get(buffer.value)
    launch = None if maker is None else launches(run).get(maker)
    return f"{name} {launch['kernel']}" if launch is not None else name


def _types(run: Run) -> dict[int | None, str]:
    """Return the type of each value of the last stage, by id."""
    body = run.index(run.version.stages - 1).module.main.body
    values = (*body.arguments, *(v for op in body.ops for v in op.results))
    return {run.value_id(v): str(v.type) for v in values}


# -- two recordings ------------------------------------------------------------------------------


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return ``two``: the maps ``a`` and ``b``, their ``names``, and the matching buffers.

    ``first`` in A, ``second`` in B, whether the match is ``guessed``, and ``why`` (an index into
    ``whys``). Requests apply to both (``answer``), never to a single map.
    """
    missing.need_both(run, other, lambda each: each.buffers(), "memory plan")
    same = same_buffers(run, other)
    whys = list(dict.fromkeys(each.why for each in same))
    return {
        "two": {
            "a": {**_one(run, state), "asks": False},
            "b": {**_one(other, state), "asks": False},
            "names": [run.path.name, other.path.name],
            "first": np.array([each.first for each in same], np.int32),
            "second": np.array([each.second for each in same], np.int32),
            "guessed": np.array([each.how == GUESSED for each in same], np.uint8),
            "why": np.array([whys.index(each.why) for each in same], np.uint8),
            "whys": whys,
            "asks": True,
        }
    }
