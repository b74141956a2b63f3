"""Run a framework's own suite through the whole compiler and say how much of it passes.

    python -m tests.conformance onnx|torch|jax [--path cpu|reference] [--jobs N] [--json]

With ``--json``: ``eligible`` and ``passed`` (how many), ``failed`` and ``left_out`` (lists of
``name`` and ``reason``), ``seconds``.  Exits with 1 where an eligible case ends in anything but a
pass or a refusal in words.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.conformance import outcomes
from tests.conformance.update import SUITES

NAMES = {"onnx": "onnx_nodes", "torch": "opinfo", "jax": "jax_harnesses"}
#: Into how many parts a run is cut.
PARTS = 48


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance",
                                     description=__doc__.splitlines()[0])  # fmt: skip
    parser.add_argument("suite", choices=NAMES)
    parser.add_argument("--path", choices=outcomes.PATHS, default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    rows = _rows(NAMES[given.suite], given.path, given.jobs)
    seconds = time.monotonic() - began
    left_out = [{"name": n, "reason": why} for n, _s, _r, why in rows if why]
    eligible = [row for row in rows if not row[3]]
    failed = [{"name": n, "reason": f"{s}: {r}"} for n, s, r, _ in eligible if s != "passed"]
    found = {
        "suite": given.suite, "path": given.path, "eligible": len(eligible),
        "passed": len(eligible) - len(failed), "failed": failed, "left_out": left_out,
        "seconds": round(seconds, 1),
    }  # fmt: skip
    print(json.dumps(found, indent=1) if given.json else _text(found))
    return int(any(status in ("wrong", "failed") for _, status, _, why in rows if not why))


def _rows(suite: str, path: str, jobs: int) -> list[tuple[str, str, str, str]]:
    """(name, status, reason, why it is left out) of every case."""
    stems = SUITES[suite].stems()
    parts = [stems[i::PARTS] for i in range(PARTS) if stems[i::PARTS]]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        made = pool.map(_part, [suite] * len(parts), [path] * len(parts), parts)
        return sorted(row for rows in made for row in rows)


def _part(suite: str, path: str, stems: Sequence[str]) -> list[tuple[str, str, str, str]]:
    held, execute = SUITES[suite], outcomes.PATHS[path]
    rows = []
    for case in held.cases_of(stems):
        found = outcomes.outcome(case, execute)
        rows.append((case.name, found.status, found.reason, held.left_out(case.name)))
    return rows


def _text(found: dict) -> str:
    share = found["passed"] / max(1, found["eligible"])
    head = (
        f"{found['suite']} by {found['path']}: {found['passed']} of {found['eligible']} eligible "
        f"cases pass ({share:.1%}), {len(found['left_out'])} are left out, {found['seconds']:.0f} s"
    )
    return "\n".join([head, *(f"  {each['name']}: {each['reason']}" for each in found["failed"])])


if __name__ == "__main__":
    sys.exit(main())
