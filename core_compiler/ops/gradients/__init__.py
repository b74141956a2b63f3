"""Gradient rules: ``gradient`` of each declaration, one file a family of ops.

An op without a rule of its own is differentiated through its declared decomposition; ops of
``CONSTANT`` pass nothing on; every other op is refused by name (``training.autodiff``).
"""

from __future__ import annotations

from dataclasses import replace

from core_compiler.ops.base import REGISTRY
from core_compiler.ops.gradients import (  # noqa: F401
    collective,
    composites,
    contraction,
    elementwise,
    movement,
    reduction,
    window,
)
from core_compiler.ops.gradients.table import CONSTANT, RULES, NoGradient

for _name, _rule in RULES.items():
    _kind = f"core.{_name}"
    REGISTRY[_kind] = replace(REGISTRY[_kind], gradient=_rule)

__all__ = ["CONSTANT", "NoGradient"]
