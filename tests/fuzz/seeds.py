"""The undamaged files that inputs are made from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

#: The file that external data of the seeds lie in (:func:`tests.fuzz.cases.folder`).
DATA_FILE = "weights.bin"


@dataclass(frozen=True)
class Seed:
    """One file: its bytes, its ``form`` (onnx, text, bytecode, artifact) and inputs in order (None:
    imported without)."""

    name: str
    form: str
    data: bytes
    inputs: tuple[Any, ...] | None = None


def seeds(frontend: str, few: bool = False) -> list[Seed]:
    """The seeds of a frontend; ``few``: those that are made within a second or two."""
    if frontend == "stablehlo":
        return list(_programs(few))
    return [*_written_by_hand(), *_suite(few)]


# -- ONNX ------------------------------------------------------------------------------------------


def _suite(few: bool) -> Iterator[Seed]:
    """The models of the ONNX backend suite, and its light models without most of their nodes."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    from tests.conformance.onnx_nodes import data

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = ("simple", "pytorch-converted", "pytorch-operator", *(() if few else ("node",)))
        for test in (test for kind in kinds for test in load_model_tests(kind=kind)):
            model, sets = data(test)
            inputs = tuple(sets[0][0]) if sets else None
            yield Seed(test.name, "onnx", model.SerializeToString(), inputs)
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    for path in sorted(light.glob("*.onnx"))[: 2 if few else None]:
        yield Seed(path.stem, "onnx", _shrunk(onnx.load(path)).SerializeToString())


def _shrunk(model: Any, nodes: int = 24) -> Any:
    """The first nodes of a whole model."""
    del model.graph.node[nodes:]
    del model.graph.output[1:]
    model.graph.output[0].name = model.graph.node[-1].output[0]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    read = {name for node in model.graph.node for name in node.input}
    for field in (model.graph.initializer, model.graph.input):
        for held in [h for h in field if h.name not in read]:
            field.remove(held)
    return model


#: Models in ONNX's own text: what the suite has little of.
BY_HAND = {
    "branches": """
        <ir_version: 10, opset_import: ["" : 18]>
        g (bool yes, float[2,3] x) => (float[2,3] y) {
            h = Relu(x)
            y = If (yes) <
                then_branch = a () => (float[2,3] t) { u = Neg(h)  t = Add(u, x) },
                else_branch = b () => (float[2,3] e) { e = If (yes) <
                    then_branch = c () => (float[2,3] f) { f = Mul(h, h) },
                    else_branch = d () => (float[2,3] f) { f = Identity(x) }> }>
        }""",
    "loop": """
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[3] x) => (float[3] last, float[N, 3] rows)
        <int64 n = {4}, bool go = {1}, float[3] one = {1, 1, 1}> {
            last, rows = Loop (n, go, x) <body = b (int64 i, bool c, float[3] s)
                => (bool d, float[3] t, float[3] r) {
                    d = Identity(c)  t = Add(s, one)  r = Mul(t, s) }>
        }""",
    "scan": """
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[2] s, float[5,2] x) => (float[2] last, float[5,2] rows) {
            last, rows = Scan <num_scan_inputs = 1, body = b (float[2] a, float[2] e)
                => (float[2] c, float[2] d) { c = Add(a, e)  d = Identity(c) }> (s, x)
        }""",
    "functions": """
        <ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        g (float[2,4] x) => (float[2,4] y) {
            h = own.twice <alpha = 0.5> (x)
            y = own.scaled <alpha = 2.0> (h)
        }
        <domain: "own", opset_import: ["" : 18, "own" : 1]>
        twice <alpha> (a) => (c) { b = own.scaled <alpha: float = @alpha> (a)
            c = own.scaled <alpha = 3.0> (b) }
        <domain: "own", opset_import: ["" : 18]>
        scaled <alpha> (a) => (c) { k = Constant <value_float: float = @alpha> ()
            kk = CastLike(k, a)  c = Mul(a, kk) }""",
    "sequences": """
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[2,3] x, float[2,3] y) => (float[4,3] z, int64 n) <int64 one = {1}> {
            s = SequenceConstruct(x, y)  e = SequenceAt(s, one)  t = SequenceInsert(s, e)
            u = SequenceErase(t, one)  n = SequenceLength(u)
            z = ConcatFromSequence <axis = 0> (u)
        }""",
    "shapes": """
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[N, 3, 4] x) => (y, z, t, o)
        <int64[1] zero = {0}, int64[1] minus = {-1}, int64 count = {7}, int64 start = {0},
         int64 step = {2}, int64[3] wide = {2, 1, 1}, int64[3] times = {1, 2, 3},
         int64 depth = {5}, float[2] values = {0, 1}> {
            s = Shape(x)  b = Gather(s, zero)  f = Concat <axis = 0> (b, minus)
            y = Reshape(x, f)
            c = ConstantOfShape <value = float[1] {2}> (s)  z = Add(c, x)
            r = Range(start, count, step)
            e = Expand(x, wide)  t = Tile(e, times)
            o = OneHot(r, depth, values)
        }""",
    "quantised": """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[1,2,6,6] x) => (y)
        <float s = {0.1}, uint8 zero = {128}, int8[3,2,3,3] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,
         9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9},
         float[3] ws = {0.1, 0.2, 0.3}, int8[3] wz = {0, 0, 0}, float t = {0.5}> {
            q = QuantizeLinear(x, s, zero)
            c = QLinearConv <pads = [1, 1, 1, 1], strides = [2, 2]> (q, s, zero, w, ws, wz, t, zero)
            d = DequantizeLinear(c, t, zero)
            v, vs, vz = DynamicQuantizeLinear(d)
            i = MatMulInteger(v, v)  y = Cast <to = 1> (i)
        }""",
    "foreign ops": """
        <ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float[1,4,8] x) => (y) <float[8] one = {1,1,1,1,1,1,1,1}> {
            h = com.microsoft.Gelu(x)  s = com.microsoft.SkipLayerNormalization(h, x, one, one)
            y = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (s, x)
        }""",
    "recurrent": """
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[5,1,2] x, float[1,8,2] w, float[1,8,2] r) => (y, h, c) {
            y, h, c = LSTM <hidden_size = 2> (x, w, r)
        }""",
    "expressions": """
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b) => (y, z) <int64[1] last = {-1},
         int64[4] pads2 = {0, 1, 0, 1}, int64[2] ax = {2, 3}, float[4] sc = {1, 1, 2, 2}> {
            h = Conv <pads = [1, 1, 1, 1]> (x, w, b)  p = MaxPool <kernel_shape = [2, 2]> (h)
            u = Resize <mode = "linear"> (p, , sc)  e = Einsum <equation = "nchw,ndhw->ncd"> (h, u)
            k, i = TopK(e, last)  m = Pad <mode = "reflect"> (p, pads2, , ax)
            y = ReduceMean(m, ax)  z = LayerNormalization(e, e)
        }""",
}


