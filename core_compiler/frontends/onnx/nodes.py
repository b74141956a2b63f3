"""Execution of an ONNX model by onnxruntime, which reports every tensor of its graph."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.onnx.reading import read_model
from core_compiler.ir.framework import TellNode
from core_compiler.support.arrays import widened

#: The session option with the folder of external data for a model passed as bytes.
_FOLDER = "session.model_external_initializers_file_folder_path"

#: Ops whose f64 kernels in onnxruntime have an f32 scale.
_SCALED_IN_F32 = frozenset({"Attention", "DFT"})
#: Floats that NumPy does not have, by onnxruntime's names.
_OTHERS = {
    "bfloat16": "bfloat16", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
#: Kinds of attributes that hold graphs.
_GRAPH, _GRAPHS = 5, 10
#: Random ops, and ops that depend on the bits of one dtype.
_RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
    "Multinomial", "BitCast",
})  # fmt: skip


def in_f32(model: Any) -> dict[str, float]:
    """Return the tensors produced by such kernels, with the relative error of their constants."""
    nodes = (node for node in model.graph.node if node.op_type in _SCALED_IN_F32)
    return {name: 2.0**-24 for node in nodes for name in node.output}


def run_file(
    path: Path, names: Sequence[str], inputs: Sequence[np.ndarray], tell: TellNode
) -> dict[int, np.ndarray]:
    """Run the model in a file; see :func:`run_nodes`."""
    return run_nodes(read_model(path), path.parent, names, inputs, tell)


def run_nodes(
    model: Any, folder: Any, names: Sequence[str], inputs: Sequence[np.ndarray], tell: TellNode
) -> dict[int, np.ndarray]:
    """Run a ``ModelProto`` without optimisation on arrays for its inputs, in their order.

    ``tell`` receives the tensors ``names``, which nodes of its graph produce.  ``folder`` is the
    location of its external data.  Return the model's results by position, up to the first that is
    not a tensor.
    """
    import onnx
    import onnxruntime

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    outputs = [o.name for o in whole.graph.output]
    there = set(outputs)
    whole.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in there)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    if isinstance(folder, Path):
        options.add_session_config_entry(_FOLDER, str(folder.absolute()))
    session = onnxruntime.InferenceSession(
        whole.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = zip((i.name for i in session.get_inputs()), inputs, strict=True)
    fed = dict(given)
    as_values = {n: _value(np.asarray(a)) for n, a in fed.items()}
    kinds = {o.name: o.type for o in session.get_outputs()}
    asked = [*names, *(n for n in outputs if n not in set(names))]
    results = session.run_with_ort_values(asked, as_values)
    found = {n: _array(value, kinds[n]) for n, value in zip(asked, results, strict=True)}
    made = {n: found[n] for n in names}
    wide = _InF64(model, folder, {**fed, **made})
    for name, array in made.items():
        if not any(tell(name, [array], partial(wide, name))):
            wide.untold.add(name)
    tensors = takewhile(lambda n: kinds[n].startswith("tensor"), outputs)
    arrays = ((place, found[n]) for place, n in enumerate(tensors))
    return {place: array for place, array in arrays if array is not None}


def _value(array: np.ndarray) -> Any:
    """Return an array as onnxruntime's value; floats that NumPy lacks are passed as bits."""
    from onnx import helper
    from onnxruntime import OrtValue

    if array.dtype.name not in _OTHERS.values():
        return OrtValue.ortvalue_from_numpy(array)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)


def _array(value: Any, kind: str) -> np.ndarray | None:
    """Return a tensor of onnxruntime's type ``kind``; None for a sequence or strings."""
    name = _OTHERS.get(kind.removeprefix("tensor(").removesuffix(")"))
    if name is None:
        try:
            return value.numpy()
        except RuntimeError:
            return None
    import ml_dtypes

    dtype, shape = np.dtype(getattr(ml_dtypes, name)), value.shape()
    memory = (ctypes.c_char * (prod(shape) * dtype.itemsize)).from_address(value.data_ptr())
    return np.frombuffer(bytes(memory), dtype).reshape(shape)


