"""The report: one file, no server, no network; the page's views and its one selection."""

from __future__ import annotations

import base64
import html
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_compiler.driver.compilation import Options
from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from tests.workbench.page.conftest import PATIENCE
from workbench.export import report
from workbench.state.view_state import VIEWS


@pytest.fixture(scope="module")
def made(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "digits.html"
    report.write(recording, path)
    return path


class Shown:
    def __init__(self, context: Any, path: Path, place: str = "") -> None:
        self.tab = context.new_page()
        self.tab.set_default_timeout(PATIENCE)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.tab.goto(f"file://{path}{place}")
        self.tab.wait_for_selector("body[data-ready]")

    def show(self, view: str) -> None:
        tab = self.tab.locator(f'.cw-tabs [data-view="{view}"]').first
        if tab.is_visible():
            tab.click()
        else:
            self.tab.locator(".cw-tabs select:visible").first.select_option(view)
        self.tab.wait_for_selector(f"#cw-view-{view}.left")

    def title(self) -> str:
        return self.tab.locator("#cw-inspector .head b").inner_text()


@pytest.fixture
def opened(browser: Any, made: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield lambda place="", path=made: Shown(context, path, place)
    context.close()


@pytest.mark.slow
def test_every_view_draws_without_a_server(opened: Any) -> None:
    shown = opened()
    for name in (n for n in report.SHOWN if n != "training"):  # it is none
        shown.show(name)
        ready = ".cw[data-ready]" if VIEWS[name].bundle else ".root > *"
        shown.tab.locator(f"#cw-view-{name} {ready}").first.wait_for()
        message = shown.tab.locator(f"#cw-view-{name} .cw-message")
        assert not message.is_visible(), message.inner_text()
    assert shown.errors == []
    assert [url for url in shown.requests if not url.startswith(("file:", "blob:", "data:"))] == []


@pytest.mark.slow
def test_passes_and_rewrites_are_stepped_with_keys(opened: Any, recording: Path) -> None:
    shown = opened()
    with Recording.open(recording) as run:
        stages = run.stages()
        changed = [s.index for s in stages[1:] if s.changed]
        with_rewrites = next(s for s in stages[1:] if s.rewrites)
        first = run.rewrites(with_rewrites.index)[0].rewrite.rule
    shown.tab.keyboard.press("j")
    shown.tab.wait_for_selector(f'#cw-rail .pass.on[data-stage="{changed[0]}"]')
    shown.tab.locator("#cw-view-graph .cw[data-ready]").wait_for()
    shown.tab.keyboard.press("j")
    shown.tab.wait_for_selector(f'#cw-rail .pass.on[data-stage="{changed[1]}"]')
    shown.tab.keyboard.press("k")
    shown.tab.wait_for_selector(f'#cw-rail .pass.on[data-stage="{changed[0]}"]')
    if with_rewrites.index == changed[0]:
        shown.tab.keyboard.press("J")
        shown.tab.locator("#cw-rail .rewrite.on").wait_for()
        assert first in shown.tab.locator("#cw-inspector .body").inner_text()
    assert shown.errors == []


@pytest.mark.slow
def test_one_selection_links_the_views(opened: Any, recording: Path) -> None:
    """A kernel chosen in the table shows its code and the op it computes, and the address leads
    back to the same state."""
    shown = opened()
    shown.tab.keyboard.press("2")
    row = shown.tab.locator("#cw-view-kernels tbody tr[data-kernel]").nth(1)
    kernel = int(row.get_attribute("data-kernel"))
    row.click()
    with Recording.open(recording) as run:
        name = next(k.name for k in run.kernels() if k.id == kernel)
    shown.tab.locator("#cw-view-code .cw", has_text=name).wait_for()
    shown.tab.wait_for_function("location.hash.includes('kernel=')")
    place = "#" + shown.tab.url.partition("#")[2]
    again = opened(place)
    again.tab.locator(f'#cw-view-kernels tr.on[data-kernel="{kernel}"]').wait_for()
    assert again.title() == shown.title()
    assert shown.errors == again.errors == []


@pytest.mark.slow
def test_search_finds_ops_and_goes_there(opened: Any) -> None:
    shown = opened()
    shown.tab.keyboard.press("/")
    shown.tab.keyboard.type("core.conv")
    shown.tab.locator("#cw-bar .hit .text", has_text="core.conv").first.wait_for()
    shown.tab.keyboard.press("Enter")
    shown.tab.locator("#cw-inspector .head b", has_text="core.conv").wait_for()
    assert shown.errors == []


@pytest.mark.slow
def test_search_has_the_fields_of_the_graphs_search(opened: Any, recording: Path) -> None:
    with Recording.open(recording) as run:
        stage = next(s.index for s in run.stages()[1:] if s.changed)
        count = sum(op.kind == "core.conv" for op in run.module(stage).main.body.ops)
    shown = opened(f"#stage={stage}&panes=graph")
    shown.tab.keyboard.press("/")
    shown.tab.keyboard.type("kind:/conv$/ dtype:f32")
    shown.tab.locator("#cw-bar .hit .text", has_text="core.conv").first.wait_for()
    assert shown.tab.locator("#cw-bar .hit").count() == count
    shown.tab.locator("#cw-bar input").first.fill("kind:/(/")
    told = shown.tab.locator("#cw-bar .told")
    told.filter(has_text="Invalid regular expression").wait_for()
    shown.tab.locator("#cw-bar input").first.fill("/(.|.|.|.|.)*~/")
    told.filter(has_text="takes too long. leave out nested repeats").wait_for()
    shown.tab.locator("#cw-bar input").first.fill("kind:/conv$/")
    shown.tab.locator("#cw-bar .hit .text", has_text="core.conv").first.wait_for()
    assert shown.errors == []


@pytest.mark.slow
def test_a_report_saves_modules_and_patches(opened: Any, recording: Path) -> None:
    with Recording.open(recording) as run:
        stage = next(s.index for s in run.stages()[1:] if s.rewrites)
        after = run.text(stage).splitlines()
    shown = opened(f"#stage={stage}&panes=diff")
    view = shown.tab.locator("#cw-view-diff")
    view.locator(".cw[data-ready]").wait_for()
    texts = []
    for item in ("The module after it, .mlir", "What the pass changed, .diff"):
        view.locator("button.save").click()
        with shown.tab.expect_download() as got:
            view.get_by_role("menuitem", name=item).click()
        texts.append(Path(got.value.path()).read_text().splitlines())
    assert texts[0][1:] == after[1:], "weights are named by digest in their header only"
    assert texts[1][2].startswith("@@ -") and any(line.startswith("+  ") for line in texts[1])
    assert shown.errors == []


def test_what_needs_the_workbench_says_so(opened: Any) -> None:
    shown = opened()
    assert not shown.tab.get_by_role("button", name="Execute").is_visible()
    shown.show("pipeline")
    shown.tab.locator("#cw-view-pipeline", has_text="This is a report.").wait_for()


@pytest.mark.slow
def test_it_does_not_say_in_which_folder_its_recording_was(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "told.html"
    chunks = report.write(recording, path).chunks.values()
    texts = [zlib.decompress(base64.b64decode(t), -zlib.MAX_WBITS) for t in chunks]
    assert any(b"workbench bisect" in text for text in texts), "what was compressed can be read"
    assert not any(str(recording.parent).encode() in t for t in (path.read_bytes(), *texts))


@pytest.mark.slow
def test_too_large_a_report_leaves_out_code_and_says_so(
    opened: Any, recording: Path, made: Path, tmp_path: Path
) -> None:
    path = tmp_path / "small.html"
    limit = made.stat().st_size - 10_000
    result = report.write(recording, path, max_bytes=limit)
    assert path.stat().st_size <= limit
    assert result.left_out
    shown = opened(path=path)
    assert "without the code of" in shown.tab.locator("#cw-bar .run").inner_text()
    with pytest.raises(UserError, match="--max-size"):
        report.write(recording, tmp_path / "no.html", max_bytes=1000)
    assert not (tmp_path / "no.html").exists()


def test_the_file_names_nothing_outside_and_no_text_of_the_model_becomes_markup(made: Path) -> None:
    text = made.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    outside = set(re.findall(r"https?://[^\s\"'<>`)]+", text))
    assert all(url.startswith("http://www.w3.org/") for url in outside), outside


@pytest.mark.slow
def test_the_report_of_a_full_resnet50_is_below_ten_megabytes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the sample models need torch")
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    path = tmp_path / "resnet50.run"
    model = models.load(read_spec("resnet50", None))
    jobs.compile(model, "cpu", Options(check=True), path=path, execute=True)
    result = report.write(path, tmp_path / "resnet50.html")
    assert result.left_out == []
    assert (tmp_path / "resnet50.html").stat().st_size < 10_000_000


@pytest.mark.slow
def test_a_training_step_is_linked_without_a_server(trained, browser, tmp_path):
    """Phases, marks and links from an op to its gradient and back lie in the file."""
    path = tmp_path / "step.html"
    report.write(trained[1], path)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    shown = Shown(context, path)
    shown.show("graph")
    with Recording.open(trained[1]) as run:
        stage = next(s.index for s in run.stages() if s.pass_name == "differentiate")
    shown.tab.locator(f'#cw-rail .pass[data-stage="{stage}"]').click()
    shown.tab.wait_for_selector(f'#cw-rail .pass.on[data-stage="{stage}"]')
    drawing = shown.tab.locator("#cw-view-graph .cw")
    drawing.locator('[data-phase="backward"]').wait_for()
    shown.tab.locator("#cw-bar input").first.fill("core.gelu")
    shown.tab.locator("#cw-bar .hit .text", has_text="core.gelu").first.click()
    gradients = shown.tab.locator("#cw-inspector section", has_text="Gradients")
    gradients.locator(".link").first.click()
    back = shown.tab.locator("#cw-inspector section", has_text="Gradient of")
    back.locator(".link").first.wait_for()
    assert drawing.evaluate("(root) => root.workbench.linked()")
    assert not shown.errors
    context.close()


HOLDER = """<!doctype html><iframe sandbox="allow-scripts" srcdoc="{report}"
 style="width: 1400px; height: 860px; border: none"></iframe>"""


@pytest.mark.slow
@pytest.mark.parametrize("base", ["", '<base href="https://elsewhere.example/notes/">'])
def test_it_works_in_a_sandbox_that_keeps_nothing(
    browser: Any, made: Path, tmp_path: Path, base: str
) -> None:
    """As a page for files shows it: without storage, its address that of somebody else."""
    text = made.read_text().replace("<head>", f"<head>{base}", 1)
    holder = tmp_path / "holder.html"
    holder.write_text(HOLDER.format(report=html.escape(text)))
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(holder.as_uri())
    held = page.frame_locator("iframe")
    held.locator("#cw-view-overview .figure").first.wait_for()
    held.locator("#cw-rail .pass[data-stage='3']").click()
    held.locator("#cw-rail .pass.on[data-stage='3']").wait_for()
    switch = held.locator("#cw-bar button[aria-label^='Switch']")
    before = held.locator("html").get_attribute("data-theme")
    switch.click()
    assert held.locator("html").get_attribute("data-theme") != before
    assert errors == []
    context.close()
