"""Execution of single ONNX nodes by onnxruntime, in their own dtypes and in f64."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from core_compiler.support.arrays import widened

#: Floats that NumPy does not have, by onnxruntime's names.
_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}
#: Kinds of attributes that hold graphs.
_GRAPH, _GRAPHS = 5, 10
#: Random ops, and ops that depend on the bits of one dtype.
_RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
        "BitCast",
    }
)


class NodeEvaluator:
    """An evaluator of single nodes.

    ``known`` are the graph's tensors by name; ``rejected`` are those that ``tell`` did not accept.
    """

    def __init__(self, model: Any, folder: Any, known: Mapping[str, Any]):
        self.model, self.folder, self.known = model, folder, known
        self.rejected: set[str] = set()
        self._producers = {name: node for node in model.graph.node for name in node.output if name}
        self._stored = {t.name: t for t in model.graph.initializer}
        self._last: tuple[Any, dict[str, np.ndarray]] = (None, {})

    def in_f64(self, name: str) -> list[np.ndarray | None] | None:
        """Return the tensor ``name``, of the node that makes it in f64; None if it cannot."""
        node = self._producers.get(name)
        if node is None or self.rejected & set(node.input):
            return None
        if self._last[0] is not node:
            self._last = node, self.made(node, wide=True)
        made = self._last[1]
        return [made.get(name)] if made else None

    def made(self, node: Any, wide: bool = False) -> dict[str, np.ndarray]:
        """Return a node's tensors by name, in its own dtypes or in f64; {} if it cannot run."""
        kinds = {a.type for a in node.attribute}
        if node.op_type in _RANDOM or kinds & {_GRAPH, _GRAPHS}:
            return {}
        try:
            operands = {n: self._operand(n) for n in node.input if n}
            if wide:
                operands = {n: widened(a) for n, a in operands.items()}
                node = _with_f64_attributes(node)
        except Exception:  # any exception: sparse tensors, sequences, external data
            return {}
        try:
            made = self._execute(node, operands)
        except Exception:  # any exception of an op that does not support the dtype or the operands
            return {}
        return {
            n: a
            for n, a in made.items()
            if a is not None and (not wide or a.dtype == np.float64 or a.dtype.kind in "biu")
        }

    def _operand(self, name: str) -> np.ndarray:
        if name in self.known:
            if self.known[name] is None:
                raise KeyError(name)
            return np.asarray(self.known[name])
        from core_compiler.frontends.onnx.reading import to_array

        if name in self._stored:
            return to_array(self._stored[name], self.folder)
        raise KeyError(name)

    def _execute(
        self, node: Any, operands: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray | None]:
        """Execute a model of one node; integers are stored in it, for ops that read sizes."""
        import onnx
        import onnxruntime
        from onnx import helper, numpy_helper

        given = {n: a for n, a in operands.items() if a.dtype.kind not in "biu"}
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ]
        held = [numpy_helper.from_array(a, n) for n, a in operands.items() if n not in given]
        names = [n for n in node.output if n]
        results = [onnx.ValueInfoProto(name=n) for n in names]
        graph = helper.make_graph([node], "alone", infos, results, held)
        model = helper.make_model(
            graph,
            opset_imports=self.model.opset_import,
            functions=self.model.functions,
            ir_version=self.model.ir_version,
        )
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        made = session.run_with_ort_values(names, {n: as_value(a) for n, a in given.items()})
        kinds = {o.name: o.type for o in session.get_outputs()}
        return {n: as_array(v, kinds[n]) for n, v in zip(names, made, strict=True)}


def as_value(array: np.ndarray) -> Any:
    """Return an array as onnxruntime's value; floats that NumPy lacks are passed as bits."""
    from onnx import helper
    from onnxruntime import OrtValue

    if array.dtype.name not in _ML_DTYPES.values():
        return OrtValue.ortvalue_from_numpy(array)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)


def as_array(value: Any, kind: str) -> np.ndarray | None:
    """Return a tensor of onnxruntime's type ``kind``; None for a sequence or strings."""
    name = _ML_DTYPES.get(kind.removeprefix("tensor(").removesuffix(")"))
    if name is None:
        try:
            return value.numpy()
        except RuntimeError:
            return None
    import ml_dtypes

    dtype, shape = np.dtype(getattr(ml_dtypes, name)), value.shape()
    memory = (ctypes.c_char * (prod(shape) * dtype.itemsize)).from_address(value.data_ptr())
    return np.frombuffer(bytes(memory), dtype).reshape(shape)


#: Attributes that name the dtype of results, or of an op's internal computation.
_DTYPES = ("to", "dtype", "output_datatype", "stash_type", "softmax_precision")
#: Ops that compute in f32 internally unless an attribute specifies otherwise.
_STASH_TYPE_OPS = ("GroupNormalization", "LayerNormalization", "RMSNormalization")


def _with_f64_attributes(node: Any) -> Any:
    """Return a node whose attributes ask for f64 instead of another float, also by default."""
    import onnx
    from onnx import helper, numpy_helper

    floats = {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    }
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for held in wide.attribute:
        if held.name in _DTYPES and held.i in floats:
            held.i = onnx.TensorProto.DOUBLE
        if held.type == onnx.AttributeProto.TENSOR and held.t.data_type in floats:
            exact = numpy_helper.to_array(held.t).astype(np.float64)
            held.t.CopyFrom(numpy_helper.from_array(exact, held.t.name))
    if node.op_type in _STASH_TYPE_OPS and all(a.name != "stash_type" for a in wide.attribute):
        wide.attribute.append(helper.make_attribute("stash_type", onnx.TensorProto.DOUBLE))
    return wide
