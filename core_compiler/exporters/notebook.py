"""Notebook output of a compilation without widgets: text and plain HTML.

The HTML has no script and loads nothing.  Its colours are transparent, so that it is readable on
light and dark pages, and code hosts that render notebooks display it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from core_compiler.ir import Module
from core_compiler.ir.markup import MOST, PRE, bundle, code, escape
from core_compiler.ir.unified import AFTER, BEFORE, GAP, unified
from core_compiler.support.errors import UserError

#: The maximum number of ops in a drawing.
MAX_DRAWN_OPS = 40
_SHADES = {
    BEFORE: "background:rgba(220,60,50,.16)",
    AFTER: "background:rgba(40,160,80,.18)",
    GAP: "opacity:.55",
}


def drawn(module: Module) -> str:
    """Return a drawing of a small module as HTML; "" if it is large or Graphviz is missing."""
    from core_compiler.exporters import dot

    try:
        if not dot.available():
            return ""
        picture = dot.draw(module, most=MAX_DRAWN_OPS)
    except UserError:
        return ""
    # Namespaces are implied inside HTML; removing them leaves nothing that looks like an address.
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", picture.svg)
    return f'<div style="overflow:auto;max-height:420px;background:#fff">{svg}</div>'


@dataclass(frozen=True)
class TextDiff:
    """The difference between two stages.

    ``str()`` is a unified diff; a notebook shows it in colour.  ``rows`` are those of
    :func:`core_compiler.ir.line_diff.diff_lines`; ``before`` and ``after`` name the stages.
    """

    before: str
    after: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return (sign, text): unchanged " ", removed "-", added "+", omitted "@"."""
        return list(unified(self.rows))

    @property
    def changed(self) -> bool:
        return any(sign in (BEFORE, AFTER) for sign, _ in self.lines)

    @override
    def __str__(self) -> str:
        if not self.changed:
            return f"{self.after}: no difference to {self.before}"
        shown = (text if sign == GAP else sign + text for sign, text in self.lines)
        return "\n".join([f"--- {self.before}", f"+++ {self.after}", *shown])

    @override
    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return bundle(str(self), self._html())

    def _html(self) -> str:
        if not self.changed:
            return f"<div>{escape(str(self))}</div>"
        lines = self.lines
        parts = [f"<b>{escape(self.before)} → {escape(self.after)}</b>"]
        for sign, text in lines[:MOST]:
            shown = escape(text if sign == GAP else f"{sign} {text}")
            parts.append(f'<span style="display:block;{_SHADES.get(sign, "")}">{shown}</span>')
        if len(lines) > MOST:
            parts.append(f"<i>{len(lines) - MOST} more lines: print() shows all</i>")
        return f'<pre style="{PRE}">{"".join(parts)}</pre>'


@dataclass(frozen=True, repr=False)
class KernelText:
    """The text of a compiled kernel.

    The generated ``source``, its lowered forms (``intermediate``: LLVM IR or PTX; ``assembly``: the
    processor's, or SASS), and ``facts`` (the names of these forms and, for a GPU kernel, registers,
    shared memory, spills and occupancy).
    """

    name: str
    source: str
    intermediate: str
    assembly: str
    facts: Mapping[str, Any]

    @property
    def texts(self) -> dict[str, str]:
        """Return the available texts by their names."""
        titles = {
            "source": self.source,
            str(self.facts.get("intermediate", "LLVM IR")): self.intermediate,
            str(self.facts.get("assembly", "assembly")): self.assembly,
        }
        return {title: text for title, text in titles.items() if text}

    @override
    def __repr__(self) -> str:
        texts = ", ".join(f"{t} {text.count(chr(10))} lines" for t, text in self.texts.items())
        known = ("threads", "registers", "shared", "spilled", "occupancy")
        facts = ", ".join(f"{self.facts[k]} {k}" for k in known if k in self.facts)
        return f"<kernel {self.name}: {texts}{'; ' if facts else ''}{facts}>"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        parts = [f"<div>{escape(repr(self)[1:-1])}</div>"]
        for number, (title, text) in enumerate(self.texts.items()):
            shown = "" if number else " open"
            head = f"<summary>{escape(title)}</summary>"
            parts.append(f"<details{shown}>{head}{code(text)}</details>")
        return bundle(repr(self), "".join(parts))


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str = "",
    numbers: Iterable[int] = (),
) -> tuple[str, str]:
    """Return a table as text and as HTML; ``numbers`` are the right-aligned columns."""
    cells = [[str(c) for c in row] for row in rows]
    right_aligned = set(numbers)
    widths = [max(len(r[i]) for r in [list(heads), *cells]) for i in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        parts = [
            c.rjust(w) if i in right_aligned else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    text = "\n".join([*([title] if title else []), line(heads), *map(line, cells)])

    def cell(tag: str, column: int, value: str) -> str:
        side = "right" if column in right_aligned else "left"
        style = f"text-align:{side};padding:1px 10px;white-space:nowrap"
        return f'<{tag} style="{style}">{escape(value)}</{tag}>'

    head = "".join(cell("th", i, h) for i, h in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(cell('td', i, c) for i, c in enumerate(row))}</tr>" for row in cells[:MOST]
    )
    more = f"<div><i>{len(cells) - MOST} more rows</i></div>" if len(cells) > MOST else ""
    caption = f"<div><b>{escape(title)}</b></div>" if title else ""
    style = "border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:12px"
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    markup = f'{caption}<table style="{style}">{inside}</table>{more}'
    return text, markup
