"""ONNX graphs for branches that ordinary graphs do not reach; the form is that of
``onnx_models``."""

from __future__ import annotations

#: Name -> (inputs, constants, nodes[, opset]).
GRAPHS: dict[str, tuple] = {}
