"""The joint graph of a training step: phases, links from an op to its gradient and back, updates,
what is saved for the backward pass."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from core_compiler.training.graph.phases import BEFORE, EXCHANGE, FORWARD, PHASES
from core_compiler.training.graph.roles import Roles
from workbench.commands.cli import main
from workbench.queries import joint, joint_rows, op_timeline
from workbench.queries.links import LAUNCH
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import graph, inspector, overview, search

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

#: The sections of the inspector that lead through a step.
LINKS = ("Gradients", "Gradient of", "Updates", "Parameters", "Saved for backward")


@pytest.fixture(scope="module")
def step(trained):
    """The compiled step and its recording, opened."""
    made = Run(trained[1])
    yield trained[0], made
    made.close()


def number(run: Run, name: str) -> int:
    return next(s.index for s in run.stages() if s.pass_name == name)


def last(run: Run) -> int:
    return run.version.stages - 1


def ops(run: Run, stage: int):
    return run.recording.module(stage).main.body.ops


def sections(run: Run, stage: int, op: int) -> dict[str, list[dict]]:
    found = inspector.data((run,), ViewState(stage=stage, op=op))["sections"]
    return {s["title"]: s["rows"] for s in found if s["title"] in LINKS}


def led_to(rows: list[dict]) -> set[int]:
    return {row["go"]["op"] for row in rows if row["kind"] == "link"}


@pytest.mark.slow
def test_the_timeline_leads_to_the_gradient_and_back(step, capsys):
    _, run = step
    stage = number(run, "differentiate")
    gelu = next(run.op_id(op) for op in ops(run, stage) if op.kind == "core.gelu")
    shown = inspector.data((run,), ViewState(stage=stage, op=gelu))["sections"]
    (row,) = next(s["rows"] for s in shown if s["title"] == "History")
    (mark,) = [m for m in row["marks"] if m["lane"] == "gradient"]
    assert (mark["what"], mark["pass"], row["shown"]) == ("gradient", "differentiate", stage)
    assert set(mark["ops"]) == led_to(sections(run, stage, gelu)["Gradients"])
    back = op_timeline.timeline(run, mark["go"]["op"], stage)["marks"]
    (forward,) = [m for m in back if m["lane"] == "gradient"]
    assert (forward["what"], forward["ops"]) == ("forward", [gelu])
    capsys.readouterr()
    assert main(["op", str(run.path), str(mark["go"]["op"])]) == 0
    assert "it is the gradient of" in capsys.readouterr().out


# -- the graph ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_graph_of_a_step_has_phases_and_others_have_none(step, recording):
    _, run = step
    for stage in run.stages():
        data = graph.data((run,), ViewState(stage=stage.index))
        assert data["phases"] == list(PHASES) and len(data["ops"]["phase"]) == data["total_ops"]
        linked = "link" in data["ops"]
        assert linked == (stage.index >= number(run, "differentiate"))
    plain = Run(recording)
    data = graph.data((plain,), ViewState(stage=1))
    assert "phases" not in data and not {"phase", "link", "link_start"} & data["ops"].keys()
    plain.close()


@pytest.mark.slow
def test_edges_lead_from_phase_to_phase(step):
    """Whatever order launches have: what an op reads is drawn before it, forward before backward
    before update."""
    _, run = step
    for stage in run.stages():
        data = graph.data((run,), ViewState(stage=stage.index))
        starts, operands = data["ops"]["operand_start"], data["ops"]["operand"]
        for op in range(data["total_ops"]):
            assert all(i < op for i in operands[starts[op] : starts[op + 1]])
    data = graph.data((run,), ViewState(stage=last(run)))
    top = [data["scopes"][s].partition("/")[0] for s in data["ops"]["scope"]]
    own = ["step inputs", "training loss", "backward pass", "optimizer update", "step results"]
    firsts = [top.index(name) for name in own if name in top]
    assert len(firsts) == len(own) and firsts == sorted(firsts)
    assert set(top[firsts[-1] :]) == {"step results"}


@pytest.mark.slow
def test_updates_stand_with_their_parameter(step):
    _, run = step
    data = graph.data((run,), ViewState(stage=number(run, "apply_optimizer")))
    names = [
        n for role, n, _ in Roles.of(run.recording.module(0).main).arguments if role == "parameter"
    ]
    scopes = {s.partition("/")[2] for s in data["scopes"] if s.startswith("optimizer update/")}
    assert scopes == set(names)


# -- links ----------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["differentiate", "lower_composites", "generate_code"])
def test_gradients_lead_there_and_back(step, name, monkeypatch):
    monkeypatch.setattr(joint_rows, "MAX_LISTED", 1000)
    _, run = step
    stage = number(run, name)
    there, back = {}, {}
    for op in ops(run, stage):
        shown = sections(run, stage, run.op_id(op))
        there[run.op_id(op)] = led_to(shown.get("Gradients", []))
        back[run.op_id(op)] = led_to(shown.get("Gradient of", []))
    pairs = {(a, b) for a, ends in there.items() for b in ends}
    assert len(pairs) > 8
    assert pairs <= {(a, b) for b, ends in back.items() for a in ends}
    phases = joint.joint(run, stage).phases
    for a, b in pairs:
        assert a != b
        assert set(phases.phase_counts(run.recording.op(a))) & {*BEFORE, EXCHANGE}
        assert set(phases.phase_counts(run.recording.op(b))) - {FORWARD}


@pytest.mark.parametrize("name", ["apply_optimizer", "generate_code"])
def test_every_parameter_leads_to_its_gradient_and_its_update(step, name):
    _, run = step
    stage = number(run, name)
    main = run.recording.module(0).main
    names = {n for role, n, _ in Roles.of(main).arguments if role == "parameter"}
    told: dict[str, set[str]] = {}
    for op in ops(run, stage):
        about = ""
        for row in sections(run, stage, run.op_id(op)).get("Parameters", []):
            if row["kind"] == "fact":
                about = row["text"]
            else:
                told.setdefault(about, set()).add(row["detail"])
                if row["detail"] == "makes its next value":
                    update = sections(run, stage, row["go"]["op"])
                    assert any(about in (r["text"] or "") for r in update["Updates"])
    assert told.keys() == names
    assert all(found == {"makes its gradient", "makes its next value"} for found in told.values())


def test_saved_bytes_are_those_of_the_plan(step):
    """What the inspector says of single ops, the overview and the compiler's choice agree."""
    made, run = step
    stage = number(run, "recompute")
    plan = made.compilation.facts["recompute"].plan
    assert joint.saved_bytes(run)[0] == plan.saved
    main = run.recording.module(stage).main
    lists, phases = joint.table(run, stage), joint.joint(run, stage).phases
    ends = set(main.body.outputs)
    (loss,) = [op for op in main.body.ops if main.body.outputs[0] in op.results]
    kept = {
        saved.value: saved.bytes
        for op, some in lists.saved.items()
        for saved in some
        if lists.place[op] < lists.place[loss] and saved.value not in ends
    }
    assert sum(kept.values()) == plan.saved
    again = [
        op for op in main.body.ops if "recomputed" in phases.phase_counts(op) and op.kind == LAUNCH
    ]
    assert len(again) == len(plan.again)
    for op in again:
        rows = sections(run, stage, run.op_id(op))["Saved for backward"]
        (original,) = led_to(rows)
        told = sections(run, stage, original)["Saved for backward"]
        assert run.op_id(op) in led_to(told)


