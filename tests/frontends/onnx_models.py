"""Small ONNX models for tests, and onnxruntime as their oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from core_compiler.debug.evaluate import Evaluator
from core_compiler.frontends.onnx import import_proto

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741


def model_of(nodes, inputs, outputs, initializers=(), opset=18, **facts) -> onnx.ModelProto:
    """A model of ``nodes``; inputs and outputs are (name, element type, shape)."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        list(initializers),
    )
    opsets = [helper.make_opsetid("", opset), *facts.pop("opsets", ())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **facts)


def one_node(
    kind: str,
    arrays: dict[str, np.ndarray | None],
    outputs: str,
    opset: int = 18,
    domain: str = "",
    types: Mapping[str, int] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node with ``arrays`` as inputs (None: left out) and named outputs, of
    ``types`` if they are not f32."""
    given = {n: a for n, a in arrays.items() if a is not None}
    names = [n if a is not None else "" for n, a in arrays.items()]
    node = helper.make_node(kind, names, outputs.split(), domain=domain, **attributes)
    infos = [(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()]
    more = [helper.make_opsetid(domain, 1)] if domain else []
    made = [(n, (types or {}).get(n, F), None) for n in outputs.split()]
    return model_of([node], infos, made, opset=opset, opsets=more)


def execute(imported, arrays: Iterable[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Our reference evaluation."""
    module = imported.module
    return Evaluator(module.weights).block(module.main.body, list(arrays))


def ours(proto: onnx.ModelProto, arrays: dict[str, np.ndarray | None]) -> tuple[np.ndarray, ...]:
    """What a model means to us."""
    given = {n: a for n, a in arrays.items() if a is not None}
    imported = import_proto(proto, inputs=given)
    return execute(imported, [given[n] for n in imported.inputs])


def onnxruntimes(proto: onnx.ModelProto, arrays: dict[str, np.ndarray | None]) -> list[np.ndarray]:
    """What onnxruntime computes."""
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {n: a for n, a in arrays.items() if a is not None})


def agrees(proto: onnx.ModelProto, arrays: dict[str, np.ndarray | None], rtol=1e-5, atol=1e-6):
    """Both give the same numbers."""
    for mine, theirs in zip(ours(proto, arrays), onnxruntimes(proto, arrays), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)
