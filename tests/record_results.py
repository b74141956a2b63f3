"""What a run of all tests came to, as a file to commit.

python -m tests.record_results JUNIT.xml... RESULTS.json [--part NAME | --again]

``--part``: the run was of the tests that NAME says (pytest's arguments): a whole one takes hours.
Each part has its commit, and replaces what was kept of the same part or of a whole run.
``--again``: the run was of some of the tests only, after what had failed was mended; it is put
beside the parts, which stay as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import gettempdir
from typing import Any

#: Tests that took at least this long are listed (seconds).
LONG = 20.0
_LIBRARIES = ("torch", "onnx", "onnxruntime", "numba", "llvmlite", "numpy", "pytest")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("target", type=Path)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--part", default="all")
    kind.add_argument("--again", action="store_true")
    given = parser.parse_args()
    found = _found(given.sources)
    kept = json.loads(given.target.read_text()) if given.target.exists() else {}
    if given.again:
        failed = [n for part in kept["parts"].values() for n in part["not_passed"]]
        outcomes = _outcomes(given.sources)
        mended = [n for n in failed if outcomes.get(n, ("",))[0] == "passed"]
        told = {k: found[k] for k in ("commit", "changed", "date", "counts", "not_passed")}
        kept.setdefault("again", []).append({**told, "passed_now": mended})
    else:
        parts = {} if given.part == "all" else kept.get("parts", {})
        parts = {name: part for name, part in parts.items() if name != "all"} | {given.part: found}
        counts: Counter[str] = sum((Counter(p["counts"]) for p in parts.values()), Counter())
        kept = {
            "counts": dict(sorted(counts.items())),
            "seconds": sum(p["seconds"] for p in parts.values()),
            "parts": parts,
        }
    given.target.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{given.target}: {found['counts']} in {found['seconds']} s")
    return 0


def _found(sources: Sequence[Path]) -> dict[str, Any]:
    suites = [suite for source in sources for suite in ElementTree.parse(source).iter("testsuite")]
    cases = sorted((case for suite in suites for case in suite.iter("testcase")), key=_name)
    outcomes = _outcomes(sources)
    return {
        **circumstances(_LIBRARIES),
        "seconds": round(sum(float(suite.get("time", 0)) for suite in suites)),
        "counts": dict(sorted(Counter(status for status, _ in outcomes.values()).items())),
        "not_passed": {n: ": ".join(o) for n, o in sorted(outcomes.items()) if o[0] != "passed"},
        "long": {
            _name(case): round(float(case.get("time", 0)))
            for case in cases
            if float(case.get("time", 0)) >= LONG
        },
    }


def _outcomes(sources: Sequence[Path]) -> dict[str, tuple[str, str]]:
    cases = (case for source in sources for case in ElementTree.parse(source).iter("testcase"))
    return {_name(case): _outcome(case) for case in cases}


def circumstances(libraries: Sequence[str], *paths: str) -> dict[str, Any]:
    """What figures are of: commit (``changed``: something under ``paths`` is not in it), date,
    machine, and the versions of ``libraries``."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", *paths)),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in libraries},
    }


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    """``passed``, ``skipped``, ``failure`` or ``error``, and what was said, without folders of this
    machine."""
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            said = (child.get("message") or "").splitlines()[0]
            return child.tag, said.replace(f"{Path.cwd()}/", "").replace(gettempdir(), "TMP")
    return "passed", ""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
