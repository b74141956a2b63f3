"""Mutation testing of the compiler: small faults in its sources, each to be caught by a command.

    python -m tests.mutations --seed N [--count 400] [--classes rules,schedules] [--jobs 2]
                              [-o tests/results/mutations.json] [--list]
    python -m tests.mutations --again tests/results/mutations.json

Sites are drawn by the seed from those that the corpus of the class executes.  Faults of the
compiler must be caught by ``workbench compile --check``, wrong translations and meanings of ops by
that with ``--against``, wrong gradients by ``workbench train --check``.  Survivors are listed with
their edit; why one is no fault is written in ``equivalent.toml``.  What changes nothing of what is
compiled or computed is counted apart, and another is drawn for it.  The corpus is executed and
traced once in a work folder, which takes 40 minutes; traces are carried over to later sources.
``--again`` tries once more what a recorded run did not see, or blamed on another pass.  Exits with
1 where a mutation survived.

The output is written as mutations are tried.  Where it holds some of the same seed, count, sources
and corpus already, the run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.mutations import classes, judge, score, server, session
from tests.mutations.classes import CLASSES


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--planted", metavar="CLASSES", help="try the planted faults of these instead"
    )
    parser.add_argument(
        "--again",
        metavar="FILE",
        type=Path,
        help="try what a run has not seen once more, and put it in its place",
    )
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--classes", default="", help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("build/mutations"))
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--list", action="store_true", help="only list what is drawn")
    given = parser.parse_args()
    names = [name for name in given.classes.split(",") if name]
    unknown = [name for name in names if name not in CLASSES]
    if unknown:
        parser.error(f"unknown class {unknown[0]!r}; choose from {', '.join(CLASSES)}")
    server.load_libraries()
    if given.planted:
        return _planted(given)
    run = session.Session(given.work, given.jobs)
    coverage = run.prepare()
    quotas = classes.quotas(given.count, tuple(names))
    if given.list:
        return _listed(run, coverage, given.seed, quotas)
    first: dict[str, Any] | None = None
    if given.again:
        first = json.loads(given.again.read_text())
        _argue(first["mutations"])
        missed = score.missed(first["mutations"])
        rows, before = [], 0.0
        orders, quotas = run.same(coverage, missed), Counter(row["class"] for row in missed)
    else:
        rows, before = _kept(given, run)
        orders = run.drawn(coverage, given.seed, quotas)
    started = time.monotonic() - before

    def result() -> dict[str, Any]:
        seconds = time.monotonic() - started
        found = (
            score.result(rows, given.seed, given.count, run, seconds)
            if first is None
            else score.again(first, rows, run)
        )
        if given.output:
            given.output.write_text(_anywhere(json.dumps(found, indent=1), run.work) + "\n")
        return found

    for row in run.run(orders, quotas, tuple(rows)):
        rows.append(row)
        print(
            f"{len(rows):4} {row['outcome']:10} {row['class']:12} {row['seconds']:5.1f} s "
            f"{row['file']}:{row['line']}",
            file=sys.stderr,
            flush=True,
        )
        if len(rows) % EVERY == 0:
            result()
    found = result()
    print(score.text(found))
    return int(found["whole"]["score"] != 1)


def _anywhere(text: str, work: Path) -> str:
    """``text`` without the places of this machine (of what was cut short too)."""
    text = text.replace(f"{sysconfig.get_path('purelib')}/", "")
    inside = r"(/[0-9a-f]*/?(tree/|corpus-[0-9a-f]*/?)?)?"
    return re.sub(re.escape(str(work.resolve())) + inside, "", text)


#: Rows after which the output is written.
EVERY = 10


def _kept(given: argparse.Namespace, run: session.Session) -> tuple[list[dict[str, Any]], float]:
    """The rows of an output that this run goes on from, and the seconds that they took."""
    if given.output is None or not given.output.exists():
        return [], 0.0
    held = json.loads(given.output.read_text())
    same = score.made_of(run) | {"seed": given.seed, "count": given.count}
    if any(held.get(name) != value for name, value in same.items()):
        return [], 0.0
    _argue(held["mutations"])
    return held["mutations"], held["seconds"]


def _argue(rows: list[dict[str, Any]]) -> None:
    """Arguments may have come since a run."""
    known = judge.Arguments()
    for row in rows:
        if row["outcome"] in (judge.SURVIVED, judge.EQUIVALENT_SITE):
            row["outcome"], row["argument"] = known.of(row)


def _planted(given: argparse.Namespace) -> int:
    """The outcome of each planted fault, as a line of JSON."""
    from tests.mutations.planted import PLANTED

    faults = [PLANTED[name] for name in given.planted.split(",")]
    known = os.environ.get("COMPILER_WORKBENCH_CACHE")  # mutants only read it
    rows = list(
        session.Session(given.work, given.jobs, Path(known) if known else None).planted(faults)
    )
    for row in rows:
        print(json.dumps(row))
    return int(any(row["outcome"] != judge.CAUGHT for row in rows))


def _listed(run, coverage, seed: int, quotas: dict[str, int]) -> int:
    from itertools import islice

    from tests.mutations import sites

    for name, quota in quotas.items():
        for site in islice(sites.drawn(CLASSES[name], run.base, coverage, seed), quota):
            source = (run.base / site.file).read_text()
            print(
                f"{name}  {site.file}:{site.mutation.line}  {site.mutation.operator}  "
                f"{len(site.models)} models\n  - {site.mutation.before(source)}\n"
                f"  + {site.mutation.after(source)}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
