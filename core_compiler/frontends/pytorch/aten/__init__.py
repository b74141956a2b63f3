"""How each ATen op becomes tensor IR: one table, a file a family."""

from core_compiler.frontends.pytorch.aten import (
    contraction,
    creation,
    elementwise,
    indexing,
    network,
    pooling,
    reduction,
    shape,
)
from core_compiler.frontends.pytorch.aten.table import TABLE, Context, NotSupported

__all__ = [
    "TABLE",
    "Context",
    "NotSupported",
    "contraction",
    "creation",
    "elementwise",
    "indexing",
    "network",
    "pooling",
    "reduction",
    "shape",
]
