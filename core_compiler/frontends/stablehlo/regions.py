"""Recognition of small functions in ops: bodies of reductions and scatters, sort comparators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.frontends.stablehlo.reading import python_of

#: Bodies of one op over both arguments -> the suffix of ``core.reduce_`` and ``core.cum``.
COMBINERS = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "mul",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
    "stablehlo.xor": "xor",
}


def _block(region: Any) -> Any:
    (block,) = region.blocks
    return block


def combiner(region: Any) -> str | None:
    """Return the op by which a body of two arguments combines them (``add``, ``max``...).

    ``set`` if it returns the second, ``keep`` if the first; None for other bodies.
    """
    block = _block(region)
    if len(block.arguments) != 2:
        return None
    first, second = block.arguments
    *body, last = block.operations
    (returned,) = last.operation.operands
    if not body:
        return "set" if returned == second else "keep" if returned == first else None
    if len(body) != 1 or returned != body[0].operation.results[0]:
        return None
    operands = list(body[0].operation.operands)
    if operands not in ([first, second], [second, first]):
        return None
    return COMBINERS.get(body[0].operation.name)


def signature(region: Any) -> tuple:
    """Return a key of a region that is equal for structurally equal regions.

    It has the ops, their operands by position, and the directions of comparisons.
    """
    block = _block(region)
    numbers = {value: i for i, value in enumerate(block.arguments)}
    rows = []
    for each in block.operations:
        operation = each.operation
        held = operation.attributes
        word = python_of(held["comparison_direction"]) if "comparison_direction" in held else ""
        rows.append(
            (
                operation.name.rpartition(".")[2],
                word,
                tuple(numbers.get(v, -1) for v in operation.operands),
            )
        )
        for value in operation.results:
            numbers[value] = len(numbers)
    return tuple(rows)


# -- the comparator of a sort ----------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """A key of a sort.

    The operand, the direction, and whether the order is the total order of floats (as opposed to:
    zeros equal, NaN last).
    """

    operand: int
    descending: bool
    total: bool


def sort_keys(region: Any) -> list[Key] | None:
    """Return the keys that a comparator compares, most significant first.

    None if it is not a lexicographic comparison of the operands.
    """
    block = _block(region)
    arguments = {value: i for i, value in enumerate(block.arguments)}
    producers = {r: o.operation for o in block.operations for r in o.operation.results}
    *_, last = block.operations
    return _keys(last.operation.operands[0], arguments, producers)


def _keys(value: Any, arguments: dict, producers: dict) -> list[Key] | None:
    made = producers.get(value)
    if made is None:
        return None
    if made.name == "stablehlo.compare":
        key = _key(made, arguments, producers, ("LT", "GT"))
        return None if key is None else [key]
    if made.name != "stablehlo.or":
        return None
    for first, rest in (tuple(made.operands), tuple(made.operands)[::-1]):
        key, conjunction = producers.get(first), producers.get(rest)
        if (
            key is None
            or conjunction is None
            or key.name != "stablehlo.compare"
            or (conjunction.name != "stablehlo.and")
        ):
            continue
        first_key = _key(key, arguments, producers, ("LT", "GT"))
        for equal, later in (tuple(conjunction.operands), tuple(conjunction.operands)[::-1]):
            same = producers.get(equal)
            if same is None or same.name != "stablehlo.compare":
                continue
            tie = _key(same, arguments, producers, ("EQ",))
            others = _keys(later, arguments, producers)
            if first_key and tie and others and tie.operand == first_key.operand:
                return [first_key, *others]
    return None


def _key(made: Any, arguments: dict, producers: dict, directions: Sequence[str]) -> Key | None:
    """Return the key of one comparison, which must compare two elements of the same operand."""
    word = python_of(made.attributes["comparison_direction"])
    kind = python_of(made.attributes["compare_type"]) if "compare_type" in made.attributes else ""
    (left, changed), (right, other) = (_strip_canonicalisation(v, producers) for v in made.operands)
    a, b = arguments.get(left), arguments.get(right)
    if word not in directions or a is None or b is None or a // 2 != b // 2 or a == b:
        return None
    total = kind == "TOTALORDER"
    if changed != other or (total and len(changed) == 1):
        return None
    descending = (word == "GT") != (a % 2 == 1)
    return Key(a // 2, descending, total and not changed)


def _strip_canonicalisation(value: Any, producers: dict) -> tuple[Any, set[str]]:
    """Return a value without selects that canonicalise zeros and NaN, and the kinds found."""
    chain, tested, changed = [value], [], set()
    while (made := producers.get(chain[-1])) is not None and made.name == "stablehlo.select":
        condition, put, otherwise = made.operands
        kind, about = _canonicalisation(
            producers.get(condition), _number(producers.get(put)), producers
        )
        if kind is None:
            break
        changed.add(kind)
        tested.append(about)
        chain.append(otherwise)
    if not all(about in chain[place + 1 :] for place, about in enumerate(tested)):
        return value, set()
    return chain[-1], changed


def _canonicalisation(test: Any, put: float | None, producers: dict) -> tuple[str | None, Any]:
    """Return what a select with the constant ``put`` canonicalises, and of which operand."""
    if test is None or put is None or test.name != "stablehlo.compare":
        return None, None
    word = python_of(test.attributes["comparison_direction"])
    one, two = test.operands
    if word == "EQ" and put == 0 and _number(producers.get(two)) == 0:
        return "zeros", one
    if word == "NE" and one == two and math.isnan(put):
        return "nan", one
    return None, None


def _number(made: Any) -> float | None:
    """Return the scalar of a constant op, or None."""
    if made is None or made.name != "stablehlo.constant":
        return None
    value = np.asarray(python_of(made.attributes["value"]))
    return float(value.item()) if value.size == 1 and value.dtype.kind not in "bc" else None
