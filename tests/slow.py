"""Which parameters of a test run with ``make test``, and which only with ``make test-all``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow_but(fast: Container[Any], every: Iterable[Any]) -> list[Any]:
    """``every`` parameter (tuples: of several arguments) in its order; those that are not in
    ``fast`` are marked slow."""
    made = []
    for each in every:
        values = each if isinstance(each, tuple) else (each,)
        marks = [] if each in fast else pytest.mark.slow
        made.append(pytest.param(*values, marks=marks, id="-".join(map(str, values))))
    return made
