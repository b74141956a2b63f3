"""A whole suite, in parts that run beside each other; a case that ends its process is named."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tests.conformance import outcomes
from tests.conformance.update import SUITES

#: Into how many parts a run is cut.
PARTS = 96
#: Name, status, reason, and why the case is left out ("": it counts).
Row = tuple[str, str, str, str]


def rows(suite: str, path: str, jobs: int) -> list[Row]:
    """What came of every case of a suite on a path, by name."""
    stems = SUITES[suite].stems()
    parts = [stems[i::PARTS] for i in range(PARTS) if stems[i::PARTS]]
    made, broken = _run(suite, path, parts, jobs)
    while broken:  # something died: its part again, in smaller ones
        halves = [
            half
            for part in broken
            if len(part) > 1
            for half in (part[: len(part) // 2], part[len(part) // 2 :])
        ]
        made += [
            (part[0], "failed", "it ended its process", "") for part in broken if len(part) == 1
        ]
        more, broken = _run(suite, path, halves, 1)
        made += more
    return sorted(made)


def _run(suite: str, path: str, parts: Sequence[Sequence[str]], jobs: int):
    """The rows of the parts that ended well, and the parts that did not."""
    made: list[Row] = []
    broken = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = [(part, pool.submit(_part, suite, path, part)) for part in parts]
        for part, future in waiting:
            try:
                made += future.result()
            except BrokenProcessPool:
                broken.append(part)
    return made, broken


def _part(suite: str, path: str, stems: Sequence[str]) -> list[Row]:
    held, execute = SUITES[suite], outcomes.PATHS[path]
    found = []
    for case in held.cases_of(stems):
        made = outcomes.outcome(case, execute)
        why = held.left_out(case.name) or ("" if made.is_sample else made.reason)
        found.append((case.name, made.status, made.reason, why))
    return found
