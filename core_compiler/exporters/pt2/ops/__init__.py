"""The ATen form of each core op, one file per family; importing this fills the table."""

from core_compiler.exporters.compositions import boxes, contraction, functions, random
from core_compiler.exporters.compositions import windows as taps
from core_compiler.exporters.pt2.ops import (
    composites,
    contractions,
    conversion,
    convolution,
    elementwise,
    indexing,
    integers,
    movement,
    ordering,
    quantised,
    reduction,
)

__all__ = [
    "COMPOSED",
    "OF_BITS",
    "composites",
    "contractions",
    "conversion",
    "convolution",
    "elementwise",
    "indexing",
    "integers",
    "movement",
    "ordering",
    "quantised",
    "reduction",
]

#: Core ops that torch does not have, or not in every form.
COMPOSED = {
    **{f"core.{name}": getattr(functions, name) for name in ("cbrt", "is_finite", "sign")},
    "core.contract": contraction.contract,
    "core.conv": taps.conv_by_taps,
    "core.conv_transpose": taps.conv_transpose,
    "core.max_pool": taps.pool_by_taps,
    "core.avg_pool": taps.pool_by_taps,
    "core.dynamic_slice": boxes.dynamic_slice,
    "core.dynamic_update_slice": boxes.dynamic_update_slice,
    **{f"core.random_{name}": random.random for name in ("bits", "uniform", "normal")},
}

#: Core ops on ui64 that are the same on i64 of equal bits.
OF_BITS = frozenset(
    {
        "add",
        "and",
        "bitnot",
        "concat",
        "cumsum",
        "eq",
        "gather_nd",
        "matmul",
        "mul",
        "ne",
        "or",
        "pad",
        "reduce_and",
        "reduce_or",
        "reduce_sum",
        "reshape",
        "reverse",
        "scatter_along",
        "scatter_nd",
        "select",
        "shl",
        "slice",
        "stop_gradient",
        "sub",
        "take",
        "take_along",
        "transpose",
        "xor",
    }
)
