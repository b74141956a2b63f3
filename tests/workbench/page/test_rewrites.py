"""The rewrites view: the list and its sides against the recording, and why ops were not fused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.debug.why_not import why_not
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Rule, apply_rules, op
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record import Recording
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from tests.workbench.page.tasks import a_task
from tests.workbench.two_blocks import network
from widgets.encode import finite
from workbench.queries.kernel_table import table
from workbench.queries.links import launches
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.ui import navigation
from workbench.views import inspector, rewrites

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

VIEW = "#cw-view-rewrites"


@pytest.fixture(scope="module")
def run(two_blocks):
    made = Run(two_blocks.run)
    yield made
    made.close()


@pytest.fixture
def opened(server, tab, two_blocks):
    """``opened(query)``: the page with the recording open."""
    return lambda query="": tab(f"{server.url}?run={quote(str(two_blocks.run))}{query}")


def asking(state: ViewState, **why) -> ViewState:
    return state.with_view("rewrites", json.dumps({"why": why}))


def a_pair(run: Run) -> tuple[int, int, int]:
    """The dearest kernel's launch in the first changed stage, and its first neighbour."""
    stage = run.stage_number(None)
    state = asking(ViewState(kernel=table(run)[0]["id"]))
    told = rewrites.selection((run,), state)["why"]
    return stage, told["a"]["op"], told["neighbours"][0]["op"]


# -- the data -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_list_is_the_recordings(run):
    for stage in run.stages():
        data = rewrites.data((run,), ViewState(stage=stage.index))
        steps = run.recording.rewrites(stage.index)
        assert data["total"] == len(steps) == stage.rewrites
        assert sum(count for _, count in data["rules"]) == len(steps)
        for row, step in zip(data["rows"], steps, strict=True):
            verdict = step.check.verdict if step.check is not None else "unchecked"
            assert (row["rule"], row["verdict"]) == (step.rewrite.rule, verdict)
            assert (row["before"], row["after"]) == (len(step.rewrite.old), len(step.rewrite.new))
        json.dumps(finite(data), allow_nan=False)


@pytest.mark.slow
def test_both_sides_of_a_rewrite_are_its_ops(run):
    for stage in run.stages():
        for step in run.recording.rewrites(stage.index):
            state = ViewState(stage=stage.index, rewrite=step.number)
            detail = rewrites.selection((run,), state)["detail"]
            for side, ops in ((detail["old"], step.rewrite.old), (detail["new"], step.rewrite.new)):
                outer = [line["op"] for line in side["lines"] if line["depth"] == 0]
                assert outer == [run.op_id(op) for op in ops][: len(outer)]
                assert side["count"] == len(ops)
                for drawn in side["drawn"]:
                    assert not drawn["kind"].endswith("constant")
            json.dumps(finite(detail), allow_nan=False)


def test_the_drawing_of_a_group_is_joined_to_what_is_around_it(run):
    """Values that pass into a group have their names outside, so that lines lead there."""
    fused = next(s for s in run.stages() if s.pass_name == "fuse_epilogues" and s.rewrites)
    detail = rewrites.selection((run,), ViewState(stage=fused.index, rewrite=0))["detail"]
    for side in (detail["old"], detail["new"]):
        made = {value for op in side["drawn"] for value in op["out"]}
        read = {value for op in side["drawn"] for value in op["in"]}
        assert made & read
    (product,) = [op for op in detail["new"]["drawn"] if op["kind"] in ("matmul", "conv")]
    assert product["group"] is not None


def test_the_answers_are_the_compilers(run):
    stage, a, b = a_pair(run)
    told = rewrites.selection((run,), asking(ViewState(stage=stage, op=a), a=a, b=b))["why"]
    wanted = why_not(run.recording, stage, a, b)
    assert [each["sentence"] for each in told["answers"]] == [each.sentence for each in wanted]
    assert told["answers"] and told["summary"]
    # Another op selected while the first is held is the second.
    assert (
        rewrites.selection((run,), asking(ViewState(stage=stage, op=b), a=a))["why"]["b"]["op"] == b
    )
    by_rule = rewrites.selection((run,), asking(ViewState(stage=stage, op=a), a=a, rule="fuse"))[
        "why"
    ]
    assert by_rule["b"] is None and "problem" not in by_rule
    wrong = rewrites.selection((run,), asking(ViewState(stage=stage, op=a), a=a, rule="no_such"))[
        "why"
    ]
    assert "no_such" in wrong["problem"]


