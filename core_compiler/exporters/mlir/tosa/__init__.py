"""Export to TOSA: the ops of the specification, and compositions of them.

https://www.mlplatform.org/tosa/tosa_spec.html.  Types are those of version 1.0 and its extensions
for bf16 and 8-bit floats, and of the draft of 1.1 for 64-bit integers.
"""

from core_compiler.exporters.compositions import (
    boxes,
    functions,
    ordering,
    random,
)
from core_compiler.exporters.compositions import contraction as products
from core_compiler.exporters.compositions import windows as taps
from core_compiler.exporters.mlir.tosa import (
    contraction,
    control,
    elementwise,
    indexing,
    quantised,
    reduction,
    shape,
    windows,
)
from core_compiler.exporters.mlir.tosa.context import IntegerTosa, Tosa

__all__ = [
    "IntegerTosa",
    "Tosa",
    "contraction",
    "control",
    "elementwise",
    "indexing",
    "quantised",
    "reduction",
    "shape",
    "windows",
]

_FUNCTIONS = (
    "sign", "exp2", "expm1", "log1p", "cbrt", "tan", "sinh", "cosh", "asinh", "acosh", "atanh",
    "asin", "acos", "atan", "atan2", "erfc", "rem", "mod",
)  # fmt: skip

Tosa.COMPOSED.update(
    {
        **{f"core.{name}": getattr(functions, name) for name in _FUNCTIONS},
        "core.log2": functions.logarithm(2),
        "core.log10": functions.logarithm(10),
        **{f"core.{name}": ordering.scan for name in ("cumsum", "cumprod", "cummax", "cummin")},
        "core.sort": ordering.sort,
        "core.argsort": ordering.argsort,
        "core.topk": ordering.topk,
        "core.contract": products.contract,
        "core.matmul": products.integer_matmul,
        "core.conv": taps.conv_by_taps,
        "core.conv_transpose": taps.conv_transpose,
        "core.max_pool": taps.pool_by_taps,
        "core.avg_pool": taps.pool_by_taps,
        "core.dynamic_slice": boxes.dynamic_slice,
        "core.dynamic_update_slice": boxes.dynamic_update_slice,
        **{f"core.random_{name}": random.random for name in ("bits", "uniform", "normal")},
    }
)
