"""The page in a browser: open, step, follow, link, restore; bad input; nothing from outside."""

from __future__ import annotations

import json
from urllib.parse import quote, urlparse

import pytest

from core_compiler.driver import compilation
from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder
from workbench.model import models
from workbench.model.spec import read_spec
from workbench.queries import breakpoints
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS

pytestmark = pytest.mark.playwright


@pytest.fixture
def opened(server, tab, recording):
    """``opened(query)``: the page with the recording open."""
    return lambda query="": tab(f"{server.url}?run={quote(str(recording))}{query}")


def stages(recording):
    with Recording.open(recording) as file:
        return file.stages()


@pytest.mark.slow
def test_the_start_page_lists_samples_and_says_what_is_wrong(server, tab):
    page = tab(server.url)
    assert "resnet50" in page.text("#cw-start .samples")
    page.locate("#cw-start input[type=text]").fill("no-such-model")
    page.press("Enter")
    page.wait("#cw-start .error:visible")
    problem = page.text("#cw-start .error")
    assert "unknown model" in problem and "no-such-model" in problem
    assert page.errors == []


@pytest.mark.slow
def test_a_recording_opens_by_its_path(server, tab, recording):
    page = tab(server.url)
    page.locate("#cw-start input[type=text]").fill(str(recording))
    page.locate("#cw-start button.primary").click()
    page.wait("#cw-view-overview h1")
    assert page.text("#cw-view-overview h1") == "digits-cnn"
    page.wait_query("run", str(recording))
    assert page.page.title().startswith("digits-cnn")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["model.onnx", "notes.run", "program.exe"])
@pytest.mark.slow
def test_a_wrong_file_is_said_and_the_page_goes_on(server, tab, name):
    page = tab(server.url)
    body = {"name": name, "mimeType": "application/octet-stream", "buffer": b"this is no model"}
    page.locate("#cw-start input[type=file]").set_input_files(body)
    page.wait("#cw-start .error:visible, #cw-bar .toast.error:visible")
    page.wait("#cw-start .error:visible")
    assert page.text("#cw-start .error b")
    assert page.locate("#cw-start .sample").count() >= 5


@pytest.mark.slow
def test_a_dropped_recording_opens(server, tab, recording):
    page = tab(server.url)
    body = {"name": "mine.run", "mimeType": "", "buffer": recording.read_bytes()}
    page.locate("#cw-start input[type=file]").set_input_files(body)
    page.wait("#cw-view-overview h1")
    assert page.text("#cw-view-overview h1") == "digits-cnn"


@pytest.mark.slow
def test_keys_step_through_passes_and_rewrites(opened, recording):
    changed = [s.index for s in stages(recording)[1:] if s.changed]
    page = opened("&stage=0&panes=graph,diff")
    page.stage(0)
    for stage in changed[:3]:
        page.press("j")
        page.stage(stage)
    page.press("k")
    page.stage(changed[1])
    page.wait_query("stage", str(changed[1]))
    page.press("J")
    page.wait('#cw-rail .rewrite.on[data-rewrite="0"]')
    page.wait_query("rewrite", "0")
    page.wait("#cw-inspector h3:has-text('Rewrite 0')")
    page.press("K")
    page.stage(changed[0])
    page.press("n")
    page.wait("#cw-bar .toast:visible")
    assert "No check failed" in page.text("#cw-bar .toast")


@pytest.mark.slow
def test_two_tabs_on_one_run_do_not_disturb_each_other(opened, recording):
    changed = [s.index for s in stages(recording)[1:] if s.changed]
    a, b = opened("&stage=0&panes=graph,diff"), opened("&stage=0&panes=source,diff")
    for place in (0, 1, 2):
        a.press("j")
        a.stage(changed[place])
        b.stage(changed[place - 1] if place else 0)
        b.press("j")
        b.stage(changed[place])
    b.press("J")
    b.wait("#cw-inspector h3:has-text('Rewrite 0')")
    assert a.locate("#cw-inspector h3:has-text('Rewrite 0')").count() == 0
    a.wait_query("panes", "graph,diff")
    b.wait_query("panes", "source,diff")
    assert a.errors == b.errors == []


