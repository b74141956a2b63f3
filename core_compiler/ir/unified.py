"""A unified diff of rows that :mod:`line_diff` made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: What a line begins with: unchanged, only before, only after, lines left out.
SAME, BEFORE, AFTER, GAP = " ", "-", "+", "@"


def unified(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(sign, text) of each line; a run of changes shows its old lines, then its new ones."""
    old: list[str] = []
    new: list[str] = []

    def flush() -> Iterator[tuple[str, str]]:
        yield from ((BEFORE, line) for line in old)
        yield from ((AFTER, line) for line in new)
        old.clear()
        new.clear()

    for row in rows:
        if row["kind"] in ("changed", "removed", "added", "moved"):
            old += [row["left"]] if row["left"] is not None else []
            new += [row["right"]] if row["right"] is not None else []
            continue
        yield from flush()
        if row["kind"] == "gap":
            yield GAP, f"@@ {row['hidden']} equal lines @@"
        else:
            yield SAME, row["left"]
    yield from flush()
