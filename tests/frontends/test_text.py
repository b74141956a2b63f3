"""Our own IR as a model: printed, exported and written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.frontends import text
from core_compiler.frontends.text import contains_core_ir, import_file
from core_compiler.ir import Block, Function, Module, Value, WeightStore, tensor
from core_compiler.ir.text import print_module
from core_compiler.ops.builder import Builder
from core_compiler.support.errors import UserError

BY_HAND = """module {
  "core.func"() ({
  ^bb0(%x: tensor<4x8xf32>):
    %w = "core.constant"() {value = dense_resource<w_my_weights> : tensor<8x16xf32>} : () -> tensor<8x16xf32>
    %y = "core.matmul"(%x, %w) : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>

    %z = "core.relu"(%y) : (tensor<4x16xf32>) -> tensor<4x16xf32>
    "core.return"(%z) : (tensor<4x16xf32>) -> ()
  }) {sym_name = "main"} : () -> ()
}
"""  # noqa: E501


def made(weight: np.ndarray) -> Module:
    """``relu(x @ weight)``."""
    weights = WeightStore()
    b = Builder(weights)
    x = Value(tensor((4, weight.shape[0]), "f32"), "x")
    y = b.relu(b.matmul(x, b.constant(weight)))
    return Module({"main": Function("main", Block((x,), tuple(b.ops), (y,)))}, weights)


@pytest.fixture
def weight():
    return np.random.default_rng(1).standard_normal((32, 48)).astype(np.float32)


def test_an_exported_stage_is_a_model_with_its_weights(tmp_path, weight):
    path, x = tmp_path / "stage.mlir", np.ones((4, 32), np.float32)
    c = compilation.start(made(weight)).finish()
    c.stages[0].export(path)
    assert contains_core_ir(path)
    again = import_file(path)
    assert again.inputs == ("x",) and again.facts["stand_ins"] == 0
    (mine,), (theirs,) = compilation.start(again.module).finish()(x), c(x)
    assert mine.tobytes() == theirs.tobytes()
    assert "dialect_resources" not in again.sources["stage.mlir"]


def test_weights_that_a_text_does_not_hold_are_made_up_and_counted(tmp_path, weight):
    path = tmp_path / "stage.mlir"
    path.write_text(print_module(made(weight), locations="full"))
    first, second = import_file(path), import_file(path)
    assert first.facts["stand_ins"] == 1
    (digest,) = first.module.weights
    assert first.module.weights[digest].shape == weight.shape
    assert list(second.module.weights) == [digest], "the same every time"


def test_ops_written_by_hand_come_from_their_lines(tmp_path):
    path = tmp_path / "mine.mlir"
    path.write_text(BY_HAND)
    read = import_file(path)
    kinds = {op.kind: op.origin.nodes()[0] for op in read.module.main.body.ops}
    lines = BY_HAND.split("\n")
    for kind, node in kinds.items():
        assert node.file == "mine.mlir" and f'"{kind}"' in lines[node.line - 1]
    assert kinds["core.relu"].name == "z"
    assert read.sources == {"mine.mlir": BY_HAND}
    (out,) = compilation.start(read.module).finish()(np.ones((4, 8), np.float32))
    assert out.shape == (4, 16) and (out >= 0).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (BY_HAND.replace('"main"', '"other"'), "function main not found"),
        (BY_HAND.replace('"main"', '"main", level = "kernel"'), "level, got 'kernel'"),
        (BY_HAND.replace("%y) :", "%q) :"), "mine.mlir:7:22: %q is used before it is defined"),
        (BY_HAND[:-30], "mine.mlir:"),
        (
            BY_HAND.replace(
                "dense_resource<w_my_weights> : tensor<8x16xf32>}",
                "dense_resource<w_my_weights> : tensor<1000000x1000000xf32>}",
            ),
            "weights are not in the text",
        ),
    ],
)
def test_what_cannot_be_read_says_where(tmp_path, wrong, said):
    path = tmp_path / "mine.mlir"
    path.write_text(wrong)
    with pytest.raises(UserError) as error:
        import_file(path)
    assert said in f"{error.value.where}: {error.value.what}"
    assert error.value.fix


def test_a_text_that_is_too_long_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    path = tmp_path / "long.mlir"
    line = '    %y{} = "core.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\n'
    path.write_text(BY_HAND.replace("\n\n", "\n" + "".join(line.format(i) for i in range(40))))
    assert len(import_file(path).module.main.body.ops) == 43
    monkeypatch.setattr(text, "OPS", 40)
    monkeypatch.setattr(text, "parse", None)
    with pytest.raises(UserError, match="at most 40"):
        import_file(path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "mine.mlir"
    path.write_bytes(BY_HAND.encode() + b"\xff\xfe")
    with pytest.raises(UserError, match="not valid UTF-8"):
        import_file(path)
    assert not contains_core_ir(tmp_path / "missing.mlir")
