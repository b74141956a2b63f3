"""Gradient rules, one file per family of ops: each declaration names its own.

An op without a rule is differentiated through its declared decomposition. An op with ``CONSTANT``
propagates nothing. Any other op is rejected by name (``training.graph.autodiff``).
"""

from core_compiler.ops.gradients import (  # noqa: F401
    collective,
    composites,
    contraction,
    elementwise,
    linear_algebra,
    movement,
    reduction,
    window,
)
