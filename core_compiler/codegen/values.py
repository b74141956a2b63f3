"""The Numba types of generated source: pointers into buffers, and vectors in registers.

A pointer's type identifies its buffer and kernel, so that every load and store can inform LLVM that
different buffers do not overlap (``alias.scope`` and ``noalias`` metadata): loops are then
vectorised without run-time checks. Each target registers the data models.
"""

from __future__ import annotations

from typing import Any

from numba.core import types

from core_compiler.numerics.primitives import NUMBERS, boolean

#: The Numba type of each contract dtype, and the reverse.
NUMBA = {**NUMBERS, "bool": boolean}
CODES = {numba_type: code for code, numba_type in NUMBA.items()}
#: Storage of dtypes that are not numbers of the contract: i1 takes a byte, codes their bits.
_MEMORY = {"bool": "u8", "bf16": "u16", "f16": "u16"}


class Pointer(types.Type):
    """A pointer to elements of ``dtype`` (spelled as in ``scalars.code_name``) in a memory space.

    They are stored as ``memory`` (``f32``, ``u16``...) and read as ``value``, the type in
    computations. The buffer is number ``number`` of ``count`` in kernel ``owner``.
    """

    def __init__(self, dtype: str, owner: str, number: int, count: int, space: str = ""):
        plain = dtype in NUMBA and dtype != "bool"
        self.value = dtype if plain else "bool" if dtype == "bool" else "i32"
        self.memory = dtype if plain else _MEMORY.get(dtype, "u8")
        self.owner, self.number, self.count, self.space = owner, number, count, space
        where = f"{owner}, {number}/{count}"
        super().__init__(name=f"pointer({self.value}, {self.memory}, {where}, {space})")


class Vector(types.Type):
    """``width`` lanes of a contract dtype."""

    def __init__(self, dtype: str, width: int):
        self.dtype, self.width = dtype, width
        super().__init__(name=f"{dtype}x{width}")


def numba_type(dtype: str, width: int | None) -> Any:
    """Return the Numba type of a contract dtype, or of ``width`` lanes of it."""
    return NUMBA[dtype] if width is None else Vector(dtype, width)


def dtype_of(t: types.Type) -> tuple[str, int | None]:
    """Return (contract dtype, lanes or None) of a Numba type."""
    if isinstance(t, Vector):
        return t.dtype, t.width
    return CODES[types.unliteral(t)], None
