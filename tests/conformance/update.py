"""Run the conformance suites and rewrite their records in ``tests/results``.

    python -m tests.conformance.update [--suite NAME] [--path reference|cpu] [--only TEXT] [--dry]

``--only`` runs the cases whose name holds TEXT and prints them; a partial run is never recorded.
"""
from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.conformance import onnx_nodes, opinfo, outcomes

SUITES = {s.SUITE: s for s in (onnx_nodes, opinfo)}


def run(suite: str, path: str, only: str = "", share: tuple[int, int] = (0, 1)):
    """Outcomes by name of the cases whose number is ``share[0]`` modulo ``share[1]``."""
    execute = outcomes.PATHS[path]
    found = {}
    for number, case in enumerate(SUITES[suite].cases()):
        if number % share[1] == share[0] and only in case.name:
            found[case.name] = outcomes.outcome(case, execute)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--path", choices=outcomes.PATHS, action="append")
    parser.add_argument("--only", default="")
    parser.add_argument("--dry", action="store_true", help="print, record nothing")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    worse = 0
    for suite in given.suite or SUITES:
        for path in given.path or ["reference"]:
            found = _run_all(suite, path, given.only, given.jobs)
            worse += _report(suite, path, found, verbose=bool(given.only))
            if not given.only and not given.dry:
                outcomes.save(suite, SUITES[suite].about(), path, found)
    return 1 if worse else 0


def _run_all(suite: str, path: str, only: str, jobs: int):
    if jobs == 1:
        return run(suite, path, only)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        parts = [pool.submit(run, suite, path, only, (i, jobs)) for i in range(jobs)]
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
