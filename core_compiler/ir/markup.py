"""Text in a notebook cell without any widget: plain HTML that has no script and loads nothing."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

#: Lines of a text, and rows of a table, that a cell shows at most.
MOST = 400
PRE = (
    "margin:0;padding:6px 8px;font-family:ui-monospace,monospace;font-size:12px;line-height:1.45;"
    "overflow-x:auto;white-space:pre"
)

#: What is no character of XML 1.0 (https://www.w3.org/TR/xml/#charsets), halves of surrogate pairs
#: among it, which no encoding has bytes for.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: str) -> str:
    """Text for HTML, SVG and Graphviz: names of models may hold any character, and one that XML has
    not is shown as U+FFFD."""
    return html.escape(_NO_XML.sub("\N{REPLACEMENT CHARACTER}", text))


#: The text of an object by its class, for its cell; the module that prints a class enters it.
PRINTERS: dict[type, Callable[[Any], str]] = {}


class Displayed:
    """A notebook cell shows the object's text (:data:`PRINTERS`)."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return bundle(repr(self), code(PRINTERS[type(self)](self), repr(self)[1:-1]))


def bundle(text: str, markup: str) -> dict[str, str]:
    """What Jupyter asks of an object: both forms."""
    return {"text/plain": text, "text/html": markup}


def code(text: str, title: str = "") -> str:
    """Text as HTML, as it stands."""
    lines = text.splitlines()
    more = f"\n{len(lines) - MOST} more lines: print() shows all" if len(lines) > MOST else ""
    head = f"<b>{escape(title)}</b>\n" if title else ""
    shown = escape("\n".join(lines[:MOST]) + more)
    return f'<pre style="{PRE}">{head}{shown}</pre>'
