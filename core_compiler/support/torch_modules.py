"""Torch modules, without an import of torch."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def set_mode(module: Any, training: bool) -> None:
    """Set the mode of a module; graphs of PT2E have theirs in their ops, and refuse."""
    with suppress(NotImplementedError):
        module.train(training)
