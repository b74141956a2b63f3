"""A unified diff of the rows of :mod:`line_diff`, for display and as a patch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from core_compiler.ir.line_diff import AlignedLines

#: Line prefixes: unchanged, only before, only after, lines left out.
SAME, BEFORE, AFTER, GAP = " ", "-", "+", "@"


def unified(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (sign, text) of each line; a run of changes has its old lines, then its new ones."""
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


def patch(rows: AlignedLines, before: str, after: str, context: int = 3) -> Iterator[str]:
    """Yield the lines of a patch from one text to the other in the format of ``diff -u``.

    There are none if the texts are equal. Only the text of both sides counts, not the matching of
    ops, so that ``patch`` produces the second text from the first.
    """
    changed = list(rows.differing())
    if changed:
        yield f"--- {before}"
        yield f"+++ {after}"
    lost = [0, 0]  # rows so far that a side lacks
    for first, last in _hunks(changed, context, len(rows)):
        shown = rows[first:last]
        ranges = []
        for side, name in enumerate(("left", "right")):
            lines = sum(row[name] is not None for row in shown)
            start = first - lost[side] + (lines > 0)  # an empty side refers to the line before
            ranges.append(f"{start},{lines}")
            lost[side] += len(shown) - lines
        yield f"@@ -{ranges[0]} +{ranges[1]} @@"
        yield from (sign + text for sign, text in unified(_plainly(shown)))


def _hunks(changed: Sequence[int], context: int, total: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end rows of each hunk; hunks whose contexts touch are merged."""
    at = 0
    while at < len(changed):
        end = at + 1
        while end < len(changed) and changed[end] - changed[end - 1] <= 2 * context + 1:
            end += 1
        yield max(0, changed[at] - context), min(total, changed[end - 1] + context + 1)
        at = end


def _plainly(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {**row, "kind": "same" if row["left"] == row["right"] else "changed"}
