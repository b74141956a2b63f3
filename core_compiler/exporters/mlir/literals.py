"""Types and constants as standard dialects have them: integers without a sign, no layouts.

Unsigned integers travel as the signless type of their width: which ops read them as unsigned, an
exporter chooses.  Large constants are named resources whose bytes stand at the file's end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir import Dense, DType, TensorType, dtype, tensor
from core_compiler.ir.literals import dense_text, resource_section

#: What a resource's bytes are aligned to; MLIR reads this number in front of them.
ALIGNMENT = 64
_RESOURCE = re.compile(r"dense_resource<(\w+)>")


def signless(kind: DType) -> DType:
    """The dtype without a sign: an integer of its width, or itself."""
    return dtype(f"i{kind.bits}") if kind.kind == "uint" else kind


def type_text(type_: Any) -> str:
    """A type as it stands in the text; strings stand for themselves."""
    if isinstance(type_, TensorType):
        dims = "".join(f"{size}x" for size in type_.shape)
        return f"tensor<{dims}{signless(type_.dtype).name}>"
    return signless(type_).name if isinstance(type_, DType) else str(type_)


def stored(kind: DType) -> DType:
    """The dtype that a large constant of ``kind`` is stored in.

    i1, and types of less than a byte, are stored as i8: MLIR packs them, and not always alike.
    """
    return signless(kind) if kind.bits >= 8 else dtype("i8")


def as_stored(array: np.ndarray, kind: DType) -> np.ndarray:
    """``array`` in the dtype of :func:`stored`: the same bits, or (below a byte) the same numbers,
    codes for floats."""
    array = np.ascontiguousarray(array)
    if kind.bits < 8:
        return array.view(np.int8) if kind.is_float else array.astype(np.int8)
    return array.view(stored(kind).numpy)


def constant_text(array: np.ndarray, kind: DType) -> str:
    """``dense<...> : tensor<...>`` of a small array."""
    plain = signless(kind)
    held = np.ascontiguousarray(array).view(plain.numpy)
    return dense_text(Dense(tensor(array.shape, plain), held.tobytes()))


def scalar_text(number: Any, kind: DType) -> str:
    """``0.5 : f32``, ``7 : i8``: a scalar attribute, exact; ``true`` and ``false`` have no type."""
    body = constant_text(np.array(number).astype(kind.numpy), kind)
    text = body[body.index("<") + 1 : body.rindex("> : ")]
    return text if kind.kind == "bool" else f"{text} : {signless(kind).name}"


def resources_in(text: str) -> list[str]:
    """The names of the resources that a text reads."""
    return _RESOURCE.findall(text)


class Stored(Mapping[str, np.ndarray]):
    """Arrays by name as they are stored, each made when it is asked for."""

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
    """The section with the bytes of all resources, in pieces."""
    return resource_section(Stored(arrays), ALIGNMENT)
