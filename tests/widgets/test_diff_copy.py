"""Copying hunks of the IR diff: whole, also what the view was not sent, or was sent cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.widgets.samples import diff_data
from widgets import page

KINDS = ("equal", "changed", "added", "removed")
CUT = 7
#: Answers the view's requests as a host does, and keeps what is copied.
HOST = """(lines) => {
  const [model] = workbench.models;
  const answered = new Set();
  model.on('change:request', () => {
    const open = JSON.parse(model.get('request')).filter(({ id }) => !answered.has(id));
    if (!open.length) return;
    const answers = open.map(({ id, session, from, to }) => {
      answered.add(id);
      return { id, session, value: { start: from, lines: lines.slice(from, to) } };
    });
    setTimeout(() => model.receive('response', JSON.stringify(answers)));
  });
  const writeText = async (text) => { window.copied = text; };
  Object.defineProperty(navigator, 'clipboard', { value: { writeText } });
}"""


def _patch(lines: list[dict[str, Any]]) -> str:
    """The hunks of neighbouring lines that are not equal, removed ones first."""
    text, removed, added = [], [], []
    for line in [*lines, {"kind": "equal"}]:
        if line["kind"] == "equal":
            text += [*removed, *added]
            removed, added = [], []
            continue
        removed += [f"-{line['left']}"] if line["kind"] != "added" else []
        added += [f"+{line['right']}"] if line["kind"] != "removed" else []
    return "\n".join(text)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [False, True])
def test_what_is_copied_is_whole(open_page: Callable[..., Any], chosen: bool) -> None:
    """All hunks, most of them never sent; or the one hunk that is chosen, whose line was cut."""
    data = diff_data(3000)
    lines = data["lines"]
    sent = [dict(line) for line in lines[:2000]]
    first = next(i for i, line in enumerate(lines) if line["kind"] != "equal")
    for side in ("left", "right"):
        sent[first][side] = f"{lines[first][side][:CUT]} …"
    sent[first]["cut"] = True
    kinds = np.array([KINDS.index(line["kind"]) for line in lines], np.uint8)
    shown = open_page(
        page([("diff", {**data, "lines": sent, "count": len(lines), "kinds": kinds})])
    )
    shown.tab.evaluate(HOST, lines)
    shown.focus(".lines")
    if chosen:
        shown.tab.keyboard.press("j")
    shown.tab.keyboard.press("c")
    shown.tab.wait_for_function("() => window.copied !== undefined")
    wanted = lines[first : first + 1] if chosen else lines
    assert shown.tab.evaluate("() => window.copied") == _patch(wanted)
    assert shown.errors == []
