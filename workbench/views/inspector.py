"""The inspector: the selected op (or rewrite, or pass), its origin, and its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import core_compiler.ops as declarations
from core_compiler.ir import Op
from core_compiler.ir.origin import FrontendNode
from core_compiler.ir.text import print_attribute, print_op
from core_compiler.record.history import HistoryStep
from core_compiler.record.reader import RecordedRewrite, Stage
from workbench.queries import joint_rows, kernel_rows
from workbench.queries.kernel_table import table
from workbench.queries.links import FEEDS, LAUNCH, Linked, linked, writers
from workbench.queries.op_timeline import timeline
from workbench.queries.rows import (
    MAX_LISTED,
    TIMES,
    as_fact,
    as_link,
    as_section,
    as_text,
    cut,
    short_path,
    short_type,
)
from workbench.queries.run import Run, Runs
from workbench.state.view_state import ViewState
from workbench.support import units
from workbench.views.passes import values

#: The number of lines of the model's source shown around the line an op came from.
CONTEXT = 2
_HALVES = {
    "source": "ONNX graph, before the import",
    "meaning": "target-independent",
    "implementation": "target-specific",
}


def key(run: Run, state: ViewState) -> tuple:
    return run.version.compiled, state.stage, state.rewrite, state.op, state.buffer, state.kernel


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return ``sections``: title and rows; rows are figures, texts, links or code."""
    run = runs[0]
    if not run.version.stages:
        return {"title": "Inspector", "sections": []}
    found = linked(run, state)
    sections: list[dict[str, Any]] = []
    if _is_kernel(run, state):
        return _of_kernel(run, state, found)
    if found.op is not None:
        sections += _op(run, found.stage, found.op, found.ops)
    elif state.op is not None:
        sections.append(
            as_section(
                "Selection",
                [
                    as_text("This op does not exist at this stage."),
                    *_life_links(run, state.op),
                ],
            )
        )
    if state.rewrite is not None:
        sections = _rewrite(run, found.stage, state.rewrite) + sections
    if found.op is not None or state.kernel is not None or state.buffer is not None:
        sections += _became(run, found.kernel, found.buffer)
    sections.append(_pass(run, run.stages()[found.stage]))
    return {"title": _title(run, found.op, state), "sections": sections}


def _is_kernel(run: Run, state: ViewState) -> bool:
    """Return whether a kernel is selected, and nothing in it."""
    known = state.kernel is not None and state.op is None and state.rewrite is None
    return known and bool(kernel_rows.name_of(run, state.kernel or 0))


def _of_kernel(run: Run, state: ViewState, found: Linked) -> dict[str, Any]:
    """Return the kernel, the origin of its slowest launch, and the buffers that launch writes."""
    number = state.kernel or 0
    sections = kernel_rows.sections(run, number)
    if found.op is not None:
        op = run.recording.op(found.op)
        sections.append(as_section("Came from", _origin(run, op)))
    sections += _became(run, None, found.buffer) if found.buffer is not None else []
    return {"title": f"kernel {kernel_rows.name_of(run, number)}", "sections": sections}


def _title(run: Run, op: int | None, state: ViewState) -> str:
    if op is not None:
        return f"{run.name_of(op)} {run.recording.op(op).kind}"
    return "Rewrite" if state.rewrite is not None else "Pass"


# -- the op ---------------------------------------------------------------------------------------


def _op(run: Run, stage: int, number: int, carriers: tuple[int, ...]) -> list[dict[str, Any]]:
    op = run.recording.op(number)
    rows = [as_text(text)] if (text := _summary(op)) else []
    rows += joint_rows.phase(run, stage, op)
    for i, value in enumerate(op.results):
        rows.append(
            as_fact("result" if len(op.results) == 1 else f"result {i}", short_type(value.type))
        )
    for i, value in enumerate(op.operands[:MAX_LISTED]):
        maker = _maker(run, number, value)
        go = None if maker is None else {"op": maker}
        name = f"operand {i}"
        rows.append(
            as_fact(name, f"%{value.name or run.value_id(value)}  {short_type(value.type)}", go)
        )
    if len(op.operands) > MAX_LISTED:
        rows.append(as_text(f"and {len(op.operands) - MAX_LISTED} more operands"))
    for name, value in op.attributes.items():
        if (op.kind, name) != (LAUNCH, "arguments"):  # the calling convention: see the IR
            rows.append(as_fact(name, _attribute(value)))
    if len(carriers) > 1:
        rows.append(as_text(f"One of {len(carriers)} ops that replace the selected op:"))
        rows += [
            as_link(f"{run.name_of(k)} {run.recording.op(k).kind}", "", {"op": k})
            for k in carriers[1:5]
        ]
    if (op.results or op.kind == LAUNCH) and not op.kind.endswith("constant"):
        why = {"rewrites": {"why": {"a": number, "near": True}}}
        rows.append(as_link("why not fused with ...?", "", {"open": "rewrites", "state": why}))
    return [
        as_section("Op", rows),
        as_section("History", [_timeline(run, number, stage)]),
        *joint_rows.sections(run, stage, op),
        as_section("Came from", _origin(run, op)),
        as_section("Life across the passes", _life(run, number)),
    ]


