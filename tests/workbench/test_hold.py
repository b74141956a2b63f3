"""A compile that waits before its passes: what it is told, what it says, what is recorded."""

from __future__ import annotations

import queue
from contextlib import suppress

import pytest

from core_compiler.driver.compilation import Cancelled, Options
from core_compiler.record.reader import Recording
from workbench.model import edits, jobs, models
from workbench.model.spec import read_spec
from workbench.model.stepping import Hold


@pytest.fixture(scope="module")
def model():
    return models.load(read_spec("digits-mlp", width=0.25))


def compiled(model, path, *commands):
    """What the compile said, and its recording, after these commands and then nobody."""
    said: list[dict] = []
    given: queue.Queue = queue.Queue()
    for command in (*commands, None):
        given.put(command)
    hold = Hold(given, lambda line: said.append(line["paused"]), lambda: False)
    with suppress(Cancelled):
        jobs.compile(model, path=path, hold=hold)
    return said, Recording.open(path)


def test_each_pass_waits_and_is_applied_or_skipped(model, tmp_path):
    given = [{"do": "apply"}, {"do": "apply"}, {"do": "skip"}, {"do": "nonsense"}, {"do": "apply"}]
    said, recording = compiled(model, tmp_path / "a.run", *given)
    with recording:
        names = [s.pass_name for s in recording.stages()]
        assert recording.status == "cancelled"  # nobody was there any more; what is done is kept
        waited = [each["next"] for each in said]
        assert names == ["import", waited[0], waited[1], waited[3]]
        assert waited[3] == waited[4] and waited[2] not in names
        assert said[0]["to_come"] == [waited[0], *said[1]["to_come"]]
        assert said[2]["to_come"][1:] == said[3]["to_come"]
        assert recording.meta()["edit"]["skip"] == [f"{waited[2]}#1"], "there is another one"
        assert f"{waited[2]}#2" in said[3]["to_come"]


def test_a_pass_that_others_need_is_not_skipped(model, tmp_path):
    needed = "fuse_elementwise"
    run = {"do": "run", "stops": ["pass:bufferize", "op:x", "nonsense"]}
    said, recording = compiled(model, tmp_path / "a.run", run, {"do": "skip"}, {"do": "skip"})
    with recording:
        assert [each["next"] for each in said[1:]] == ["bufferize"] * (len(said) - 1)
        assert said[1]["problem"] is None and "bufferize" in str(said[2]["problem"])
        assert needed in [s.pass_name for s in recording.stages()]
        assert recording.meta()["edit"]["skip"] == []


def test_it_runs_until_something_changed_and_to_the_end(model, tmp_path):
    said, recording = compiled(model, tmp_path / "a.run", {"do": "change"}, {"do": "finish"})
    with recording:
        stages = recording.stages()
        assert recording.status == "finished" and len(said) == 2
        changed = [s.index for s in stages[1:] if s.changed]
        assert (
            said[1]["at"] == changed[0] + 1 and said[1]["next"] == stages[said[1]["at"]].pass_name
        )


def labels(recording) -> list[str]:
    return [stage.pass_name for stage in recording.stages()]


def rules(recording, stage) -> list[str]:
    return [r.rewrite.rule for r in recording.rewrites(stage.index)]


def test_a_pass_is_done_rewrite_by_rewrite(model, tmp_path):
    """Each is a stage of its own; compiled again by the recording's edit, they are the same."""
    given = [{"do": "rewrite"}] * 6 + [{"do": "finish"}]
    said, recording = compiled(model, tmp_path / "a.run", *given)
    with recording:
        stages, identity = recording.stages(), recording.figures()["identity"]
        made = [s for s in stages[1:] if s.changed][:6]
        assert [s.rewrites for s in made] == [1] * 6
        assert [each["at"] for each in said[1:]] == [s.index + 1 for s in made]
        assert any("+" in label for label in labels(recording))
        edit = edits.from_json(recording.meta()["edit"])
        told = [(s.pass_name, rules(recording, s)) for s in stages]
    again = tmp_path / "again.run"
    jobs.compile(model, path=again, options=Options(edit=edit))
    with Recording.open(again) as recording:
        assert recording.figures()["identity"] == identity
        assert [(s.pass_name, rules(recording, s)) for s in recording.stages()] == told


def test_what_is_left_of_a_pass_is_skipped(model, tmp_path):
    said, recording = compiled(
        model, tmp_path / "a.run", {"do": "rewrite"}, {"do": "skip"}, {"do": "finish"}
    )
    with recording:
        (label,) = {name for name in labels(recording) if name == said[1]["next"].partition("+")[0]}
        assert said[1]["next"] == f"{label}+" and said[2]["next"] != f"{label}+"
        assert not any(name.startswith(f"{label}+") for name in labels(recording))
        made = next(s for s in recording.stages() if s.pass_name == label)
        assert (made.rewrites, recording.status) == (1, "finished")


def test_a_pass_that_the_compile_needs_is_done_as_a_whole(model, tmp_path):
    to = {"do": "run", "stops": ["pass:bufferize"]}
    said, recording = compiled(model, tmp_path / "a.run", to, {"do": "rewrite"})
    with recording:
        assert said[1]["next"] == "bufferize" and not said[2]["problem"]
        assert labels(recording)[-1] == "bufferize" and said[2]["next"] != "bufferize+"


def touches(rewrite, op) -> bool:
    return not {v for o in rewrite.old for v in o.results}.isdisjoint(op.results)


def test_a_breakpoint_on_a_rule_or_an_op_holds_right_after_its_rewrite(model, tmp_path):
    _, whole = compiled(model, tmp_path / "whole.run", {"do": "finish"})
    with whole:
        rows = [(s, r.rewrite) for s in whole.stages() for r in whole.rewrites(s.index)]
        stage = next(s for s in whole.stages() if s.rewrites > 2)
        of_stage = [rewrite for s, rewrite in rows if s.index == stage.index]
        by_rule = next(s for s, r in rows if r.rule == of_stage[1].rule)
        count = 1 + rules(whole, by_rule).index(of_stage[1].rule)
        made_there = {op for r in of_stage for op in r.new}
        number, op = next(  # in the middle of the pass, and nothing took it before
            (i, r.old[0])
            for i, r in enumerate(of_stage[:-1])
            if i
            and r.old
            and r.old[0] not in made_there
            and next(other for _, other in rows if touches(other, r.old[0])) is r
        )
        followed = whole.op_id(op)
    for stop, place, rewrites in (
        (f"rule:{of_stage[1].rule}", by_rule, count),
        (f"op:{followed}", stage, number + 1),
    ):
        run = {"do": "run", "stops": [stop]}
        said, recording = compiled(model, tmp_path / f"{rewrites}-{place.index}.run", run)
        with recording:
            last = recording.stages()[-1]
            assert [each["at"] for each in said] == [1, last.index + 1]
            assert (last.pass_name, last.index) == (place.pass_name, place.index)
            assert last.rewrites == rewrites
