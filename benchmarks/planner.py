"""Offset assignment on MiniMalloc's hard instances: every planner, its peak, bound and time.

``python benchmarks/planner.py [INSTANCE...] [--planners a,b] [--seconds S] [--json]``

The instances are Google's (``data/minimalloc``, Apache-2.0); the number in a file's name is the
capacity in bytes that has a known solution.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path

from core_compiler.placement.planner import Effort, plan
from core_compiler.placement.problem import Lifetime
from core_compiler.placement.verify import verify

DATA = Path(__file__).parent / "data" / "minimalloc"
PLANNERS = ("greedy_size", "greedy_start", "greedy", "best", "search")


def read(path: Path) -> list[Lifetime]:
    """The buffers of a MiniMalloc CSV: ``id,lower,upper,size``, half-open, no alignment."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [Lifetime(r["id"], int(r["size"]), int(r["lower"]), int(r["upper"]), 1) for r in rows]


def capacity(path: Path) -> int:
    return int(path.name.split(".")[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("instances", nargs="*", default=[])
    parser.add_argument("--planners", default=",".join(PLANNERS))
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit for each plan")
    parser.add_argument("--fit", action="store_true", help="stop at the file's capacity")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plan([Lifetime("warm", 1, 0, 1), Lifetime("up", 1, 0, 1)], "search")
    rows = []
    for path in sorted(DATA.glob("*.csv")):
        if options.instances and path.name.split(".")[0] not in options.instances:
            continue
        for planner in options.planners.split(","):
            began = time.perf_counter()
            found = _attempt(read(path), planner, options, capacity(path))
            rows.append(
                {
                    "instance": path.name.split(".")[0],
                    "buffers": len(found.lifetimes),
                    "planner": planner,
                    "peak": found.peak,
                    "lower_bound": found.lower_bound,
                    "ratio": round(found.peak / found.lower_bound, 4),
                    "proven": found.proven,
                    "fits": found.peak <= capacity(path),
                    "valid": not verify(found),
                    "seconds": round(time.perf_counter() - began, 3),
                }
            )
            if not options.json:
                print("  ".join(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


def _attempt(lifetimes, planner, options, limit):
    from core_compiler.support.errors import UserError

    effort = Effort(seconds=options.seconds)
    if options.fit:
        try:
            return plan(lifetimes, planner, effort=effort, capacity=limit)
        except UserError:
            pass
    return plan(lifetimes, planner, effort=effort)


if __name__ == "__main__":
    main()
