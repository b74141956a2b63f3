"""Types and constants in the form of standard dialects: signless integers, no layouts.

Unsigned integers are written as the signless type of their width; the exporter chooses which ops
read them as unsigned.  Large constants are named resources whose bytes are stored at the end of the
file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir import Dense, DType, TensorType, dtype, tensor
from core_compiler.ir.literals import dense_text, resource_section

#: The alignment of a resource's bytes; MLIR reads this number before them.
ALIGNMENT = 64
_RESOURCE = re.compile(r"dense_resource<(\w+)>")


def signless(kind: DType) -> DType:
    """Return the dtype without a sign: an integer of the same width, or the dtype itself."""
    return dtype(f"i{kind.bits}") if kind.kind == "uint" else kind


def type_text(type_: Any) -> str:
    """Return a type as MLIR text; strings are returned unchanged."""
    if isinstance(type_, TensorType):
        dims = "".join(f"{size}x" for size in type_.shape)
        return f"tensor<{dims}{signless(type_.dtype).name}>"
    return signless(type_).name if isinstance(type_, DType) else str(type_)


def stored(kind: DType) -> DType:
    """Return the dtype that a large constant of ``kind`` is stored in.

    i1 and types of less than a byte are stored as i8: MLIR packs them, and not always in the same
    way.
    """
    return signless(kind) if kind.bits >= 8 else dtype("i8")


def as_stored(array: np.ndarray, kind: DType) -> np.ndarray:
    """Return ``array`` in the dtype of :func:`stored`.

    The bits are the same; below a byte the values are (for floats, their codes).
    """
    array = np.ascontiguousarray(array)
    if kind.bits < 8:
        return array.view(np.int8) if kind.is_float else array.astype(np.int8)
    return array.view(stored(kind).numpy)


def constant_text(array: np.ndarray, kind: DType) -> str:
    """Return ``dense<...> : tensor<...>`` for a small array."""
    plain = signless(kind)
    held = np.ascontiguousarray(array).view(plain.numpy)
    return dense_text(Dense(tensor(array.shape, plain), held.tobytes()))


def scalar_text(number: Any, kind: DType) -> str:
    """Return an exact scalar attribute (``0.5 : f32``, ``7 : i8``); booleans have no type."""
    body = constant_text(np.array(number).astype(kind.numpy), kind)
    text = body[body.index("<") + 1 : body.rindex("> : ")]
    return text if kind.kind == "bool" else f"{text} : {signless(kind).name}"


def resources_in(text: str) -> list[str]:
    """Return the names of the resources that a text reads."""
    return _RESOURCE.findall(text)


class Stored(Mapping[str, np.ndarray]):
    """Arrays by name in their storage dtype, each created on request."""

    def __init__(self, arrays: Mapping[str, tuple[np.ndarray, DType]]):
        self._arrays = arrays

    @override
    def __getitem__(self, name: str) -> np.ndarray:
        return as_stored(*self._arrays[name])

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    @override
    def __len__(self) -> int:
        return len(self._arrays)


def resources(arrays: Mapping[str, tuple[np.ndarray, DType]]) -> Iterator[str]:
    """Yield the section with the bytes of all resources in pieces."""
    return resource_section(Stored(arrays), ALIGNMENT)