def test_launches_are_asked_about_where_they_still_were_tensors(run):
    """After buffers are there no pass joins anything: the question goes to the last that could."""
    first, second, *_ = launches(run)
    last = len(run.stages()) - 1
    state = asking(ViewState(stage=last, op=second), a=first)
    told = rewrites.selection((run,), state)["why"]
    assert told["stage"] < last and "problem" not in told
    assert {told["a"]["op"], told["b"]["op"]} <= {*run.index(told["stage"]).ops}
    assert told["answers"] and told["neighbours"]


@pytest.mark.parametrize(
    "text",
    ['{"why": 5}', "[]", "no json", '{"why": {"a": -1, "b": "x", "rule": 7}}', '{"why": {}}'],
)
def test_a_state_that_makes_no_sense_asks_nothing(run, text):
    told = rewrites.selection((run,), ViewState(stage=3).with_view("rewrites", text))
    assert told.get("why", {}).get("answers", []) == []


def test_ops_are_found_by_name_and_kind(run):
    index = run.index(0)
    convs = [run.op_id(op) for op in index.module.main.body.ops if op.kind == "core.conv"]
    found = rewrites.answer((run,), ViewState(stage=0), {"kind": "find", "text": "conv"})
    assert [each["op"] for each in found if each["kind"] == "conv"] == convs
    assert rewrites.answer((run,), ViewState(stage=0), {"kind": "find", "text": " "}) == []
    assert rewrites.answer((run,), ViewState(stage=0), {"kind": "other", "text": "conv"}) == []


def test_the_inspector_asks_why_not_of_every_op_that_computes(run):
    (conv,) = [op for op in run.index(0).module.main.body.ops if op.kind == "core.conv"]
    sections = inspector.data((run,), ViewState(stage=0, op=run.op_id(conv)))["sections"]
    rows = [row for section in sections for row in section["rows"]]
    (link,) = [row for row in rows if row.get("text") == "why not fused with ...?"]
    assert link["go"]["state"] == {"rewrites": {"why": {"a": run.op_id(conv), "near": True}}}


def test_links_open_a_view_beside_another_and_what_makes_no_sense_changes_nothing(run):
    both = ViewState(panes=("graph", "diff"))

    def panes(state: ViewState, **go) -> tuple[str, ...]:
        return navigation.follow(run, state, {"go": go}).panes

    assert panes(both, open="rewrites") == ("graph", "rewrites")
    assert panes(both, open="rewrites", beside="diff") == ("diff", "rewrites")
    assert panes(both, open="diff") == both.panes
    assert panes(ViewState(), open="rewrites") == ("rewrites",)
    assert panes(both, open="no view") == panes(both, open=7) == both.panes
    shown = navigation.show(run, ViewState(panes=("source",)), {"view": "code", "beside": "source"})
    assert shown.panes == ("source", "code")
    kept = navigation.follow(run, both, {"go": {"state": {"rewrites": {"why": {}}, "nothing": {}}}})
    assert kept.views == (("rewrites", '{"why":{}}'),)
    assert navigation.follow(run, both, {"go": {"state": "rewrites"}}) == both


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.playwright
def test_why_two_ops_were_not_fused_in_two_clicks(opened, run):
    """The slowest kernel and the first of its neighbours; another one is a click away."""
    with a_task(opened(), 2) as page:
        page.locate("#cw-view-overview .kernel").first.click()
        page.page.locator("#cw-inspector .link", has_text="why not fused").click()
        page.wait(f"{VIEW} .answer .source")
    page.locate(f"{VIEW} .asks [title='Ask about another op']").last.click()
    page.locate(f"{VIEW} .asks .chip").first.click()
    page.wait(f"{VIEW} .answer .source")
    stage, a, b = a_pair(run)
    wanted = why_not(run.recording, stage, a, b)
    shown = page.locate(f"{VIEW} .answer").all_inner_texts()
    assert len(shown) == len(wanted)
    for text, answer in zip(shown, wanted, strict=True):
        assert answer.sentence in text and answer.source.rpartition("/")[2] in text
    why = json.dumps({"a": a, "b": b}, separators=(",", ":"))
    page.wait_query("rewrites.view", why, partly=True)
    assert page.errors == []


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """A compile whose fusion stopped before its last pair."""
    module = program(lambda b, x: b.exp(b.tanh(b.neg(x))), "8x16xf32")
    edit = PipelineEdit(limits={"fuse_elementwise": 1})
    recorder = Recorder(tmp_path_factory.mktemp("stopped") / "stopped.run")
    recorder.begin({"model": "stopped", "target": "cpu"})
    compilation.start(module, "cpu", Options(edit=edit), observer=recorder).finish()
    recorder.end("finished")
    return recorder.path


