"""``workbench diverge RUN_A RUN_B``: the first iteration, op, value and element in which two
training runs differ; of two pipelines the pass that does it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from workbench.commands.printing import emit


def add_arguments(parser) -> None:
    for name in ("a", "b"):
        parser.add_argument(name, metavar=f"RUN_{name.upper()}",
                            help="the folder of a training run with receipts")  # fmt: skip


def run(arguments) -> int:
    from core_compiler.debug.which_pass import find
    from core_compiler.training.diverge import Difference
    from workbench import training_runs

    one, other = training_runs.read(arguments.a), training_runs.read(arguments.b)
    say = (
        (lambda text: print(text, file=sys.stderr)) if sys.stderr.isatty() else (lambda text: None)
    )
    found = find(one, other, say)
    if found is None:
        shared = one.book.receipts.keys() & other.book.receipts.keys()
        nothing = {"iteration": None, "op": None, "value": None, "element": None, "ulps": None,
                   "origin": None, "compared": len(shared)}  # fmt: skip
        text = f"no difference in {len(shared)} iterations"
        emit(arguments, nothing, lambda: text)
        return 0
    here = f"{Path.cwd()}/"
    found = replace(found, origin=found.origin.replace(here, ""))
    text = _text(found) if isinstance(found, Difference) else _text_of_pass(found)
    emit(arguments, found.to_json(), lambda: text)
    return 1


def _text(d) -> str:
    after = "" if d.lasting else ", with no lasting difference: the state is the same afterwards"
    if not d.op:
        return f"iteration {d.iteration}: {d.value} differs, and no op does{after}"
    lines = [f"iteration {d.iteration}: {d.op} is the first op that differs{after}"]
    if d.origin:
        lines.append(f"  comes from  {d.origin}")
    if d.count:
        index = ", ".join(map(str, d.element))
        a, b = d.numbers
        lines += [
            f"  element     [{index}] of value {d.value}: {a:.9g} and {b:.9g}, {d.ulps} ulp apart",
            f"  differing   {d.count} elements",
            f"  kernels     {d.kernels[0]}" + (
                f" and {d.kernels[1]}" if d.kernels[1] != d.kernels[0] else ""),
        ]  # fmt: skip
    if d.history:
        lines.append(f"  made by     {', '.join(d.history)}")
    return "\n".join(lines)


def _text_of_pass(c) -> str:
    what = c.pass_label or "the order of passes"
    here, there = c.how
    lines = [f"iteration {c.iteration}: {what} makes the difference",
             f"  runs        {here} in the first, {there} in the second"]  # fmt: skip
    if c.number:
        lines.append(f"  rewrite     {c.number} of {c.total}: {c.rule}  ({c.source})")
    if c.op:
        lines.append(f"  replaces    {c.op}" + (f", from {c.origin}" if c.origin else ""))
    lines.append(f"  first value {c.value}")
    if c.count:
        index = ", ".join(map(str, c.element))
        a, b = c.numbers
        lines += [f"  element     [{index}]: {a:.9g} and {b:.9g}, {c.ulps} ulp apart",
                  f"  differing   {c.count} elements"]  # fmt: skip
    return "\n".join(lines)
