"""Everything by keyboard: any view, tables that sort, marks of plots, passes that are folded."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from core_compiler.record import Recording
from tests.slow import slow_but
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState
from workbench.views import kernels, source

pytestmark = pytest.mark.playwright

#: What has the focus, through the shadow roots.
FOCUSED = """() => {
  let node = document.activeElement;
  while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
  return node;
}"""


@pytest.fixture
def opened(server, tab, recording):
    return lambda query="": tab(f"{server.url}?run={quote(str(recording))}{query}")


def focused(page, name):
    """An attribute of what has the focus."""
    return page.page.evaluate_handle(FOCUSED).as_element().get_attribute(name)


def tab_to(page, name, value, most=60):
    """Press Tab until what has the focus has an attribute that begins so."""
    for _ in range(most):
        page.press("Tab")
        if (focused(page, name) or "").startswith(value):
            return
    raise AssertionError(f"Tab does not reach {name}={value!r}")


@pytest.mark.slow
def test_the_help_names_the_keys(opened):
    page = opened()
    page.press("?")
    page.wait("#cw-bar dialog[open]")
    listed = page.page.locator("#cw-bar dialog[open] kbd").all_inner_texts()
    assert {"j", "k", "J", "K", "/", "?", "z", "g"} <= set(listed)
    assert "[object" not in page.text("#cw-bar dialog[open]")


@pytest.mark.slow
def test_a_letter_after_g_shows_any_view(opened):
    assert len({view.key for view in VIEWS.values()}) == len(VIEWS)
    page = opened("&stage=8&panes=graph,diff")
    page.drawn("graph")
    for view in VIEWS:
        page.press("g")
        page.wait("#cw-bar dialog[aria-label=Views]", state="visible")
        page.press(VIEWS[view].key)
        page.wait(f"#cw-view-{view}.left")
    page.press("g")
    page.press("ArrowRight")  # the last of them is shown: nothing is after it
    page.press("ArrowLeft")
    page.press("Enter")
    page.wait_query("panes", "pipeline", partly=True)
    page.press("g")
    page.press("Escape")
    page.wait("#cw-bar dialog[aria-label=Views]", state="hidden")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "column"),
    slow_but(
        (("kernels", "count"),),
        [("kernels", "count"), ("numerics", "tolerance"), ("rewrites", "us")],
    ),
)
def test_headers_sort_by_keys_and_keep_the_focus(opened, recording, view, column):
    with Recording.open(recording) as run:
        stage = next(s.index for s in run.stages() if s.rewrites > 3)
    page = opened(f"&stage={stage}&panes={view}")
    header = f"#cw-view-{view} th[data-column={column}]"
    page.wait(f"#cw-view-{view} tbody tr")
    page.locate(f"{header} button").focus()
    for key, order in (("Enter", "descending"), ("Space", "ascending")):
        page.press(key)
        page.wait(f"{header}[aria-sort={order}]")
        assert focused(page, "data-sort").endswith(column)
    page.press("Tab")
    assert focused(page, "data-sort").strip() != column
    assert page.errors == []


@pytest.mark.slow
def test_the_bars_of_the_overview_are_one_stop_and_lead_to_their_stage(opened):
    page = opened()
    page.wait("#cw-view-overview .chart")
    page.locate("#cw-view-overview .page").focus()
    tab_to(page, "data-pass", "0", most=120)
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert focused(page, "data-pass") == "2"
    page.press("Enter")
    page.wait_query("stage", "2")
    page.drawn("graph")


@pytest.mark.slow
def test_arrow_keys_walk_the_passes_also_those_that_are_folded(opened, recording):
    with Recording.open(recording) as run:
        changed = [s.changed for s in run.stages()]
    same = changed.index(False, 1)
    page = opened(f"&stage={same - 1}&panes=graph")
    page.stage(same - 1)
    page.locate("#cw-rail .list").focus()
    page.press("ArrowDown")
    page.stage(same)
    page.wait_query("stage", str(same))
    page.press("ArrowUp")
    page.stage(same - 1)
    page.press("End")
    page.stage(len(changed) - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "row", "name"),
    slow_but(
        (("rail", ".pass", "stage"),),
        [
            ("rail", ".pass", "stage"),
            ("kernels", "tbody tr", "kernel"),
            ("numerics", "tbody tr", "row"),
            ("rewrites", "tbody tr", "rewrite"),
            ("source", "tr.ops", "line"),
        ],
    ),
)
def test_keys_that_are_quicker_than_the_host_are_all_heard(
    server, tab, recording, two_blocks, view, row, name
):
    """The answer to a key comes after the next key, which goes on from where that one led."""
    path = two_blocks.run if view == "source" else recording  # it has more lines
    with Recording.open(path) as run:
        stages = [str(s.index) for s in run.stages()]
        most = max(run.stages(), key=lambda s: s.rewrites).index
    panes = "graph" if view == "rail" else view
    page = tab(f"{server.url}?run={quote(str(path))}&stage={most}&panes={panes}")
    root = "#cw-rail" if view == "rail" else f"#cw-view-{view}"
    page.wait(f"{root} {row}")
    at = page.locate(f"{root} .list, {root} .scroll").first
    ids = stages
    if view != "rail":  # where passes are folded
        every = "(list, [row, name]) => [...list.querySelectorAll(row)].map((e) => e.dataset[name])"
        ids = at.evaluate(every, [row, name])
    at.focus()

    def marked():
        return at.locator(f"{row}.on").first.get_attribute(f"data-{name}")

    page.press("Home")
    page.wait(f'{root} {row}.on[data-{name}="{ids[0]}"]')
    page.rest()
    for key, wanted in (("ArrowDown", ids[4]), ("ArrowUp", ids[0])):
        page.quickly(at, *[key] * 4)
        assert marked() == wanted
        page.rest()
        assert marked() == wanted
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("view", ["kernels", "rewrites", "source"])
def test_so_they_are_in_the_tables_of_two_recordings(library, tab, view):
    page = tab(f'{library.url}?run=cpu.run&other=cuda.run&panes={view}&{view}.view={{"ab":true}}')
    root = f"#cw-view-{view}"
    page.wait(f"{root} .two tbody tr")
    at = page.locate(f"{root} .scroll:visible").first
    at.focus()
    which = """(list) => [...list.querySelectorAll('tbody tr')]
        .map((row, i) => (row.classList.contains('on') ? i : -1)).filter((i) => i >= 0)"""
    walked = []
    page.press("Home")
    for _ in range(4):  # each after the answer to the one before
        page.wait(f"{root} tr.on")
        page.rest()
        walked.append(at.evaluate(which))
        page.press("ArrowDown")
    page.rest()
    page.press("Home")
    page.rest()
    assert at.evaluate(which) == walked[0]
    page.quickly(at, *["ArrowDown"] * 3)
    assert at.evaluate(which) == walked[3]
    page.rest()
    assert at.evaluate(which) == walked[3]
    assert page.errors == []


@pytest.mark.slow
def test_what_a_row_leads_to_by_keys(opened, recording):
    """A line of the source to its worst check; a kernel to the op of its line."""
    run = Run(recording)
    data = source.data((run,), ViewState())
    run.close()
    page = opened("&panes=source")
    view = "#cw-view-source"
    page.wait(f"{view} tr.on")
    checked = next(r for f in data["files"] for r in f["rows"] if f["path"] and r["check"])
    page.locate(f'{view} tr[data-line="{checked["line"]}"] .code').first.click()
    page.press("c")
    page.wait_query("rewrite", str(checked["check"]["rewrite"]))
    page = opened("&panes=kernels")
    page.wait("#cw-view-kernels tbody tr button.link")
    page.locate("#cw-view-kernels .scroll").focus()
    page.press("Home")
    page.wait("#cw-view-kernels tr.on")
    page.press("l")
    page.page.wait_for_function("() => new URLSearchParams(location.search).get('op') !== null")
    assert page.errors == []


@pytest.mark.slow
def test_the_menu_of_downloads_by_keys(opened):
    page = opened("&panes=kernels")
    page.wait("#cw-view-kernels tbody tr")
    page.locate("#cw-view-kernels button.save").focus()
    page.press("Enter")
    page.wait("#cw-view-kernels [role=menu]", state="visible")
    page.page.wait_for_function(f"() => ({FOCUSED})()?.getAttribute('role') === 'menuitem'")
    page.press("ArrowUp")
    assert focused(page, "title") == "Roofline, PNG"
    with page.page.expect_download() as got:
        page.press("Enter")
    assert got.value.suggested_filename == "roofline.png"
    page.press("Enter")
    page.wait("#cw-view-kernels [role=menu]", state="visible")
    page.press("Escape")
    page.wait("#cw-view-kernels [role=menu]", state="hidden")
    assert focused(page, "aria-label") == "Download"


@pytest.mark.slow
def test_the_marks_of_the_roofline_by_keys(opened, recording):
    """From kernel to kernel, the dearest first; behind the selected one its launches."""
    run = Run(recording)
    data = kernels.data((run,), ViewState())
    run.close()
    dearest = sorted((r for r in data["rows"] if r["flops"]), key=lambda r: -r["share"])
    launches = data["launches"]
    chosen = next(i for i, r in enumerate(dearest) if launches["kernel"].count(r["id"]) > 1)
    kernel = dearest[chosen]
    times = {
        op: us
        for op, us, of in zip(launches["op"], launches["us"], launches["kernel"], strict=True)
        if of == kernel["id"]
    }
    page = opened("&panes=kernels")
    page.wait("#cw-view-kernels .point")
    page.locate("#cw-view-kernels .scroll").focus()
    tab_to(page, "data-mark", "kernel")
    walked = [focused(page, "data-kernel")]
    for _ in dearest[1:]:
        page.press("ArrowRight")
        walked.append(focused(page, "data-kernel"))
    assert walked == [str(row["id"]) for row in dearest]
    for _ in range(len(dearest) - 1 - chosen):
        page.press("ArrowLeft")
    assert kernel["name"] in page.text("#cw-view-kernels .tip")
    page.press("Enter")
    page.wait_query("kernel", str(kernel["id"]))
    page.wait("#cw-view-kernels .launch")
    page.wait(f'#cw-view-kernels .point:focus[data-kernel="{kernel["id"]}"][aria-pressed=true]')
    page.press("ArrowRight")
    assert f"one of {len(times)} launches" in focused(page, "aria-label")
    page.press("Enter")
    longest = max(times, key=times.get)
    page.wait_query("op", str(longest))
    page.wait(f'#cw-view-kernels .launch.on:focus[data-op="{longest}"]')
    page.press("c")
    page.wait_query("panes", "code", partly=True)
    assert page.errors == []


@pytest.mark.slow
def test_an_open_menu_stays_while_its_view_is_drawn_again(opened, recording):
    with Recording.open(recording) as run:
        first, second = [s.index for s in run.stages() if s.rewrites][:2]
    page = opened(f"&panes=source,rewrites&stage={first}")
    page.wait("#cw-view-rewrites tbody tr")
    page.locate(f'#cw-rail .pass[data-stage="{second}"]').click()
    page.stage(second)
    for view, way, stage in (("source", "back", first), ("rewrites", "forward", second)):
        menu = f"#cw-view-{view} [role=menu]"
        page.rest()
        page.locate(f"#cw-view-{view} button.save").focus()
        page.press("Enter")
        page.page.wait_for_function(f"() => ({FOCUSED})()?.getAttribute('role') === 'menuitem'")
        page.press("End")
        item = focused(page, "title")
        before = page.locate(f"#cw-view-{view} .gap").first.element_handle()
        page.page.evaluate(f"history.{way}()")  # another stage, without a key or a click here
        page.stage(stage)
        page.page.wait_for_function("(node) => !node.isConnected", arg=before)
        assert page.locate(menu).is_visible()
        assert focused(page, "title") == item
        page.press("Escape")
        page.wait(menu, state="hidden")
        assert focused(page, "aria-label") == "Download"
    assert page.errors == []