@pytest.mark.slow
@pytest.mark.playwright
def test_what_came_closest_is_told_and_marked(command, server, tab, stopped):
    """The refusal before which most conditions held, with its op: of the fusion that stopped."""
    with Recording.open(stopped) as file:
        kinds = {op.kind: file.op_id(op) for op in file.module(0).main.body.ops}
    a, b = kinds["core.tanh"], kinds["core.exp"]
    told = command.json("why-not", stopped, a, b)
    held = {each["pass"]: each["held"] for each in told["answers"]}
    assert {each["outcome"] for each in told["answers"]} == {"refused"} and len(held) > 1
    best = next(each for each in told["answers"] if each["pass"] == "fuse_elementwise")
    assert all(best["held"] > n for name, n in held.items() if name != best["pass"]), held
    assert told["summary"] == f"refused; fuse_elementwise came closest: {best['sentence']}"
    assert told["summary"] in command.text("why-not", stopped, a, b)
    view = quote(json.dumps({"why": {"a": a, "b": b}}))
    page = tab(
        f"{server.url}?run={quote(str(stopped))}&stage=0&panes=rewrites&rewrites.view={view}"
    )
    page.wait(f"{VIEW} .answer.best")
    assert page.text(f"{VIEW} .summary") == told["summary"]
    assert page.locate(f"{VIEW} .answer").count() == len(told["answers"])
    assert page.locate(f"{VIEW} .answer.best").count() == 1
    assert best["sentence"] in page.text(f"{VIEW} .answer.best")
    assert "fuse_elementwise" in page.text(f"{VIEW} .answer.best .head")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_which_pass_changed_the_numbers_in_one_click(opened, run):
    worst = max(run.stages(), key=lambda s: s.worst_error or 0.0)
    assert worst.worst_error > 0
    with a_task(opened()) as page:
        page.page.locator("#cw-view-overview .figure", has_text="worst check error").click()
        page.stage(worst.index)
    page.wait_query("stage", str(worst.index))
    page.show("rewrites")  # and the rewrite of it that did it, worst first
    page.wait(f"{VIEW} tbody tr")
    page.page.locator(f"{VIEW} th", has_text="check").click()
    steps = run.rewrites(worst.index)
    first = max(steps, key=lambda s: s.check.worst_error)
    assert page.locate(f"{VIEW} tbody tr").first.get_attribute("data-rewrite") == str(first.number)
    assert page.errors == []


LEAK = Rule(
    "relu(x) => max(x, 0.01)",
    op("relu", "x"),
    lambda b, m: b.max(m["x"], b.scalar_like(0.01, m["x"])),
)


@dataclass(frozen=True)
class Leak(Pass):
    """Changes what a relu gives, and claims to keep every bit."""

    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, (LEAK,), module.weights))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory) -> Path:
    """The network with a pass that changes its numbers."""
    pytest.importorskip("torch", reason="the network is written in torch")
    from workbench.model import jobs

    folder = tmp_path_factory.mktemp("wrong")
    model = network(folder)
    edit = PipelineEdit(insert=((0, Leak()),))
    jobs.compile(model, "cpu", Options(check=True, edit=edit), path=folder / "wrong.run")
    return folder / "wrong.run"


