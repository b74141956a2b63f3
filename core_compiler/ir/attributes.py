"""Attributes: the compile-time data of an op besides its operands.

An attribute is a bool, int, float, str, ``DType``, ``Type``, :class:`Dense`, :class:`Resource`, or
a tuple of attributes. Small constants are ``Dense`` (bytes in the IR); large ones are ``Resource``
handles into the module's weight store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from types import MappingProxyType
from typing import Any

import numpy as np

from core_compiler.ir.types import DType, TensorType, Type, tensor

#: Constants of at most this many bytes are stored in the IR, larger ones in the weight store.
INLINE_BYTES = 256


@dataclass(frozen=True, slots=True)
class Dense:
    """A small constant: its type and its little-endian row-major bytes."""

    type: TensorType
    data: bytes

    def array(self) -> np.ndarray:
        shape: tuple[Any, ...] = self.type.shape  # constants have static shapes
        return np.frombuffer(self.data, self.type.dtype.numpy).reshape(shape)


@dataclass(frozen=True, slots=True)
class Resource:
    """A handle to a constant in the weight store; ``digest`` is the hash of its type and bytes."""

    type: TensorType
    digest: str


Attribute = bool | int | float | str | tuple | DType | Type | Dense | Resource


def dense(array) -> Dense:
    """Return a small NumPy array (or Python scalar with a NumPy dtype) as an inline constant."""
    array = np.asarray(array)
    return Dense(tensor(array.shape, array.dtype), np.ascontiguousarray(array).tobytes())


def as_array(value, weights) -> np.ndarray:
    """Return the NumPy array of a ``Dense``, or of a ``Resource`` in ``weights``, read-only."""
    return value.array() if isinstance(value, Dense) else weights[value.digest]


def frozen_attributes(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return checked, sorted and immutable attributes, as ops hold them.

    Ops may share the result.
    """
    if type(attributes) is MappingProxyType:
        return attributes
    for value in attributes.values():
        check_attribute(value)
    return MappingProxyType(dict(sorted(attributes.items())))


def attributes_key(items: Iterable[tuple[str, Attribute]]) -> tuple:
    """Return a key that is equal for equal attributes only.

    Floats are compared by their bits (0.0 is not -0.0, a NaN equals itself), values also by their
    class (True is not 1).
    """
    return tuple([(name, _exact(value)) for name, value in items])


def _exact(value: Attribute) -> Any:
    convert = _EXACT_KEYS.get(value.__class__)
    return value if convert is None else convert(value)


def _exact_tuple(values: tuple) -> tuple:
    if _INTEGERS.issuperset(map(type, values)):  # the common case: axes, sizes
        return values
    return tuple(map(_exact, values))


_INTEGERS = frozenset({int})
#: Bytes are not attributes, so these keys equal no other one, nor bytes of another length.
_EXACT_KEYS: dict[type, Callable[[Any], Any]] = {
    float: Struct("<d").pack,
    bool: Struct("?").pack,
    tuple: _exact_tuple,
}


def check_attribute(value) -> None:
    """Raise TypeError if ``value`` is not an attribute (NumPy scalars and lists are not)."""
    if isinstance(value, tuple):
        for item in value:
            check_attribute(item)
    elif type(value) not in (bool, int, float, str, Dense, Resource) and not isinstance(
        value, Type
    ):
        raise TypeError(f"not an attribute: {value!r} of type {type(value).__name__}")