def _summary(op: Op) -> str:
    declared = declarations.REGISTRY.get(op.kind)
    text = getattr(declared, "doc", "") or "" if declared is not None else ""
    return text.strip().split("\n\n")[0].replace("\n", " ")


def _attribute(value: Any) -> str:
    try:
        return print_attribute(value).removesuffix(" : i64")
    except Exception:
        return repr(value)


def _maker(run: Run, number: int, value: Any) -> int | None:
    """Return the op that makes an operand, in the first stage that contains the op."""
    makers = run.recording.makers(run.value_id(value))
    return max((op for op in makers if op != number), default=None)


def _origin(run: Run, op: Op) -> list[dict[str, Any]]:
    if op.origin is None:
        return [as_text("No origin is recorded.")]
    rows: list[dict[str, Any]] = []
    nodes = op.origin.nodes()
    if op.origin.scope:
        rows.append(as_fact("module", op.origin.scope))
    sources = run.cached("sources", run.recording.sources)
    for node in nodes[:3]:
        rows.append(as_fact("node", f"{node.name} ({node.kind})"))
        if node.file:
            at = {"source": {"file": node.file, "at": [node.file, node.line]}}
            go = {"op": run.op_id(op), "open": "source", "state": at}
            rows.append(_code(node, sources, go))
    if len(nodes) > 3:
        rows.append(as_text(f"and {len(nodes) - 3} more nodes of the model"))
    rules = [r for r in op.origin.rules() if r != "import"]
    if rules:
        rows.append(as_fact("made by", rules[0]))
    if not nodes:
        rows.append(
            as_text(op.origin.reason or "Created by a pass: no op of the model corresponds to it.")
        )
    return rows


def _code(node: FrontendNode, sources: dict[str, str], go: dict[str, Any]) -> dict[str, Any]:
    lines = sources.get(node.file, "").split("\n")
    low, high = max(0, node.line - 1 - CONTEXT), min(len(lines), node.line + CONTEXT)
    shown = lines[low:high] if 0 < node.line <= len(lines) else []
    return {
        "kind": "code",
        "place": f"{short_path(node.file)}:{node.line}",
        "path": node.file,
        "go": go,
        "first": low + 1,
        "line": node.line,
        "lines": [line[:160] for line in shown],
    }


def _timeline(run: Run, number: int, stage: int) -> dict[str, Any]:
    return {"kind": "timeline", "shown": stage, **timeline(run, number, stage)}


def _life(run: Run, number: int) -> list[dict[str, Any]]:
    history = run.op_history(number)
    names = {s.index: s.pass_name for s in run.stages()}
    rows: list[dict[str, Any]] = []
    relevant = [
        s for s in history.earlier if s.stage is not None and _is_relevant(run, number, s.old)
    ]
    for step in reversed(relevant[:MAX_LISTED]):
        if step.stage is not None:
            rows.append(
                as_link(
                    _stage(names, step.stage),
                    _change(run, step),
                    {"stage": step.stage, "op": step.old, "before": True},
                )
            )
    if history.stages is not None:
        first, last = history.stages
        span = f"in stages {first:02d} {names.get(first, '')}"
        span += f" to {last:02d} {names.get(last, '')}" if last is not None else " to the end"
        rows.append(as_text(f"{_called(run, number)} is {span}"))
    relevant = [
        s for s in history.later if s.stage is not None and _is_relevant(run, number, s.new)
    ]
    for step in relevant[:MAX_LISTED]:
        if step.stage is not None:
            rows.append(
                as_link(
                    _stage(names, step.stage),
                    _change(run, step),
                    {"stage": step.stage, "op": step.new},
                )
            )
    return rows or [as_text("No pass has changed it.")]


def _stage(names: dict[int, str], stage: int) -> str:
    return f"{stage:02d} {names.get(stage, '')}"


def _change(run: Run, step: HistoryStep) -> str:
    return f"{_called(run, step.old)} → {_called(run, step.new)}: {step.rule}"


def _called(run: Run, number: int) -> str:
    """Return an op's name with its kind: a replacement often has the same name."""
    return f"{run.recording.op(number).kind.rpartition('.')[2]} {run.name_of(number)}"


def _is_relevant(run: Run, selected: int, other: int) -> bool:
    """Return whether a step to ``other`` is relevant to the selected op.

    Constants that a rule made beside it are not, unless it is one itself.
    """
    kinds = [run.recording.op(key).kind for key in (selected, other)]
    return FEEDS.get(kinds[1], 0) <= FEEDS.get(kinds[0], 0)


