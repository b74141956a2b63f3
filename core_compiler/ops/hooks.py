"""How a tensor op becomes loops: the objects that an op's declaration gives as ``lower``.

A hook says what an op's element is, as a function of an output index; ``core_compiler.lowering``
goes from a group's outputs through the hooks to its inputs.  This module imports nothing of the
lowering, so that declarations stay light.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hook:
    """Base of all hooks."""


@dataclass(frozen=True, slots=True)
class Elementwise(Hook):
    """``function`` (a kernel scalar op: ``add``, ``exp``, ``select``, ``cast``...) on each element.

    f16, bf16 and smaller floats are computed in f32 and rounded once.
    """

    function: str


@dataclass(frozen=True, slots=True)
class Read:
    """Where an :class:`IndexMap` finds an element: ``operand`` number at ``index``.

    ``inside`` are conditions ``(expression, low, high)``, all to hold: low <= expression < high;
    where one does not, the element is ``otherwise`` (a Read, which may have conditions too).
    """

    operand: int
    index: tuple
    inside: tuple = ()
    otherwise: Read | None = None


@dataclass(frozen=True, slots=True)
class IndexMap(Hook):
    """Data movement: ``find(context, op, index) -> Read``.

    ``index`` is one :class:`affine.Lin` an axis of the result; ``context.data(value, index, low,
    high)`` is an index read from an integer tensor and clamped into [low, high].
    """

    find: Callable[[Any, Any, tuple], Read]


@dataclass(frozen=True, slots=True)
class Part(IndexMap):
    """Data movement that replaces a box of operand 0 by operand 1: the last result of a kernel may
    be written over operand 0, and then only the box is.

    ``starts(context, op)`` are the indices at which the box begins.
    """

    starts: Callable[[Any, Any], tuple]


@dataclass(frozen=True, slots=True)
class Constant(Hook):
    """A constant of one element, or ``iota``: computed in place."""


@dataclass(frozen=True, slots=True)
class Reduction(Hook):
    """``sum max min prod and or mean argmax argmin``, in the contract's order."""

    kind: str


@dataclass(frozen=True, slots=True)
class Contraction(Hook):
    """matmul and contract: chunks of 256 terms."""


@dataclass(frozen=True, slots=True)
class Convolution(Hook):
    """conv (or conv_transpose): channel blocks of 32, then taps, then channels."""

    transposed: bool = False


@dataclass(frozen=True, slots=True)
class WeightGradient(Hook):
    """conv_weight_gradient: a product over images and positions, chunks of 256."""


@dataclass(frozen=True, slots=True)
class Window(Hook):
    """``max``, ``mean`` and ``positions`` (of the maxima): positions row-major, padded positions
    are no terms."""

    kind: str


@dataclass(frozen=True, slots=True)
class WindowGradient(Hook):
    """The gradient of a ``max`` (from the positions) or ``mean`` window: for each element the
    windows that it lies in, in ascending order, chunks of 256."""

    kind: str


@dataclass(frozen=True, slots=True)
class Scan(Hook):
    """cumsum, cumprod, cummax, cummin: chunks of 256 along the axis."""

    kind: str


@dataclass(frozen=True, slots=True)
class Custom(Hook):
    """Builds its loops itself: always a kernel of its own.  ``build(lowering, op)`` is given the
    :class:`~core_compiler.lowering.custom.Custom` that it writes with; a string names a function of
    that module."""

    build: Callable[..., None] | str