def test_links_follow_an_op_that_is_selected_in_another_stage(step):
    """An op of the import is a kernel in the last stage: so is its gradient."""
    _, run = step
    linear = next(op for op in ops(run, 0) if op.kind == "core.linear" or "matmul" in op.kind)
    rows = sections(run, last(run), run.op_id(linear))["Gradients"]
    assert led_to(rows) and all("launch" in row["text"] for row in rows if row["kind"] == "link")


# -- the overview and the search ------------------------------------------------------------------


def test_the_overview_says_what_the_step_is(step):
    made, run = step
    data = overview.data((run,), ViewState())
    figures = {f["label"]: f for f in data["figures"]}
    assert figures["parameters"]["value"] == 4 * (16 * 16 + 16)
    assert figures["loss function"]["text"] == "MeanSquaredError"
    assert figures["optimizer"]["text"] == "SGD"
    plan = made.compilation.facts["recompute"].plan
    assert figures["saved for backward"]["value"] == plan.saved
    launches = sum(1 for op in ops(run, last(run)) if op.kind == LAUNCH)
    assert sum(row["launches"] for row in data["phases"]) == launches
    assert [row["phase"] for row in data["phases"]] == [
        p for p in PHASES if p in {row["phase"] for row in data["phases"]}
    ]


def test_search_by_phase(step):
    _, run = step
    state = ViewState(stage=number(run, "differentiate"))
    found = search.hits(run, state, "phase:backward core.mul")
    phases = joint.joint(run, state.stage).phases
    assert found
    assert {phases.phase(run.recording.op(hit["go"]["op"])) for hit in found} == {"backward"}
    assert not search.hits(run, ViewState(stage=0), "phase:backward")


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.playwright
def test_from_an_op_to_its_gradient_and_back(step, server, tab):
    _, run = step
    stage = number(run, "differentiate")
    forward = next(op for op in ops(run, stage) if op.kind == "core.gelu")
    key = run.op_id(forward)
    page = tab(f"{server.url}?run={quote(str(run.path))}&panes=graph&stage={stage}&op={key}")
    page.drawn("graph")
    page.wait("#cw-inspector h3:has-text('Gradients')")
    page.locate("#cw-view-graph .stage").focus()
    page.press("E")
    marked = set(page.view("graph", "linked"))
    assert marked and all(type(item) is int for item in marked), "every scope is open"
    link = page.locate("#cw-inspector section:has(h3:text-is('Gradients')) .link").first
    link.click()
    page.wait("#cw-inspector h3:has-text('Gradient of')")
    assert int(page.query("op")) in led_to(sections(run, stage, key)["Gradients"])
    page.locate("#cw-inspector section:has(h3:text-is('Gradient of')) .link").first.click()
    page.wait_query("op", str(key))
    assert set(page.view("graph", "linked")) == marked


@pytest.mark.slow
@pytest.mark.playwright
def test_a_phase_is_dimmed_and_a_link_keeps_that(step, server, tab):
    _, run = step
    page = tab(f"{server.url}?run={quote(str(run.path))}&panes=overview")
    page.locate(
        ".phase-rows .link",
    ).filter(has_text="backward").click()
    page.drawn("graph")
    page.wait_query("graph.view", "phase:backward", partly=True)
    page.stage(joint.shares(run)[-1].stage)
    page.locate('#cw-view-graph [data-phase="optimizer"]').click()
    page.wait_query("graph.view", '"dim":["optimizer"]', partly=True)
    again = tab(page.page.url)
    again.drawn("graph")
    dim = {each["name"] for each in again.view("graph", "phases") if each["dim"]}
    assert dim == {"optimizer"}
    assert not page.errors
