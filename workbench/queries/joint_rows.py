"""Inspector rows for an op of a training step: phase, gradient, parameters, saved values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from core_compiler.ir import Op
from core_compiler.ir.target import INPUT
from core_compiler.training.graph.phases import BEFORE, PHASES, RECOMPUTED, members
from workbench.queries.joint import Joint, Table, computes_nothing, joint, makes, reads, table
from workbench.queries.links import LAUNCH
from workbench.queries.rows import (
    MAX_LISTED,
    as_fact,
    as_link,
    as_section,
    as_text,
    short_path,
    short_type,
)
from workbench.queries.run import Run

Rows = list[dict[str, Any]]


def phase(run: Run, stage: int, op: Op) -> Rows:
    """Return the phase of an op as a row; for a kernel with several, the number of ops of each."""
    found = joint(run, stage)
    phase_counts = {} if found is None else found.phases.phase_counts(op)
    if not phase_counts:
        return []
    if len(phase_counts) == 1:
        return [as_fact("phase", next(iter(phase_counts)))]
    counts = ", ".join(f"{phase_counts[p]} {p}" for p in PHASES if p in phase_counts)
    return [as_fact("phases", f"ops: {counts}")]


def sections(run: Run, stage: int, op: Op) -> list[dict[str, Any]]:
    """Return the sections of an op in a stage; [] if there is no backward pass yet."""
    found = joint(run, stage)
    if found is None or not found.linked(stage) or (computes_nothing(op) and op.kind != INPUT):
        return []
    stage_links = table(run, stage)
    unit = _unit(run, stage, op)
    made = (
        ("Gradients", _gradients(run, stage, found, stage_links, op)),
        ("Gradient of", _gradient_of(run, stage, found, stage_links, op)),
        ("Updates", _updates(run, stage, found, stage_links, op)),
        ("Parameters", _parameters(run, found, stage_links, op)),
        ("Saved for backward", _saved(run, stage, found, stage_links, unit)),
    )
    return [as_section(title, rows) for title, rows in made if rows]


def gradient_ops(run: Run, stage: int, op: int) -> list[tuple[str, str, list[int]]]:
    """Return the links from an op of a stage to its gradient and back: ``(what, words, ops)``."""
    found, selected = joint(run, stage), run.index(stage).ops.get(op)
    if selected is None or found is None or not found.linked(stage):
        return []
    stage_links = table(run, stage)
    sides = (
        ("gradient", "its gradient:", _gradients(run, stage, found, stage_links, selected)),
        (
            "forward",
            "it is the gradient of",
            _gradient_of(run, stage, found, stage_links, selected),
        ),
    )
    return [
        (what, words, [row["go"]["op"] for row in rows if row["kind"] == "link"])
        for what, words, rows in sides
    ]


def _unit(run: Run, stage: int, op: Op) -> Op:
    """Return the op of main that contains an op."""
    index = run.index(stage)
    around = index.around.get(run.op_id(op))
    return op if around is None or members(index.ops[around]) == (op,) else index.ops[around]


def _gradients(run: Run, stage: int, found: Joint, stage_links: Table, op: Op) -> Rows:
    derivation = found.derivation
    roots = [root for root in derivation.roots(op, stage) if root in derivation.gradients]
    if not roots or found.phases.base_phase(op) == RECOMPUTED:  # else those of the first time
        return []
    all_gradients = {g for root in roots for g in derivation.gradients[root]}
    units = stage_links.units(all_gradients)
    units.pop(op, None)
    if not units:
        return [as_text("Passed through unchanged: no op computes it.")]
    of_parameter = {
        unit: [
            derivation.parameter_of[g]
            for g in all_gradients & derivation.parameter_of.keys()
            if any(u is unit for _, u in stage_links.carriers.get(g, ()))
        ]
        for unit in units
    }
    rows = []
    for unit, parts in units.items():
        detail = _parts(unit, parts)
        if of_parameter[unit]:
            names = _names(found, of_parameter[unit])
            detail += f"{'; ' if detail else ''}the gradient of {names}"
        rows.append(as_link(_title(run, unit), detail, {"op": run.op_id(unit)}))
    return _capped(rows)


def _gradient_of(run: Run, stage: int, found: Joint, stage_links: Table, op: Op) -> Rows:
    derivation = found.derivation
    own = derivation.roots(op, stage)
    units = stage_links.units(
        {derivation.gradient_of[r] for r in own & derivation.gradient_of.keys()}
    )
    units.pop(op, None)
    rows = []
    for unit, parts in units.items():
        file, line = run.source_location(parts[0])
        place = f"{short_path(file)}:{line}" if file else ""
        detail = ", ".join(text for text in (_parts(unit, parts), place) if text)
        rows.append(as_link(_title(run, unit), detail, {"op": run.op_id(unit)}))
    wanted = sorted({derivation.parameter_of[g] for g in own & derivation.parameter_of.keys()})
    if wanted:
        rows += [
            as_fact("parameter", _names(found, wanted)),
            *_update_links(run, stage_links, wanted),
        ]
    return _capped(rows)


def _updates(run: Run, stage: int, found: Joint, stage_links: Table, op: Op) -> Rows:
    parameters = found.derivation.updates(op, stage)
    if not parameters:
        return []
    rows: Rows = [
        as_fact("parameter" if len(parameters) == 1 else "parameters", _names(found, parameters))
    ]
    if len(parameters) == 1:
        rows += _gradient_links(run, found, stage_links, parameters, op)
    return rows


def _parameters(run: Run, found: Joint, stage_links: Table, op: Op) -> Rows:
    """Return the parameters that an op of the forward pass reads (or that an input is)."""
    phase_counts = found.phases.phase_counts(op)
    if phase_counts and BEFORE.isdisjoint(phase_counts):
        return []
    values = dict.fromkeys((*reads(op), *makes(op)))
    read = list(
        dict.fromkeys(stage_links.parameters[v] for v in values if v in stage_links.parameters)
    )
    rows: Rows = []
    for number in read[:MAX_LISTED]:
        rows.append(as_fact("parameter", _names(found, [number])))
        rows += [
            *_gradient_links(run, found, stage_links, [number], op),
            *_update_links(run, stage_links, [number]),
        ]
    return rows


def _gradient_links(
    run: Run, found: Joint, stage_links: Table, parameters: Sequence[int], op: Op
) -> Rows:
    """Return links to the ops that make the gradients of parameters."""
    wanted = [g for g, of in found.derivation.parameter_of.items() if of in parameters]
    units = (unit for unit in stage_links.units(wanted) if unit is not op)
    return [
        as_link(_title(run, unit), "makes its gradient", {"op": run.op_id(unit)}) for unit in units
    ]


def _update_links(run: Run, stage_links: Table, parameters: Iterable[int]) -> Rows:
    """Return links to the ops that make the next values of parameters."""
    units = dict.fromkeys(stage_links.nexts[p] for p in parameters if p in stage_links.nexts)
    return [
        as_link(_title(run, unit), "makes its next value", {"op": run.op_id(unit)})
        for unit in units
    ]


def _saved(run: Run, stage: int, found: Joint, stage_links: Table, unit: Op) -> Rows:
    phase_counts = found.phases.phase_counts(unit)
    roots = found.derivation.roots(unit, stage)
    if RECOMPUTED in phase_counts:
        first = _with_equal_work(stage, found, list(stage_links.units(roots)), unit)
        return [
            as_text("Not saved: this op recomputes work of the forward pass, of:"),
            *_listed(run, first, unit),
        ]
    if BEFORE.isdisjoint(phase_counts):
        return []
    rows: Rows = []
    for saved in stage_links.saved.get(unit, ())[:MAX_LISTED]:
        rows.append(as_fact("kept", f"{short_type(saved.value.type)}, {saved.bytes:,} B"))
        rows += [
            as_link(_title(run, reader), "reads it", {"op": run.op_id(reader)})
            for reader in saved.readers[:MAX_LISTED]
        ]
    recomputed = dict.fromkeys(
        second for root in roots for second in stage_links.recomputed.get(root, ())
    )
    if recomputed:
        rows.append(as_text("Recomputed for the backward pass by:"))
        second = _with_equal_work(
            stage, found, sorted(recomputed, key=stage_links.place.__getitem__), unit
        )
        rows += _listed(run, second, unit)
    return rows or [as_text("The backward pass does not read its results.")]


def _with_equal_work(stage: int, found: Joint, units: Sequence[Op], unit: Op) -> Sequence[Op]:
    """Return the units that share work with ``unit``, if possible only those with equal work."""
    roots = found.derivation.roots
    return [u for u in units if roots(u, stage) == roots(unit, stage)] or units


def _listed(run: Run, units: Iterable[Op], excluded: Op) -> Rows:
    rows = [as_link(_title(run, u), "", {"op": run.op_id(u)}) for u in units if u is not excluded]
    return _capped(rows)


def _capped(rows: Rows) -> Rows:
    more = len(rows) - MAX_LISTED
    return rows if more <= 0 else [*rows[:MAX_LISTED], as_text(f"and {more} more")]


def _title(run: Run, unit: Op) -> str:
    what = f"launch {unit['kernel']}" if unit.kind == LAUNCH else unit.kind
    return f"{run.name_of(run.op_id(unit))} {what}"


def _parts(unit: Op, parts: Sequence[Op]) -> str:
    """Return the members of a group or launch that are meant, as text."""
    if len(members(unit)) == 1:
        return ""
    kinds = dict.fromkeys(part.kind.rpartition(".")[2] for part in parts)
    return "its " + ", ".join(kinds)


def _names(found: Joint, parameters: Sequence[int]) -> str:
    names = [found.names[p] for p in dict.fromkeys(parameters)]
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
