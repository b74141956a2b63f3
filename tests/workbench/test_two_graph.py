"""The graphs of two recordings as one: what both have, what only one has, what differs."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record.reader import Timing
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from widgets.encode import finite
from workbench.commands.show_view import as_lists
from workbench.queries import flat_graph, stage_pairs
from workbench.queries.flat_graph import ADDED, CHANGED, MOVED, REMOVED, SAME
from workbench.queries.links import launches
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, diff, graph


def network(b, x, y):
    return b.add(b.exp(b.neg(x)), b.relu(b.mul(x, y)))


def ones(b, x, y):
    return b.softmax(b.exp(b.neg(x)), axis=0)


def twos(b, x, y):
    """Another version of :func:`ones`: one op less, two more, and one is another."""
    return b.softmax(b.add(b.neg(x), b.cos(y)), axis=1)


def recorded(path, edit=PipelineEdit(), build=network):
    recorder = Recorder(path)
    recorder.begin({"model": "small"})
    compilation.start(
        program(build, "8x4xf32", "8x4xf32"), "cpu", Options(edit=edit), observer=recorder
    ).finish()
    recorder.end("finished")
    return Run(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with closing(recorded(tmp_path_factory.mktemp("whole") / "a.run")) as run:
        yield run


def stage_of(run, name):
    return next(s.index for s in run.stages() if s.pass_name == name)


def rows(data):
    """Each op by its key: kind, status, what differs, its scope, what it reads."""
    ops = data["ops"]
    keys, starts, operands = (list(ops[n]) for n in ("key", "operand_start", "operand"))
    assert len(set(keys)) == len(keys)
    json.dumps(finite(as_lists(data)), allow_nan=False)
    return {
        key: (
            data["kinds"][ops["kind"][i]],
            int(ops["status"][i]),
            data["notes"][ops["note"][i]],
            data["scopes"][ops["scope"][i]],
            [keys[o] if o >= 0 else None for o in operands[starts[i] : starts[i + 1]]],
        )
        for i, key in enumerate(keys)
    }


def test_a_recording_beside_itself_has_no_difference(whole, tmp_path):
    with closing(recorded(tmp_path / "again.run")) as again:
        for stage in whole.stages():
            data = graph.data((whole, again), ViewState(stage=stage.index))
            assert set(data["ops"]["status"]) == {SAME}
            alone = graph.data((whole,), ViewState(stage=stage.index))["ops"]
            keys = [
                k
                for k, s in zip(alone["key"], alone.get("status", alone["key"] * 0), strict=True)
                if s != REMOVED
            ]
            assert list(rows(data)) == keys, "in the order of A alone"


def test_without_a_pass_that_fuses_the_same_ops_are_in_other_groups(whole, tmp_path):
    edit = PipelineEdit(skip=("fuse_elementwise",))
    with closing(recorded(tmp_path / "b.run", edit)) as other:
        stage = stage_of(whole, "fuse_elementwise")
        data = graph.data((whole, other), ViewState(stage=stage))
        assert "it has no fuse_elementwise" in data["two"]["titles"][1]
        found = rows(data)
        fused = set(whole.index(stage).around)
        assert fused and {s for key, (_, s, *_) in found.items() if key in fused} <= {SAME, MOVED}
        drawn = {n.key: n.op.kind for n in flat_graph.flat(whole, stage).nodes}
        moved = [drawn[key] for key, (_, status, *_) in found.items() if status == MOVED]
        assert {"core.neg", "core.exp", "core.mul", "core.add"} <= set(moved)
        assert {status for _, status, *_ in found.values()} == {SAME, MOVED}


@pytest.mark.slow
def test_ops_of_either_and_ops_that_differ(tmp_path):
    with (
        closing(recorded(tmp_path / "a.run", build=ones)) as a,
        closing(recorded(tmp_path / "b.run", build=twos)) as b,
    ):
        data = graph.data((a, b), ViewState(stage=0))
        found = rows(data)
        by_kind = {kind: (key, *more) for key, (kind, *more) in found.items()}
        assert by_kind["core.neg"][1] == SAME
        assert by_kind["core.exp"][1] == REMOVED and isinstance(by_kind["core.exp"][0], int)
        for kind in ("core.add", "core.cos"):
            key, status, *_ = by_kind[kind]
            there = {n.op.kind: n.key for n in flat_graph.flat(b, 0).nodes}
            assert status == ADDED and key == f"b{there[kind]}"
        key, status, note, _, reads = by_kind["core.softmax"]
        assert status == CHANGED and note == "axis: 0 in A, 1 in B; different inputs in B"
        assert reads == [by_kind["core.exp"][0], by_kind["core.add"][0]], "edges of both"
        assert graph.selection((a, b), ViewState(stage=0, op=key)) == {"op": key}
        back = rows(graph.data((b, a), ViewState(stage=0)))
        assert Counter(status for _, status, *_ in back.values()) == Counter(
            {ADDED: REMOVED, REMOVED: ADDED}.get(status, status) for _, status, *_ in found.values()
        )


def test_every_op_of_both_stages_is_drawn_once_after_what_it_reads(whole, tmp_path):
    edit = PipelineEdit(skip=("fuse_elementwise", "canonicalise"))
    with closing(recorded(tmp_path / "b.run", edit)) as other:
        for stage in whole.stages():
            data = graph.data((whole, other), ViewState(stage=stage.index))
            there, _ = stage_pairs.partner(whole, other, stage.index)
            found = rows(data)
            mine = {n.key for n in flat_graph.flat(whole, stage.index).nodes}
            theirs = {f"b{n.key}" for n in flat_graph.flat(other, there).nodes}
            assert {key for key in found if isinstance(key, int)} == mine
            only = {key for key in found if isinstance(key, str)}
            assert only <= theirs
            both = sum(s in (SAME, CHANGED, MOVED) for _, s, *_ in found.values())
            assert both + len(only) == len(theirs)
            starts = data["ops"]["operand_start"]
            users = np.repeat(np.arange(len(found)), np.diff(starts))
            assert (data["ops"]["operand"] < users).all()


@pytest.mark.slow
def test_training_steps_have_the_phases_of_both(tmp_path):
    torch = pytest.importorskip("torch", reason="models come from torch")
    import core_compiler as cc
    from core_compiler.training.config import Training

    def made(name, **options):
        torch.manual_seed(0)
        layers = [m for _ in range(3) for m in (torch.nn.Linear(16, 16), torch.nn.GELU())]
        x = np.zeros((32, 16), np.float32)
        step = cc.compile(
            torch.nn.Sequential(*layers), (x, x), training=Training(loss="mse", **options)
        )
        return Run(step.compilation.finish().record(tmp_path / name))

    with closing(made("a.run")) as a, closing(made("b.run", recompute=0.6)) as b:
        last = a.version.stages - 1
        data = graph.data((a, b), ViewState(stage=last))
        again = [
            key
            for key, p in zip(data["ops"]["key"], data["ops"]["phase"], strict=True)
            if p < len(data["phases"]) and data["phases"][p] == "recomputed"
        ]
        assert again and all(isinstance(key, str) for key in again), "only B computes again"
        assert len(data["ops"]["link_start"]) == len(rows(data)) + 1


def test_a_recording_without_stages_is_named(whole, tmp_path):
    Recorder(tmp_path / "empty.run").begin({"model": "small"})
    with closing(Run(tmp_path / "empty.run")) as empty:
        for view in (graph, diff):
            with pytest.raises(Empty, match=r"B \(empty\.run\) has no stages"):
                view.data((whole, empty), ViewState(stage=1))
            with pytest.raises(Empty, match=r"A \(empty\.run\) has no stages.*Show B alone"):
                view.data((empty, whole), ViewState(stage=1))


def test_too_many_ops_are_not_compared(whole, monkeypatch):
    monkeypatch.setattr(diff, "MAX_OPS", 3)
    with pytest.raises(Empty, match=r"ops: too many to compare.*show A alone"):
        graph.data((whole, whole), ViewState(stage=0))


def test_times_of_both_and_their_difference(whole, tmp_path, monkeypatch):
    """As of executions: every launch took 3 us in A, 5 us in B."""
    with closing(recorded(tmp_path / "b.run", PipelineEdit(skip=("fuse_elementwise",)))) as other:
        last = whole.version.stages - 1
        assert graph.data((whole, other), ViewState(stage=last))["overlays"] == []
        monkeypatch.setattr(
            Run,
            "timings",
            lambda run: [
                Timing(i, "", op, 1, 0, 0, us, us, us, np.zeros(1))
                for us in ((3.0 if run is whole else 5.0),)
                for i, op in enumerate(launches(run))
            ],
        )
        data = graph.data((whole, other), ViewState(stage=last))
        more, one, two = (o["values"] for o in data["overlays"])
        assert [o["name"] for o in data["overlays"]] == ["more time in B", "time in A", "time in B"]
        assert np.nansum(one) == pytest.approx(3 * len(launches(whole)))
        assert np.nansum(two) == pytest.approx(5 * len(launches(other)))
        assert np.nansum(more) == pytest.approx(np.nansum(two) - np.nansum(one))
        json.dumps(finite(as_lists(data)), allow_nan=False)
