"""Every view under axe (Deque's rules, WCAG 2 and good practice), in light and dark."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from workbench.state import VIEWS

pytestmark = [pytest.mark.playwright, pytest.mark.slow]

#: What axe calls serious: somebody cannot use the page.
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def axe() -> str:
    package = pytest.importorskip("axe_playwright_python", reason="it brings axe")
    return (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser, axe):
    size = {"width": 1440, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=request.param)
    made = context.new_page()
    made.set_default_timeout(60_000)
    yield made
    context.close()


def findings(page, axe: str) -> list[str]:
    """What is wrong, a line each: the rule, the element, what to do."""
    page.evaluate(axe)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']}: {node['html'][:120]} ({node['failureSummary']})"
        for rule in found["violations"] if rule["impact"] in SERIOUS for node in rule["nodes"]
    ]  # fmt: skip


def told(wrong: dict[str, list[str]]) -> str:
    return "\n".join(f"{view}: {line}" for view, lines in wrong.items() for line in lines)


def opened(page, server, **fields: object) -> None:
    page.goto(server.url + ("?" + urlencode(fields) if fields else ""))
    page.wait_for_selector("#cw-loading", state="detached")
    page.wait_for_function("() => !document.querySelector('#cw-busy.on')")
    page.wait_for_timeout(700)  # what fades in has its colours then


def test_no_view_has_a_serious_finding(server, page, axe, recording):
    opened(page, server)
    wrong = {"start": findings(page, axe)}
    for view in VIEWS:
        opened(page, server, run=recording, panes=view, stage=8, op=3)
        wrong[view] = findings(page, axe)
    opened(page, server, run=recording, panes="graph,diff", stage=8)
    page.keyboard.press("?")
    wrong["two panes and keys"] = findings(page, axe)
    assert told(wrong) == ""


def test_the_views_of_a_training_run_have_none(server, page, axe, training_runs):
    wrong = {}
    for view in ("overview", "graph", "memory", "training", "divergence", "numerics", "compare"):
        opened(page, server, run=training_runs.a, other=training_runs.b, panes=view)
        wrong[view] = findings(page, axe)
    assert told(wrong) == ""
