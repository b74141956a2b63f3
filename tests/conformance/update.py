"""Run the conformance suites and rewrite their records in ``tests/results``.

    python -m tests.conformance.update [--suite NAME] [--path reference|cpu] [--every N] [--only
    TEXT]

The reference path is recorded whole.  The full path compiles kernels (about a second a case), so
``--every 16`` is its default; ``--every 1`` records it whole.  ``--only`` runs the cases whose name
holds TEXT and prints them; such a run is never recorded.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.conformance import onnx_nodes, opinfo, outcomes

SUITES = {s.SUITE: s for s in (onnx_nodes, opinfo)}


#: Every how many cases a path runs, unless told.
EVERY = {"reference": 1, "cpu": 16}


def run(suite: str, path: str, only: str = "", every: int = 1, share: tuple[int, int] = (0, 1)):
    """Outcomes by name of every ``every``-th case; of these the part ``share`` (number, of how
    many)."""
    execute = outcomes.PATHS[path]
    found = {}
    for number, case in enumerate(SUITES[suite].cases()):
        chosen, rest = divmod(number, every)
        if rest or chosen % share[1] != share[0] or only not in case.name:
            continue
        if case.name in found:
            raise ValueError(f"two cases of {suite} are called {case.name}")
        found[case.name] = outcomes.outcome(case, execute)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--path", choices=outcomes.PATHS, action="append")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="print, record nothing")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    worse = 0
    for suite in given.suite or SUITES:
        for path in given.path or outcomes.PATHS:
            every = given.every or EVERY[path]
            found = _run_all(suite, path, given.only, every, given.jobs)
            worse += _report(suite, path, found, verbose=bool(given.only))
            if not given.only and not given.dry:
                outcomes.save(suite, SUITES[suite].about(), path, found, every)
    return 1 if worse else 0


def _run_all(suite: str, path: str, only: str, every: int, jobs: int):
    if jobs == 1:
        return run(suite, path, only, every)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        parts = [pool.submit(run, suite, path, only, every, (i, jobs)) for i in range(jobs)]
        return {name: o for part in parts for name, o in part.result().items()}


def _report(suite: str, path: str, found, verbose: bool) -> int:
    print(f"{suite} by {path}: {len(found)} cases, {outcomes.counts(found.values())}")
    for status in ("failed", "wrong", "unsupported"):
        reasons = Counter(o.reason for o in found.values() if o.status == status)
        for reason, count in reasons.most_common(len(reasons) if verbose else 400):
            print(f"  {count:5d} {status}: {reason}")
    worse = outcomes.regressions(suite, path, found)
    for line in worse:
        print(f"  no longer passed: {line}")
    return len(worse)


if __name__ == "__main__":
    sys.exit(main())
