"""``workbench op RUN|MODEL %name|id|text``: the sources and the results of an op."""

from __future__ import annotations

import re

from core_compiler.support.errors import UserError, nearest
from workbench.commands import subject
from workbench.commands.printing import emit, painter, printable, table

#: The most lines of each section, and candidates listed if a text matches several ops.
MAX_LISTED = 24
_NODE = ("name", "kind", "scope")
_RESULTS = re.compile(r"^\s*((?:%\S+(?:,\s*)?)+) = ")


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument("op", metavar="OP", help="%%name of its value, its id, or text in its line")


def run(arguments) -> None:
    from workbench.queries.op_timeline import timeline
    from workbench.queries.run import Run

    with subject.recording(arguments) as opened:
        op_id, where = find(opened, arguments.op)
        data = op_history_data(opened, op_id, where)
        shown = Run(opened.path)
        try:
            # The links to gradients are those of the last stage that contains the op.
            last = opened.op_history(op_id).stages
            at = shown.version.stages - 1 if last is None or last[1] is None else last[1]
            data["timeline"] = timeline(shown, op_id, at)
        finally:
            shown.close()
    emit(arguments, data, lambda: _text(data))


def find(opened, wanted: str, only: int | None = None) -> tuple[int, int | None]:
    """Return the op's id and the first stage it is found in (None for an id), or in stage ``only``.

    UserError if none or several match.
    """
    if wanted.isdecimal() and len(wanted) < 19:  # SQLite's ids have 63 bits
        opened.op(int(wanted))
        return int(wanted), None
    if not wanted.strip():
        raise UserError("missing op", "OP", "pass %name, an id, or text of its line")
    names: dict[str, None] = {}
    for stage in opened.stages():
        if (stage.index and not stage.changed) if only is None else stage.index != only:
            continue
        shown = opened.lines(stage.index)
        found = {
            opened.key(key): line.strip()
            for line, key in zip(shown.lines, shown.keys, strict=True)
            if hasattr(key, "kind") and _matches(wanted, line)
        }
        if len(found) == 1:
            return next(iter(found)), stage.index
        if found:
            _ambiguous(wanted, found, stage)
        for key in shown.keys:
            if hasattr(key, "kind"):
                names |= dict.fromkeys([key.kind, *(f"%{v.name}" for v in key.results if v.name)])
    given = opened.module(0).main.arguments if opened.stage_count() else ()
    if wanted in {f"%{value.name}" for value in given}:
        raise UserError(
            f"{wanted} is an input of the model, not the result of an op",
            "OP",
            "name an op that reads it",
        )
    hint = "list the names with `workbench diff` or `workbench export --stage`"
    where = "any stage" if only is None else f"stage {only}"
    raise UserError(f"no op of {where} matches {wanted!r}", "OP", nearest(wanted, names, hint))


def _matches(wanted: str, line: str) -> bool:
    if wanted.startswith("%"):
        made = _RESULTS.match(line)
        return made is not None and wanted in re.split(r",\s*", made[1])
    return wanted.lower() in line.lower()


def _ambiguous(wanted, found, stage) -> None:
    shown = "; ".join(f"{key}: {line[:60]}" for key, line in list(found.items())[:6])
    more = f" and {len(found) - 6} more" if len(found) > 6 else ""
    raise UserError(
        f"{len(found)} ops of stage {stage.index} ({stage.pass_name}) match {wanted!r}: "
        f"{printable(shown)}{more}",
        "OP",
        "pass one of the ids",
    )


