"""How each ATen op becomes tensor IR: one table, a file a family."""

from core_compiler.frontends.pytorch.aten import (
    backward,
    bags,
    contraction,
    creation,
    distance,
    elementwise,
    experts,
    indexing,
    network,
    pooling,
    random,
    reduction,
    shape,
)
from core_compiler.frontends.pytorch.aten.table import TABLE, Context, NotSupported, Refused

__all__ = [
    "TABLE",
    "Context",
    "NotSupported",
    "Refused",
    "backward",
    "bags",
    "contraction",
    "creation",
    "distance",
    "elementwise",
    "experts",
    "indexing",
    "network",
    "pooling",
    "random",
    "reduction",
    "shape",
]
