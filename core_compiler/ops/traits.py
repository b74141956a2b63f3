"""Op traits: properties that passes may rely on, declared on the op and queried by name.

A trait is declared once, with the op; a pass calls ``has_trait(op, "view")`` instead of keeping a
list of op names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from core_compiler.support.errors import InternalError

if TYPE_CHECKING:
    from core_compiler.ir import Op

#: Trait -> its guarantee.
TRAITS: Mapping[str, str] = MappingProxyType(
    {
        "elementwise": "each element of the result is a function of the elements at its index",
        "commutative": "swapping the two operands does not change a bit",
        "random": "the result depends on a seed, the iteration and the shard",
        "exact": "no rounding: elements are moved, compared, selected or counted (views as well)",
        "selects": "each element of the result is an element of an operand of its dtype, chosen by "
        "their order or by positions",
        "several_roundings": "f32 arithmetic rounds more than once: the result may be off by "
        "more than half an ulp",
        "view": "the result is a rearrangement of one operand, without arithmetic",
        "shape_only": "a view whose result contains every element of the operand, in the order "
        "that the operand's axes have",
        "partial_read": "only some elements of the first operand are read",
        "step": "piecewise constant: no gradient passes",
        "division": "the second operand divides; for integers, dividing by 0 gives 0",
        "comparison": "the result is a comparison of two operands",
        "positions": "the last result is positions in the first operand along `axis`",
        "contraction": "the result is sums of products of two operands, which are in memory",
        "factor": "the results are factors of a matrix, or a solution with one: they do not exist "
        "for every operand, and may not be unique",
        "windowed": "reads windows of channels and spatial axes: fastest with channels last",
        "multilinear": "linear in each floating-point operand while the others are fixed",
        "never_negative_zero": "no result is -0.0, whatever the operands are",
        "canonical_nan": "every NaN of the result is the canonical one",
    }
)


def traits(*names: str) -> frozenset[str]:
    """Return the traits of a declaration; InternalError for one missing in :data:`TRAITS`."""
    unknown = sorted(set(names) - TRAITS.keys())
    if unknown:
        raise InternalError(f"unknown trait {unknown[0]!r}")
    return frozenset(names)


def has_trait(op: Op | str, *names: str) -> bool:
    """Return whether an op, or the op of a kind, has one of these traits.

    An op without a declaration, such as one of a target, has none.
    """
    from core_compiler.ops.base import REGISTRY

    declared = REGISTRY.get(op if isinstance(op, str) else op.kind)
    return declared is not None and not declared.traits.isdisjoint(_known(*names))


_known = cache(traits)


def kinds_with(*names: str) -> tuple[str, ...]:
    """Return the kinds of ops with one of these traits (``core.add``...), as declared.

    They are in the order of their declarations.
    """
    from core_compiler.ops import REGISTRY

    wanted = traits(*names)
    return tuple(kind for kind, op in REGISTRY.items() if not op.traits.isdisjoint(wanted))