def op_history_data(opened, op_id: int, where: int | None = None) -> dict:
    """Return an op's history as plain data."""
    history = opened.op_history(op_id)
    stages = opened.stages()
    kernels = {k.id: k for k in opened.kernels()}
    buffers = {b.id: b for b in opened.buffers()}
    times: dict[int, float] = {
        t.op: t.median_us for t in opened.timings() if t.median_us is not None
    }
    descendants = {op_id, *(s.new for s in history.later)}

    def step_data(step, other: int) -> dict:
        op = opened.op(other)
        return {
            "op": other,
            "kind": op.kind,
            "results": _results(op),
            "how": step.how,
            "rule": step.rule,
            "stage": step.stage,
            "pass": None if step.stage is None else stages[step.stage].pass_name,
        }

    op = opened.op(op_id)
    first, last = history.stages or (where, None)
    return {
        "op": op_id,
        "kind": op.kind,
        "results": _results(op),
        "types": [str(v.type) for v in op.results],
        "stages": None
        if first is None
        else {
            "first": first,
            "last": last,
            "from_pass": stages[first].pass_name,
            "until_pass": None if last is None else stages[last].pass_name,
        },
        "model": [
            {"name": n.name, "kind": n.kind, "file": n.file, "line": n.line, "scope": n.scope}
            for n in history.nodes
        ],
        "earlier": _once(step_data(s, s.old) for s in history.earlier),
        "later": _once(step_data(s, s.new) for s in history.later),
        "kernels": [kernels[k].name for k in history.kernels],
        "launch_us": {str(o): times[o] for o in sorted(descendants) if o in times},
        "buffers": [
            {
                "name": buffers[b].name,
                "tier": buffers[b].tier,
                "offset": buffers[b].offset,
                "size": buffers[b].size,
                "start": buffers[b].start,
                "end": buffers[b].end,
            }
            for b in history.buffers
        ],
    }


def _results(op) -> list[str]:
    return [v.name or "" for v in op.results]


def _once(steps) -> list[dict]:
    """Return each op once, by its strongest evidence (a rewrite is stronger than an origin)."""
    rank = {"rewrite": 0, "value": 1, "origin": 2}
    best: dict[int, dict] = {}
    for step in steps:
        known = best.get(step["op"])
        if known is None or rank[step["how"]] < rank[known["how"]]:
            best[step["op"]] = step
    return list(best.values())


def _text(data) -> str:
    paint = painter()
    stages = data["stages"]
    span = "in no stage (part of a rewrite)"
    if stages:
        until = (
            "the end"
            if stages["last"] is None
            else f"stage {stages['last']} ({stages['until_pass']})"
        )
        span = printable(f"from stage {stages['first']} ({stages['from_pass']}) to {until}")
    lines = [paint("bold", f"op {data['op']}  {data['kind']}  {', '.join(data['types'])}"), span]
    for node in data["model"][:MAX_LISTED]:
        at = f"{node['file']}:{node['line']}" if node["file"] else ""
        lines.append("model: " + printable(" ".join(filter(None, (*map(node.get, _NODE), at)))))
    for title, key in (("came from", "earlier"), ("became", "later")):
        if data[key]:
            rows = [(step["op"], step["kind"], _why(step)) for step in data[key][:MAX_LISTED]]
            lines += [
                "",
                paint("cyan", title),
                table(("", "", ""), rows, right=(0,)).split("\n", 1)[1],
            ]
            if len(data[key]) > MAX_LISTED:
                lines.append(f"... and {len(data[key]) - MAX_LISTED} more (--json shows all)")
    linked = [m["text"] for m in data["timeline"]["marks"] if m["lane"] == "gradient"]
    if linked:
        lines += ["", *map(printable, linked)]
    if data["kernels"]:
        times = ", ".join(f"{us:.1f} us" for us in data["launch_us"].values())
        names = printable(", ".join(data["kernels"]))
        lines += ["", f"kernels: {names}" + (f" ({times})" if times else "")]
    lines += [
        "memory: {tier} {offset}, {size} bytes, steps {start} to {end}".format(**b)
        for b in data["buffers"][:MAX_LISTED]
    ]
    return "\n".join(lines)


def _why(step) -> str:
    if step["how"] == "rewrite":
        return printable(f"{step['pass']}: {step['rule']}")
    return "the same value, rebuilt" if step["how"] == "value" else "by origin"
