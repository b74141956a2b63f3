"""Text in a notebook cell without any widget: plain HTML that has no script and loads nothing."""

from __future__ import annotations

import html

#: Lines of a text, and rows of a table, that a cell shows at most.
MOST = 400
PRE = (
    "margin:0;padding:6px 8px;font-family:ui-monospace,monospace;font-size:12px;line-height:1.45;"
    "overflow-x:auto;white-space:pre"
)


def bundle(text: str, markup: str) -> dict[str, str]:
    """What Jupyter asks of an object: both forms."""
    return {"text/plain": text, "text/html": markup}


def code(text: str, title: str = "") -> str:
    """Text as HTML, as it stands."""
    lines = text.splitlines()
    more = f"\n{len(lines) - MOST} more lines: print() shows all" if len(lines) > MOST else ""
    head = f"<b>{html.escape(title)}</b>\n" if title else ""
    shown = html.escape("\n".join(lines[:MOST]) + more)
    return f'<pre style="{PRE}">{head}{shown}</pre>'
