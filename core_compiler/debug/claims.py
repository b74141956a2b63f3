"""Checks of what events claim that add ops and replace none (`ir.claims`)."""

from __future__ import annotations

from typing import Any

from core_compiler.debug.evaluate import Recorded
from core_compiler.debug.formulas import check_formula
from core_compiler.debug.gradients import check_gradient
from core_compiler.ir import Rewrite
from core_compiler.ir.claims import Gradient
from core_compiler.ir.events import CheckRecord


def check_claim(rewrite: Rewrite, values: Recorded, narrow: Any) -> CheckRecord:
    """Hold the new ops of an event to its claim: ``values`` are those of the values before it,
    ``narrow`` evaluates what f64 says nothing about."""
    check = check_gradient if isinstance(rewrite.claim, Gradient) else check_formula
    return check(rewrite, values, narrow)
