"""The rewrites of the shown pass, one of them before and after, and why two ops were not fused.

A query ("why not?") is part of the view's remembered state, so that a link repeats it: ``{"why":
{"a": op, "b": op, "rule": text}}``. Without ``a`` it is the selected op; without ``b``, if another
op than ``a`` is selected, it is that one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.ir import Op, TensorType, Value
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.target import VIEW
from core_compiler.ir.text import print_op
from core_compiler.ops.traits import has_trait
from core_compiler.record.reader import RecordedRewrite
from core_compiler.support.errors import UserError
from workbench.queries import compared
from workbench.queries.links import FEEDS, LAUNCH, follow, linked
from workbench.queries.numeric_results import json_number
from workbench.queries.rows import short_path, short_type
from workbench.queries.rule_counts import rules
from workbench.queries.run import Run, Runs, shown
from workbench.state.view_state import ViewState
from workbench.views import missing
from workbench.views.inspector import check_text

#: The most rewrites listed, ops drawn or printed of one side, neighbours offered, ops found.
MAX_ROWS, MAX_OPS, MAX_NEIGHBOURS, MAX_FOUND = 3000, 60, 12, 12
#: The longest line of IR.
MAX_TEXT = 1200


def _is_view(kind: str) -> bool:
    """Return whether ops of a kind only reinterpret how bytes are read."""
    return kind == VIEW or has_trait(kind, "view")


def key(run: Run, state: ViewState) -> tuple:
    return run.version.checks, run.version.stages, run.stage_number(state.stage)


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return ``rows``: number, rule, ``us``, verdict, error, ops before and after, note, where."""
    stages = run.stages()
    if not stages:
        raise missing.stages(run)
    stage = stages[run.stage_number(state.stage)]
    steps = run.rewrites(stage.index) if stage.index else []
    rules = Counter(step.rewrite.rule for step in steps)
    changed = [s.index for s in stages if s.rewrites]
    return {
        "stage": stage.index,
        "name": stage.pass_name,
        "total": len(steps),
        "rows": [row(run, step) for step in steps[:MAX_ROWS]],
        "rules": [[rule, count] for rule, count in rules.most_common()],
        "next": next((s for s in changed if s > stage.index), None),
        "previous": next((s for s in reversed(changed) if s < stage.index), None),
        "checked": any(step.check is not None for step in steps),
        "doc": stage.summary,
        "names": rule_names(run),
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return ``rewrite`` and its ``detail``; ``why``: the query and its answers.

    For two recordings: the ``stage``, and the ``rule`` of the selected rewrite (None if there is
    none).
    """
    run, other = shown(runs)
    found: dict[str, Any] = {}
    if not run.version.stages:
        return found
    stage = run.stage_number(state.stage)
    number = state.rewrite
    steps = run.rewrites(stage) if stage else []
    chosen = steps[number] if number is not None and 0 <= number < len(steps) else None
    if other is not None:
        return {"stage": stage, "rule": None if chosen is None else chosen.rewrite.rule}
    if chosen is not None:
        known = "rewrite", stage, number, run.version.checks
        detail = run.cached(known, lambda: _detail(run, chosen))
        found |= {"rewrite": number, "detail": detail}
    why_query = _read_query(state)
    if why_query is not None:
        found["why"] = _why(run, state, stage, why_query)
    return found


def answer(runs: Runs, state: ViewState, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the result of ``find``: ops of the shown stage by a part of their name or kind."""
    run = runs[0]
    text = str(request.get("text", "")).lower().split()[:6]
    if request.get("kind") != "find" or not text:
        return []
    index = run.index(run.stage_number(state.stage))
    found = []
    for number, op in index.ops.items():
        if op.kind in CONSTANTS or op.kind.startswith("kernel."):
            continue
        named = f"{run.name_of(number)} {op.kind} {run.scope_of(op)}".lower()
        if all(word in named for word in text):
            found.append(_op(run, number))
            if len(found) == MAX_FOUND:
                break
    return found


# -- the list -------------------------------------------------------------------------------------


def row(run: Run, step: RecordedRewrite) -> dict[str, Any]:
    made, check = step.rewrite, step.check
    about = next((op for op in (*made.new, *made.old) if op.kind not in FEEDS), None)
    about = about or next(iter((*made.new, *made.old)), None)
    file, line = run.source_location(about) if about is not None else ("", 0)
    return {
        "n": step.number,
        "rule": made.rule,
        "us": made.microseconds,
        "verdict": "unchecked" if check is None else check.verdict,
        "error": None
        if check is None or check.verdict == "unchecked"
        else json_number(check.worst_error),
        "before": len(made.old),
        "after": len(made.new),
        "note": made.note,
        "name": run.name_of(run.op_id(about)) if about is not None else "",
        "place": f"{file.rsplit('/', 1)[-1]}:{line}" if file else "",
        "scope": run.scope_of(about) if about is not None else "",
    }


# -- one rewrite ----------------------------------------------------------------------------------


def _detail(run: Run, step: RecordedRewrite) -> dict[str, Any]:
    """Return the rule, the check, and both sides: as text, and as data for a drawing."""
    made, check = step.rewrite, step.check
    detail: dict[str, Any] = {
        "n": step.number,
        "rule": made.rule,
        "source": made.source,
        "short": short_path(made.source),
        "us": made.microseconds,
        "note": made.note,
        "function": made.function,
        "tolerance": made.tolerance,
        "verdict": "unchecked" if check is None else check.verdict,
        "check": "not checked" if check is None else check_text(check),
        "old": _side(run, made.old),
        "new": _side(run, made.new),
        "values": [[_name(run, a), _name(run, b)] for a, b in list(made.values.items())[:MAX_OPS]],
    }
    if check is not None and check.value is not None:
        detail["value"] = f"{_name(run, check.value)} {short_type(check.value.type)}"
        detail["element"] = list(check.index)
        detail["numbers"] = [getattr(check, "old", None), getattr(check, "new", None)]
    return detail


def _side(run: Run, ops: Sequence[Op]) -> dict[str, Any]:
    """Return ``lines`` of MLIR (``depth`` within a group), and ``drawn`` ops with their values."""
    lines = list(_lines(run, ops))
    inner = [
        (op, o)
        for o in ops
        for op in (o.regions[0].ops if _is_group(o) else (o,))
        if op.kind not in CONSTANTS
    ]
    return {
        "lines": lines[:MAX_OPS],
        "more": max(0, len(lines) - MAX_OPS),
        "count": len(ops),
        "drawn": [_drawn(run, op, None if op is outer else outer) for op, outer in inner[:MAX_OPS]],
    }


def _is_group(op: Op) -> bool:
    return op.kind in ("core.group", LAUNCH) and bool(op.regions)


def _lines(run: Run, ops: Sequence[Op], depth: int = 0) -> Iterator[dict[str, Any]]:
    for op in ops:
        values = (*op.operands, *op.results)
        text = print_op(op, numbers={v: run.value_id(v) for v in values})
        yield {"op": run.op_id(op), "text": text[:MAX_TEXT], "depth": depth}
        if _is_group(op):
            yield from _lines(run, op.regions[0].ops, depth + 1)


def _drawn(run: Run, op: Op, group: Op | None) -> dict[str, Any]:
    """Return an op of a drawing; values that enter a group are named as outside it."""
    outside: dict[Value, Value] = {}
    if group is not None:
        block = group.regions[0]
        outside = dict(zip(block.arguments, group.operands, strict=False))
        outside |= dict(zip(block.outputs, group.results, strict=False))
    key = run.op_id(op)
    return {
        "op": key,
        "kind": op.kind.rpartition(".")[2],
        "name": run.name_of(key),
        "group": None if group is None else run.op_id(group),
        "in": [run.value_id(outside.get(v, v)) for v in op.operands],
        "out": [run.value_id(outside.get(v, v)) for v in op.results],
        "names": [_name(run, outside.get(v, v)) for v in op.operands],
        "type": short_type(op.results[0].type) if op.results else "",
    }


def _name(run: Run, value: Value) -> str:
    return f"%{value.name or run.value_id(value)}"


# -- why-not queries ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _WhyQuery:
    """A query in the view's state: two ops, or an op and a rule; None if unspecified.

    ``near``: the second op is the first neighbour of the first.
    """

    a: int | None
    b: int | None
    rule: str
    near: bool = False


def _read_query(state: ViewState) -> _WhyQuery | None:
    text = state.remembered_text("rewrites")
    try:
        why = json.loads(text).get("why") if text else None
    except (ValueError, AttributeError):
        return None
    if not isinstance(why, dict):
        return None
    ids = {name: why.get(name) for name in ("a", "b")}
    a, b = (v if type(v) is int and v >= 0 else None for v in ids.values())
    rule = why.get("rule")
    near = why.get("near") is True
    return _WhyQuery(a, b, rule[:300] if isinstance(rule, str) else "", near)


def _why(run: Run, state: ViewState, stage: int, why_query: _WhyQuery) -> dict[str, Any]:
    selected = linked(run, state).op
    a = _in_stage(run, why_query.a, stage) if why_query.a is not None else selected
    while a is not None and stage and _writes_buffers(run, a):  # no fusion pass sees buffers
        stage -= 1
        a = _in_stage(run, a, stage)
    selected = _in_stage(run, selected, stage)
    b = _in_stage(run, why_query.b, stage)
    if b is None and why_query.b is None and why_query.a is not None and not why_query.rule:
        b = selected if selected not in (a, why_query.a) and state.op != why_query.a else None
    near = [] if a is None else _neighbours(run, stage, a)
    if b is None and why_query.near and not why_query.rule and near:
        b = near[0]["op"]
    result: dict[str, Any] = {
        "a": None if a is None else _op(run, a),
        "b": None if b is None else _op(run, b),
        "rule": why_query.rule,
        "answers": [],
        "stage": stage,
        "neighbours": near,
    }
    if a is not None and (b is not None or why_query.rule):
        known = "why", stage, a, b, why_query.rule, run.version.stages
        result |= run.cached(known, lambda: _answers(run, stage, a, b, why_query.rule))
    return result


def _writes_buffers(run: Run, op: int) -> bool:
    made = run.recording.op(op)
    return made.kind.startswith("target.") and not any(
        isinstance(v.type, TensorType) for v in made.results
    )


def _in_stage(run: Run, op: int | None, stage: int) -> int | None:
    """Return the counterpart of an op in the shown stage; the op itself if there is none."""
    if op is None or not run.recording.query(f"SELECT 1 FROM op WHERE id = {op}").rows:
        return None
    return next(iter(follow(run, op, stage)), op)


def _answers(run: Run, stage: int, a: int, b: int | None, rule: str) -> dict[str, Any]:
    """Return ``summary`` and ``answers``, in pass order; ``problem`` if the query is impossible."""
    from core_compiler.debug.why_not import first_stage, summary, why_not

    op_ids = [op for op in (a, b) if op is not None]
    try:
        if not all(op in run.index(stage).ops for op in op_ids):
            stage = first_stage(run.recording, *op_ids)
        found = why_not(run.recording, stage, a, b, rule or None, claims=_claims(run))
    except UserError as error:
        return {"problem": f"{error.what}: {error.fix}" if error.fix else error.what}
    labels = {s.index: s.pass_name for s in run.stages()}
    answers = [one.to_json() | {"short": short_path(one.source)} for one in found]
    return {
        "summary": summary(found),
        "answers": answers,
        "asked": stage,
        "asked_name": labels.get(stage, ""),
    }


def _claims(run: Run) -> Any:
    """Return the ops that the recording's target claims as a whole; None if it is not installed."""
    from core_compiler import targets

    try:
        return targets.target(str(run.meta().get("target", ""))).claims
    except UserError:
        return None


def rule_names(run: Run) -> list[str]:
    """Return the names of the rules of this pipeline's passes, and of the passes."""

    def make() -> list[str]:
        from core_compiler.debug.stages import Stages

        stages = Stages(run.recording)
        names: dict[str, None] = {}
        for number in range(1, stages.count):
            made = stages.pass_(number)
            if made is None:
                continue
            fusion = made.fusion()
            rules = [r.name for r in made.table()] + ([fusion.rule] if fusion else [])
            if rules or made.refusal_arity:
                names |= dict.fromkeys([stages.label(number).partition("#")[0], *rules])
        return list(names)

    return run.cached(("rule names", run.version.stages), make)


def _op(run: Run, number: int) -> dict[str, Any]:
    op = run.recording.op(number)
    kind = op.kind.rpartition(".")[2]
    if _is_group(op):
        inner = dict.fromkeys(
            o.kind.rpartition(".")[2] for o in op.regions[0].ops if o.kind not in FEEDS
        )
        kind += f" of {', '.join(list(inner)[:4])}{', ...' if len(inner) > 4 else ''}"
    type_ = short_type(op.results[0].type) if op.results else ""
    return {
        "op": number,
        "name": run.name_of(number),
        "kind": kind,
        "type": type_,
        "scope": run.scope_of(op),
    }


def _neighbours(run: Run, stage: int, number: int) -> list[dict[str, Any]]:
    """Return the ops that make an op's operands or read its results, in its block.

    Behind ops that only change a shape, the next ones are included too.
    """
    index = run.index(stage)
    op = index.ops.get(number)
    if op is None:
        return []
    around = index.around.get(number)
    if around is not None:
        siblings = [o for region in index.ops[around].regions for o in region.ops]
    else:
        siblings = list(index.module.main.body.ops)
    maker = {v: o for o in siblings for v in o.results}
    readers: dict[Value, list[Op]] = {}
    for other in siblings:
        for value in dict.fromkeys(other.uses()):
            readers.setdefault(value, []).append(other)
    before = _reachable(op, lambda o: [maker[v] for v in o.uses() if v in maker])
    after = _reachable(op, lambda o: [r for v in o.results for r in readers.get(v, ())])
    found = [(o, True) for o in before] + [(o, False) for o in after]
    found.sort(key=lambda row: _is_view(row[0].kind))  # ops that compute come first
    return [{**_op(run, run.op_id(o)), "feeds": feeds} for o, feeds in found[:MAX_NEIGHBOURS]]


def _reachable(start: Op, steps: Callable[[Op], list[Op]]) -> list[Op]:
    found: dict[Op, None] = {}
    queue = [start]
    for each in queue:
        for other in steps(each):
            if other is start or other in found or other.kind in FEEDS:
                continue
            found[other] = None
            if _is_view(other.kind):
                queue.append(other)
    return list(found)


# -- two recordings ------------------------------------------------------------------------------


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return ``rows``: the rules of passes, in the order of A's passes, then B's.

    A row has ``pass``, ``rule``, and for each side (None: it never applied there) its ``stage``,
    the ``count`` of applications, ``us`` spent matching and rewriting, the number of ``removed``
    ops (negative: added), the worst ``error`` of its checks, the number of ``failed`` checks, and
    the number of its ``first`` rewrite.
    """
    missing.need_both(run, other, lambda each: each.version.stages, "passes")
    return {
        "two": True,
        "a": compared.about(run),
        "b": compared.about(other),
        "rows": rules(run, other),
    }
