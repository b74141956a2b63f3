"""Traces of earlier sources, for models that are the same, as traces of the present ones.

A trace only says on which models a mutant is tried; whether these are green, and what becomes of
the mutant, is seen on the present sources.  Lines that are the same keep what executes them; those
of a changed part get what executed any of the part, or the lines beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

#: The sources that the traces of a folder are of: their texts by file.
SOURCES = "sources.json"


def keep_sources(traces: Path, base: Path, files: Sequence[str]) -> None:
    """Keep with traces the sources that they are of."""
    texts = {file: (base / file).read_text() for file in files}
    (traces / SOURCES).write_text(json.dumps(texts))


def carry_over(traces: Path, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Write the traces of files ``names`` that the newest other folder has; return these, and the
    sources that it knows nothing of."""
    others = [f.parent for f in traces.parent.glob(f"*/{SOURCES}") if f.parent != traces]
    if not others:
        return [], []
    newest = max(others, key=lambda folder: (folder / SOURCES).stat().st_mtime)
    old, new = (json.loads((f / SOURCES).read_text()) for f in (newest, traces))
    done = [name for name in names if (newest / name).exists() and not (traces / name).exists()]
    place = placed(old, new)
    for name in done:
        found = json.loads((newest / name).read_text())
        found["lines"] = {
            phase: {file: place(file, lines) for file, lines in files.items() if file in new}
            for phase, files in found["lines"].items()
        }
        (traces / name).write_text(json.dumps(found | {"carried": newest.name}))
    return done, sorted(new.keys() - old.keys()) if done else []


def placed(
    old: Mapping[str, str], new: Mapping[str, str]
) -> Callable[[str, Sequence[int]], list[int]]:
    """A function of a file and line numbers (from 1) in ``old``: their numbers in ``new``."""

    @cache
    def moved(file: str) -> Any:
        before, after = old[file].splitlines(), new[file].splitlines()
        if before == after:
            return None
        found: dict[int, set[int]] = {}
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        for tag, i, end, j, stop in matcher.get_opcodes():
            if tag == "equal":
                for n in range(end - i):
                    found.setdefault(i + n, set()).add(j + n)
            elif tag != "delete":
                beside = range(i, end) if tag == "replace" else (i - 1, i)
                for n in beside:
                    found.setdefault(n, set()).update(range(j, stop))
        return found

    def place(file: str, lines: Sequence[int]) -> list[int]:
        known = moved(file)
        if known is None:
            return list(lines)
        return sorted({n + 1 for line in lines for n in known.get(line - 1, ())})

    return place
