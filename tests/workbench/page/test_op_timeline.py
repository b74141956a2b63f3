"""The history of the selected op in the inspector: marks that lead, by mouse and by keyboard."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from core_compiler.record import Recording

STRIP = "#cw-inspector .timeline"


@pytest.mark.slow
@pytest.mark.playwright
def test_marks_lead_to_what_the_op_became(server, tab, recording):
    with Recording.open(recording) as opened:
        relu = next(op for op in opened.module(0).walk() if op.kind == "core.relu")
        number = opened.op_id(relu)
        stages = [s.pass_name for s in opened.stages()]
    query = f"run={quote(str(recording))}&panes=graph,diff&stage=0&op={number}"
    page = tab(f"{server.url}?{query}")
    fused = page.locate(f'{STRIP} .mark[data-what="fused"]').first
    at = fused.get_attribute("data-at")
    assert f"{int(at):02d} {stages[int(at)]}: " in fused.get_attribute("aria-label")
    fused.click()
    page.wait_query("stage", at)
    page.stage(int(at))
    page.wait(f'{STRIP} .mark[data-what="created"][data-at="{at}"]')
    assert page.query("op") != str(number) and page.query("rewrite") is not None
    # by keyboard: one stop of Tab, arrows along the marks, Enter follows
    assert page.locate(f'{STRIP} .mark[tabindex="0"]').count() == 1
    page.locate(f'{STRIP} .mark[tabindex="0"]').focus()
    page.press("End")
    assert "code" in page.text(f"{STRIP} .said")
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    page.wait(f'{STRIP} .mark[data-what="kernel"]:focus')
    page.press("Enter")
    page.page.wait_for_function("() => new URLSearchParams(location.search).get('kernel')")
    page.wait("#cw-view-kernels", state="visible")
    page.wait(f"{STRIP} .mark:focus")  # the keyboard stays in the strip
    assert not page.errors