@pytest.mark.slow
@pytest.mark.playwright
def test_a_failed_check_is_the_first_finding_and_leads_to_its_rewrite(server, tab, wrong):
    with Recording.open(wrong) as file:
        (stage,) = [s for s in file.stages() if s.verdicts.get("failed")]
        failed = [r for r in file.rewrites(stage.index) if r.check.verdict == "failed"]
    worst = max(failed, key=lambda step: step.check.worst_error)
    assert stage.pass_name == "leak"
    page = tab(f"{server.url}?run={quote(str(wrong))}")
    page.locate("#cw-view-overview .finding[data-severity=error]").first.click()
    page.stage(stage.index)
    page.wait_query("rewrite", str(worst.number))
    page.show("rewrites")
    page.wait(f"{VIEW} tr.on td.failed")
    assert "relu(x) => max(x, 0.01)" in page.text(f"{VIEW} .detail h3")
    assert page.text(f"{VIEW} .detail .failed").startswith("✗ error")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_n_goes_from_one_failed_check_to_the_next(server, tab, wrong):
    with Recording.open(wrong) as file:
        failed = [
            (s.index, r.number)
            for s in file.stages()
            for r in file.rewrites(s.index)
            if r.check is not None and r.check.verdict == "failed"
        ]
    assert len(failed) == 2, "one of each relu"
    page = tab(f"{server.url}?run={quote(str(wrong))}")
    for stage, number in failed:
        page.press("n")
        page.stage(stage)
        page.wait_query("rewrite", str(number))
        page.wait(f'#cw-rail .rewrite.on[data-rewrite="{number}"]')
    page.press("n")
    page.wait("#cw-bar .toast:has-text('No failed check after this one')")
    assert page.query("rewrite") == str(failed[-1][1])
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_keys_and_filters_of_the_list(opened, run):
    stage = max(run.stages(), key=lambda s: len({r.rewrite.rule for r in run.rewrites(s.index)}))
    steps = run.rewrites(stage.index)
    page = opened(f"&panes=rewrites&stage={stage.index}")
    page.wait(f"{VIEW} tbody tr")
    page.locate(f"{VIEW} .list").focus()
    page.press("ArrowDown")
    page.wait(f'{VIEW} tr.on[data-rewrite="0"]')
    page.wait_query("rewrite", "0")
    assert steps[0].rewrite.rule in page.text(f"{VIEW} .detail h3")
    line = page.locate(f"{VIEW} .ir div[data-op]").first
    op = line.get_attribute("data-op")
    line.click()
    page.wait_query("op", op)
    rule = steps[-1].rewrite.rule
    page.locate(f'{VIEW} select[aria-label="all rules"]').select_option(value=rule)
    count = sum(each.rewrite.rule == rule for each in steps)
    assert page.locate(f"{VIEW} tbody tr").count() == count
    page.locate(f"{VIEW} .list").focus()
    page.press("Enter")
    page.drawn("graph")
    page.wait_query("panes", "rewrites,graph")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_back_from_a_question_shows_the_rewrites_again(opened, run):
    stage, _, _ = a_pair(run)
    page = opened(f"&panes=rewrites&stage={stage}&kernel={table(run)[0]['id']}")
    page.wait(f"{VIEW} .detail h3")
    title = page.text(f"{VIEW} .detail h3")
    page.locate("#cw-inspector").get_by_text("why not fused with").first.click()
    page.wait_query("rewrites.view", "why", partly=True)
    page.page.go_back()
    page.wait(f"{VIEW} .detail h3:text-is('{title}')")
    assert page.query("rewrites.view") is None
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_ops_are_found_by_typing_and_a_pass_without_rewrites_says_so(opened, run):
    idle = next(s for s in run.stages()[1:] if not s.rewrites)
    page = opened(f"&panes=rewrites&stage={idle.index}")
    page.wait(f"{VIEW} .empty:visible")
    assert "has no rewrites" in page.text(f"{VIEW} .empty")
    page.page.locator(f"{VIEW} .bar button", has_text="why not?").click()
    page.wait(f"{VIEW} .asks input")
    page.locate(f"{VIEW} .asks input").first.fill("conv")
    page.page.locator(f"{VIEW} .asks .chip", has_text="conv").first.click()
    page.wait(f"{VIEW} .asks .op")
    assert "conv" in page.text(f"{VIEW} .asks .op")
    page.locate(f"{VIEW} .asks input[aria-label=rule]").fill("fold_batch_norm")
    page.press("Enter")
    page.wait(f"{VIEW} .answer, {VIEW} .detail > .quiet")
    assert page.errors == []
