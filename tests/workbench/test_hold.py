"""A compile that waits before its passes: what it is told, what it says, what is recorded."""

from __future__ import annotations

import queue
from contextlib import suppress

import pytest

from core_compiler.compiler import Cancelled
from core_compiler.record.reader import Recording
from workbench import jobs, models
from workbench.hold import Hold


@pytest.fixture(scope="module")
def model():
    return models.load(models.spec("digits-mlp", width=0.25))


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


def test_breakpoints_on_rules_and_ops_hold_after_they_were_met(model, tmp_path):
    _, whole = compiled(model, tmp_path / "whole.run", {"do": "finish"})
    with whole:
        stage = [s for s in whole.stages() if s.rewrites][1]
        rewrite = whole.rewrites(stage.index)[0].rewrite
        op = whole.op_id(rewrite.old[0])
        first = next(s.index for s in whole.stages()[1:] for r in whole.rewrites(s.index)
                     if rewrite.old[0] in r.rewrite.old)  # fmt: skip
        of_rule = next(s.index for s in whole.stages()[1:] for r in whole.rewrites(s.index)
                       if r.rewrite.rule == rewrite.rule)  # fmt: skip
    for stops, wanted in (([f"rule:{rewrite.rule}"], of_rule), ([f"op:{op}"], first)):
        run = {"do": "run", "stops": stops}
        said, recording = compiled(model, tmp_path / f"{wanted}.run", run)
        recording.close()
        assert [each["at"] for each in said] == [1, wanted + 1]
