"""Lowering hooks: the objects that an op's declaration has as ``lower``.

A hook defines an op's element as a function of an output index; ``core_compiler.lowering`` goes
from a group's outputs through the hooks to its inputs. This module does not import the lowering, so
that declarations stay light.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hook:
    """The base class of hooks."""


@dataclass(frozen=True, slots=True)
class Elementwise(Hook):
    """A scalar function (``add``, ``exp``, ``select``, ``cast``...) applied to each element.

    ``function`` names a kernel scalar op, or builds one value from several:
    ``(kernel builder, *scalars) -> scalar``. f16, bf16 and smaller floats are computed in f32 and
    rounded once.
    """

    function: str | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Read:
    """The source of an element in an :class:`IndexMap`: operand number ``operand`` at ``index``.

    ``inside`` are conditions ``(expression, low, high)``, all of which must hold: low <= expression
    < high. If one does not, the element is ``otherwise`` (a Read, which may have conditions too).
    """

    operand: int
    index: tuple
    inside: tuple = ()
    otherwise: Read | None = None


@dataclass(frozen=True, slots=True)
class IndexMap(Hook):
    """Data movement: ``find(context, op, index) -> Read``.

    ``index`` has one :class:`affine.Lin` per axis of the result; ``context.data(value, index, low,
    high)`` is an index read from an integer tensor and clamped to [low, high].
    """

    find: Callable[[Any, Any, tuple], Read]


@dataclass(frozen=True, slots=True)
class Part(IndexMap):
    """Data movement that replaces a box of operand 0 by operand 1.

    The last result of a kernel may be written over operand 0, and then only the box is written.
    ``starts(context, op)`` are the indices at which the box begins.
    """

    starts: Callable[[Any, Any], tuple]


@dataclass(frozen=True, slots=True)
class Constant(Hook):
    """A constant of one element, or ``iota``: computed in place."""


@dataclass(frozen=True, slots=True)
class Reduction(Hook):
    """A reduction in the contract's order: ``sum max min prod and or mean argmax argmin``."""

    kind: str


@dataclass(frozen=True, slots=True)
class Contraction(Hook):
    """A matmul or contract: chunks of 256 terms."""


@dataclass(frozen=True, slots=True)
class Convolution(Hook):
    """A conv (or conv_transpose): channel blocks of 32, then taps, then channels."""

    transposed: bool = False


@dataclass(frozen=True, slots=True)
class WeightGradient(Hook):
    """A conv_weight_gradient: a product over images and positions, chunks of 256."""


@dataclass(frozen=True, slots=True)
class Window(Hook):
    """A window op ``max``, ``min``, ``sum``, ``mean`` or ``positions`` (of the maxima), row-major.

    Padded positions are not terms.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class WindowGradient(Hook):
    """The gradient of a ``max`` (from the positions) or ``mean`` window.

    For each element it visits the windows that contain it, in ascending order, in chunks of 256.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Scan(Hook):
    """A scan, cumsum, cumprod, cummax or cummin: chunks of 256 along the axis."""

    kind: str


@dataclass(frozen=True, slots=True)
class Custom(Hook):
    """A hook that builds its loops itself: always a separate kernel.

    ``build(lowering, op)`` receives the :class:`~core_compiler.lowering.custom.Custom` that emits
    them; a string names a function of that module.
    """

    build: Callable[..., None] | str
