"""Text in a notebook cell without a widget: plain HTML without scripts or external resources."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

#: Largest number of lines of a text, or rows of a table, that a cell shows.
MOST = 400
PRE = (
    "margin:0;padding:6px 8px;font-family:ui-monospace,monospace;font-size:12px;line-height:1.45;"
    "overflow-x:auto;white-space:pre"
)

#: Characters that XML 1.0 does not allow (https://www.w3.org/TR/xml/#charsets), including
#: surrogates, which cannot be encoded.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: str) -> str:
    """Escape text for HTML, SVG and Graphviz.

    Names of models may contain any character; characters that XML does not allow become U+FFFD.
    """
    return html.escape(_NO_XML.sub("\N{REPLACEMENT CHARACTER}", text))


#: The text of an object for its cell, by class; the module that prints a class registers it.
PRINTERS: dict[type, Callable[[Any], str]] = {}


class Displayed:
    """An object whose notebook cell shows its text (:data:`PRINTERS`)."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return bundle(repr(self), code(PRINTERS[type(self)](self), repr(self)[1:-1]))


def bundle(text: str, markup: str) -> dict[str, str]:
    """Return the MIME bundle of an object for Jupyter."""
    return {"text/plain": text, "text/html": markup}


def code(text: str, title: str = "") -> str:
    """Return text as preformatted HTML."""
    lines = text.splitlines()
    more = f"\n{len(lines) - MOST} more lines: print() shows all" if len(lines) > MOST else ""
    head = f"<b>{escape(title)}</b>\n" if title else ""
    shown = escape("\n".join(lines[:MOST]) + more)
    return f'<pre style="{PRE}">{head}{shown}</pre>'
