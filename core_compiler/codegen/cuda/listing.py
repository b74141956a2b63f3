"""Which source line each line of PTX and of SASS is of."""

from __future__ import annotations

import re

_PTX_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_SASS_PLACE = re.compile(r'\s*//## File "[^"]*", line (\d+)')
_SASS_CODE = re.compile(r"\s*/\*[0-9a-f]+\*/")


def ptx_lines(ptx: str) -> list[tuple[int, int]]:
    """(PTX line, source line) of every instruction whose source line is known; lines from 1."""
    rows, current = [], 0
    for number, line in enumerate(ptx.splitlines(), 1):
        found = _PTX_PLACE.match(line)
        if found:
            current = int(found[1])
        elif current and line.rstrip().endswith(";") and not line.strip().startswith("."):
            rows.append((number, current))
    return rows


def sass_lines(listing: str) -> tuple[str, list[tuple[int, int]]]:
    """nvdisasm's listing without its remarks on places, and its (line, source line) rows."""
    kept: list[str] = []
    rows, current = [], 0
    for line in listing.splitlines():
        found = _SASS_PLACE.match(line)
        if found:
            current = int(found[1])
            continue
        kept.append(line.rstrip())
        if current and _SASS_CODE.match(line):
            rows.append((len(kept), current))
    return "\n".join(kept).strip("\n") + "\n", rows
