"""What the new ops of an event are said to compute, where they replace nothing.

An event that replaces ops is checked by evaluating both sides.  One that only adds ops has no other
side, so it carries a *claim*: the values involved and the name of what they compute.  A checker
(`debug.claims`) holds the ops to it without the code of the pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core_compiler.ir.core import Op, Value


@dataclass(frozen=True, eq=False, slots=True)
class Gradient:
    """The new ops add the gradient of the ops ``forward`` (one, or what keeps a loop's values).

    ``given`` pairs results of ``forward`` with their cotangents.  ``sums`` has for every value that
    ``forward`` reads and that is differentiated its cotangent before and after (None: zero so far);
    the difference is what ``forward`` contributes.  Without ``forward`` the cotangent is that of
    the value that is differentiated itself: ones.
    """

    forward: tuple[Op, ...]
    given: tuple[tuple[Value, Value], ...]
    sums: tuple[tuple[Value, Value | None, Value | None], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Formula:
    """The new ops compute the formula ``name`` (`debug.formulas`) with ``options``.

    ``given`` and ``made`` name the values of its inputs and outputs.  ``positive``: inputs that are
    never negative (means of squares, rates).
    """

    name: str
    given: Mapping[str, Value]
    made: Mapping[str, Value]
    options: Mapping[str, Any] = field(default_factory=dict)
    positive: frozenset[str] = frozenset()


Claim = Gradient | Formula