@pytest.mark.slow
def test_the_page_works_before_the_browser_has_said_that_it_is_drawn(server, tab, recording):
    page = tab(
        f"{server.url}?run={quote(str(recording))}&stage=0&panes=graph,diff", slow_to_say_so=True
    )
    changed = next(s.index for s in stages(recording)[1:] if s.changed)
    page.press("j")
    page.stage(changed)
    page.drawn("graph")
    assert page.errors == []


@pytest.mark.slow
def test_breakpoints_are_set_and_run_to(opened, recording):
    """On a pass, a rule and an op; in the address; the op's changes one by one."""
    changed = [s for s in stages(recording)[1:] if s.changed]
    page = opened(f"&stage={changed[1].index}&panes=graph,diff")
    page.stage(changed[1].index)
    page.press("r")
    page.wait("#cw-bar .toast:visible")
    assert "No breakpoints" in page.text("#cw-bar .toast")
    page.press("b")
    page.wait(f'#cw-rail .pass.stop[data-stage="{changed[1].index}"]')
    page.wait_query("stops", json.dumps([f"pass:{changed[1].pass_name}"]))
    for _ in range(3):
        page.press("j")
    page.stage(changed[4].index)
    page.press("R")
    page.stage(changed[1].index)
    page.press("k")
    page.stage(changed[0].index)
    page.press("r")
    page.stage(changed[1].index)
    with Recording.open(recording) as run:
        places: dict[str, list[tuple[int, int]]] = {}
        for stage in changed:
            for each in run.rewrites(stage.index):
                places.setdefault(each.rewrite.rule, []).append((stage.index, each.number))
    first, again, *_ = next(found for found in places.values() if len(found) > 1)
    page = opened(f"&stage={first[0]}&rewrite={first[1]}&panes=graph,diff")
    page.wait(f'#cw-rail .rewrite.on[data-rewrite="{first[1]}"]')
    page.press("b")
    page.wait("#cw-rail .stops span")
    page.press("r")
    page.stage(again[0])
    page.wait(f'#cw-rail .rewrite.on.stop[data-rewrite="{again[1]}"]')
    page.locate("#cw-rail .stops span button").click()
    page.wait_query("stops", None)


@pytest.mark.slow
def test_the_changes_of_the_selected_op_are_walked_with_a_key(opened, recording):
    run = Run(recording)
    first = next(s for s in run.stages() if s.rewrites)
    op = run.op_id(run.rewrites(first.index)[0].rewrite.old[0])
    page = opened("&stage=0&panes=graph,diff")
    page.stage(0)
    page.press("h")
    page.wait("#cw-bar .toast:has-text('Select an op first')")
    page = opened(f"&stage=0&op={op}&panes=graph,diff")
    page.wait("#cw-inspector .head b")
    at = (0, -1)
    for key, by in (("h", 1), ("h", 1), ("H", -1)):  # what it became is selected, and followed
        at = breakpoints.nearest(breakpoints.changes(run, int(page.query("op"))), at, by)
        page.press(key)
        page.stage(at[0])
        page.wait(f'#cw-rail .rewrite.on[data-rewrite="{at[1]}"]')
        page.wait_query("rewrite", str(at[1]))
    run.close()


@pytest.mark.slow
def test_keys_do_nothing_while_a_text_field_has_the_focus(opened):
    page = opened("&stage=3&panes=graph,diff")
    page.stage(3)
    page.press("/")
    page.type("jjj")
    page.page.wait_for_timeout(300)
    assert page.query("stage") == "3"
    assert page.locate("#cw-bar input[type=search]").input_value() == "jjj"


def test_each_view_draws(opened):
    page = opened("&stage=8")
    for view in ("graph", "diff", "code", "memory"):
        page.show(view)
        page.drawn(view)
        assert page.locate(f"#cw-view-{view} .cw-message:visible").count() == 0
    page.show("kernels")
    page.wait("#cw-view-kernels tbody tr")
    assert not page.locate('#cw-view-kernels th:is(:not([title]), [title=""])').count()
    page.show("overview")
    page.wait("#cw-view-overview .figure")
    assert not page.locate('#cw-view-overview .figure:is(:not([title]), [title=""])').count()
    assert page.errors == [] and _hosts(page) == {"127.0.0.1"}


