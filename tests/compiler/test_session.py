"""The compiler from a notebook or script: what may be compiled, what is seen without widgets."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.ir.events import Observer
from core_compiler.record.reader import Recording
from core_compiler.support.errors import UserError
from tests.passes.programs import inputs, program


def _module():
    return program(lambda b, x, y: [b.relu(b.add(b.mul(x, y), x))], "4x5xf32", "4x5xf32")


@pytest.fixture(scope="module")
def made():
    module = _module()
    return cc.compile(module, inputs(module), check=True)


def test_it_computes(made):
    x, y = inputs(made.stages[0].module)
    (got,) = made(x, y)
    fused = np.float32(x) * np.float32(y)
    assert np.array_equal(got, np.maximum(fused + x, 0))


def test_the_package_imports_nothing_until_it_is_asked():
    code = "import sys, core_compiler; print('numba' in sys.modules, core_compiler.__version__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", cc.__version__]
    with pytest.raises(AttributeError, match="no attribute 'decompile'"):
        _ = cc.decompile  # type: ignore[attr-defined]


def test_a_stage_tells_what_its_pass_changed(made):
    stage = next(s for s in made.stages if s.name.startswith("fuse_elementwise"))
    shown = stage.diff()
    assert shown.changed
    assert str(shown).startswith(f"--- stage {stage.index - 1}\n+++ stage {stage.index} (fuse_el")
    assert any(sign == "+" and "core.group" in text for sign, text in shown.lines)
    assert len(stage.diff(whole=True).lines) > len(stage.diff(context=0).lines)
    idle = next(s for s in made.stages[1:] if not s.changed)
    assert not idle.diff().changed and "no difference" in str(idle.diff())


def test_without_widgets_there_is_text_and_plain_html(made):
    for thing in (made, made.stages[3], made.stages[3].diff(), made.module, made.memory):
        shown = thing._repr_mimebundle_()
        assert set(shown) == {"text/plain", "text/html"}
        assert shown["text/plain"] == repr(thing)
        assert "<script" not in shown["text/html"] and "http" not in shown["text/html"]
    assert f"arena {made.facts['plan'].peak:,} B" in repr(made.memory)
    table = repr(made)
    assert "fuse_elementwise" in table and "bitwise" in table and made.identity[:16] in table


def test_names_of_a_model_cannot_write_markup():
    from core_compiler.exporters.memory_map import MemoryMap, Placed
    from core_compiler.exporters.notebook import TextDiff, table
    from core_compiler.ir.markup import code

    hostile = "<img src=x onerror=alert(1)>\0\x01\ud800"
    rows = [{"kind": "added", "left": None, "right": hostile}]
    diff = TextDiff(hostile, hostile, rows)._repr_mimebundle_()["text/html"]
    plan = MemoryMap([Placed(hostile, hostile, 64, 0, 0, 1)], 64, 64, hostile)
    memory = plan._repr_mimebundle_()["text/html"]
    cells = table((hostile,), [(hostile,)], hostile)[1]
    for markup in (diff, memory, code(hostile, hostile), cells):
        assert "<img" not in markup and "&lt;img" in markup
        assert not re.search("[\0\x01\ud800]", markup) and "\ufffd" in markup


def test_stepping(made):
    fresh = cc.compile(_module(), finish=False)
    assert len(fresh.stages) == 1 and "passes to go" in repr(fresh)
    assert fresh.step().index == 1
    assert fresh.finish().identity == made.identity


def test_a_torch_module(made):
    torch = pytest.importorskip("torch", reason="a live module needs torch")
    layer = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())
    x = torch.randn(4, 5)
    compiled = cc.compile(layer, (x,))
    assert np.allclose(compiled(x)[0], layer(x).detach().numpy(), atol=1e-5)
    assert compiled.names[0] == ("input",)
    exported = torch.export.export(layer, (x,))
    again = cc.compile(exported)
    assert again(x.numpy())[0].tobytes() == compiled(x)[0].tobytes()
    with pytest.raises(UserError, match="Sequential needs example inputs"):
        cc.compile(layer)


def test_an_onnx_model(tmp_path):
    onnx = pytest.importorskip("onnx", reason="ONNX models need onnx")
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    x = np.array([-1, 0, 2], np.float32)
    assert cc.compile(model)(x)[0].tolist() == [0, 0, 2]
    onnx.save(model, tmp_path / "relu.onnx")
    assert cc.compile(str(tmp_path / "relu.onnx"))(x)[0].tolist() == [0, 0, 2]


def test_a_jax_function_takes_its_arguments_as_they_are():
    pytest.importorskip("jax", reason="needs jax")

    def step(params, x):
        return {"y": x @ params["w"], "sum": x.sum()}

    arguments = {"w": np.eye(3, dtype=np.float32)}, np.ones((2, 3), np.float32)
    made = cc.compile(step, arguments, check=True)
    total, y = made(*arguments)
    assert made.names == (("params['w']", "x"), ("result['sum']", "result['y']"))
    assert float(total) == 6 and np.array_equal(y, np.ones((2, 3)))
    assert made.about["model"] == "step"


def test_a_stablehlo_file(tmp_path):
    pytest.importorskip("jax", reason="needs jax")
    path = tmp_path / "double.mlir"
    path.write_text("""\
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.add %x, %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
""")
    (got,) = cc.compile(path, (np.arange(5, dtype=np.float32),))(np.arange(5, dtype=np.float32))
    assert np.array_equal(got, 2 * np.arange(5))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "int is not a supported model"),
        ("nowhere.onnx", "file not found"),
        (__file__, "unrecognised file extension"),
    ],
)
def test_what_is_no_model_is_said(model, message):
    with pytest.raises(UserError, match=message):
        cc.compile(model)


def test_checking_needs_inputs():
    with pytest.raises(UserError, match="missing example inputs"):
        cc.compile(_module(), check=True)


def test_cuda_compiles_without_a_gpu():
    made = cc.compile(_module(), target="cuda", options={"architecture": "sm_75"})
    (kernel,) = made.kernels.values()
    assert list(kernel.texts) == ["source", "PTX", "SASS"]
    assert ".target sm_75" in kernel.intermediate and "STG" in kernel.assembly
    assert "threads" in repr(kernel) and "occupancy" in repr(kernel)


def test_kernels_can_be_read(made):
    (kernel,) = made.kernels.values()
    assert list(kernel.texts) == ["source", "LLVM IR", "assembly"]
    assert "def kernel(" in kernel.source and "define" in kernel.intermediate
    shown = kernel._repr_mimebundle_()
    assert shown["text/plain"] == repr(kernel) and "<details open>" in shown["text/html"]
    assert cc.compile(_module(), finish=False).kernels == {}


def test_a_compile_is_recorded_pass_by_pass(tmp_path):
    path, seen = tmp_path / "x.run", []

    class Look(Observer):
        """Somebody who opens the recording meanwhile."""

        def stage(self, record):
            if record.pass_name == "import":
                return  # it is done before anything is recorded
            with Recording.open(path) as file:
                seen.append((file.meta()["status"], len(file.stages())))

    c = cc.compile(_module(), record=path, observer=Look())
    assert {status for status, _ in seen} == {"recording"}
    assert [count for _, count in seen] == sorted({count for _, count in seen}), "it grows"
    with Recording.open(path) as file:
        assert file.meta()["status"] == "finished"
        assert [s.pass_name for s in file.stages()] == [s.name for s in c.stages]
    with pytest.raises(UserError, match="mutually exclusive"):
        cc.compile(_module(), record=path, finish=False)
