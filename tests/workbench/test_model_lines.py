"""What each line of a model costs: nothing is lost, callers hold what they call, known amounts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.ir import Block, FrontendNode, Function, Module, Origin
from core_compiler.record import Recording
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from tests.workbench.two_blocks import LINES, NETWORK, OUT, ROWS, WIDE, TwoBlocks
from workbench.queries.model_lines import NODES, Line, ModelLines, model_lines

#: What they look at takes long to make.
pytestmark = pytest.mark.slow


def at(made: TwoBlocks, found: ModelLines, text: str) -> Line:
    """The line that reads ``text``."""
    return found.lines[made.source, LINES[text]]


@pytest.fixture(scope="module")
def made(two_blocks) -> TwoBlocks:
    return two_blocks


@pytest.fixture(scope="module")
def traced(made: TwoBlocks):
    with Recording.open(made.run) as recording:
        yield recording, model_lines(recording)


def _sum(amounts) -> tuple[float, float, float]:
    rows = [(a.us or 0.0, a.bytes, a.flops) for a in amounts]
    return tuple(map(sum, zip(*rows, strict=True)))


@pytest.mark.slow
def test_the_lines_and_what_came_from_no_line_are_all_launches(traced):
    recording, found = traced
    timings = recording.timings()
    measured = (
        sum(t.median_us for t in timings),
        sum(t.bytes for t in timings),
        sum(t.flops for t in timings),
    )
    assert found.measured and measured[0] > 0
    total = found.total
    np.testing.assert_allclose((total.us, total.bytes, total.flops), measured, rtol=1e-12)
    own = [line.own for line in found.lines.values() if line.file != NODES]
    np.testing.assert_allclose(_sum([*own, found.unattributed]), measured, rtol=1e-12)
    nodes = [line.own for line in found.lines.values() if line.file == NODES]
    np.testing.assert_allclose(_sum([*nodes, found.nameless]), measured, rtol=1e-12)


@pytest.mark.slow
def test_a_caller_holds_what_happens_below_it(made, traced):
    """Both blocks run the same lines; each call holds its own part of them."""
    _, found = traced
    below = [
        at(made, found, text)
        for text in ("x = self.norm(x)", "x = self.dense(x)", "return torch.relu(x)")
    ]
    calls = [at(made, found, text) for text in ("y = self.first(x)", "y = self.second(y)")]
    assert [line.own.us for line in calls] == [0.0, 0.0]
    np.testing.assert_allclose(
        _sum(line.total for line in calls), _sum(line.own for line in below), rtol=1e-12
    )
    assert calls[0].at_import + calls[1].at_import == sum(line.at_import for line in below)
    assert calls[0].total.flops > calls[1].total.flops  # it is wider


def test_a_line_has_the_flops_of_its_products(made, traced):
    """A dense layer's multiplications and additions, and at most two more for each result."""
    _, found = traced
    products = 2 * ROWS * WIDE * (WIDE + OUT)
    flops = at(made, found, "x = self.dense(x)").own.flops
    assert products <= flops <= products + 2 * ROWS * (WIDE + OUT)


def test_a_norm_that_was_folded_into_its_convolution_takes_nothing_of_its_time(made, traced):
    _, found = traced
    conv = at(made, found, "z = self.conv(y[:, None, :])")
    norm = at(made, found, "z = self.norm(z)")
    assert conv.own.flops >= 2 * ROWS * 4 * (OUT - 2) * 3 > 10 * norm.own.flops
    assert conv.own.us > norm.own.us


def test_the_frameworks_own_lines_are_not_the_models(made, traced):
    recording, found = traced
    assert {line.file for line in found.lines.values()} == {made.source, NODES}
    assert {*recording.sources()} == {made.source}
    text = recording.sources()[made.source].split("\n")
    for line in found.lines.values():
        if line.file == made.source:
            assert line.text == text[line.line - 1].strip()


def test_the_checks_of_a_line_are_those_of_the_rewrites_that_took_its_ops(made, traced):
    recording, found = traced
    steps = [r for s in range(recording.stage_count()) for r in recording.rewrites(s)]
    conv = at(made, found, "z = self.conv(y[:, None, :])")
    (fold,) = [r for r in steps if r.rewrite.rule.startswith("batch_norm(conv")]
    assert fold.check.verdict == "within"
    assert conv.check.verdict == "within" and conv.check.error >= fold.check.worst_error > 0
    named = recording.rewrites(conv.check.stage)[conv.check.rewrite]
    assert named.check.worst_error == conv.check.error
    assert conv.check.count <= sum(r.check is not None for r in steps)
    relu = at(made, found, "return torch.relu(x)")
    assert (relu.check.verdict, relu.check.error) == ("bitwise", 0.0)


