"""``workbench why-not`` on a recording: two ops, an op and a rule, stages, mistakes."""

from __future__ import annotations

import pytest

from core_compiler.record import Recording

#: What they look at takes long to make.
pytestmark = pytest.mark.slow


def feeders(recording, first: str, second: str, stage: int = 0) -> tuple[int, int]:
    """Ids of two ops of a stage of which the second reads the first."""
    with Recording.open(recording) as opened:
        body = opened.module(stage).main.body
        makers = body.producers()
        for op in body.ops:
            for value in op.operands if op.kind == f"core.{second}" else ():
                if value in makers and makers[value].kind == f"core.{first}":
                    return opened.op_id(makers[value]), opened.op_id(op)
    raise AssertionError(f"no {first} feeds a {second}")


def test_two_ops_of_a_recording(command, recording):
    first, second = feeders(recording, "linear", "gelu")
    data = command.json("why-not", recording, first, second)
    assert data["ops"] == [first, second] and data["stage"] == 0
    assert data["answers"][-1]["outcome"] == "fused"
    assert data["summary"].startswith("fused by fuse_epilogues")
    assert [a["stage"] for a in data["answers"]] == sorted(a["stage"] for a in data["answers"])
    text = command.text("why-not", recording, first, second)
    for answer in data["answers"]:
        assert answer["sentence"] in text and answer["source"] in text


def test_ops_of_a_later_stage_by_name(command, recording):
    passes = [p["pass"] for p in command.json("passes", recording)["passes"]]
    stage = passes.index("choose_layouts")
    first, second = feeders(recording, "matmul", "add", stage)
    with Recording.open(recording) as opened:
        names = [f"%{opened.value_id(opened.op(op).result)}" for op in (first, second)]
    for words in ((first, second, "--stage", stage), (*names, "--stage", "choose_layouts")):
        data = command.json("why-not", recording, *words)
        assert data["stage"] == stage and data["ops"] == [first, second]
        assert data["answers"][-1]["outcome"] == "fused"
        assert data["answers"][-1]["pass"] == "fuse_epilogues"


def test_an_op_and_a_rule(command, recording):
    first, _ = feeders(recording, "linear", "gelu")
    data = command.json("why-not", recording, first, "--rule", "decompose")
    assert data["answers"][0]["outcome"] == "applied"
    data = command.json("why-not", recording, first, "--rule", "fold_constants")
    assert {a["outcome"] for a in data["answers"]} == {"refused"}
    assert "not a constant" in data["summary"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("{first}",), "expected two ops, got one"),
        (("{first}", "--rule", "no such rule"), "unknown rule or pass"),
        (("{first}", "{first}"), "both ops are the same"),
        (("{first}", "{second}", "--stage", "999"), "stage 999 not found"),
        (("{first}", "{second}", "--stage", "outline_kernels"), "not found in stage"),
        (("{first}", "%nothing"), "no op of any stage matches '%nothing'"),
        (("{first}", "999999999"), "op 999999999 not found"),
    ],
)
def test_mistakes_are_one_line(command, recording, words, problem):
    first, second = feeders(recording, "linear", "gelu")
    words = [w.format(first=first, second=second) for w in words]
    code, out, err = command("why-not", recording, *words)
    assert (code, out) == (2, "")
    assert problem in err and err.count("\n") == 1
