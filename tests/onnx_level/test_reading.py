"""Models as modules of level ``onnx`` and back: what a file says is kept."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from core_compiler.driver.legality import levels
from core_compiler.frontends.onnx import import_proto
from core_compiler.ir import WeightStore
from core_compiler.ir.parser import parse
from core_compiler.ir.text import print_module
from core_compiler.ir.verifier import verify
from core_compiler.onnx_level.read import read, read_file
from core_compiler.onnx_level.write import save, write
from core_compiler.support.errors import UserError
from tests.frontends.onnx_models import F, model_of
from tests.onnx_level.suite import models

SMALL = """
<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
small (float[batch, 4] x, bool c) => (float[batch, 2] y)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}>
{
  h = MatMul(x, w)
  k = own.Halve<by = 2.0>(h)
  y = If(c) <
    then_branch = yes () => (float[batch, 2] a) { a = Clip(k, , ) },
    else_branch = no () => (float[batch, 2] b) { b = Dropout(h) }
  >
}
<domain: "own", opset_import: ["" : 18]>
Halve <by: float = 4.0> (v) => (r) {
  d = Constant <value_float: float = @by> ()
  r = Div(v, d)
}
"""


def _nodes(graph: onnx.GraphProto) -> list:
    made = []
    for n in graph.node:
        inputs = list(n.input)
        while inputs and not inputs[-1]:  # as good as not there
            inputs.pop()
        kept = sorted((a for a in n.attribute if a.type != 5), key=lambda a: a.name)
        held = [(a.name, a.ref_attr_name, a.type, *_content(a)) for a in kept]
        inner = [(a.name, _nodes(a.g)) for a in n.attribute if a.type == 5]
        made.append((n.domain, n.op_type, inputs, list(n.output), held, sorted(inner)))
    return made


def _content(attribute: onnx.AttributeProto) -> tuple:
    if attribute.type == 4:
        array = numpy_helper.to_array(attribute.t)
        return array.dtype, array.shape, array.tobytes()
    return () if attribute.ref_attr_name else (helper.get_attribute_value(attribute),)


@pytest.mark.slow
def test_every_model_of_the_suite_comes_back() -> None:
    """Nodes, names, attributes and subgraphs are those of the file; the text is read again; the
    verifier finds nothing."""
    strings = []
    for name, (_, model) in models().items():
        try:
            module = read(model)
        except UserError as refused:
            if "STRING" not in refused.what:
                raise
            strings.append(name)
            continue
        assert _nodes(write(module).graph) == _nodes(model.graph), name
        assert [d for d in verify(module, levels()) if d.severity == "error"] == [], name
        text = print_module(module, locations="full")
        assert print_module(parse(text, weights=module.weights), locations="full") == text, name
    assert len(models()) > 1700
    assert len(strings) <= 2


def test_the_text_of_a_small_model() -> None:
    module = read(parser.parse_model(SMALL))
    lines = [line.strip() for line in print_module(module).splitlines()]
    of, weight = 'tensor<?x4xf32, {dims = ["batch", 4]}>', "tensor<4x2xf32>"
    both = "!onnx.value, !onnx.value"
    for line in (
        f"^bb0(%x: {of}, %c: tensor<i1>):",
        f'%h = "onnx.MatMul"(%x, %w) {{onnx.since = 13 : i64}} : ({of}, {weight}) -> !onnx.value',
        '%k = "onnx.own.Halve"(%h) {by = 2.0 : f64} : (!onnx.value) -> !onnx.value',
        '%y = "onnx.If"(%c) ({',
        f'%r = "onnx.Div"(%v, %d) {{onnx.since = 14 : i64}} : ({both}) -> !onnx.value',
    ):
        assert line in lines, "\n".join(lines)


def test_a_small_model_comes_back_with_its_function_and_subgraphs() -> None:
    model = parser.parse_model(SMALL)
    made = write(read(model))
    onnx.checker.check_model(made, full_check=True)
    assert _nodes(made.graph) == _nodes(model.graph)
    assert made.functions[0].name == "Halve"
    assert made.functions[0].attribute_proto[0].f == 4.0
    assert {o.domain: o.version for o in made.opset_import} == {"": 18, "own": 1}


def test_a_model_hands_on_what_it_is_given() -> None:
    """An input that is a result under its own name stays one; under another it is copied."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
    g (float[2] x) => (float[2] x, float[2] y) { y = Relu(x) }""")
    made = write(read(model))
    onnx.checker.check_model(made, full_check=True)
    assert [n.op_type for n in made.graph.node] == ["Relu"]
    assert [o.name for o in made.graph.output] == ["x", "y"]


@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn", "bfloat16"])
def test_small_elements_are_packed_as_onnx_packs_them(kind: str) -> None:
    import ml_dtypes

    array = np.arange(-3, 4).clip(-2, 1).astype(getattr(ml_dtypes, kind))
    tensor = numpy_helper.from_array(array, "w")
    model = model_of(
        [helper.make_node("Identity", ["w"], ["y"])],
        [],
        [("y", tensor.data_type, (7,))],
        [tensor],
        opset=25,
    )
    (back,) = write(read(model)).graph.initializer
    assert numpy_helper.to_array(back).tobytes() == array.tobytes()


def test_large_tensors_go_beside_the_file_and_come_back_mapped(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    held = [numpy_helper.from_array(weight, n) for n in ("w", "same")]
    model = model_of(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Add", ["h", "same"], ["y"]),
        ],
        [("x", F, (300, 300))],
        [("y", F, (300, 400))],
        held,
    )
    path, data = save(read(model), tmp_path / "m.onnx", external=True)
    assert (path.name, data.name) == ("m.onnx", "m.onnx.data")
    assert path.stat().st_size < 2000
    assert data.stat().st_size == weight.nbytes  # equal tensors once
    onnx.checker.check_model(str(path), full_check=True)
    again = read_file(path)
    (digest,) = again.weights
    mapped = again.weights[digest]
    while isinstance(mapped, np.ndarray):
        mapped = mapped.base
    assert isinstance(mapped, mmap.mmap)
    assert again.weights[digest].tobytes() == weight.tobytes()


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float16"])
def test_large_tensors_of_every_dtype_go_beside_the_file(tmp_path: Path, kind: str) -> None:
    """Those too that no buffer of Python's has."""
    import ml_dtypes

    array = (np.arange(5000) % 2).astype(getattr(ml_dtypes, kind, kind)).reshape(50, 100)
    tensor = numpy_helper.from_array(array, "w")
    model = model_of(
        [helper.make_node("Identity", ["w"], ["y"])],
        [],
        [("y", tensor.data_type, array.shape)],
        [tensor],
        opset=21,
    )
    path, data = save(read(model), tmp_path / "m.onnx", external=True)
    assert data.read_bytes() == array.tobytes()
    (back,) = onnx.load(path).graph.initializer
    assert numpy_helper.to_array(back).tobytes() == array.tobytes()