def _written_by_hand() -> Iterator[Seed]:
    import onnx

    for name, text in BY_HAND.items():
        yield Seed(name, "onnx", onnx.parser.parse_model(text).SerializeToString())
    yield Seed("external data", "onnx", _with_external_data().SerializeToString())
    yield Seed(
        "open sequence",
        "onnx",
        _of_a_sequence().SerializeToString(),
        ([np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)],),
    )


def _with_external_data() -> Any:
    import onnx

    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[2,3] x) => (float[2,4] y) <float[3,4] w = {0,1,2,3,4,5,6,7,8,9,10,11}> {
            y = MatMul(x, w) }""")
    held = model.graph.initializer[0]
    for field in ("raw_data", "float_data"):
        held.ClearField(field)
    held.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", DATA_FILE), ("offset", "0"), ("length", "48")):
        held.external_data.add(key=key, value=value)
    return model


def _of_a_sequence() -> Any:
    from onnx import TensorProto, helper

    one = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 2])
    given = helper.make_value_info("s", helper.make_sequence_type_proto(one))
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1)
    graph = helper.make_graph([node], "g", [given], [made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


# -- StableHLO -------------------------------------------------------------------------------------

#: Of the programs that are lowered, what every tenth-of-a-second run begins with.
_FEW = ("softmax", "convolution", "gather", "while", "sort by two keys", "special")


def _programs(few: bool) -> Iterator[Seed]:
    """Small JAX programs of many kinds, each as text (with and without places), bytecode and a
    portable artifact."""
    import jax
    from jax import export

    from tests.frontends.test_stablehlo import PROGRAMS

    for name, (function, arguments) in PROGRAMS.items():
        if few and name not in _FEW:
            continue
        lowered = (
            jax.jit(function, keep_unused=True).trace(*arguments).lower(lowering_platforms=("cpu",))
        )
        module = lowered.compiler_ir("stablehlo")
        inputs = tuple(np.asarray(a) for a in arguments)
        yield Seed(f"{name} (text)", "text", str(module).encode(), inputs)
        placed = module.operation.get_asm(enable_debug_info=True)
        yield Seed(f"{name} (text with places)", "text", placed.encode())
        generic = module.operation.get_asm(print_generic_op_form=True)
        yield Seed(f"{name} (generic text)", "text", generic.encode())
        held = BytesIO()
        module.operation.write_bytecode(held)
        yield Seed(f"{name} (bytecode)", "bytecode", held.getvalue(), inputs)
        artifact = export.export(jax.jit(function), platforms=["cpu"])(*arguments)
        yield Seed(f"{name} (artifact)", "artifact", artifact.mlir_module_serialized, inputs)
    sizes = export.symbolic_shape("n, m")
    wanted = jax.ShapeDtypeStruct(sizes, np.float32)
    opened = export.export(jax.jit(lambda x: x @ x.T + x.sum()), platforms=["cpu"])(wanted)
    yield Seed("open sizes (artifact)", "artifact", opened.mlir_module_serialized)
    yield Seed("open sizes (text)", "text", str(opened.mlir_module()).encode())
