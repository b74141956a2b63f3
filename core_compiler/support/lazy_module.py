"""Modules that are executed on first use: declarations must not cost Numba's import."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any


def module(name: str) -> Any:
    """Return the module ``name``, executed at its first attribute access (``LazyLoader``)."""
    if name in sys.modules:
        return sys.modules[name]
    spec: Any = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, made)
    return made
