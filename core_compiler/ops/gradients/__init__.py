"""Gradient rules, one file a family of ops: each declaration names its own.

An op without a rule is differentiated through its declared decomposition; one with ``CONSTANT``
passes nothing on; every other op is refused by name (``training.graph.autodiff``).
"""

from core_compiler.ops.gradients import (  # noqa: F401
    collective,
    composites,
    contraction,
    elementwise,
    movement,
    reduction,
    window,
)
