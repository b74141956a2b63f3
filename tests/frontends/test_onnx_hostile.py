"""ONNX files that nobody has vouched for: every kind of damage that a fuzzer or a reader thought
of, with the reason that is told, by both ways to read a file.

(`python -m tests.fuzz onnx` finds more; what it finds becomes a row here.)
"""

from __future__ import annotations

import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

import core_compiler as cc
from core_compiler.frontends.onnx.importer import import_proto
from core_compiler.ir import tensor
from core_compiler.onnx_level.passes.infer_shapes import InferShapes
from core_compiler.onnx_level.read import read
from core_compiler.passes.base import PassContext
from core_compiler.support.errors import UserError
from workbench.commands.cli import main

#: Bytes that reading a damaged file may take.
MEMORY = 1 << 25


def parsed(text: str) -> onnx.ModelProto:
    """A model in ONNX's text: a graph, maybe functions after it."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18, "own" : 1]> {text}')


def compiled(path: Path, frontend: str | None) -> Any:
    """The compile of a file as far as the tensor level."""
    made = cc.compile(path, finish=False, frontend=frontend)
    while made.module.main.level != "tensor":
        made.step()
    return made


def refusal(path: Path, frontend: str | None) -> UserError:
    """The error of reading a file; a bounded amount of memory is taken for it."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            compiled(path, frontend)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    error = caught.value
    assert peak < MEMORY
    assert error.what
    assert error.where
    assert error.fix
    assert "\n" not in str(error)
    return error


BOTH = pytest.mark.parametrize("frontend", [None, "onnx-passes"])


# -- the protobuf ----------------------------------------------------------------------------------

SOUND = parsed("""
    g (float[2,3] x) => (float[2,4] y) <float[3,4] w = {0,1,2,3,4,5,6,7,8,9,10,11}> {
        h = MatMul(x, w)  y = Relu(h) }""")


def _bytes(change: Callable[[bytes], bytes]) -> bytes:
    return change(SOUND.SerializeToString())


def _model(change: Callable[[onnx.ModelProto], object]) -> bytes:
    model = onnx.ModelProto()
    model.CopyFrom(SOUND)
    change(model)
    return model.SerializeToString()


def _renamed(model: onnx.ModelProto, name: str) -> None:
    model.graph.node[1].name = name