def _life_links(run: Run, number: int) -> list[dict[str, Any]]:
    return (
        _life(run, number)
        if run.recording.query(f"SELECT 1 FROM op WHERE id = {int(number)}").rows
        else []
    )


# -- results of the op ----------------------------------------------------------------------------


def _became(run: Run, kernel: int | None, buffer: int | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    row = next((r for r in table(run) if r["id"] == kernel), None)
    if row is not None:
        rows.append(
            as_link(
                f"kernel {row['name']}",
                _speed(row),
                {"kernel": row["id"], "panes": ["kernels", "code"]},
            )
        )
    found = next((b for b in run.buffers() if b.id == buffer), None)
    if found is not None:
        placement = f"{units.size(found.size)} at byte {found.offset:,} of {found.tier}, "
        placement += f"live at positions {found.start} to {found.end}"
        title = f"buffer {found.name or '%' + str(found.value)} ({found.kind})"
        rows.append(as_link(title, placement, {"buffer": found.id, "panes": ["memory", "graph"]}))
        maker = None if found.value is None else writers(run).get(found.value)
        if maker is not None:
            rows.append(
                as_link(
                    f"written by {run.name_of(maker)}",
                    run.recording.op(maker).kind,
                    {"op": maker, "stage": run.version.stages - 1},
                )
            )
    return [as_section("Became", rows or [as_text("No kernel or buffer is recorded for it.")])]


def _speed(row: dict[str, Any]) -> str:
    text = units.launches(row["count"])
    if row["median_us"] is not None:
        text += f", median {units.duration(row['median_us'])}"
    if row["beyond"]:
        text += ", above the measured limit"
    elif row["percent"] is not None:
        text += f", {row['percent']:.1f} % of the limit"
    return text


# -- rewrites and passes --------------------------------------------------------------------------


def _rewrite(run: Run, stage: int, number: int) -> list[dict[str, Any]]:
    steps = run.rewrites(stage) if stage else []
    if not 0 <= number < len(steps):
        return []
    step: RecordedRewrite = steps[number]
    rewrite = step.rewrite
    rows = [as_fact("rule", rewrite.rule)]
    if rewrite.source:
        rows.append(as_fact("defined in", short_path(rewrite.source)))
    rows.append(as_fact("time", units.duration(rewrite.microseconds)))
    if rewrite.note:
        rows.append(as_fact("note", rewrite.note))
    if step.check is not None:
        rows.append(as_fact("check", check_text(step.check)))
    for title, ops in (("before", rewrite.old), ("after", rewrite.new)):
        if ops:
            rows.append(
                {
                    "kind": "ops",
                    "name": title,
                    "lines": [
                        {"text": cut(_print(run, op)), "go": {"op": run.op_id(op)}}
                        for op in ops[:MAX_LISTED]
                    ],
                    "more": max(0, len(ops) - MAX_LISTED),
                }
            )
    return [as_section(f"Rewrite {number} of {len(steps)}", rows)]


def check_text(check: Any) -> str:
    """Return a check's verdict as text, with its figures."""
    if check.verdict == "bitwise":
        return "✓ every bit kept"
    if check.verdict == "within":
        return f"≈ error {check.worst_error:.2g}, allowed {check.tolerance:.2g}"
    if check.verdict == "failed":
        where = f" at element {list(check.index)}" if check.index else ""
        return f"✗ error {check.worst_error:.2g}, allowed {check.tolerance:.2g}{where} {check.note}"
    return f"\u2013 not checked {check.note}"


def _print(run: Run, op: Op) -> str:
    numbers = {v: run.value_id(v) for v in (*op.operands, *op.results)}
    return print_op(op, numbers=numbers)


#: Figures of a stage: label and number format.
_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "ops": ("ops after it", "{:,.0f}".format),
    "flops": ("work", units.work),
    "bytes": ("traffic", units.size),
}


def _pass(run: Run, stage: Stage) -> dict[str, Any]:
    rows = [as_text(stage.summary)] if stage.summary else []
    if stage.index:
        rows.append(as_fact("phase", _HALVES.get(stage.half, stage.half)))
        rows.append(as_fact("values", values(stage)))
        rows.append(as_fact("time", units.duration(stage.seconds * 1e6)))
    for name, value in stage.options.items():
        rows.append(as_fact(f"option {name}", value))
    for name, value in stage.figures.items():
        if name != "changed" and value:
            label, format_value = _FIGURES.get(name, (name, "{:,.0f}".format))
            rows.append(as_fact(label, format_value(value)))
    if stage.verdicts:
        rows.append(as_fact("checks", ", ".join(f"{n} {v}" for v, n in stage.verdicts.items())))
    rules = Counter(s.rewrite.rule for s in run.rewrites(stage.index)) if stage.index else Counter()
    rows += [as_fact(f"{count} {TIMES}", rule) for rule, count in rules.most_common(MAX_LISTED)]
    return as_section(f"Pass {stage.index:02d} {stage.pass_name}", rows)
