"""Inspector rows for an op of a training step: phase, gradient, parameters, saved values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from core_compiler.ir import Op
from core_compiler.passes.bufferize import INPUT
from core_compiler.training.graph.phases import BEFORE, PHASES, RECOMPUTED, members
from workbench.queries.joint import Joint, Table, is_quiet, joint, makes, reads, table
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
    mix = {} if found is None else found.phases.mix(op)
    if not mix:
        return []
    if len(mix) == 1:
        return [as_fact("phase", next(iter(mix)))]
    counts = ", ".join(f"{mix[p]} {p}" for p in PHASES if p in mix)
    return [as_fact("phases", f"ops: {counts}")]


def sections(run: Run, stage: int, op: Op) -> list[dict[str, Any]]:
    """Return the sections of an op in a stage; [] if there is no backward pass yet."""
    found = joint(run, stage)
    if found is None or not found.linked(stage) or (is_quiet(op) and op.kind != INPUT):
        return []
    lists = table(run, stage)
    unit = _unit(run, stage, op)
    made = (
        ("Gradients", _gradients(run, stage, found, lists, op)),
        ("Gradient of", _gradient_of(run, stage, found, lists, op)),
        ("Updates", _updates(run, stage, found, lists, op)),
        ("Parameters", _parameters(run, found, lists, op)),
        ("Saved for backward", _saved(run, stage, found, lists, unit)),
    )
    return [as_section(title, rows) for title, rows in made if rows]


def gradient_ops(run: Run, stage: int, op: int) -> list[tuple[str, str, list[int]]]:
    """Return the links from an op of a stage to its gradient and back: ``(what, words, ops)``."""
    found, there = joint(run, stage), run.index(stage).ops.get(op)
    if there is None or found is None or not found.linked(stage):
        return []
    lists = table(run, stage)
    sides = (
        ("gradient", "its gradient:", _gradients(run, stage, found, lists, there)),
        ("forward", "it is the gradient of", _gradient_of(run, stage, found, lists, there)),
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


def _gradients(run: Run, stage: int, found: Joint, lists: Table, op: Op) -> Rows:
    derivation = found.derivation
    roots = [root for root in derivation.roots(op, stage) if root in derivation.gradients]
    if not roots or found.phases.when(op) == RECOMPUTED:  # else those of the first time
        return []
    whole = {g for root in roots for g in derivation.gradients[root]}
    units = lists.units(whole)
    units.pop(op, None)
    if not units:
        return [as_text("Passed through unchanged: no op computes it.")]
    of_parameter = {
        unit: [
            derivation.makes[g]
            for g in whole & derivation.makes.keys()
            if any(u is unit for _, u in lists.carriers.get(g, ()))
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


def _gradient_of(run: Run, stage: int, found: Joint, lists: Table, op: Op) -> Rows:
    derivation = found.derivation
    own = derivation.roots(op, stage)
    units = lists.units({derivation.gradient_of[r] for r in own & derivation.gradient_of.keys()})
    units.pop(op, None)
    rows = []
    for unit, parts in units.items():
        file, line = run.kept_place(parts[0])
        place = f"{short_path(file)}:{line}" if file else ""
        detail = ", ".join(text for text in (_parts(unit, parts), place) if text)
        rows.append(as_link(_title(run, unit), detail, {"op": run.op_id(unit)}))
    wanted = sorted({derivation.makes[g] for g in own & derivation.makes.keys()})
    if wanted:
        rows += [as_fact("parameter", _names(found, wanted)), *_to(run, lists, wanted)]
    return _capped(rows)


def _updates(run: Run, stage: int, found: Joint, lists: Table, op: Op) -> Rows:
    parameters = found.derivation.updates(op, stage)
    if not parameters:
        return []
    rows: Rows = [
        as_fact("parameter" if len(parameters) == 1 else "parameters", _names(found, parameters))
    ]
    if len(parameters) == 1:
        rows += _from(run, found, lists, parameters, op)
    return rows


def _parameters(run: Run, found: Joint, lists: Table, op: Op) -> Rows:
    """Return the parameters that an op of the forward pass reads (or that an input is)."""
    mix = found.phases.mix(op)
    if mix and BEFORE.isdisjoint(mix):
        return []
    values = dict.fromkeys((*reads(op), *makes(op)))
    read = list(dict.fromkeys(lists.parameters[v] for v in values if v in lists.parameters))
    rows: Rows = []
    for number in read[:MAX_LISTED]:
        rows.append(as_fact("parameter", _names(found, [number])))
        rows += [*_from(run, found, lists, [number], op), *_to(run, lists, [number])]
    return rows


def _from(run: Run, found: Joint, lists: Table, parameters: Sequence[int], op: Op) -> Rows:
    """Return links to the ops that make the gradients of parameters."""
    wanted = [g for g, of in found.derivation.makes.items() if of in parameters]
    units = (unit for unit in lists.units(wanted) if unit is not op)
    return [
        as_link(_title(run, unit), "makes its gradient", {"op": run.op_id(unit)}) for unit in units
    ]


def _to(run: Run, lists: Table, parameters: Iterable[int]) -> Rows:
    """Return links to the ops that make the next values of parameters."""
    units = dict.fromkeys(lists.nexts[p] for p in parameters if p in lists.nexts)
    return [
        as_link(_title(run, unit), "makes its next value", {"op": run.op_id(unit)})
        for unit in units
    ]


def _saved(run: Run, stage: int, found: Joint, lists: Table, unit: Op) -> Rows:
    mix = found.phases.mix(unit)
    roots = found.derivation.roots(unit, stage)
    if RECOMPUTED in mix:
        first = _alike(stage, found, list(lists.units(roots)), unit)
        return [
            as_text("Not saved: this op recomputes work of the forward pass, of:"),
            *_listed(run, first, unit),
        ]
    if BEFORE.isdisjoint(mix):
        return []
    rows: Rows = []
    for saved in lists.saved.get(unit, ())[:MAX_LISTED]:
        rows.append(as_fact("kept", f"{short_type(saved.value.type)}, {saved.bytes:,} B"))
        rows += [
            as_link(_title(run, reader), "reads it", {"op": run.op_id(reader)})
            for reader in saved.readers[:MAX_LISTED]
        ]
    again = dict.fromkeys(second for root in roots for second in lists.again.get(root, ()))
    if again:
        rows.append(as_text("Recomputed for the backward pass by:"))
        second = _alike(stage, found, sorted(again, key=lists.place.__getitem__), unit)
        rows += _listed(run, second, unit)
    return rows or [as_text("The backward pass does not read its results.")]


def _alike(stage: int, found: Joint, units: Sequence[Op], unit: Op) -> Sequence[Op]:
    """Return the units that share work with ``unit``, if possible only those with equal work."""
    roots = found.derivation.roots
    return [u for u in units if roots(u, stage) == roots(unit, stage)] or units


def _listed(run: Run, units: Iterable[Op], but: Op) -> Rows:
    rows = [as_link(_title(run, u), "", {"op": run.op_id(u)}) for u in units if u is not but]
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
