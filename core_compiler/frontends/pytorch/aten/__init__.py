"""How each ATen op becomes tensor IR: one table, a file a family."""

from core_compiler.frontends.pytorch.aten import (
    backward,
    bags,
    complex_numbers,
    contraction,
    creation,
    distance,
    elementwise,
    experts,
    indexing,
    losses,
    network,
    pooling,
    random,
    reduction,
    shape,
)
from core_compiler.frontends.pytorch.aten.complex_numbers import Complex, lookup_complex
from core_compiler.frontends.pytorch.aten.table import (
    TABLE,
    Context,
    Misfit,
    NotSupported,
    Refused,
    leaves,
)

__all__ = [
    "TABLE",
    "Complex",
    "Context",
    "Misfit",
    "NotSupported",
    "Refused",
    "backward",
    "bags",
    "complex_numbers",
    "contraction",
    "creation",
    "distance",
    "elementwise",
    "experts",
    "indexing",
    "leaves",
    "lookup_complex",
    "losses",
    "network",
    "pooling",
    "random",
    "reduction",
    "shape",
]