def _hosts(page):
    """Where the page asked for anything."""
    asked = (url for url in page.requests if not url.startswith(("data:", "blob:")))
    return {urlparse(url).hostname for url in asked}


def test_one_selection_links_graph_diff_kernels_and_memory(opened, recording):
    with Recording.open(recording) as file:
        conv = next(op for op in file.module(0).main.body.ops if op.kind == "core.conv")
        number = file.op_id(conv)
    page = opened("&stage=0&panes=graph,diff")
    page.drawn("graph")
    page.drawn("diff")
    place = page.view("graph", "placeOfOp", number)
    page.page.mouse.click(place["x"], place["y"])
    page.wait_query("op", str(number))
    page.wait("#cw-view-diff .row.selected")
    assert "core.conv" in page.text("#cw-view-diff .row.selected")
    assert "core.conv" in page.text("#cw-inspector .head")
    page.press("2")
    page.wait("#cw-view-kernels tr.on")
    assert "conv" in page.text("#cw-view-kernels tr.on td")
    page.drawn("code")
    page.press("3")
    page.drawn("memory")
    # The other way: a kernel chosen in the table is a launch in the graph.
    page.press("2")
    row = page.locate("#cw-view-kernels tbody tr").nth(1)
    kernel = row.get_attribute("data-kernel")
    row.click()
    page.wait_query("kernel", kernel)
    page.wait_query("op", None)
    page.press("1")
    page.wait("#cw-inspector .head b")
    assert page.errors == []


@pytest.mark.slow
def test_an_op_is_followed_through_the_passes(opened, recording):
    with Recording.open(recording) as file:
        relu = next(op for op in file.module(0).main.body.ops if op.kind == "core.relu")
        number, last = file.op_id(relu), file.stage_count() - 1
    page = opened(f"&stage=0&panes=graph,diff&op={number}")
    page.wait("#cw-inspector .head b")
    assert "core.relu" in page.text("#cw-inspector .head")
    page = opened(f"&stage={last}&panes=graph,diff&op={number}")
    page.stage(last)
    page.wait("#cw-inspector section")
    page.wait("#cw-inspector .link:has-text('kernel ')")
    assert "core.relu" not in page.text("#cw-inspector .head"), "it has become something else"


@pytest.mark.slow
def test_back_and_forward_walk_the_selection(opened, recording):
    changed = [s.index for s in stages(recording)[1:] if s.changed]
    page = opened(f"&stage={changed[0]}&panes=graph,diff")
    page.press("j")
    page.stage(changed[1])
    page.wait_query("stage", str(changed[1]))
    page.press("j")
    page.stage(changed[2])
    page.wait_query("stage", str(changed[2]))
    page.page.go_back()
    page.stage(changed[1])
    page.page.go_forward()
    page.stage(changed[2])


@pytest.mark.slow
def test_the_url_restores_the_sight(opened, server, tab):
    first = opened("&stage=8&panes=memory,graph&fold=inspector")
    first.drawn("memory")
    first.press("z")
    first.wait_query("zoom", "0")
    again = tab(first.page.url)
    again.stage(8)
    again.drawn("memory")
    assert again.locate("#cw-view-graph:visible").count() == 0
    assert again.locate("#cw-inspector:visible").count() == 0


@pytest.mark.slow
def test_search_leads_to_an_op(opened):
    page = opened("&stage=0&panes=graph,diff")
    page.drawn("graph")
    page.press("/")
    page.type("core.conv")
    page.wait("#cw-bar .hit .text")
    page.press("Enter")
    page.page.wait_for_function("() => new URLSearchParams(location.search).get('op') !== null")
    page.wait("#cw-inspector .head b:has-text('core.conv')")
    page.press("/")
    page.type("core.conv")
    page.wait("#cw-bar .hit .text")  # the same question, asked again


@pytest.mark.slow
def test_enter_pressed_before_the_answer_goes_to_the_hit_of_what_is_typed(opened):
    page = opened("&stage=0&panes=graph,diff")
    page.drawn("graph")
    page.press("/")
    page.type("core.co")  # finds constants and convolutions
    page.wait("#cw-bar .hit .text")
    page.type("nv")
    page.press("Enter")
    page.wait("#cw-inspector .head b:has-text('core.conv')")