class _InF64:
    """An evaluator of single nodes in f64.

    ``known`` are the graph's tensors by name; ``untold`` are those that ``tell`` did not accept.
    """

    def __init__(self, model: Any, folder: Any, known: Mapping[str, Any]):
        self.model, self.folder, self.known = model, folder, known
        self.untold: set[str] = set()
        self._makers = {name: node for node in model.graph.node for name in node.output if name}
        self._stored = {t.name: t for t in model.graph.initializer}
        self._last: tuple[Any, dict[str, np.ndarray] | None] = (None, None)

    def __call__(self, name: str) -> list[np.ndarray | None] | None:
        node = self._makers.get(name)
        if node is None or self.untold & set(node.input):
            return None
        if self._last[0] is not node:
            self._last = node, self._made(node)
        made = self._last[1]
        return None if made is None else [made.get(name)]

    def _made(self, node: Any) -> dict[str, np.ndarray] | None:
        kinds = {a.type for a in node.attribute}
        if node.op_type in _RANDOM or kinds & {_GRAPH, _GRAPHS}:
            return None
        try:
            operands = {n: widened(self._operand(n)) for n in node.input if n}
            asked = _asked_in_f64(node)
        except Exception:  # any exception: sparse tensors, sequences, external data
            return None
        try:
            return self._executed(asked, operands)
        except Exception:  # any exception of an op that does not support the dtype
            return None

    def _operand(self, name: str) -> np.ndarray:
        if name in self.known:
            if self.known[name] is None:
                raise KeyError(name)
            return np.asarray(self.known[name])
        from core_compiler.frontends.onnx.reading import to_array

        if name in self._stored:
            return to_array(self._stored[name], self.folder)
        raise KeyError(name)

    def _alone(self, node: Any, operands: Mapping[str, np.ndarray]) -> tuple[Any, list[str]]:
        """Return a model of one node; integers are stored in it, for ops that read sizes."""
        import onnx
        from onnx import helper, numpy_helper

        floats = [n for n, a in operands.items() if a.dtype == np.float64]
        infos = [
            helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, operands[n].shape)
            for n in floats
        ]
        held = [
            numpy_helper.from_array(np.asarray(a), n) for n, a in operands.items()
            if n not in floats
        ]  # fmt: skip
        results = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = helper.make_graph([node], "alone", infos, results, held)
        made = helper.make_model(
            graph, opset_imports=self.model.opset_import, functions=self.model.functions,
            ir_version=self.model.ir_version,
        )  # fmt: skip
        return made, floats

    def _executed(self, node: Any, operands: Mapping[str, np.ndarray]) -> dict[str, Any]:
        import onnxruntime

        made, floats = self._alone(node, operands)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            made.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [n for n in node.output if n]
        results = session.run(names, {n: operands[n] for n in floats})
        return {
            n: r for n, r in zip(names, results, strict=True)
            if isinstance(r, np.ndarray) and (r.dtype == np.float64 or r.dtype.kind in "biu")
        }  # fmt: skip


#: Attributes that name the dtype of results, or of an op's internal computation.
_DTYPES = ("to", "dtype", "output_datatype", "stash_type", "softmax_precision")
#: Ops that compute in f32 internally unless an attribute specifies otherwise.
_STASHED = ("GroupNormalization", "LayerNormalization", "RMSNormalization")


def _asked_in_f64(node: Any) -> Any:
    """Return a node whose attributes ask for f64 instead of another float, also by default."""
    import onnx
    from onnx import helper, numpy_helper

    floats = {
        onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16,
    }  # fmt: skip
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for held in wide.attribute:
        if held.name in _DTYPES and held.i in floats:
            held.i = onnx.TensorProto.DOUBLE
        if held.type == onnx.AttributeProto.TENSOR and held.t.data_type in floats:
            exact = numpy_helper.to_array(held.t).astype(np.float64)
            held.t.CopyFrom(numpy_helper.from_array(exact, held.t.name))
    if node.op_type in _STASHED and all(a.name != "stash_type" for a in wide.attribute):
        wide.attribute.append(helper.make_attribute("stash_type", onnx.TensorProto.DOUBLE))
    return wide
