"""``workbench bisect MODEL``: the first pass, and the rewrite in it, that changes the numbers."""

from __future__ import annotations

from core_compiler.errors import UserError
from workbench.commands import common
from workbench.commands.printing import emit, painter, printable


def add_arguments(parser) -> None:
    common.add_model(parser)
    common.add_compile(parser)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-3,
        metavar="ERROR",
        help="largest error of the outputs since the import, relative (default 1e-3)",
    )
    parser.add_argument("--no-execute", action="store_true", help="leave machine code out")


def run(arguments) -> int:
    if not arguments.tolerance > 0:
        raise UserError(
            f"{arguments.tolerance:g} is no error", "--tolerance", "give a number above 0"
        )
    options = common.options(arguments)
    model = common.load(arguments)
    from core_compiler import compiler
    from core_compiler.debug.bisect import bisect
    from core_compiler.legality import levels

    progress = common.progress()
    made = compiler.start(model.imported.module, arguments.target, options, model.inputs)
    found = bisect(
        made,
        model.inputs,
        levels=levels(),
        tolerance=arguments.tolerance,
        execute=not arguments.no_execute,
        progress=progress.progress,
    )
    progress.end("finished")
    data = {
        "first_bad_pass": None,
        "first_bad_rewrite": None,
        "value": None,
        "model": model.name,
        "target": made.target.name,
    }
    if found is not None:
        data |= describe(found)
    emit(arguments, data, lambda: _text(data, len(made.stages) - 1))
    return int(found is not None)


def describe(found) -> dict:
    """A finding as plain data."""
    from core_compiler.debug.bisect import made_by, tensor_value
    from core_compiler.ir.text import print_op, value_names

    names: dict = {}
    for function in found.before.functions.values():
        names |= value_names(function)
    value, op, rewrite = tensor_value(found), made_by(found), found.rewrite
    nodes = op.origin.nodes() if op is not None and op.origin is not None else ()
    told = None
    if rewrite is not None or found.number is not None:
        old, new = (rewrite.old, rewrite.new) if rewrite else ((), ())
        told = {
            "number": found.number,
            "rule": rewrite.rule if rewrite else None,
            "source": rewrite.source if rewrite else "",
            "function": rewrite.function if rewrite else "",
            "note": rewrite.note if rewrite else "",
            "old": list(map(print_op, old)),
            "new": list(map(print_op, new)),
        }
    return {
        "first_bad_pass": found.pass_label,
        "first_bad_rewrite": told,
        "value": None if value is None else names.get(value) or f"%{value.name or '?'}",
        "stage": found.stage,
        "how": found.how,
        "note": found.note,
        "error": found.error,
        "index": list(found.index),
        "model_lines": [f"{n.file}:{n.line}" for n in nodes if n.file],
    }


def _text(data, passes: int) -> str:
    paint = painter()
    if data["first_bad_pass"] is None:
        return f"{data['model']}: nothing is wrong in {passes} passes, nor in the machine code"
    lines = [
        paint("red", f"{data['first_bad_pass']} is wrong")
        + f" (stage {data['stage']}, seen: {data['how']})",
        printable(data["note"]),
    ]
    rewrite = data["first_bad_rewrite"]
    if rewrite:
        lines.append(
            f"rewrite {rewrite['number']}: {printable(rewrite['rule'] or 'the one that raised')}"
            + (f"  ({rewrite['source']})" if rewrite["source"] else "")
        )
        lines += [paint("red", f"  - {printable(line)}") for line in rewrite["old"][:12]]
        lines += [paint("green", f"  + {printable(line)}") for line in rewrite["new"][:12]]
    if data["value"]:
        at = f" at {data['index']}" if data["index"] else ""
        lines.append(
            f"value {printable(data['value'])}{at}, off by {data['error']:.3g} of the largest"
            if data["error"] == data["error"]
            else f"value {printable(data['value'])}"
        )
    lines += [f"model: {printable(line)}" for line in dict.fromkeys(data["model_lines"])]
    return "\n".join(lines)