FILES = {
    "empty": (b"", "not an ONNX model"),
    "cut": (_bytes(lambda data: data[: len(data) // 2]), "not a readable ONNX model"),
    "a length beyond the end": (b"\x3a\xff\xff\xff\xff\x0f", "not a readable ONNX model"),
    "a length of 2^64": (b"\x3a" + b"\xff" * 9 + b"\x01", "not a readable ONNX model"),
    "nested without end": (b"\x3a\x7f\x0a\x7d\x2a\x7b\x32\x79" * 4000, "not a readable ONNX model"),
    "a name that is no text": (_bytes(lambda data: data.replace(b"Relu", b"Re\xff\xfe")),
                               "a name in the model is not valid UTF-8"),
    "a tensor's name that is no text": (
        _model(lambda m: setattr(m.graph.initializer[0], "name", "w" * 8))
        .replace(b"w" * 8, b"\xc3" * 8), "not valid UTF-8"),
    "a name of a megabyte": (_model(lambda m: _renamed(m, "n" * (1 << 20))),
                             "a name has 1048576 characters"),
    "a version that is none": (_model(lambda m: setattr(m.opset_import[0], "version", -1)),
                               "version -1 of domain ''"),
    "a version beyond 32 bits": (_model(lambda m: setattr(m.opset_import[0], "version", 1 << 40)),
                                 "version 1099511627776 of domain ''"),
    "an op's name over several lines": (
        _model(lambda m: setattr(m.graph.node[1], "op_type", "Re\n\x1b[2Jlu")),
        r"Re \\x1b\[2Jlu \(|Re \\x1b\[2Jlu is made|not supported|no translation"),
    "an example of a tensor in segments": (
        _model(lambda m: setattr(m.graph.initializer[0].segment, "begin", 1)), "segments"),
    "a tensor of 100,000 axes": (
        _model(lambda m: m.graph.initializer[0].dims.extend([1 << 62] * 100_000)), "rank 100002"),
    "more data than its shape": (
        _model(lambda m: setattr(m.graph.initializer[0], "raw_data", b"\0" * 64)),
        r"expected 48 bytes of data, got 64|cannot be read"),
    "a tensor of 10^15 elements": (
        _model(lambda m: m.graph.initializer[0].dims.__setitem__(slice(None), [10**15])),
        r"expected 4000000000000000 bytes of data|cannot be read"),
    "a tensor of a type that is none": (
        _model(lambda m: setattr(m.graph.initializer[0], "data_type", 99)), "type 99"),
    "a cycle": (_model(lambda m: m.graph.node[0].input.__setitem__(0, "y")),
                "tensor 'y' is used before it is defined"),
    "a name given twice": (_model(lambda m: m.graph.node[1].output.__setitem__(0, "h")),
                           "tensor 'h' is defined twice"),
    "shapes that do not fit": (
        _model(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 5)),
        r"1 op has invalid inputs or attributes: MatMul \(.*; model.onnx:1\)"),
    "an input of negative size": (
        _model(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", -5)),
        "size -5|invalid inputs"),
    "an output that nothing makes": (_model(lambda m: setattr(m.graph.output[0], "name", "no")),
                                     "no"),
}  # fmt: skip


@pytest.mark.sampled(3)
@BOTH
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused_with_the_reason(name: str, frontend, tmp_path: Path) -> None:
    data, said = FILES[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    error = refusal(path, frontend)
    assert re.search(said, str(error)), str(error)


# -- graphs ----------------------------------------------------------------------------------------

HUGE = 10**15
GRAPHS = {
    "a constant of no value": (
        "g (float[2] x) => (y) { c = Constant()  y = Add(x, c) }", "Constant"),
    "parts without end": (
        f"g (float[2] x) => (y, z) {{ y, z = Split <num_outputs = {HUGE}> (x) }}", "parts|num_out"),
    "scanned inputs without end": (f"""
        g (float[2,2] x) => (y) {{ y = Scan <num_scan_inputs = {HUGE},
            body = b (float[2] a) => (float[2] c) {{ c = Neg(a) }}> (x) }}""", "scanned inputs"),
    "a list where a number is due": (
        "g (float[2,2] x) => (y) { y = Softmax <axis = [1]> (x) }", "Softmax|axis"),
    "a number where a list is due": (
        "g (float[2,2] x) => (y) { h = Transpose <perm = 1> (x)  y = Transpose (h) }",
        "Transpose|perm"),
    "a function called with too much": ("""
        g (float[2] x) => (y) { y = own.f(x, x) }
        <domain: "own", opset_import: ["" : 18]> f (a) => (b) { b = Neg(a) }""",
        "f takes 1 tensors, a call names 2"),
    "a function that makes less": ("""
        g (float[2] x) => (y, z) { y, z = own.f(x) }
        <domain: "own", opset_import: ["" : 18]> f (a) => (b) { b = Neg(a) }""",
        "f returns 1 tensors, a call names 2"),
    "functions that call each other": ("""
        g (float[2] x) => (y) { y = own.f(x) }
        <domain: "own", opset_import: ["" : 18, "own" : 1]> f (a) => (b) { b = own.e(a) }
        <domain: "own", opset_import: ["" : 18, "own" : 1]> e (a) => (b) { b = own.f(a) }""",
        "calls itself"),
    "ops that nobody knows": (
        "g (float[2] x) => (y) { a = Bogus(x)  b = Bogus(a)  y = own.Other(b) }",
        r"2 ops are not supported: Bogus \(.*model.onnx:1, model.onnx:2\); own::Other \(.*:3\)"),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", GRAPHS)
def test_a_hostile_graph_is_refused_with_the_reason(name: str, frontend, tmp_path: Path) -> None:
    text, said = GRAPHS[name]
    path = tmp_path / "m.onnx"
    onnx.save(parsed(text), path)
    error = refusal(path, frontend)
    assert re.search(said, str(error)), str(error)


def test_branches_that_make_less_than_their_node_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        parsed("""
        g (float[2] x) => (y, z) <int64 n = {2}, bool go = {1}> {
            y, z = Loop (n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)
                { d = Identity(c)  t = Neg(s) }> }"""),
        path,
    )
    assert "body of Loop returns 2 tensors, expected 3" in str(refusal(path, "onnx-passes"))


def test_attributes_that_a_function_cannot_take_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        parsed("""
        g (float[2] x) => (y) { y = own.f <alpha = [1.0]> (x) }
        <domain: "own", opset_import: ["" : 18]> f <alpha> (a) => (b) {
            k = Constant <value_float: float = @alpha> ()  b = Add(a, k) }"""),
        path,
    )
    error = refusal(path, "onnx-passes")
    assert "'value_float' of Constant is not of type FLOAT, in a call of own::f" in str(error)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("h = Neg(p) q = Neg(h)", "Neg needs its input 'X', in a call of own::f"),
        (
            (
                "k = Constant <value = bool {1}> () "
                "q = If(k) <then_branch = t () => (a) { a = Neg(p) }, "
                "else_branch = e () => (b) { b = Neg(k) }>"
            ),
            "Neg needs its input 'X', in a call of own::f",
        ),
        ("h = own.same(p) q = Neg(h)", "a result is an omitted input, in a call of own::same"),
    ],
)
def test_a_call_that_leaves_out_what_its_function_needs_is_refused(
    body: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    model = parsed(f"""
        g (bool c) => (y) {{ y = own.f() }}
        <domain: "own", opset_import: ["" : 18, "own" : 1]> f (p) => (q) {{ {body} }}""")
    model.functions.append(
        helper.make_function("own", "same", ["p"], ["p"], [], [helper.make_opsetid("", 18)])
    )
    onnx.save(model, path)
    assert said in str(refusal(path, "onnx-passes"))


def test_a_call_in_a_branch_may_leave_inputs_out(tmp_path: Path) -> None:
    path, made = tmp_path / "m.onnx", tmp_path / "made.onnx"
    onnx.save(
        parsed("""
        g (bool c) => (float[2] y) {
            y = If (c) <then_branch = t () => (float[2] a) { a = own.f() },
                        else_branch = e () => (float[2] b) {
                            b = Constant <value_floats = [1.0, 2.0]> () }> }
        <domain: "own", opset_import: ["" : 18]> f (p) => (q) {
            k = Constant <value_floats = [3.0, 4.0]> ()  q = Clip(k, p) }"""),
        path,
    )
    assert main(["export", str(path), "--frontend", "onnx-passes", "-o", str(made)]) == 0
    (node,) = (n for n in onnx.load(made).graph.node if n.op_type == "If")
    assert node.input == ["c"]


@pytest.mark.parametrize("depth", [200, 3000])
def test_functions_may_be_nested_as_deep_as_python_goes(depth: int, tmp_path: Path) -> None:
    """A chain of calls is read, or refused where the interpreter's stack ends."""
    model = parsed("g (float[2] x) => (y) { y = own.f0(x) }")
    for level in range(depth):
        body = [helper.make_node(f"f{level + 1}", ["a"], ["b"], domain="own")]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        model.functions.append(helper.make_function("own", f"f{level}", ["a"], ["b"], body, opsets))
    last = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(
        helper.make_function("own", f"f{depth}", ["a"], ["b"], last, [helper.make_opsetid("", 18)])
    )
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    if depth < 1000:
        assert [op.kind for op in import_proto(model).module.walk()] == ["core.neg"]
    else:
        assert "nested too deep" in str(refusal(path, None))


# -- sizes that are only declared ------------------------------------------------------------------

#: Each would fold to terabytes; the sizes are the file's own constants.
FOLDED = {
    "ConstantOfShape": "c = ConstantOfShape(wide)",
    "Expand": "c = Expand(one, wide)",
    "Tile": "c = Tile(one, size)",
    "Range": "c = Range(zero, count, step)",
    "OneHot": "c = OneHot(row, count, values)",
    "Pad": "c = Pad(one, pads)",
    "Reshape of an Expand": "e = Expand(one, wide)  f = Reshape(e, flat)  c = Add(f, f)",
    "EyeLike": "e = ConstantOfShape(square)  c = EyeLike(e)",
    "CumSum": "e = Expand(one, wide)  c = CumSum(e, zero)",
    "NonZero": "e = Expand(one, wide)  c = NonZero(e)",
    "TopK": "e = Expand(one, wide)  c, d = TopK(e, size)",
    "Trilu": "e = ConstantOfShape(square)  c = Trilu(e)",
    "Gather": "e = Expand(one, wide)  c = Gather(e, row)",
}


def test_a_tensor_without_elements_may_be_too_wide_to_hold(tmp_path: Path) -> None:
    """NumPy refuses it, empty as it is: it is not folded."""
    path = tmp_path / "m.onnx"
    onnx.save(
        parsed(f"""
        g (float[2] x) => (y) <int64[3] wide = {{0, {HUGE}, {HUGE}}}, int64[1] one = {{1}}> {{
            c = Expand(one, wide)  s = Shape(c)  y = Reshape(x, one) }}"""),
        path,
    )
    assert "Reshape" in str(refusal(path, "onnx-passes"))


@pytest.mark.sampled(3)
@BOTH
@pytest.mark.parametrize("name", FOLDED)
def test_what_would_fold_to_terabytes_takes_no_memory(name: str, frontend, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        parsed(f"""
        g (float[4] x) => (y) <int64[2] wide = {{1000000, 1000000000}},
            int64[1] one = {{1}}, int64[1] size = {{{HUGE}}}, int64 zero = {{0}},
            int64 count = {{{HUGE}}}, int64 step = {{1}}, int64[3] row = {{0, 1, 2}},
            int64[2] values = {{0, 1}}, int64[2] pads = {{0, {HUGE}}}, int64[1] flat = {{-1}},
            int64[2] square = {{30000000, 30000000}}> {{
            {FOLDED[name]}  y = Reshape(x, c) }}"""),
        path,
    )
    error = refusal(path, frontend)
    assert re.search("not supported|invalid inputs", error.what) and "model.onnx:" in error.what


@BOTH
def test_a_declared_input_of_any_size_takes_no_memory(frontend, tmp_path: Path) -> None:
    """ONNX's shape inference would make an object for each of these elements."""
    path = tmp_path / "m.onnx"
    onnx.save(parsed(f"g (int64[{HUGE}] x) => (y) {{ h = Add(x, x)  y = Identity(h) }}"), path)
    assert compiled(path, frontend).module.main.outputs[0].type.shape == (HUGE,)


def test_shape_inference_that_takes_too_much_leaves_types_open() -> None:
    module = read(parsed(f"g (int64[{HUGE}] x) => (y) {{ h = Add(x, x)  y = Identity(h) }}"))
    context = PassContext()
    InferShapes().run(module, context)
    assert [note.severity for note in context.notes] == ["warning"]


def test_shape_inference_goes_on_after_its_process_died() -> None:
    module = read(parsed("g (float[3] x) => (y) { h = Add(x, x)  y = Identity(h) }"))
    for _ in range(2):
        made = InferShapes().run(module, context := PassContext())
        assert context.notes == [] and made.main.body.ops[0].results[0].type == tensor((3,), "f32")
        children = psutil.Process().children()
        ours = [c for c in children if "core_compiler.onnx_level.shape_inference" in c.cmdline()]
        assert len(ours) == 1
        ours[0].kill()
        ours[0].wait()


def test_what_constants_cost_is_bounded(tmp_path: Path) -> None:
    """Products of constants, each of them small, that would take hours."""
    products = "  ".join(f"m{i + 1} = MatMul(m{i}, m0)" for i in range(40))
    path = tmp_path / "m.onnx"
    onnx.save(
        parsed(f"""
        g (float[4] x) => (y) <int64[2] square = {{4000, 4000}}> {{
            m0 = ConstantOfShape(square)  {products}  s = ReduceMax <keepdims = 0> (m40)
            i = Cast <to = 7> (s)  j = Unsqueeze(i, i)  y = Reshape(x, j) }}"""),
        path,
    )
    for frontend in (None, "onnx-passes"):
        with pytest.raises(UserError, match="not supported"):
            compiled(path, frontend)


# -- external data ---------------------------------------------------------------------------------


def _external(folder: Path, location: str, **facts: str) -> Path:
    """A model in ``folder`` whose weight lies at ``location``."""
    model = onnx.ModelProto()
    model.CopyFrom(SOUND)
    held = model.graph.initializer[0]
    held.ClearField("raw_data")
    held.ClearField("float_data")
    held.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "length": "48", **facts}.items():
        held.external_data.add(key=key, value=value)
    (folder / "data.bin").write_bytes(np.arange(12, dtype=np.float32).tobytes())
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


AWAY = {
    "a folder above": ("../secret.bin", {}, "not in the model's folder"),
    "a folder above, by a detour": ("sub/../../secret.bin", {}, "not in the model's folder"),
    "an absolute path": ("/etc/hostname", {}, "not in the model's folder"),
    "a link": ("link.bin", {}, "not in the model's folder"),
    "a link to a folder": ("up/secret.bin", {}, "not in the model's folder"),
    "a loop of links": ("loop.bin", {}, "folder|not found"),
    "no name": ("", {}, "not in the model's folder"),
    "a name with a zero": ("da\0ta.bin", {}, "not in the model's folder"),
    "a folder itself": ("sub", {}, "expected a regular file, got a folder"),
    "a file that is not there": ("none.bin", {}, "file 'none.bin' not found"),
    "an offset beyond the end": ("data.bin", {"offset": "4096"}, "expected 48 bytes"),
    "a negative offset": ("data.bin", {"offset": "-48"}, "expected 48 bytes"),
    "a length that is not the tensor's": ("data.bin", {"length": str(1 << 62)}, "expected 48"),
    "an offset that is no number": ("data.bin", {"offset": "0x10"}, "not a number"),
    "an offset of 5000 digits": ("data.bin", {"offset": "9" * 5000}, "not a number"),
}


@BOTH
@pytest.mark.parametrize("name", AWAY)
def test_external_data_stay_in_the_models_folder(name: str, frontend, tmp_path: Path) -> None:
    location, facts, said = AWAY[name]
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(48))
    os.symlink("../secret.bin", folder / "link.bin")
    os.symlink("..", folder / "up")
    os.symlink("loop.bin", folder / "loop.bin")
    error = refusal(_external(folder, location, **facts), frontend)
    assert re.search(said, str(error)), str(error)


@BOTH
def test_external_data_beside_the_model_are_read(frontend, tmp_path: Path) -> None:
    made = cc.compile(_external(tmp_path, "data.bin"), finish=False, frontend=frontend)
    assert made.module.main.outputs[0].type.shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("x\nraise SystemExit\n#", "# x raise SystemExit #"),
        ("x\r    y = 1", "# x y = 1"),
        ("x\0y", r"# x\x00y"),
        ("x\u2028y = 1", "# x y = 1"),
    ],
)
def test_a_name_is_no_line_of_a_kernel(tmp_path, name, told):
    """Kernels say in comments which nodes they are of: no name of a node ends its comment."""
    node = helper.make_node("Exp", ["x"], ["y"], name=name)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    made = cc.compile(path)
    lines = [line.strip() for k in made.kernels.values() for line in k.source.splitlines()]
    assert {line for line in lines if line.startswith("# x")} == {told}
    np.testing.assert_allclose(made(np.ones(3, np.float32))[0], np.exp(np.ones(3)), rtol=1e-6)
