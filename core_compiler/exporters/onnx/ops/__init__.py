"""The ONNX form of each core op, one file per family; importing this fills the table."""

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
