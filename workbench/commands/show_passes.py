"""``workbench passes RUN|MODEL``: the effect of each pass, and the verdicts of its checks."""

from __future__ import annotations

from workbench.commands import subject
from workbench.commands.printing import emit, number, painter, printable, table


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument("--changed", action="store_true", help="only passes that changed something")


def run(arguments) -> None:
    with subject.recording(arguments) as opened:
        stages = [s for s in opened.stages() if s.changed or not arguments.changed]
        status, diagnostics = opened.status, opened.diagnostics()
    data = {
        "status": status,
        "passes": [
            {
                "index": s.index,
                "pass": s.pass_name,
                "half": s.half,
                "exact": s.exact,
                "changed": s.changed,
                "seconds": s.seconds,
                "rewrites": s.rewrites,
                "ops": s.ops,
                "figures": dict(s.figures),
                "verdicts": dict(s.verdicts),
                "worst_error": s.worst_error,
                "options": dict(s.options),
                "summary": s.summary,
            }
            for s in stages
        ],
        "diagnostics": [str(d) for d in diagnostics],
    }
    emit(arguments, data, lambda: _text(stages, status, diagnostics))


def _text(stages, status: str, diagnostics) -> str:
    paint = painter()
    rows = [
        (
            s.index,
            s.pass_name,
            "" if s.exact else "may change bits",
            f"{s.seconds * 1e3:.1f}",
            s.rewrites or "",
            s.ops,
            " ".join(f"{n} {v}" for v, n in s.verdicts.items()),
            number(s.worst_error or None),
        )
        for s in stages
    ]
    head = ("", "pass", "", "ms", "rewrites", "ops", "checks", "worst error")
    lines = table(head, rows, right=(0, 3, 4, 5)).splitlines()
    lines[0] = paint("bold", lines[0])
    for place, stage in enumerate(stages, 1):
        if stage.verdicts.get("failed"):
            lines[place] = paint("red", lines[place])
        elif not stage.changed:
            lines[place] = paint("dim", lines[place])
    lines += [printable(str(d)) for d in diagnostics]
    if status != "finished":
        lines.append(f"this recording is {status}")
    return "\n".join(lines)