def test_what_was_there_stays_where_writing_fails(tmp_path: Path) -> None:
    module = read(parser.parse_model(SMALL))
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        save(module, target)
    assert list(tmp_path.iterdir()) == [target]


def test_left_out_tensors_are_found_in_the_store_only() -> None:
    weight = np.ones((100, 100), np.float32)
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [("x", F, (100, 100))],
        [("y", F, (100, 100))],
        [numpy_helper.from_array(weight, "w")],
    )
    module = read(model)
    left = write(module, weights=False)
    assert len(left.SerializeToString()) < 1000
    assert print_module(read(left, weights=module.weights)) == print_module(module)
    with pytest.raises(UserError, match="not read from a file"):  # a file may say so too
        read(left)
    with pytest.raises(UserError, match="are not in the store"):
        import_proto(left, folder=WeightStore())


def _damaged(change) -> onnx.ModelProto:
    model = parser.parse_model(SMALL)
    change(model)
    return model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.graph.node[1].input.__setitem__(0, "nowhere"), "is used before it is defined"),
        (lambda m: m.graph.node[1].output.__setitem__(0, "h"), "is defined twice"),
        (
            lambda m: (
                m.graph.initializer[0].ClearField("raw_data")
                or m.graph.initializer[0].ClearField("float_data")
            ),
            "cannot be read",
        ),
        (lambda m: m.training_info.add(), "training information"),
        (lambda m: m.graph.sparse_initializer.add(), "sparse tensors"),
        (lambda m: m.graph.input[0].type.map_type.SetInParent(), "neither tensor, sequence"),
        (
            lambda m: m.graph.node[0].attribute.append(
                helper.make_attribute("t", [helper.make_tensor("a", TensorProto.FLOAT, [1], [1.0])])
            ),
            "a list of tensors",
        ),
    ],
)
def test_a_damaged_model_is_refused_with_the_reason(change, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(_damaged(change), name="damaged.onnx")


def test_all_that_cannot_be_carried_is_said_at_once() -> None:
    def spoil(model: onnx.ModelProto) -> None:
        model.graph.sparse_initializer.add()
        tensors = [helper.make_tensor("a", TensorProto.FLOAT, [1], [1.0])]
        model.graph.node[0].attribute.append(helper.make_attribute("t", tensors))

    with pytest.raises(UserError, match=r"2 ops are not supported: .*sparse.*list of tensors"):
        read(_damaged(spoil))