def test_a_line_leads_to_its_dearest_op_and_kernel(made, traced):
    recording, found = traced
    dense = at(made, found, "x = self.dense(x)")
    op = recording.op(dense.op)
    assert (op.origin.nodes()[0].file, op.origin.nodes()[0].line) == (made.source, dense.line)
    kernel = next(k for k in recording.kernels() if k.id == dense.kernel)
    shares = {
        launch: sum(
            part.get(n, 0.0)
            for n, node in enumerate(found.nodes)
            if node.place == (made.source, dense.line)
        )
        for launch, part in found.of_launch.items()
    }
    assert max(shares, key=shares.get) in kernel.launches
    assert found.nodes[found.nodes_of(kernel.launches[0])[0]].place == (made.source, dense.line)


def test_ops_are_counted_at_import_and_in_any_stage(made, traced):
    recording, found = traced
    first = found.count(recording.module(0), recording.op_id)
    for place, line in found.lines.items():
        assert first.get(place, 0) == line.at_import
    last = found.count(recording.module(recording.stage_count() - 1), recording.op_id)
    assert last[made.source, LINES["return torch.relu(x)"]] == 2  # one launch in each block


def test_without_times_and_sources_flops_and_bytes_are_still_there(made, traced):
    _, executed = traced
    with Recording.open(made.plain) as recording:
        assert recording.sources() == {}
        assert {row[0] for row in recording.query("SELECT stack FROM node").rows} != {"[]"}
        found = model_lines(recording)
    assert b"self.dense(x)" not in made.plain.read_bytes()
    assert {line.text for line in found.lines.values()} == {""}
    assert not found.measured and found.executed
    assert {line.own.us for line in found.lines.values()} == {None}
    assert {p: line.own.flops for p, line in found.lines.items()} == {
        p: line.own.flops for p, line in executed.lines.items()
    }
    assert {line.check for line in found.lines.values()} == {None}


def test_what_came_from_no_line_is_counted_there(tmp_path):
    """The first op says that a pass made it, the second has a node but no file."""
    made = program(lambda b, x: b.exp(b.neg(x)), "64xf32").main.body
    origins = Origin.synthetic("test", "made here"), Origin.root(FrontendNode("exp", "core.exp"))
    ops = tuple(op.with_(origin=origin) for op, origin in zip(made.ops, origins, strict=True))
    module = Module({"main": Function("main", Block(made.arguments, ops, made.outputs))})
    recorder = Recorder(tmp_path / "small.run")
    recorder.begin({"model": "small"})
    compilation.start(module, observer=recorder).finish()
    recorder.end("finished")
    with Recording.open(tmp_path / "small.run") as recording:
        found = model_lines(recording)
    assert [(line.file, line.own.flops) for line in found.lines.values()] == [(NODES, 64)]
    assert (found.unattributed, found.unattributed.flops) == (found.total, 2 * 64)
    assert found.nameless.flops == 64


def test_a_recording_without_stages_has_no_lines(tmp_path):
    recorder = Recorder(tmp_path / "empty.run")
    recorder.begin({"model": "empty"})
    recorder.end("failed", "nothing was imported")
    with Recording.open(tmp_path / "empty.run") as recording:
        found = model_lines(recording)
    assert (found.lines, found.total.flops, found.measured) == ({}, 0.0, False)


# -- workbench lines ------------------------------------------------------------------------------


def test_the_command_prints_the_same_table(command, made, traced):
    _, found = traced
    told = command.json("lines", made.run)
    own = {(row["file"], row["line"]): row for row in told["lines"]}
    assert {*own} == {place for place in found.lines if place[0] != NODES}
    for place, row in own.items():
        line = found.lines[place]
        assert (row["own"]["us"], row["total"]["flops"]) == (line.own.us, line.total.flops)
        assert row["text"] == NETWORK.split("\n")[line.line - 1].strip()
    us = [row["own"]["us"] for row in told["lines"]]
    assert us == sorted(us, reverse=True)
    assert sum(us) + told["nowhere"]["us"] == pytest.approx(told["total"]["us"], rel=1e-12)
    text = command.text("lines", made.run, "--top", 3)
    assert f"network.py:{LINES['x = self.dense(x)']}" in text
    assert f"3 of {len(us)}" in text and "all kernels" in text
    nodes = command.json("lines", made.run, "--nodes")["lines"]
    kinds = {row["kind"] for row in nodes if row["node"].startswith("conv")}
    assert kinds == {"aten.conv1d.default"}


def test_the_command_refuses_what_is_not_there(command, made):
    for words, what in (
        (("--file", "no_such_file"), "network.py"),
        (("--top", "-1"), "0 (all) or more"),
    ):
        code, out, err = command("lines", made.run, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert what in err
    told = json.loads(command("lines", made.plain, "--json")[1])
    assert told["total"]["us"] is None and not told["measured"]
