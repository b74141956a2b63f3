"""Models of the corpus for single branches: what nearly has the form that a rule is for, sizes and
numbers that ordinary models do not have.  Modules of torch enter their models themselves."""

from __future__ import annotations

import importlib


def enter() -> None:
    """Enter every torch model of this package."""
    for name in ("forms", "recomposed", "passes", "schedules", "lowered", "aten", "meanings"):
        importlib.import_module(f"{__name__}.{name}")
