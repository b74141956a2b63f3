"""Run the conformance suites and rewrite their records in ``tests/results``.

    python -m tests.conformance.update [--suite NAME] [--path reference|cpu] [--more] [--seconds S]

The reference path runs every case.  The full path (``cpu``) runs the cases that the reference
record does not call unsupported: what is refused at import is refused on both.  It compiles about a
kernel a case, so ``--seconds`` ends it early and ``--more`` goes on with the cases that its record
lacks or does not call passed; a record always says which cases it holds.  ``--only`` runs the
cases whose name holds TEXT and prints them; such a run is never recorded.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from tests.conformance import jax_harnesses, onnx_nodes, opinfo, opinfo_gradients, outcomes
from tests.conformance.outcomes import Outcome

SUITES = {s.SUITE: s for s in (onnx_nodes, opinfo, opinfo_gradients, jax_harnesses)}
#: Into how many parts of equal spread a run is cut; each is recorded when it is done.
PARTS = 24


def run(suite: str, path: str, names: Collection[str] | None = None) -> dict[str, Outcome]:
    """Outcomes by name of the cases called ``names`` (all where None) that the installed suite
    has."""
    execute = outcomes.PATHS[path]
    found: dict[str, Outcome] = {}
    for case in SUITES[suite].cases(names):
        if case.name in found:
            raise ValueError(f"two cases of {suite} are called {case.name}")
        found[case.name] = outcomes.outcome(case, execute)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--path", choices=outcomes.PATHS, action="append")
    parser.add_argument("--only", default="")
    parser.add_argument("--more", action="store_true", help="only what is not recorded as passed")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    worse = 0
    for suite in given.suite or SUITES:
        for path in given.path or outcomes.PATHS:
            worse += _update(suite, path, given)
    return 1 if worse else 0


def _update(suite: str, path: str, given) -> int:
    held = {name: Outcome(*_split(text)) for name, text in outcomes.recorded(suite, path).items()}
    names = _names(suite, path, given.only)
    if given.more and path != "reference":
        names = [n for n in names if n not in held or held[n].status != "passed"]
    found: dict[str, Outcome] = {}
    before = outcomes.recorded(suite, path)
    for part in _parts(suite, path, names, given.jobs, given.seconds):
        found |= part
        if not given.only:
            kept = {n: o for n, o in held.items() if n not in found} if given.more else {}
            outcomes.save(SUITES[suite], path, {**kept, **found})
    return _report(suite, path, found, before, verbose=bool(given.only))


def _names(suite: str, path: str, only: str) -> list[str]:
    """The cases to run; the reference record lists them for the full path."""
    if path == "reference":
        return [case.name for case in SUITES[suite].cases() if only in case.name]
    return [name for name in outcomes.recorded(suite, "reference") if only in name]


def _parts(
    suite: str, path: str, names: Sequence[str], jobs: int, seconds: float
) -> Iterator[dict[str, Outcome]]:
    """The outcomes of ``names``, a part a time, until the seconds are over."""
    end = time.monotonic() + seconds
    stems = list(dict.fromkeys(map(SUITES[suite].stem, names)))
    places = {stem: i % PARTS for i, stem in enumerate(stems)}
    cut: list[list[str]] = [[] for _ in range(PARTS)]
    for name in names:
        cut[places[SUITES[suite].stem(name)]].append(name)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting: list[Future] = []
        for part in filter(None, cut):
            waiting.append(pool.submit(_part, suite, path, part))
        for done in as_completed(waiting):
            if not done.cancelled():
                yield done.result()
            if time.monotonic() > end:
                for future in waiting:
                    future.cancel()


def _part(suite: str, path: str, names: Sequence[str]) -> dict[str, Outcome]:
    refused = {}
    if path != "reference":
        texts = outcomes.recorded(suite, "reference")
        refused = {n: Outcome(*_split(texts[n])) for n in names}
        refused = {n: o for n, o in refused.items() if o.status == "unsupported"}
    return {**refused, **run(suite, path, [n for n in names if n not in refused])}


def _split(text: str) -> tuple[str, str]:
    status, _, reason = text.partition(": ")
    return status, reason


def _report(suite: str, path: str, found, before, verbose: bool) -> int:
    print(f"{suite} by {path}: {len(found)} cases, {outcomes.counts(found.values())}")
    for status in ("failed", "wrong", "unsupported"):
        reasons = Counter(o.reason for o in found.values() if o.status == status)
        for reason, count in reasons.most_common(len(reasons) if verbose else 400):
            print(f"  {count:5d} {status}: {reason}")
    worse = outcomes.regressions(before, found)
    for line in worse:
        print(f"  no longer passed: {line}")
    return len(worse)


if __name__ == "__main__":
    sys.exit(main())
