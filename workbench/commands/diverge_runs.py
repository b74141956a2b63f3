"""``workbench diverge RUN_A RUN_B``: the first difference of two training runs.

It is given by iteration, op, value and element; for two pipelines, by the pass that causes it.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from workbench.commands.printing import emit


def add_arguments(parser) -> None:
    for name in ("a", "b"):
        parser.add_argument(
            name, metavar=f"RUN_{name.upper()}", help="the folder of a training run with receipts"
        )


def run(arguments) -> int:
    from core_compiler.debug.which_pass import find
    from core_compiler.training.audit.diverge import Difference
    from workbench.training import runs as training_runs

    one, other = training_runs.read(arguments.a), training_runs.read(arguments.b)
    say = (
        (lambda text: print(text, file=sys.stderr)) if sys.stderr.isatty() else (lambda text: None)
    )
    found = find(one, other, say)
    if found is None:
        shared = one.book.receipts.keys() & other.book.receipts.keys()
        nothing = {
            "iteration": None,
            "op": None,
            "value": None,
            "element": None,
            "ulps": None,
            "origin": None,
            "compared": len(shared),
        }
        text = f"no difference in {len(shared)} iterations"
        emit(arguments, nothing, lambda: text)
        return 0
    prefix = f"{Path.cwd()}/"
    found = replace(found, origin=found.origin.replace(prefix, ""))
    data = found.to_json()
    if not found.count:  # the values are not known
        data |= {"element": None, "ulps": None}
    if not isinstance(found, Difference):
        emit(arguments, data, lambda: _text_of_pass(found))
        return 1
    remedy = _remedy(found, one, other) if any(found.missing) else []
    data["remedy"] = remedy
    emit(arguments, data, lambda: _text(found, remedy))
    return 1


def _remedy(found, one, other) -> list[str]:
    """Return the suggested fixes if iterations of a run could not be repeated.

    They say how to repeat both; for an unknown op also the command that hashes the values of the
    run that cannot be repeated here, so that its receipts contain them.
    """
    from workbench.training import runs as training_runs

    runs = one, other
    if not all(training_runs.is_run(run.folder) for run in runs):
        find = "core_compiler.debug.which_pass.find(a, b)"
        where = (
            f"in Python: {find} with a = core_compiler.training.audit.replay.Run.of(FOLDER, make)"
        )
        return [where, "train with fit(..., task='package.module:function')"]
    command = shlex.join(["workbench", "diverge", *(str(run.folder) for run in runs)])
    made = [f"where both can be repeated: {command}"]
    if not found.op and one.book.identity == other.book.identity:
        for run, why in zip(runs, found.missing, strict=True):
            if why:
                command = training_runs.command_for_values(run.folder, found.iteration)
                made.append(f"there: {command}, then compare its receipts here")
    return made


def _text(d, remedy) -> str:
    after = "" if d.lasting else ", without lasting effect: the state is the same afterwards"
    passing = [
        f"  {which:<10}  repeated, {what} differs from the receipts"
        for which, what in zip(("the first", "the second"), d.passing, strict=True)
        if what
    ]
    if passing:
        passing.append("              a transient or machine fault: neither run reproduces it")
    if not d.op and not remedy:
        headline = f"iteration {d.iteration}: {d.value} differs, but no op does{after}"
        return "\n".join([headline, *passing])
    headline = (
        f"{d.op} is the first op that differs"
        if d.op
        else (f"{d.value} is the first that differs by the receipts")
    )
    lines = [f"iteration {d.iteration}: {headline}{after}", *passing]
    if d.origin:
        lines.append(f"  comes from  {d.origin}")
    kernels = " and ".join(dict.fromkeys(filter(None, d.kernels)))
    if d.count:
        index = ", ".join(map(str, d.element))
        a, b = d.numbers
        lines += [
            f"  element     [{index}] of value {d.value}: {a:.9g} and {b:.9g}, {d.ulps} ulp apart",
            f"  differing   {d.count} elements",
        ]
    if kernels:
        lines.append(f"  kernels     {kernels}")
    if d.history:
        lines.append(f"  made by     {', '.join(d.history)}")
    if remedy:
        lines.append(f"  not known   {'element and ulps' if d.op else 'op, element and ulps'}")
    for which, why in zip(("first", "second"), d.missing, strict=True):
        if why:
            lines.append(f"  the {which:<6}  cannot be repeated here: {why}")
    for number, text in enumerate(remedy):
        lines.append(f"  {'or' if number else 'to find it':<10}  {text}")
    return "\n".join(lines)


def _text_of_pass(c) -> str:
    what = c.pass_label or "the order of passes"
    first, second = c.how
    lines = [
        f"iteration {c.iteration}: {what} causes the difference",
        f"  runs        {first} in the first, {second} in the second",
    ]
    if c.number:
        lines.append(f"  rewrite     {c.number} of {c.total}: {c.rule}  ({c.source})")
    if c.op:
        lines.append(f"  replaces    {c.op}" + (f", from {c.origin}" if c.origin else ""))
    lines.append(f"  first value {c.value}")
    if c.count:
        index = ", ".join(map(str, c.element))
        a, b = c.numbers
        lines += [
            f"  element     [{index}]: {a:.9g} and {b:.9g}, {c.ulps} ulp apart",
            f"  differing   {c.count} elements",
        ]
    return "\n".join(lines)
