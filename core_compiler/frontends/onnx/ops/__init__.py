"""How each ONNX op becomes tensor IR, a file a family; importing this fills the table."""

from core_compiler.frontends.onnx.ops import (
    attention,
    control,
    elementwise,
    network,
    quantised,
    reduction,
    resize,
    sequence,
    shape,
)

__all__ = [
    "attention",
    "control",
    "elementwise",
    "network",
    "quantised",
    "reduction",
    "resize",
    "sequence",
    "shape",
]
