"""What came of a mutation: the first command of its class that is not green decides."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EQUIVALENT = Path(__file__).with_name("equivalent.toml")

#: The command said no, and named what is at fault.
CAUGHT = "caught"
#: It ended with an exception or a signal, and named nothing.
CRASH = "crash"
#: It refused the model, and named no pass, kernel, op or node.
REFUSED = "refused"
#: It said nothing for as long as it may take.
TIMEOUT = "timeout"
SURVIVED, EQUIVALENT_SITE, INVALID = "survived", "equivalent", "invalid"
OUTCOMES = (CAUGHT, CRASH, REFUSED, TIMEOUT, SURVIVED, EQUIVALENT_SITE)


def outcome(said: Sequence[Mapping[str, Any]], ended: str) -> dict[str, Any]:
    """``outcome``, ``by`` (the model), ``named``, ``said``, ``code`` of a child's messages."""
    tried = [m for m in said if m["kind"] == "command"]
    failed = next((m for m in said if m["kind"] == "harness"), None)
    if failed is not None:
        return {"outcome": "harness", "said": failed["error"]}
    invalid = next((m for m in said if m["kind"] == "invalid"), None)
    if invalid is not None:
        return {"outcome": INVALID, "said": invalid["error"]}
    red = next((m for m in tried if m["code"] != 0), None)
    if red is not None:
        return {"outcome": _verdict(red), **{k: red[k] for k in ("code", "named", "said", "model")}}
    if ended:
        model = next((m["model"] for m in reversed(said) if m["kind"] == "begin"), "")
        found = TIMEOUT if ended == "timeout" else CRASH
        return {"outcome": found, "said": ended, "model": model, "named": [], "code": None}
    return {"outcome": SURVIVED, "named": [], "said": tried[-1]["said"] if tried else ""}


def _verdict(red: Mapping[str, Any]) -> str:
    if red["code"] == 1 or red["named"] or _NAMES.search(red["said"]):
        return CAUGHT
    return CRASH if red["code"] == 70 else REFUSED


#: What names a kernel, an op of ours or a node of the model in a message.
_NAMES = re.compile(r"\(kernel |\bcore\.\w+|\.(onnx|py|pt2):\d+")


def right(named: Sequence[Sequence[str]], passes: Sequence[str]) -> bool | None:
    """Whether a pass that executes the site is among those blamed; None where no pass does."""
    if not passes or not named:
        return None
    return any(pair[0] in passes for pair in named)


def equivalents() -> list[dict[str, str]]:
    """The sites with a written argument: file, before, after, argument."""
    return tomllib.loads(EQUIVALENT.read_text()).get("site", [])


def is_equivalent(file: str, before: str, after: str, known: Sequence[Mapping[str, str]]) -> bool:
    """Whether a changed line has an argument; lines are compared without regard to blanks."""
    key = file, " ".join(before.split()), " ".join(after.split())
    return any(
        key == (k["file"], " ".join(k["before"].split()), " ".join(k["after"].split()))
        for k in known
    )
