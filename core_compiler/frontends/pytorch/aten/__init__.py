"""How each ATen op becomes tensor IR: one table, a file a family."""

from core_compiler.frontends.pytorch.aten import contraction, elementwise, network, reduction, shape
from core_compiler.frontends.pytorch.aten.table import TABLE, Context, NotSupported

__all__ = ["TABLE", "Context", "NotSupported", "contraction", "elementwise", "network", "reduction",
           "shape"]  # fmt: skip
