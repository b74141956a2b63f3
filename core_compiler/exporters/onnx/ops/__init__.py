"""The ONNX form of each core op, one file per family; importing this fills the table."""

from core_compiler.exporters.compositions import functions
from core_compiler.exporters.compositions import windows as taps
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
    quantised,
    reduction,
    scan,
    shape,
    sorting,
    windows,
)

__all__ = [
    "COMPOSED",
    "arithmetic",
    "bits",
    "composites",
    "contraction",
    "control",
    "conversion",
    "convolution",
    "elementwise",
    "indexing",
    "quantised",
    "reduction",
    "scan",
    "shape",
    "sorting",
    "windows",
]

#: Core ops that ONNX does not have, or not in every form.
COMPOSED = {
    **{
        f"core.{name}": getattr(functions, name)
        for name in (
            "atan2", "cbrt", "erfc", "exp2", "expm1", "is_finite", "log1p", "mod", "ne", "rsqrt",
            "trunc",
        )
    },
    "core.log2": functions.logarithm(2),
    "core.log10": functions.logarithm(10),
    "core.max_pool": taps.pool_by_taps,
    "core.avg_pool": taps.pool_by_taps,
}  # fmt: skip
