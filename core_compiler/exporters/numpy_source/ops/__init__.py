"""The NumPy form of each core op, one file per family; importing this fills the table."""

from core_compiler.exporters.numpy_source.ops import (
    composites,
    elementwise,
    linear_algebra,
    movement,
    numeric,
)

__all__ = ["composites", "elementwise", "linear_algebra", "movement", "numeric"]
