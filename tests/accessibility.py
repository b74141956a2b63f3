"""axe (Deque's rules, WCAG 2 and good practice) on a page of Playwright's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

#: What axe calls serious: somebody cannot use the page.
SERIOUS = ("serious", "critical")


def axe() -> str:
    """Its text; the test is skipped where it is not installed."""
    package = pytest.importorskip("axe_playwright_python", reason="it brings axe")
    return (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def findings(page: Any, axe: str, within: str = "") -> list[str]:
    """What is wrong, a line each: the rule, the element, what to do.  ``within``: a selector of
    the parts that are looked at; they must be there."""
    page.evaluate(axe)
    found = page.evaluate(
        "(within) => axe.run(within ? { include: [within] } : document,"
        " { resultTypes: ['violations'] })",
        within,
    )
    return [
        f"{rule['id']}: {node['html'][:120]} ({node['failureSummary']})"
        for rule in found["violations"]
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]
