"""Bitwise comparison of arrays, tensors and numbers, and of sequences and mappings of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.support.arrays import as_numpy

#: The number of differing positions that a message shows in full.
SHOWN = 3


def assert_same_bits(actual: Any, expected: Any, *, nan_payloads: bool = True) -> None:
    """Raise AssertionError if two values differ in a bit, in dtype, in shape or in structure.

    Values are NumPy arrays, torch tensors, anything with ``__array__`` and Python numbers (an
    ``int`` is i64, a ``float`` f64), and sequences (of any type, because results may be tuples or
    lists) and mappings of them; other values are compared with ``==``. -0.0 is not 0.0. The sign
    and the payload of a NaN are compared too; without ``nan_payloads`` all NaNs are equal, as in
    the numerics contract, which does not specify the NaN of an operation.

    The message names the position in the structure, and there the first element that differs in
    row-major order with both numbers, their bits and their distance in representable numbers.
    """
    __tracebackhide__ = True
    found = list(_differences(actual, expected, "", nan_payloads))
    if not found:
        return
    shown = "\n".join(f"{place or 'the value'}: {text}" for place, text in found[:SHOWN])
    more = f"\nand {len(found) - SHOWN} more places" if len(found) > SHOWN else ""
    raise AssertionError(f"not the same bits\n{shown}{more}")


def _differences(
    actual: Any, expected: Any, place: str, payloads: bool
) -> Iterator[tuple[str, str]]:
    """Yield ``(place, difference)`` in the order of ``expected``."""
    if _is_mapping(actual) and _is_mapping(expected):
        missing = [key for key in expected if key not in actual]
        extra = [key for key in actual if key not in expected]
        for keys, problem in ((missing, "is missing"), (extra, "is not expected")):
            yield from ((f"{place}[{key!r}]", problem) for key in keys)
        for key in expected:
            if key in actual:
                item_place = f"{place}[{key!r}]"
                yield from _differences(actual[key], expected[key], item_place, payloads)
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            yield place, f"{len(actual)} values, expected {len(expected)}"
        for number, (a, b) in enumerate(zip(actual, expected, strict=False)):
            yield from _differences(a, b, f"{place}[{number}]", payloads)
    elif _is_numbers(actual) and _is_numbers(expected):
        a, b = as_numpy(actual), as_numpy(expected)
        yield from ((place, text) for text in _of_arrays(a, b, payloads))
    elif type(actual) is not type(expected):
        yield place, f"{_describe(actual)}, expected {_describe(expected)}"
    elif actual != expected:
        yield place, f"{actual!r}, expected {expected!r}"


def _describe(value: Any) -> str:
    if _is_numbers(value):
        array = as_numpy(value)
        return f"{array.dtype} {array.shape}"
    if _is_sequence(value) or _is_mapping(value):
        return f"{type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {value!r}"


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, int | float | complex) or hasattr(value, "__array__")


def _of_arrays(a: np.ndarray, b: np.ndarray, payloads: bool) -> Iterator[str]:
    """Yield the difference between two arrays, if any, as one text."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        yield f"{a.dtype} {a.shape}, expected {b.dtype} {b.shape}"
        return
    if a.dtype.hasobject:
        if not np.array_equal(a, b):
            yield f"{a}, expected {b}"
        return
    if a.tobytes() == b.tobytes():
        return
    from core_compiler.numerics.reference.difference import first_element
    from core_compiler.numerics.reference.digest import same_bits
    from core_compiler.numerics.reference.dtypes import DTYPES

    kind = str(a.dtype)
    if a.dtype.kind == "c":
        kind += ", the last axis its parts"
        real = np.dtype(f"f{a.dtype.itemsize // 2}")
        a, b = (np.ascontiguousarray(x).reshape(*x.shape, 1).view(real) for x in (a, b))
    if a.dtype not in DTYPES.values():
        yield f"{a}, expected {b}"
        return
    if not payloads and same_bits(a, b):
        return
    element, numbers, distance, count = first_element(a, b, nan_payloads=payloads)
    at = f"  at {list(element)}\n" if element else ""
    yield (
        f"{count} of {a.size} elements differ ({kind} {a.shape})\n{at}"
        f"  actual    {_exact(a[element])}\n  expected  {_exact(b[element])}\n"
        f"  {_distance(a.dtype, numbers, distance)}"
    )


def _exact(number: Any) -> str:
    """Return a NumPy number with enough digits to identify it, and its bits."""
    bits = int(np.asarray(number).reshape(1).view(f"u{number.dtype.itemsize}")[0])
    return f"{number}  0x{bits:0{2 * number.dtype.itemsize}x}"


def _distance(kind: np.dtype, numbers: tuple[float, float], distance: int) -> str:
    if kind.kind in "biu":
        return f"{distance} apart"
    nan = [number != number for number in numbers]
    if all(nan):
        return "both are NaN, of another sign or payload; nan_payloads=False takes NaN as one value"
    if any(nan):
        return "one of them is NaN"
    if distance == 0:
        return "zeros of different signs"
    return f"{distance} ulp{'s' if distance > 1 else ''} apart"
