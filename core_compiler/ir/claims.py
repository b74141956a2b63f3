"""Claims: the stated meaning of the new ops of an event that replaces nothing.

An event that replaces ops is checked by evaluating both sides. An event that only adds ops has no
other side, so it carries a *claim*: the values involved and the name of the function that they
compute. A checker (`debug.claims`) verifies the ops against it without the code of the pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core_compiler.ir.core import Op, Value


@dataclass(frozen=True, eq=False, slots=True)
class Gradient:
    """The claim that new ops add the gradient of ``forward``.

    ``forward`` is an op, or the op that keeps a loop's values. ``given`` pairs results of
    ``forward`` with their cotangents. ``sums`` has, for every differentiated value that ``forward``
    reads, its cotangent before and after (None: zero so far); the difference is the contribution of
    ``forward``. Without ``forward`` it is the cotangent of the differentiated value itself: ones.
    """

    forward: tuple[Op, ...]
    given: tuple[tuple[Value, Value], ...]
    sums: tuple[tuple[Value, Value | None, Value | None], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Formula:
    """The claim that new ops compute the formula ``name`` (`debug.formulas`) with ``options``.

    ``given`` and ``made`` name the values of its inputs and outputs. ``positive`` are inputs that
    are never negative (means of squares, rates).
    """

    name: str
    given: Mapping[str, Value]
    made: Mapping[str, Value]
    options: Mapping[str, Any] = field(default_factory=dict)
    positive: frozenset[str] = frozenset()


Claim = Gradient | Formula