@pytest.mark.slow
def test_search_says_what_has_no_room_and_leads_to_it(opened):
    """The graph's own syntax; what is more than the list holds is found again in the graph."""
    page = opened("&stage=0&panes=graph,diff")
    page.drawn("graph")
    page.press("/")
    page.type("kind:/(/")
    page.wait("#cw-bar .told:has-text('invalid regular expression')")
    page.locate("#cw-bar input[type=search]").fill("/./")
    page.wait("#cw-bar .told:has-text('40 of')")
    more = page.text("#cw-bar .hit.more")
    page.press("ArrowUp")  # round, to the last one
    page.wait("#cw-bar .hit.more.on")
    page.press("Enter")
    page.wait_query("graph.view", '"query":"/./"', partly=True)
    ops = more.split("all ")[1].split(" ")[0]
    page.wait(f"#cw-view-graph .hits:text-is('{ops} hits')")
    assert page.errors == []


@pytest.mark.slow
def test_a_link_with_an_expression_that_never_ends_holds_nothing_up(opened):
    """5 ** 19 steps on a type of 19 characters; what the page finds next is found at once."""
    view = quote(json.dumps({"query": "/(.|.|.|.|.)*~/"}))
    page = opened(f"&stage=0&panes=graph,diff&graph.view={view}")
    page.drawn("graph")
    page.wait("#cw-view-graph .note:has-text('takes too long')")
    page.locate("#cw-view-graph input[type=search]").fill("kind:/conv$/")
    page.wait("#cw-view-graph .hits:has-text('hit')")
    assert page.errors == []


@pytest.mark.slow
def test_nothing_is_asked_from_outside(opened):
    page = opened("&stage=8&panes=graph,diff")
    page.drawn("graph")
    for view in VIEWS:
        page.show(view)
        page.wait(f"#cw-view-{view}.left")
        page.rest()
        page.page.wait_for_timeout(100)
    assert _hosts(page) == {"127.0.0.1"}
    assert any(u.startswith("ws:") for u in page.requests), "the log saw the websocket"


@pytest.mark.slow
def test_the_chosen_target_stays_when_a_model_cannot_be_opened(server, tab):
    page = tab(server.url)
    target = page.locate('#cw-start select[aria-label="Target"]')
    target.select_option("cuda")
    page.locate("#cw-start input[type=text]").fill("no-such-model")
    page.press("Enter")
    page.wait("#cw-start .error:visible")
    assert target.input_value() == "cuda"


#: A job that tells of itself whenever the page shows anything.
TELLS = """
from itertools import count
from workbench.app.page import Page
done = count()
Page.job_facts = lambda self: {
    "what": "a step", "done": next(done), "total": 10**6, "elapsed": 1, "of": ""}
"""


@pytest.mark.slow
def test_the_button_that_cancels_stays_while_the_job_tells_of_itself(own_server, tab, recording):
    page = tab(f"{own_server(before=TELLS).url}?run={quote(str(recording))}")
    cancel = page.locate("#cw-bar .job button")
    cancel.focus()
    before = page.text("#cw-bar .job")
    page.press("[")
    page.wait_query("fold", "rail")
    assert page.text("#cw-bar .job") != before
    assert cancel.evaluate("(button) => button.getRootNode().activeElement === button")
    assert page.errors == []


@pytest.mark.slow
def test_a_recording_that_is_gone_is_said(server, tab, tmp_path):
    page = tab(f"{server.url}?run={quote(str(tmp_path / 'gone.run'))}")
    page.wait("#cw-start .error:visible")
    assert "file not found" in page.text("#cw-start .error")


