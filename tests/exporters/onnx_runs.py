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

from core_compiler.ir import Block, Function, Module, Op, Value, WeightStore, dtype

BF16 = TensorProto.BFLOAT16
#: What NumPy does not know by itself, and what holds it.
FLOATS = {TensorProto.DataType.Value(n) for n in ("BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ",
          "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1")}  # fmt: skip
INTEGERS = {TensorProto.DataType.Value(n) for n in ("INT4", "UINT4", "INT2", "UINT2")}
HOLDERS = {
    **dict.fromkeys(FLOATS, TensorProto.FLOAT), **dict.fromkeys(INTEGERS, TensorProto.INT8)
}  # fmt: skip


def module_of(op: Op, weights: WeightStore | None = None) -> Module:
    """A module whose main is one op."""
    body = Block(tuple(op.operands), (op,), tuple(op.results))
    return Module({"main": Function("main", body)}, weights or WeightStore())


def names(prefix: str, values: Sequence[Value]) -> list[str]:
    return [f"{prefix}{i}" for i in range(len(values))]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def in_runtime(model: onnx.ModelProto, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of onnxruntime on this processor; its exception where a kernel is missing."""
    wanted = [_numpy(o.type.tensor_type.elem_type) for o in model.graph.output]
    dressed = _dressed(model)
    feeds = {}
    for info, array in zip(dressed.graph.input, arrays, strict=True):
        feeds[info.name] = np.asarray(array).astype(_numpy(info.type.tensor_type.elem_type))
    made = session(dressed).run(None, feeds)
    return [np.asarray(a).astype(w) for a, w in zip(made, wanted, strict=True)]


def in_reference(model: onnx.ModelProto, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of onnx's own reference, in NumPy."""
    given = {i.name: a for i, a in zip(model.graph.input, arrays, strict=True)}
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, given)]


def _numpy(kind: int) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


def _dressed(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    types = {v.name: v.type.tensor_type.elem_type
             for v in (*shape_inference.infer_shapes(model).graph.value_info,
                       *graph.input, *graph.output)}  # fmt: skip
    types |= {t.name: t.data_type for t in graph.initializer}
    first, last = [], []
    for info in graph.input:
        _hold(info, lambda outer, inner, kind: first.append(_cast(outer, inner, kind)))
    for info in graph.output:
        _hold(info, lambda outer, inner, kind: last.append(
            _cast(inner, outer, HOLDERS[kind])))  # fmt: skip
    body = [part for node in graph.node for part in _around(node, types)]
    del graph.node[:]
    graph.node.extend([*first, *body, *last])
    del graph.value_info[:]
    return made


def _hold(info, link) -> None:
    """Let an input or output of the graph be of the dtype that holds its own."""
    kind = info.type.tensor_type.elem_type
    if kind in HOLDERS:
        inner = info.name
        info.name = f"{inner}.held"
        info.type.tensor_type.elem_type = HOLDERS[kind]
        link(info.name, inner, kind)


def _cast(source: str, target: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=kind)


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


__all__ = ["dtype", "in_reference", "in_runtime", "module_of", "names", "session"]
