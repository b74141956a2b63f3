"""The history of one op along the passes: sources, rewrites, results, gradient.

The inspector and ``workbench op --json`` show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from core_compiler.record.history import HistoryStep, OpHistory
from workbench.queries import joint_rows
from workbench.queries.links import FEEDS, LAUNCH, linked_to
from workbench.queries.rows import cut, short_path
from workbench.queries.run import Run

#: The most marks of a lane; marks in between are omitted, and ``more`` counts them.
MAX_MARKS = 24
#: The most ops that a mark names.
MAX_NAMED = 3
FROM, SELF, BECAME, GRADIENT = "from", "op", "became", "gradient"
#: Items shown after the last pass: the kernel, its buffer, its code.
_ENDS = ("kernel", "buffer", "code")

Mark = dict[str, Any]


def timeline(run: Run, op: int, stage: int) -> dict[str, Any]:
    """Return the marks of an op, as data.

    ``stages``: the number of stages; ``first``, ``last``: those that contain the op (``last``
    None: to the end; ``first`` None: in none, it is part of a rewrite). ``marks``: ``lane``
    (``from``, ``op``, ``became``, ``gradient``), ``at`` (a stage; kernel, buffer and code come
    after the last one), ``what`` (``source``, ``imported``, ``created``, ``rewritten``, ``fused``,
    ``kernel``, ``buffer``, ``code``, ``removed``, ``gradient``, ``forward``), ``pass``, ``rule``,
    ``text``, and ``go``, the link; marks of gradients have all their ``ops``. ``more``: the number
    of omitted marks. Gradients are those of ``stage``.
    """
    history, names = run.op_history(op), [s.pass_name for s in run.stages()]
    first, last = history.stages or (None, None)
    lanes = (
        [*_source(run, op, history), *_steps(run, op, history.earlier, FROM)],
        list(_self(run, op, history, names)),
        [*_steps(run, op, history.later, BECAME), *_ends(run, op, history, len(names))],
        list(_gradients(run, op, stage)),
    )
    marks, more = [], 0
    for lane in lanes:
        shown = [*lane[: MAX_MARKS - 4], *lane[-4:]] if len(lane) > MAX_MARKS else lane
        more += len(lane) - len(shown)
        marks += sorted(shown, key=lambda mark: mark["at"])
    for mark in marks:
        at = mark["at"]
        mark["pass"] = names[at] if 0 <= at < len(names) else None
    return {
        "op": op,
        "stages": len(names),
        "first": first,
        "last": last,
        "marks": marks,
        "more": more,
    }


def _mark(lane: str, at: int, what: str, text: str, go: dict[str, Any], rule: str = "") -> Mark:
    return {"lane": lane, "at": at, "what": what, "rule": rule, "text": cut(text), "go": go}


def _source(run: Run, op: int, history: OpHistory) -> Iterator[Mark]:
    for node in history.nodes[:1]:
        place = f"{short_path(node.file)}:{node.line}" if node.file else ""
        text = " ".join(part for part in (node.name, place) if part)
        more = f", and {len(history.nodes) - 1} more" if len(history.nodes) > 1 else ""
        at = {"source": {"file": node.file, "at": [node.file, node.line]}}
        go = {"op": op, "open": "source", "state": at} if node.file else {"op": op, "stage": 0}
        yield _mark(FROM, -1, "source", f"model: {text}{more}", go)


def _self(run: Run, op: int, history: OpHistory, names: Sequence[str]) -> Iterator[Mark]:
    if history.stages is None:
        return
    first, last = history.stages
    name = f"{run.name_of(op)} {run.recording.op(op).kind}"
    link = {"op": op, "stage": first}
    if first == 0:
        yield _mark(SELF, 0, "imported", f"00 {names[0]}: {name}", link)
    else:
        made = next((s for s in history.earlier if s.new == op and s.stage == first), None)
        rule = "" if made is None else made.rule
        text = f"{first:02d} {names[first]}: makes {name}" + (f" ({rule})" if rule else "")
        yield _mark(SELF, first, "created", text, link | _rewrite(run, first, made), rule)
    if last is not None and last + 1 < len(names):
        removal = next(
            (
                s
                for s in history.later
                if s.old == op and s.stage == last + 1 and _is_relevant(run, op, s.new)
            ),
            None,
        )
        rule = "" if removal is None else removal.rule
        text = f"{last + 1:02d} {names[last + 1]}: removes it" + (f" ({rule})" if rule else "")
        go = (
            {"op": op, "stage": last}
            if removal is None
            else {"op": removal.new, "stage": last + 1, **_rewrite(run, last + 1, removal)}
        )
        yield _mark(SELF, last + 1, "removed", text, go, rule)


def _steps(run: Run, op: int, steps: Iterable[HistoryStep], lane: str) -> Iterator[Mark]:
    """Return one mark per pass: its first step, and the number of its rewrites."""
    side = "old" if lane == FROM else "new"
    by_stage: dict[int, list[HistoryStep]] = {}
    for step in steps:
        if step.stage is not None and _is_relevant(run, op, getattr(step, side)):
            by_stage.setdefault(step.stage, []).append(step)
    names = {s.index: s.pass_name for s in run.stages()}
    for stage, found in by_stage.items():
        # An op that the pass left represents the intermediate ones.
        step = next((s for s in found[::-1] if _is_there(run, s.new, stage)), found[-1])
        kind = run.recording.op(step.new).kind
        what = {"core.group": "fused", LAUNCH: "kernel"}.get(kind, "rewritten")
        rules = len({s.rewrite for s in found})
        text = f"{stage:02d} {names.get(stage, '')}: {run.name_of(step.old)} → "
        text += f"{run.name_of(step.new)} {kind}: {step.rule}"
        text += (
            f", and {rules - 1} more rewrites"
            if rules > 2
            else (", and one more rewrite" if rules == 2 else "")
        )
        go = {"op": step.new, "stage": stage, **_rewrite(run, stage, step)}
        if lane == FROM:  # link to its state before
            go = {"op": step.old, "stage": stage, "before": True}
        yield _mark(lane, stage, what, text, go, step.rule)


def _is_relevant(run: Run, selected: int, other: int) -> bool:
    """Return whether a step to ``other`` is relevant to the selected op.

    Constants and memory that a rule made beside it are not, unless it is itself such an op.
    """
    kinds = [run.recording.op(key).kind for key in (selected, other)]
    return FEEDS.get(kinds[1], 0) <= FEEDS.get(kinds[0], 0)


def _is_there(run: Run, op: int, stage: int) -> bool:
    span = run.recording.op_stages(op)
    return span is not None and span[0] <= stage and (span[1] is None or stage <= span[1])


def _rewrite(run: Run, stage: int, step: HistoryStep | None) -> dict[str, int]:
    if step is None or step.rewrite is None:
        return {}
    numbers = run.cached(
        ("rewrite numbers", stage), lambda: {r.id: r.number for r in run.rewrites(stage)}
    )
    return {"rewrite": numbers[step.rewrite]} if step.rewrite in numbers else {}


def _ends(run: Run, op: int, history: OpHistory, stages: int) -> Iterator[Mark]:
    kernel, buffer = linked_to(run, op, history)
    positions = {name: stages + index for index, name in enumerate(_ENDS)}
    made = next((k for k in run.kernels() if k.id == kernel), None)
    if made is not None:
        yield _mark(
            BECAME,
            positions["kernel"],
            "kernel",
            f"kernel {made.name}",
            {"op": op, "kernel": kernel, "panes": ["kernels", "code"]},
        )
        text = f"its lines in the code of {made.name}"
        yield _mark(
            BECAME, positions["code"], "code", text, {"op": op, "kernel": kernel, "open": "code"}
        )
    planned = next((b for b in run.buffers() if b.id == buffer), None)
    if planned is not None:
        text = f"buffer {planned.name or '%' + str(planned.value)}: {planned.size:,} B at "
        text += f"{planned.offset:,} of {planned.tier}, "
        text += f"live at positions {planned.start} to {planned.end}"
        yield _mark(
            BECAME,
            positions["buffer"],
            "buffer",
            text,
            {"op": op, "buffer": buffer, "open": "memory"},
        )


def _gradients(run: Run, op: int, stage: int) -> Iterator[Mark]:
    """Return marks at the stages that made its gradient, or the ops whose gradient it is."""
    for what, words, ops in joint_rows.gradient_ops(run, stage, op):
        made: dict[int, list[int]] = {}
        for other in ops:
            span = run.recording.op_stages(other)
            made.setdefault(stage if span is None else span[0], []).append(other)
        for at, found in made.items():
            named = [f"{run.name_of(o)} {run.recording.op(o).kind}" for o in found[:MAX_NAMED]]
            text = f"{words} {', '.join(named)}{', and others' if len(found) > MAX_NAMED else ''}"
            yield {
                **_mark(GRADIENT, at, what, text, {"op": found[0], "stage": stage}),
                "ops": found,
            }
