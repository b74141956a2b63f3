"""Export to linalg on tensors, with arith, math, tensor and scf.

Named ops are used if they mean the same as the core op (products, convolutions, pooling,
transposes, broadcasts, fills, reductions, softmax), else generic ops with bodies of arith and
math.  Cases that are undefined in MLIR but defined here are guarded.
"""

from core_compiler.exporters.compositions import ordering
from core_compiler.exporters.compositions import windows as taps
from core_compiler.exporters.mlir.linalg import (
    contraction,
    control,
    elementwise,
    indexing,
    normalization,
    reduction,
    shape,
    windows,
)
from core_compiler.exporters.mlir.linalg.context import Linalg

__all__ = [
    "Linalg",
    "contraction",
    "control",
    "elementwise",
    "indexing",
    "normalization",
    "reduction",
    "shape",
    "windows",
]

Linalg.COMPOSED.update(
    {
        **{f"core.{name}": ordering.scan for name in ("cumsum", "cumprod", "cummax", "cummin")},
        "core.sort": ordering.sort,
        "core.argsort": ordering.argsort,
        "core.topk": ordering.topk,
        "core.conv_transpose": taps.conv_transpose,
    }
)
