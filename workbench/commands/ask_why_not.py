"""``workbench why-not RUN|MODEL OP [OP2] [--rule RULE] [--stage N]``: why two ops were not fused.

Each pass that could have fused them (or applied a rule to one) answers in pass order: where it
did, or the first of its conditions that failed, with the facts and its source line.
"""

from __future__ import annotations

from core_compiler.support.errors import UserError
from workbench.commands import show_op, subject
from workbench.commands.printing import emit, painter, printable


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument("op", metavar="OP", help="%%name of its value, its id, or text in its line")
    parser.add_argument("other", metavar="OP2", nargs="?", help="a second op, named the same way")
    parser.add_argument("--rule", metavar="RULE", help="a rule or a pass, by (a part of) its name")
    parser.add_argument(
        "--stage", metavar="N", help="the stage or pass that contains the ops (default: the first)"
    )


def run(arguments) -> None:
    from core_compiler.debug.why_not import first_stage, summary, why_not

    if arguments.other is None and arguments.rule is None:
        raise UserError(
            "expected two ops, got one", "OP", "name a second op, or a rule with --rule"
        )
    with subject.recording(arguments) as opened:
        wanted = [arguments.op] if arguments.other is None else [arguments.op, arguments.other]
        stage = arguments.stage
        number = None if stage is None else subject.find_stage(opened, stage, "--stage")
        ops = [show_op.find(opened, text, number)[0] for text in wanted]
        number = first_stage(opened, *ops) if number is None else number
        second = ops[1] if len(ops) == 2 else None
        answers = why_not(opened, number, ops[0], second, arguments.rule, claims=_claims(opened))
        data = {
            "stage": number,
            "ops": ops,
            "summary": summary(answers),
            "answers": [answer.to_json() for answer in answers],
        }
    emit(arguments, data, lambda: _text(data))


def _claims(opened):
    """Return the ops that the recording's target claims as a whole.

    Returns None if the target is not installed here.
    """
    from core_compiler import targets

    try:
        return targets.target(str(opened.meta().get("target", ""))).claims
    except UserError:
        return None


def _text(data) -> str:
    paint = painter()
    lines = [paint("bold", printable(data["summary"])), ""]
    for answer in data["answers"]:
        lines += [
            paint("cyan", printable(f"{answer['stage']:>3} {answer['pass']}: {answer['outcome']}")),
            f"    {printable(answer['sentence'])}",
            paint("dim", printable(f"    {answer['source']}")),
        ]
    return "\n".join(lines)
