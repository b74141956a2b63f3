"""A fault of the compiler is reduced from wherever it was found: ``compile --check`` and its
recording, ``bisect``, the first bad pass of the page, a failing test of the pytest plugin, ``train
--check``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.debug import gradient_checks
from core_compiler.driver.compilation import Compilation, Options, start, watched
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.pipelines.pipeline import Step
from tests.debug import planted
from tests.debug import wrong_compilers as wrong
from tests.debug.test_reduce_kinds import alone, carried, chain, numbers
from tests.passes.programs import program
from workbench.model import first_bad_pass, models
from workbench.model.spec import read_spec
from workbench.testing import recordings
from workbench.testing.compiles import RunPass


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Reproducers run in this process, which is wrong; nothing about gradients is remembered."""
    from core_compiler.driver import reproducer

    monkeypatch.setattr(gradient_checks, "kept", lambda key: None)
    monkeypatch.setattr(gradient_checks, "keep", lambda key, error, note: None)
    monkeypatch.setattr(reproducer, "shows", lambda path: (alone(path)[0] == 1, alone(path)[1]))


def is_shown(folder: Path, fault, says: str) -> None:
    """The reproducer in ``folder`` fails with the fault and not without."""
    with fault():
        code, out = alone(folder / "reproducer.py")
    assert code == 1 and says in out
    assert alone(folder / "reproducer.py")[0] == 0


@pytest.fixture(scope="module")
def net(tmp_path_factory) -> Path:
    """Two layers as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    w, v = numbers((6, 6), (6, 6))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["b"]),
        helper.make_node("Sigmoid", ["b"], ["s"]),
        helper.make_node("Mul", ["s", "h"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", kind, (5, 6))],
        [helper.make_tensor_value_info("y", kind, (5, 6))],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")],
    )
    path = tmp_path_factory.mktemp("models") / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


@pytest.mark.slow
def test_from_check_and_its_recording_and_bisect(net, command, tmp_path):
    run = tmp_path / "x.run"
    with wrong.overlap():
        checked = command.json("compile", net, "--check", "-o", run, code=1)
        row = checked["failures"][0]
        found = command.json("bisect", net, code=1)
        made = command.json("reduce", net, "-o", tmp_path / "a", code=1)
        again = command.json("reduce", run, "-o", tmp_path / "b", code=1)
    assert row["pass"] == found["first_bad_pass"] == made["pass"] == again["pass"] == "plan_memory"
    assert row["rule"] == made["what"] == again["what"]
    assert made["ops_after"] <= 3 and made["runs_alone"] and again["runs_alone"]
    is_shown(tmp_path / "a", wrong.overlap, "plan_memory")
    is_shown(tmp_path / "b", wrong.overlap, "plan_memory")


def test_from_inputs_that_bisecting_was_given(net, command, tmp_path):
    np.savez(tmp_path / "x.npz", x=numbers((5, 6))[0])
    words = [net, "--inputs", tmp_path / "x.npz"]
    with wrong.lowering():
        found = command.json("bisect", *words, code=1)
        made = command.json("reduce", *words, "-o", tmp_path / "out", code=1)
    assert (found["first_bad_pass"], made["pass"], made["ops_after"]) == ("decompose",) * 2 + (1,)
    is_shown(tmp_path / "out", wrong.lowering, "lower core.tanh")


def test_from_the_first_bad_pass_of_the_page(net):
    model = models.load(read_spec(str(net)), cache=False)
    search = first_bad_pass.Search(model, "cpu", Options(), model.inputs)
    with wrong.unlogged():
        data, made, found = search.run(lambda *told: None)
        reduced = first_bad_pass.reduced(search, made, found, lambda *told: None)
    assert data["first_bad_pass"] == "canonicalise"
    assert (reduced["problem"], reduced["runs_alone"], reduced["ops_after"]) == ("", True, 1)


def test_from_a_recording_of_a_failing_test(command, tmp_path):
    """As ``--workbench-record`` writes it: of a compile from Python, which is not checked."""
    path = tmp_path / "test.run"
    with wrong.state_not_written():
        module = carried()
        compilation = cc.compile(module, numbers((4, 6), (4, 6)), finish=False)
        compilation.step()
        recordings._record(compilation, path, "test_a.py::test", "AssertionError: other numbers")
        made = command.json("reduce", path, "--trust", "-o", tmp_path / "out", code=1)
    assert (made["pass"], made["what"]) == ("eliminate_dead_code", "unlogged change")
    is_shown(tmp_path / "out", wrong.state_not_written, "eliminate_dead_code")


def test_from_a_checked_training_step(command, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    batch = (numbers((5, 6))[0], np.array([0, 1, 2, 0, 1]))
    path = tmp_path / "step.run"
    with wrong.gradient():
        made = cc.compile(
            model, batch, training=cc.Training(loss="cross_entropy"), check=True, finish=False
        ).compilation
        while made.finding is None:
            made.step()
        made.record(path)
        found = command.json("reduce", path, "-o", tmp_path / "out", code=1)
    assert (found["pass"], found["what"]) == ("differentiate", "gradient of core.tanh")
    assert found["ops_after"] <= 2 and found["runs_alone"]
    is_shown(tmp_path / "out", wrong.gradient, "gradient of core.tanh")


def test_a_pass_on_the_models_own_graph_is_told(net, command, tmp_path):
    """Only tensor ops are made smaller."""
    with wrong.raises_on_nodes():
        code, out, err = command("reduce", net, "--frontend", "onnx-passes", "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "works on the model's own graph" in err and "onnx-passes" in err


def test_from_a_recording_of_a_pass_that_ran_alone(command, tmp_path, monkeypatch):
    """As the fixture ``run_pass`` leaves it, with the plugin's ``--workbench-record``."""
    made: list[Compilation] = []
    path, pass_ = tmp_path / "x.run", planted.QuickGelu()
    module = program(lambda b, x: b.exp(b.gelu(b.neg(x))), "4x8xf32")
    with watched(made.append), pytest.raises(AssertionError, match="is declared within 1e-06"):
        RunPass()(pass_, module, numbers((4, 8)))
    recordings._record(made[0], path, "test_a.py::test", "AssertionError: ...")
    code, _, err = command("reduce", path, "-o", tmp_path / "out")
    assert code == 2 and "--trust" in err
    found = command.json("reduce", path, "--trust", "-o", tmp_path / "out", code=1)
    assert (found["pass"], found["ops_after"], found["runs_alone"]) == ("quick_gelu", 1, True)


def test_a_recording_of_another_pipeline_is_told(command, tmp_path):
    """No pass of another name is blamed."""
    path = tmp_path / "x.run"
    compilation = start(chain(), "cpu", Options(), numbers((5, 6)))
    compilation.steps = [Step("canonicalise", Canonicalise())]
    compilation.about = {"model": "canonicalise", "target": "cpu"}
    compilation.step()
    compilation.record(path)
    code, out, err = command("reduce", path, "--stage", "1", "--trust", "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "the recording was made with another pipeline" in err
