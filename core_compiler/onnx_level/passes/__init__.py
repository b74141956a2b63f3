"""The passes of level ``onnx``, one file each, and their order."""

from __future__ import annotations

from core_compiler.onnx_level.passes.clean_initializers import CleanInitializers
from core_compiler.onnx_level.passes.convert_version import ConvertVersion
from core_compiler.onnx_level.passes.eliminate_dead_nodes import EliminateDeadNodes
from core_compiler.onnx_level.passes.fold_nodes import FoldNodes
from core_compiler.onnx_level.passes.import_onnx import ImportOnnx
from core_compiler.onnx_level.passes.infer_shapes import InferShapes
from core_compiler.onnx_level.passes.inline_functions import InlineFunctions
from core_compiler.onnx_level.passes.rewrite_nodes import RewriteNodes
from core_compiler.onnx_level.passes.simplify_control_flow import SimplifyControlFlow
from core_compiler.passes.base import Pass


def transformations() -> tuple[Pass, ...]:
    """Return the passes from ONNX to ONNX, in order."""
    return (
        InlineFunctions(),
        InferShapes(),
        FoldNodes(),
        SimplifyControlFlow(),
        ConvertVersion(),
        RewriteNodes(),
        FoldNodes(),
        CleanInitializers(),
        EliminateDeadNodes(),
        InferShapes(),
    )


def pipeline() -> tuple[Pass, ...]:
    """Return the passes that precede the tensor-level passes for a model of level ``onnx``."""
    return (*transformations(), ImportOnnx())