#: Panel sends what it cannot send at once in a task of its own, and forgets what it is given just
#: when the task before has ended.  Here nothing is sent at once, the newest is always forgotten.
_FORGETFUL = """
import panel.io.document as document
class Locked(dict):
    def __contains__(self, doc):
        return True
    def __delitem__(self, doc):
        self.pop(doc, None)
document._WRITE_BLOCK = Locked()
sends = document._dispatch_msgs
async def forgetful(doc):
    waiting = document._WRITE_MSGS.get(doc, {}).items()
    newest = {connection: messages.pop() for connection, messages in waiting if messages}
    await sends(doc)
    for connection, message in newest.items():
        left = document._WRITE_MSGS.setdefault(doc, {}).setdefault(connection, [])
        left.insert(0, message)
document._dispatch_msgs = forgetful
"""


@pytest.mark.slow
def test_a_message_that_panel_forgets_arrives_all_the_same(own_server, tab, recording):
    page = tab(f"{own_server(before=_FORGETFUL).url}?run={quote(str(recording))}")
    for view in ("graph", "diff", "code", "memory"):
        page.show(view)
        page.drawn(view)
        page.rest()


@pytest.mark.slow
def test_a_server_that_comes_back_shows_the_same_sight(own_server, tab, recording):
    server = own_server()
    page = tab(f"{server.url}?run={quote(str(recording))}&stage=8&panes=graph,diff")
    page.stage(8)
    server.process.kill()
    server.process.wait()
    page.wait("#cw-lost:visible")
    assert "is not responding" in page.text("#cw-lost")
    server.start()
    page.wait("#cw-lost", state="hidden")
    page.stage(8)
    page.drawn("graph")
    assert page.query("panes") == "graph,diff"


# -- compiling ------------------------------------------------------------------------------------


def test_a_model_is_compiled_live(own_server, tab):
    pytest.importorskip("torch", reason="the sample models need torch")
    page = tab(own_server().url)
    page.locate("#cw-start input[type=number]").fill("0.25")
    page.locate(
        "#cw-start .sample",
    ).filter(has_text="digits-mlp").click()
    page.wait("#cw-bar .job:visible")
    page.press("1")  # the layout changes also while there is no recording yet
    page.wait_query("panes", "graph,diff")
    page.open(page.page.url)  # the address leads back to it
    page.wait("#cw-rail .pass", timeout=180_000)
    page.wait_query("panes", "graph,diff")
    page.press("0")
    page.wait("#cw-view-overview .status.finished", timeout=300_000)
    page.wait("#cw-bar .job", state="hidden")
    assert page.query("run").startswith("digits-mlp-")
    page.press("2")
    page.wait("#cw-view-kernels tbody tr")
    page.locate("#cw-bar .brand").click()
    page.wait("#cw-start tbody tr")
    assert "digits-mlp" in page.text("#cw-start tbody tr")
    page.locate("#cw-start tbody tr").first.click()
    page.wait("#cw-view-overview .status.finished")


@pytest.mark.slow
def test_a_compile_is_cancelled_and_keeps_its_stages(own_server, tab):
    pytest.importorskip("torch", reason="the sample models need torch")
    page = tab(own_server().url)
    page.locate("#cw-start input[type=number]").fill("0.25")
    page.locate("#cw-start .sample").filter(has_text="resnet18").click()
    page.wait("#cw-rail .pass >> nth=2", timeout=300_000)
    page.locate("#cw-bar .job button").click()
    ended = ", ".join(f"#cw-view-overview .status.{s}" for s in ("cancelled", "finished", "failed"))
    page.wait(ended, timeout=120_000)
    assert page.locate("#cw-view-overview .status.cancelled").count() == 1
    assert page.locate("#cw-rail .pass").count() >= 3
    page.press("j")
    page.drawn("graph")


@pytest.mark.slow
def test_a_growing_recording_shows_its_new_stages(server, tab, tmp_path):
    """The page follows a recording that another process writes, and never writes itself."""
    model = models.load(read_spec("digits-mlp", None, width=0.25))
    path = tmp_path / "growing.run"
    recorder = Recorder(path)
    recorder.begin({"model": "growing", "target": "cpu"})
    made = compilation.start(model.imported.module, "cpu", observer=recorder)
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.wait("#cw-view-overview .status.recording")
    for _ in range(14):
        made.step()
    page.wait("#cw-rail .pass >> nth=2")
    recorder.end("finished")
    page.wait("#cw-view-overview .status.finished")
    assert not path.with_name("growing.run-wal").exists(), "the file is single and complete again"
