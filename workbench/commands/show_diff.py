"""``workbench diff RUN|MODEL --pass NAME``: the IR before and after, as a unified diff."""

from __future__ import annotations

from collections.abc import Iterator

from core_compiler.ir.unified import AFTER, BEFORE, GAP
from core_compiler.ir.unified import unified as merged
from core_compiler.support.errors import UserError
from workbench.commands import subject
from workbench.commands.printing import emit, painter, printable


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument(
        "--pass",
        dest="pass_name",
        required=True,
        metavar="NAME",
        help="the pass (fold_constants, fold_constants#2), or its number",
    )
    parser.add_argument("--to", metavar="NAME", help="a later pass: the changes from --pass to it")
    parser.add_argument("--full", action="store_true", help="show unchanged lines too")
    parser.add_argument(
        "--context", type=int, default=3, help="unchanged lines around a change (default 3)"
    )


def run(arguments) -> None:
    if arguments.context < 0:
        raise UserError(
            f"expected 0 or more, got {arguments.context}", "--context", "pass 0 or more"
        )
    with subject.recording(arguments) as opened:
        first = subject.find_stage(opened, arguments.pass_name)
        last = subject.find_stage(opened, arguments.to, "--to") if arguments.to else first
        if first == 0:
            raise UserError(
                "no stage precedes the import", "--pass", "choose a pass, or a stage from 1"
            )
        if last < first:
            raise UserError(
                f"{arguments.to} comes before {arguments.pass_name}", "--to", "swap the two"
            )
        rows = opened.diff_lines(
            first - 1, last, changed_only=not arguments.full, context=arguments.context
        )
        stages = opened.stages()
    names = stages[first - 1].pass_name, stages[last].pass_name
    data = {
        "before": {"stage": first - 1, "pass": names[0]},
        "after": {"stage": last, "pass": names[1]},
        "rows": rows,
    }
    emit(arguments, data, lambda: "\n".join(unified(rows, first - 1, last, names)))


def unified(
    rows, first: int, last: int, names: tuple[str, str], colour: bool | None = None
) -> Iterator[str]:
    """Yield the lines of a unified diff, coloured for a terminal."""
    paint = painter(colour)
    colours = {BEFORE: "red", AFTER: "green", GAP: "cyan"}
    yield paint("bold", printable(f"--- stage {first} ({names[0]})"))
    yield paint("bold", printable(f"+++ stage {last} ({names[1]})"))
    changed = False
    for sign, text in merged(rows):
        line = text if sign == GAP else sign + printable(text)
        changed |= sign in (BEFORE, AFTER)
        yield paint(colours[sign], line) if sign in colours else line
    if not changed:
        yield "no difference"
