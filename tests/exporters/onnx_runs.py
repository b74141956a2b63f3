"""Running ONNX models in tests: onnxruntime, and onnx's reference where that has no kernel.

onnxruntime's Python interface takes NumPy's own dtypes, and its CPU kernels know bf16 only to cast
it.  So models are dressed before they run: other dtypes come in and go out through a Cast, and
around every node on bf16 stand casts to f32 and back, which is what onnxruntime does for f16.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, shape_inference
from onnx.reference import ReferenceEvaluator

from core_compiler.exporters.onnx import OPSET, export
from core_compiler.ir import Block, Function, Module, Op, WeightStore, dtype
from core_compiler.ops import evaluate_block

BF16 = TensorProto.BFLOAT16
#: Dtypes that NumPy does not know by itself, and what holds them.
HOLDERS = {
    **{
        TensorProto.DataType.Value(name): TensorProto.FLOAT
        for name in (
            "BFLOAT16",
            "FLOAT8E4M3FN",
            "FLOAT8E4M3FNUZ",
            "FLOAT8E5M2",
            "FLOAT8E5M2FNUZ",
            "FLOAT4E2M1",
        )
    },
    **{
        TensorProto.DataType.Value(name): TensorProto.INT8
        for name in ("INT4", "UINT4", "INT2", "UINT2")
    },
}
#: Largest difference relative to the largest magnitude: two orders of summation, functions of a
#: few units in the last place.
TOLERANCE = {"f64": 1e-12, "f32": 4e-6, "f16": 2e-3, "bf16": 1.6e-2}


def module_of(op: Op, weights: WeightStore | None = None) -> Module:
    """A module whose main is one op."""
    body = Block(tuple(op.operands), (op,), tuple(op.results))
    return Module({"main": Function("main", body)}, weights or WeightStore())


def named(module: Module) -> dict[str, list[str]]:
    """Names for an export of ``module``."""
    main = module.main
    return {
        "inputs": [f"x{i}" for i in range(len(main.arguments))],
        "outputs": [f"y{i}" for i in range(len(main.outputs))],
    }


def exported(module: Module, opset: int = OPSET, **options) -> onnx.ModelProto:
    """The module as a model (guarded, where nothing else is said) that onnx's checker and its shape
    inference accept."""
    model = export(module, **named(module), opset=opset, **{"guards": True, **options})
    onnx.checker.check_model(model, full_check=True)
    return model


def agrees(module: Module, arrays: Sequence[np.ndarray], opset: int = OPSET, **options) -> None:
    """onnxruntime computes from the export what our reference computes from the module."""
    with np.errstate(all="ignore"):
        wanted = evaluate_block(module.main.body, list(arrays), module.weights)
    alike(in_runtime(exported(module, opset, **options), arrays), wanted)


def alike(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], slack: float = 1.0) -> None:
    """Equal dtypes and shapes; integers, booleans and floats of 8 bits equal, others within
    ``slack`` times :data:`TOLERANCE`, infinities and NaN in the same places."""
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        kind = dtype(want.dtype)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if not kind.is_float:
            np.testing.assert_array_equal(got, want)
            continue
        got, want = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        bound = slack * TOLERANCE.get(kind.name, 0.0) * np.abs(want[finite]).max(initial=0)
        assert np.abs(got[finite] - want[finite]).max(initial=0) <= bound


# -- running ---------------------------------------------------------------------------------------


def in_runtime(model: onnx.ModelProto, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of onnxruntime on this processor; its exception where a kernel is missing."""
    wanted = [_numpy(o.type.tensor_type.elem_type) for o in model.graph.output]
    dressed = _dressed(model)
    feeds = {}
    for info, array in zip(dressed.graph.input, arrays, strict=True):
        feeds[info.name] = np.asarray(array).astype(_numpy(info.type.tensor_type.elem_type))
    with np.errstate(all="ignore"):
        made = _session(dressed).run(None, feeds)
        return [np.asarray(a).astype(w) for a, w in zip(made, wanted, strict=True)]


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if any(i.type.tensor_type.elem_type == TensorProto.DOUBLE for i in model.graph.input):
        # Its optimiser makes a product with a factor one whose factor is an attribute: an f32.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def in_reference(model: onnx.ModelProto, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of onnx's own reference, in NumPy."""
    given = {i.name: a for i, a in zip(model.graph.input, arrays, strict=True)}
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, given)]


def _numpy(kind: int) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


# -- dressing --------------------------------------------------------------------------------------


def _dressed(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    types = {
        v.name: v.type.tensor_type.elem_type
        for v in (
            *shape_inference.infer_shapes(model).graph.value_info,
            *graph.input,
            *graph.output,
        )
    }
    types |= {t.name: t.data_type for t in graph.initializer}
    first = [_cast(*ends) for info in graph.input for ends in _held(info)]
    last = [
        _cast(inner, outer, HOLDERS[kind])
        for info in graph.output
        for outer, inner, kind in _held(info)
    ]
    body = [part for node in graph.node for part in _around(node, types)]
    del graph.node[:]
    graph.node.extend([*first, *body, *last])
    del graph.value_info[:]
    return made


def _held(info) -> list[tuple[str, str, int]]:
    """(outer name, inner name, dtype) of an input or output that is held by another dtype now."""
    kind, inner = info.type.tensor_type.elem_type, info.name
    if kind not in HOLDERS:
        return []
    info.name = f"{inner}.held"
    info.type.tensor_type.elem_type = HOLDERS[kind]
    return [(info.name, inner, kind)]


def _cast(source: str, target: str, kind: int) -> onnx.NodeProto:
    keeps = {"saturate": 0} if TensorProto.DataType.Name(kind).startswith("FLOAT8") else {}
    return helper.make_node("Cast", [source], [target], to=kind, **keeps)


def _around(node: onnx.NodeProto, types: dict[str, int]) -> list[onnx.NodeProto]:
    """The node, in f32 where it is one of bf16."""
    if node.op_type in ("Cast", "BitCast"):
        return [node]
    before, after = [], []
    for place, name in enumerate(node.input):
        if types.get(name) == BF16:
            node.input[place] = f"{name}.f32.{node.name}.{place}"
            before.append(_cast(name, node.input[place], TensorProto.FLOAT))
    for place, name in enumerate(node.output):
        if types.get(name) == BF16:
            node.output[place] = f"{name}.f32"
            after.append(_cast(node.output[place], name, BF16))
    return [*before, node, *after]
