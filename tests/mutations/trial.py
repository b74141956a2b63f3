"""One mutant on its way: what its command said, what it changes, what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.mutations import judge, server, sites
from tests.mutations.classes import AGAINST

#: The effect of a mutant that only makes steps of schedules refuse.
EARLIER = judge.EARLIER
#: How many models are compiled to see what a mutant changes that its command let pass.
PROBED = 8
#: On how many further models its command is tried where it changes what is compiled.
AGAIN = 80


class Trial:
    """``row`` is what is recorded of the mutant of a site; ``models``: those to be probed;
    ``probed``: what a child said of them."""

    def __init__(self, site: sites.Site, row: dict[str, Any]):
        self.site, self.row = site, row
        self.models = site.models[:PROBED]
        self.probed: Sequence[Mapping[str, Any]] = ()

    def tried(self, done: server.Done) -> None:
        """Take over what a child found that ran the command of the class."""
        row = self.row
        row.update(judge.outcome(done.said, done.ended))
        tables = self.site.kind.command == AGAINST
        row["right"] = judge.right(row.get("named", ()), self.site.passes, tables)
        row["tried"] = [*row["tried"], *(m["model"] for m in done.said if m["kind"] == "command")]
        self._spent(done)

    def _spent(self, done: server.Done) -> None:
        self.row["seconds"] = round(self.row["seconds"] + done.seconds, 2)
        self.row["processor"] = round(self.row["processor"] + done.processor, 2)

    def conclude(self, clean: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
        """Say what the mutant changed; the models that its command has yet to be tried on."""
        row = self.row
        found = {m["model"]: effect(clean.get(m["model"]), m) for m in self.probed if "model" in m}
        row["effect"] = max(found.values(), key=_EFFECTS.index, default="unknown")
        row["shown_by"] = [name for name, e in found.items() if e == row["effect"]][:4]
        row["probed"] = [name for name, e in found.items() if e != "unknown"]
        if row["effect"] == "nothing":
            row["outcome"] = judge.NO_EFFECT
            return []
        if row["effect"] == "unknown":
            return []
        left = dict.fromkeys([*row["shown_by"], *self.site.models])
        return [n for n in left if n not in row["tried"]][:AGAIN]


#: What a survivor changed, from least to most: nothing; schedules of some kernels end earlier, with
#: what the clean sources have of them before a later step; the modules or kernels that are
#: compiled; the results on some input.
_EFFECTS = ("unknown", "nothing", EARLIER, "code", "values")


def effect(clean: Mapping[str, Any] | None, found: Mapping[str, Any]) -> str:
    if clean is None or found["kind"] != "probe" or clean["kind"] != "probe":
        return "unknown"
    if clean["values"] != found["values"]:
        return "values"
    if clean["text"] == found["text"]:
        return "nothing"
    return EARLIER if clean.get("kernels") and _only_earlier(clean, found) else "code"


def _only_earlier(clean: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether each kernel is the clean sources' or what those have of it before a later step."""
    loops, steps = found["loops"], clean["steps"]
    return all(
        clean["kernels"].get(name) == source
        or (name in loops and set(loops[name]) <= set(steps.get(name, ())))
        for name, source in found["kernels"].items()
    )
