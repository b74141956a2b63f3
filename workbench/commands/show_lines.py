"""``workbench lines RUN|MODEL``: the cost of each line of the model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from core_compiler.support.errors import UserError
from workbench.commands import subject
from workbench.commands.printing import emit, number, painter, printable, table
from workbench.queries.model_lines import NODES, Line, ModelLines, model_lines

#: The longest text of a line in the table.
WIDTH = 60


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument(
        "--top",
        type=int,
        default=20,
        metavar="N",
        help="the N most expensive lines (default 20; 0: all)",
    )
    parser.add_argument("--file", metavar="TEXT", help="only files whose path contains TEXT")
    parser.add_argument(
        "--nodes", action="store_true", help="the nodes of the imported graph instead of lines"
    )


def run(arguments) -> None:
    if arguments.top < 0:
        raise UserError(f"expected 0 or more, got {arguments.top}", "--top", "pass 0 (all) or more")
    execute = not subject.is_recording(arguments.model)
    with subject.recording(arguments, execute=execute) as opened:
        found, sources = model_lines(opened), opened.sources()
        last = opened.stage_count() - 1
        now = found.count(opened.module(last), opened.op_id) if last >= 0 else {}
        computes = last < 0 or bool(opened.stages()[0].figures.get("ops"))
    rows = [
        _row(found, line, sources, now)
        for line in found.lines.values()
        if (line.file == NODES) == arguments.nodes
    ]
    if arguments.file is not None:
        rows = [row for row in rows if arguments.file in row["file"]]
    if not rows:
        raise UserError(*_none(arguments, found, computes))
    rows.sort(
        key=lambda row: (
            -(row["own"]["us"] or 0),
            -row["own"]["flops"],
            -row["own"]["bytes"],
            row["file"],
            row["line"],
        )
    )
    unattributed = found.nameless if arguments.nodes else found.unattributed
    data = {
        "measured": found.measured,
        "total": asdict(found.total),
        "lines": rows,
        "nowhere": asdict(unattributed),
    }
    emit(arguments, data, lambda: _text(data, arguments))


def _none(arguments, found: ModelLines, computes: bool) -> tuple[str, str, str]:
    if not computes:
        return "no line has a cost", arguments.model, "it only moves inputs and constants"
    if arguments.file is not None:
        files = dict.fromkeys(line.file for line in found.lines.values() if line.file != NODES)
        fix = f"files: {', '.join(files)}" if files else "use --nodes: the model has no files"
        return f"no lines found for file {arguments.file!r}", "--file", fix
    fix = "use --nodes" if found.nodes else "compile the model again with this version"
    return "no op has a source location", arguments.model, fix


def _row(found: ModelLines, line: Line, sources: dict[str, str], now: dict) -> dict[str, Any]:
    row = asdict(line) | {"now": now.get((line.file, line.line), 0)}
    if line.file == NODES:
        node = found.nodes[line.line - 1]
        return row | {"node": node.name, "kind": node.kind, "text": node.kind}
    text = sources.get(line.file, "").split("\n")
    source_line = text[line.line - 1].strip() if 0 < line.line <= len(text) else ""
    return row | {"text": source_line or line.text}


def _text(data: dict[str, Any], arguments) -> str:
    shown = data["lines"][: arguments.top] if arguments.top else data["lines"]
    total = data["total"]["us"]
    cells = [
        (
            row["node"] if arguments.nodes else f"{_short(row['file'])}:{row['line']}",
            *_amounts(row["own"], total),
            number(row["total"]["us"], 1),
            f"{row['at_import']} > {row['now']}",
            _check(row["check"]),
            printable(row["text"])[:WIDTH],
        )
        for row in shown
    ]
    unattributed = (
        "from no node" if arguments.nodes else "from no line",
        *_amounts(data["nowhere"], total),
        "",
        "",
        "",
        "",
    )
    head = (
        "node" if arguments.nodes else "line",
        "us",
        "%",
        "MiB",
        "Mflop",
        "with calls us",
        "ops",
        "check",
        "kind" if arguments.nodes else "text",
    )
    lines = [table(head, [*cells, unattributed], right=(1, 2, 3, 4, 5, 6))]
    if len(shown) < len(data["lines"]):
        lines.append(f"{len(shown)} of {len(data['lines'])}: --top 0 shows all")
    if data["measured"]:
        lines.append(f"all kernels {total:,.1f} us")
    else:
        lines.append(painter()("dim", "no times: it was not executed (compile with --execute)"))
    return "\n".join(lines)


def _amounts(amount: dict[str, Any], total: float | None) -> tuple[str, ...]:
    us = amount["us"]
    share = f"{100 * us / total:.1f}" if us is not None and total else ""
    moved = number(amount["bytes"] / 2**20, 2)
    return number(us, 1), share, moved, number(amount["flops"] / 1e6, 1)


def _check(check: dict[str, Any] | None) -> str:
    if check is None:
        return ""
    return (
        "bitwise" if check["verdict"] == "bitwise" else f"{check['verdict']} {check['error']:.1e}"
    )


def _short(path: str) -> str:
    return "/".join(path.replace("\\", "/").split("/")[-2:])
