"""What was found of the first bad pass in two recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import bisect


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return bisect.key(run, sight), bisect.key(other, Sight())


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """As of one recording, and ``two``: the newest ``result`` of the other one (its stages lead
    nowhere here), its ``name`` and ``command``, and in ``told`` how the two results compare."""
    found, there = bisect.data(run, sight), bisect.data(other, Sight())
    result = there["result"]
    if result is not None:
        result = {**result, "there": None, "rewrite": None, "op": None, "worst_stage": None}
    return {**found, "two": {
        "name": there["name"], "command": there["command"], "problem": there["problem"],
        "result": result, "told": _told(found["result"], result),
    }}  # fmt: skip


def _told(one: Mapping[str, Any] | None, two: Mapping[str, Any] | None) -> str:
    """How the results compare; "" where a recording was not searched."""
    if one is None or two is None:
        return ""
    a, b = (each["first_bad_pass"] for each in (one, two))
    if a is None and b is None:
        return "Nothing is wrong in either."
    if a is None or b is None:
        return f"Only {'B' if a is None else 'A'} is wrong."
    if a != b:
        return "Another pass is the first bad one in each."
    one_rule, two_rule = ((each["first_bad_rewrite"] or {}).get("rule") for each in (one, two))
    alike = one_rule is not None and one_rule == two_rule
    return f"The same pass in both{', by the same rule' if alike else ''}."
