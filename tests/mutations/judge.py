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
SURVIVED, EQUIVALENT_SITE = "survived", "equivalent"
OUTCOMES = (CAUGHT, CRASH, REFUSED, TIMEOUT, SURVIVED, EQUIVALENT_SITE)
#: Not counted: it cannot be imported; it changes nothing of any model that was looked at.
INVALID, NO_EFFECT = "invalid", "no_effect"


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


def right(
    named: Sequence[Sequence[str]], passes: Sequence[str], tables: bool = False
) -> bool | None:
    """Whether a pass that executes the site is among those blamed, or, for a fault of ``tables``
    (meanings and translations), a node of the import or an op's reference; None where nothing of
    this can be said."""
    if not named or not (passes or tables):
        return None
    return any(pair[0] in passes or (tables and pair[0] in TABLES) for pair in named)


#: What rows of failures have for a pass where a node of the import differs from its framework's,
#: and where an op's reference is at fault.
TABLES = ("import", "reference")


def equivalents() -> dict[str, list[dict[str, str]]]:
    """The written arguments: of ``site``s (file, before, after, argument) and of ``decision``s
    (file, function, argument)."""
    found = tomllib.loads(EQUIVALENT.read_text())
    return {kind: found.get(kind, []) for kind in ("site", "decision")}


#: The effect of a mutant whose schedules refuse: what is left is what the clean sources make too
#: on their way, the plain loops or these after some steps.
EARLIER = "earlier"
#: What such a mutant may have changed, and why it is no fault.
_SCHEDULES = ("core_compiler/scheduling/schedules/", "core_compiler/scheduling/transforms/")
REFUSED_STEP = """A step of the schedule is refused, and the kernel is what the clean sources have \
of it before that step, text for text, which the machine code is compared with.  Results are the \
clean ones on all inputs that were tried."""


class Arguments:
    """Why survivors are no faults.

    An argument of a site is for one edit (``function``: in that one, where several functions of the
    file have the line).  One of a decision is for a function that only chooses
    among right ways: it holds where the mutant's results were seen to be the clean ones.
    """

    def __init__(self) -> None:
        known = equivalents()
        self._sites = {
            (s["file"], plain(s["before"]), plain(s["after"]), s.get("function")): s["argument"]
            for s in known["site"]
        }
        self._decisions = {(d["file"], d["function"]): d["argument"] for d in known["decision"]}

    def of(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """The outcome of a survivor, and the argument ("" where there is none)."""
        edit = row["file"], plain(row["before"]), plain(row["after"])
        said = self._sites.get((*edit, row["function"])) or self._sites.get((*edit, None), "")
        if not said and row.get("effect") == EARLIER and row["file"].startswith(_SCHEDULES):
            said = REFUSED_STEP
        if not said and row.get("effect") in (EARLIER, "code"):
            parts = row["function"].split(".")
            names = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
            found = (self._decisions.get((row["file"], name), "") for name in (*names, "*"))
            said = next(filter(None, found), "")
        return (EQUIVALENT_SITE if said else SURVIVED), said


def plain(line: str) -> str:
    """A line of source without regard to blanks."""
    return " ".join(line.split())
