"""Output of commands: JSON or text, tables, colours on a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_COLOURS = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
    "dim": "2",
    "bold": "1",
}


def emit(
    arguments, data: Mapping[str, Any] | Callable[[], Mapping], text: str | Callable[[], str]
) -> None:
    """Print ``data`` as JSON with ``--json``, else ``text``; either may be a function."""
    chosen = data if arguments.json else text
    made = chosen() if callable(chosen) else chosen
    say(json.dumps(plain(made), allow_nan=False) if arguments.json else str(made))


def say(text: str) -> None:
    """Print a line on standard output; OutputLost if that fails."""
    try:
        print(text, flush=True)
    except OSError as error:
        raise OutputLost(error) from None


class OutputLost(Exception):
    """Standard output is lost: its reader has gone (``| head``), or the disk is full."""

    def __init__(self, error: OSError):
        self.error = error
        super().__init__(str(error))


def plain(value: Any) -> Any:
    """Return ``value`` as strict JSON: floats that are not finite become "inf", "-inf", "nan"."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = ()) -> str:
    """Return columns padded to their widest cell; ``right`` are the columns aligned to the right.

    Each row is one line, whatever its names contain.
    """
    cells = [[*map(_on_one_line, row)] for row in (head, *rows)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join(
            _room(c, w) + c if i in right else c + _room(c, w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def _room(cell: str, width: int) -> str:
    return " " * (width - _width(cell))


def _width(text: str) -> int:
    """Return the terminal columns of a text: some letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _on_one_line(cell: Any) -> str:
    text = "" if cell is None else printable(str(cell))
    return text.replace("\n", "\\n").replace("\t", " ")


def wants_colour() -> bool:
    """Return whether to use colours: on a terminal, without ``NO_COLOR`` (no-color.org)."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def painter(enabled: bool | None = None) -> Callable[[str, str], str]:
    """Return ``paint(colour, text)``, which returns the text unchanged if colours are off."""
    if not (wants_colour() if enabled is None else enabled):
        return lambda colour, text: text
    return lambda colour, text: f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def printable(text: str) -> str:
    """Return ``text`` without control characters, which names in model files may contain."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def number(value: float | None, digits: int = 3) -> str:
    """Return a float as a table cell; empty for None."""
    if value is None:
        return ""
    return (
        f"{value:.{digits}g}"
        if value and (abs(value) < 1e-3 or abs(value) >= 1e6)
        else f"{value:.{digits}f}"
    )
