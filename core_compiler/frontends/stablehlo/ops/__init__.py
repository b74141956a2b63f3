"""The translation of each StableHLO and CHLO op to tensor IR, one file per family.

Importing this fills the table.
"""

from core_compiler.frontends.stablehlo.ops import (
    contraction,
    control,
    elementwise,
    indexing,
    linear_algebra,
    reduction,
    shape,
    sorting,
    windows,
)
from core_compiler.frontends.stablehlo.ops.composed import composed
from core_compiler.frontends.stablehlo.table import TABLE

#: Ops that mean the same on every element of a tensor as on a scalar.
LIFTED = frozenset(
    {
        *(name for name, handler in TABLE.items() if handler.__module__ == elementwise.__name__),
        "stablehlo.constant",
        "chlo.constant",
        "func.call",
    }
)

__all__ = [
    "LIFTED",
    "TABLE",
    "composed",
    "contraction",
    "control",
    "elementwise",
    "indexing",
    "linear_algebra",
    "reduction",
    "shape",
    "sorting",
    "windows",
]
