"""Run a framework's own suite through the whole compiler and say how much of it passes.

    python -m tests.conformance onnx|torch|torch-grad|jax [--path cpu|reference] [--jobs N] [--json]

With ``--json``: ``eligible`` and ``passed`` (how many), ``failed`` and ``left_out`` (lists of
``name`` and ``reason``), ``seconds``.  Exits with 1 where an eligible case ends in anything but a
pass or a refusal in words.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.conformance import outcomes, whole

NAMES = {
    "onnx": "onnx_nodes",
    "torch": "opinfo",
    "torch-grad": "opinfo_gradients",
    "jax": "jax_harnesses",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance", description=__doc__.splitlines()[0]
    )
    parser.add_argument("suite", choices=NAMES)
    parser.add_argument("--path", choices=outcomes.PATHS, default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    rows = whole.rows(NAMES[given.suite], given.path, given.jobs)
    seconds = time.monotonic() - began
    left_out = [{"name": n, "reason": why} for n, _s, _r, why in rows if why]
    eligible = [row for row in rows if not row[3]]
    failed = [{"name": n, "reason": f"{s}: {r}"} for n, s, r, _ in eligible if s != "passed"]
    found = {
        "suite": given.suite,
        "path": given.path,
        "eligible": len(eligible),
        "passed": len(eligible) - len(failed),
        "failed": failed,
        "left_out": left_out,
        "seconds": round(seconds, 1),
    }
    print(json.dumps(found, indent=1) if given.json else _text(found))
    return int(any(status in ("wrong", "failed") for _, status, _, why in rows if not why))


def _text(found: dict) -> str:
    share = found["passed"] / max(1, found["eligible"])
    head = (
        f"{found['suite']} by {found['path']}: {found['passed']} of {found['eligible']} eligible "
        f"cases pass ({share:.1%}), {len(found['left_out'])} are left out, {found['seconds']:.0f} s"
    )
    return "\n".join([head, *(f"  {each['name']}: {each['reason']}" for each in found["failed"])])


if __name__ == "__main__":
    sys.exit(main())
