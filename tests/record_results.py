"""What a run of all tests came to, as a file to commit.

python -m tests.record_results JUNIT.xml... RESULTS.json [--more | --again]

Several files are the parts of one run, at one commit: a whole one takes hours.
``--more``: they are further parts of the run in RESULTS.json, which must be of the same commit.
``--again``: the run was of some of the tests only, after what had failed was mended; it is put
beside the whole run, which stays as it was.
"""

from __future__ import annotations

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
    words = [w for w in sys.argv[1:] if w not in ("--again", "--more")]
    *sources, target = map(Path, words)
    suites = [suite for source in sources for suite in ElementTree.parse(source).iter("testsuite")]
    cases = [case for suite in suites for case in suite.iter("testcase")]
    outcomes = {_name(case): _outcome(case) for case in cases}
    found = {
        **circumstances(_LIBRARIES),
        "seconds": round(sum(float(suite.get("time", 0)) for suite in suites)),
        "counts": dict(sorted(Counter(status for status, _ in outcomes.values()).items())),
        "not_passed": {n: ": ".join(o) for n, o in sorted(outcomes.items()) if o[0] != "passed"},
        "long": {
            _name(case): round(float(case.get("time", 0)))
            for case in sorted(cases, key=_name)
            if float(case.get("time", 0)) >= LONG
        },
    }  # fmt: skip
    if "--again" in sys.argv:
        whole = json.loads(target.read_text())
        mended = [n for n in whole["not_passed"] if outcomes.get(n, ("",))[0] == "passed"]
        part = {k: found[k] for k in ("commit", "changed", "date", "counts", "not_passed")}
        whole.setdefault("again", []).append({**part, "passed_now": mended})
        target.write_text(json.dumps(whole, indent=1) + "\n")
        print(f"{target}: again {found['counts']}, {len(mended)} that had failed pass now")
        return 0
    if "--more" in sys.argv:
        found = _joined(json.loads(target.read_text()), found)
    target.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{target}: {found['counts']} in {found['seconds']} s")
    return 0


def _joined(before: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """The parts of one run. Raises SystemExit where they are of other commits."""
    if before["commit"] != more["commit"] or before["changed"] or more["changed"]:
        raise SystemExit(f"the parts are of {before['commit']} and {more['commit']}, or of changes")
    counts = Counter(before["counts"]) + Counter(more["counts"])
    return {
        **more,
        "seconds": before["seconds"] + more["seconds"],
        "counts": dict(sorted(counts.items())),
        "not_passed": before["not_passed"] | more["not_passed"],
        "long": before["long"] | more["long"],
    }


def circumstances(libraries: Sequence[str], *paths: str) -> dict[str, Any]:
    """What figures are of: commit (``changed``: something under ``paths`` is not in it), date,
    machine, and the versions of ``libraries``."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", *paths)),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in libraries},
    }  # fmt: skip


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
