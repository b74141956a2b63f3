"""How each op of ours becomes nodes of ONNX, a file a family; importing this fills the table."""

from core_compiler.exporters.onnx.ops import (
    arithmetic,
    bits,
    composites,
    contraction,
    control,
    conversion,
    convolution,
    elementwise,
    indexing,
    reduction,
    scan,
    shape,
    sorting,
    windows,
)

__all__ = [
    "arithmetic",
    "bits",
    "composites",
    "contraction",
    "control",
    "conversion",
    "convolution",
    "elementwise",
    "indexing",
    "reduction",
    "scan",
    "shape",
    "sorting",
    "windows",
]
