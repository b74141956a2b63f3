"""How many random examples a property is tried on."""

from __future__ import annotations

#: One of how many examples is drawn: 4 where only quick tests are asked for (`conftest`).
share = 1


def examples(count: int) -> int:
    """``count`` where all tests run, a quarter of it in ``make test`` (5 at least)."""
    return min(count, max(5, count // share))
