"""Damaged files for the importers: each must be imported or refused, within bounds.

    python -m tests.fuzz onnx|onnx-passes|stablehlo [--inputs N] [--seed S] [--seconds T]
                         [--jobs J] [--json] [--record FILE] [--findings FOLDER]
    python -m tests.fuzz FRONTEND --replay FILE

An input may take 10 s of processor time and 2 GiB of address space more than the process has when
its libraries are loaded.  Another exception than a UserError, a module that the verifier refuses, a
process that dies, time or memory beyond the bounds is a finding; of each cause one is written to
FOLDER (``build/fuzz``) with its bytes and what was said, for ``--replay``.  ``--record`` puts the
run's figures under its frontend into a JSON file.  Exits with 1 where there are findings.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import pool
from tests.fuzz.cases import CONTAINED, FINE, FRONTENDS, IMPORTED, REFUSED, Case, folder, outcome
from tests.fuzz.seeds import seeds


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("frontend", choices=FRONTENDS)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--replay", type=Path)
    given = parser.parse_args()
    if given.replay:
        return _replayed(given.frontend, given.replay)
    corpus = seeds(given.frontend)
    began = time.monotonic()
    numbers = range(given.first, given.first + given.inputs)
    told = [began]

    def progress(found: pool.Found) -> None:
        if time.monotonic() - told[0] > 20:
            told[0] = time.monotonic()
            print(f"{sum(found.counts.values())} inputs, {dict(found.counts)}", file=sys.stderr)

    found = pool.run(
        given.frontend,
        corpus,
        given.seed,
        numbers,
        jobs=given.jobs,
        seconds=given.seconds,
        progress=progress,
    )
    figures = _figures(found, len(corpus), given.seed, time.monotonic() - began)
    for (kind, key), (case, made, count) in found.findings.items():
        _write(given.findings / given.frontend, case, kind, key, made.text, count)
    if given.record:
        _record(given.record, given.frontend, figures)
    print(json.dumps(figures, indent=1) if given.json else _text(given.frontend, figures))
    return int(figures["findings"] > 0)


def _figures(found: pool.Found, seeds: int, seed: int, seconds: float) -> dict:
    inputs = sum(found.counts.values())
    return {
        "inputs": inputs,
        "imported": found.counts[IMPORTED],
        "refused": found.counts[REFUSED],
        "contained": found.counts[CONTAINED],
        "findings": inputs - sum(found.counts[kind] for kind in FINE),
        "causes": [
            {"kind": kind, "at": key, "count": count, "input": case.number, "of": case.made_from}
            for (kind, key), (case, _, count) in found.findings.items()
        ],
        "seconds": round(seconds),
        "peak_memory_mib": found.peak >> 20,
        "slowest_input_s": round(found.slowest[0], 2),
        "slowest_input": found.slowest[1],
        "bounds": {"memory_mib": pool.MEMORY_BOUND >> 20, "seconds": pool.TIME_BOUND},
        "processes": found.starts,
        "seeds": seeds,
        "seed": seed,
        "reasons": len(found.reasons),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _write(where: Path, case: Case, kind: str, key: str, text: str, count: int) -> None:
    where.mkdir(parents=True, exist_ok=True)
    stem = f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    (where / f"{stem}.case").write_bytes(pickle.dumps(case))
    (where / f"{stem}.bytes").write_bytes(case.data)
    (where / f"{stem}.txt").write_text(
        f"{kind}: {key}\n{count} times, first input {case.number} of {case.made_from}\n\n{text}\n"
    )


def _replayed(frontend: str, path: Path) -> int:
    """A file of ``--findings`` (``.case``, with its example inputs) or any model file again, in
    this process: a debugger sees what happens."""
    data = path.read_bytes()
    case = pickle.loads(data) if path.suffix == ".case" else Case(frontend, 0, data, "", None)
    pool.bound_memory()
    with tempfile.TemporaryDirectory() as root:
        made = outcome(case, folder(Path(root)))
    print(made.kind, made.key, made.text, sep="\n")
    return int(made.kind not in FINE)


def _record(path: Path, frontend: str, figures: dict) -> None:
    held = json.loads(path.read_text()) if path.exists() else {}
    held[frontend] = figures
    path.write_text(json.dumps(dict(sorted(held.items())), indent=1) + "\n")


def _text(frontend: str, figures: dict) -> str:
    head = (
        f"{frontend}: {figures['inputs']} inputs, {figures['imported']} imported, "
        f"{figures['refused']} refused, {figures['contained']} contained, "
        f"{figures['findings']} findings; {figures['seconds']} s, at most "
        f"{figures['peak_memory_mib']} MiB, slowest input {figures['slowest_input_s']} s"
    )
    lines = [
        f"  {c['count']} x {c['kind']}: {c['at']} (input {c['input']}: {c['of']})"
        for c in figures["causes"]
    ]
    return "\n".join([head, *lines])


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
