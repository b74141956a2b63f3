"""``workbench advise RUN``: the problems of a run, and hazards with their costs and suggestions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any

from core_compiler.runtime.memory import show_bytes
from workbench.commands.printing import emit, painter, printable
from workbench.support import units

#: The width of a line of text (characters).
WIDTH = 96
_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


def add_arguments(parser) -> None:
    parser.add_argument("recording", metavar="RUN", help="a .run file")


def run(arguments) -> None:
    from workbench.advice.findings import listed
    from workbench.queries.run import Run

    opened = Run(Path(arguments.recording))
    try:
        found = [asdict(each) for each in listed(opened)]
    finally:
        opened.close()
    data = {"recording": arguments.recording, "advice": found}
    emit(arguments, data, lambda: _text(found))


def _text(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No hazards found in this recording."
    return "\n\n".join(map(_paragraph, found))


def _paragraph(each: dict[str, Any]) -> str:
    paint = painter()
    head = f"{each['severity']}: {each['title']}"
    lines = [paint(_COLOURS[each["severity"]], printable(head))]
    lines += _wrapped(f"cost: {_cost(each['cost'])}" if each["cost"] else each["detail"])
    for fact in each["evidence"]:
        lines += _wrapped(f"- {fact['text']}")
    for offer in each["tries"]:
        lines += _wrapped(f"try: {offer['sentence']}")
        if offer["command"]:
            lines += ["    $ " + printable(offer["command"]).replace("\n", "\n      ")]
        if offer["reason"]:
            lines += _wrapped(f"not available: {offer['reason']}")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return wrap(printable(text), WIDTH, initial_indent="  ", subsequent_indent="    ")


def _cost(cost: dict[str, Any]) -> str:
    part = f", {100 * cost['part']:.3g} % {cost['of']}" if cost["of"] else ""
    prefix = "estimated: " if cost["estimated"] else ""
    return f"{_figure(cost['value'], cost['unit'])}{part} ({prefix}{cost['how']})"


def _figure(value: float, unit: str) -> str:
    if unit == "B":
        return show_bytes(int(value))
    if unit == "us":
        return units.duration(value)
    return f"{value:.2g}" if unit == "relative" else f"{100 * value:.3g} %"
