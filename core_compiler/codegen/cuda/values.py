"""The types of generated CUDA source: pointers into a memory space, and short vectors."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.cuda.extending import core_models, register_model

from core_compiler.codegen.contract import lanes_of
from core_compiler.codegen.memory import memory_type
from core_compiler.numerics.primitives import NUMBERS, boolean

NUMBA = {**NUMBERS, "bool": boolean}
CODES = {numba_type: code for code, numba_type in NUMBA.items()}
#: NVVM's address spaces; arrays of a thread are generic, so that NVVM can split them.
SPACES = {"registers": 0, "global": 1, "shared": 3}
#: Storage of dtypes that are not numbers of the contract: i1 takes a byte, codes their bits.
_MEMORY = {"bool": "u8", "bf16": "u16", "f16": "u16"}


class Pointer(types.Type):
    """A pointer to elements stored as ``memory`` and read as ``value`` in ``space``.

    The buffer is number ``number`` of ``count`` in kernel ``owner``.
    """

    def __init__(self, dtype: str, space: str, owner: str, number: int, count: int):
        plain = dtype in NUMBA and dtype != "bool"
        self.value = dtype if plain else "bool" if dtype == "bool" else "i32"
        self.memory = dtype if plain else _MEMORY.get(dtype, "u8")
        self.space, self.owner, self.number, self.count = space, owner, number, count
        where = f"{space}, {owner}, {number}/{count}"
        super().__init__(name=f"cuda_pointer({self.value}, {self.memory}, {where})")

    @property
    def ir_type(self) -> ir.PointerType:
        return memory_type(self.memory).as_pointer(SPACES[self.space])


@register_model(Pointer)
class _PointerModel(core_models.PrimitiveModel):
    def __init__(self, manager, pointer):
        super().__init__(manager, pointer, pointer.ir_type)


class Vector(types.Type):
    """``width`` lanes of a contract dtype."""

    def __init__(self, dtype: str, width: int):
        self.dtype, self.width = dtype, width
        super().__init__(name=f"cuda_{dtype}x{width}")


@register_model(Vector)
class _VectorModel(core_models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, lanes_of(vector.dtype, vector.width))


def numba_type(dtype: str, width: int | None):
    return NUMBA[dtype] if width is None else Vector(dtype, width)


def dtype_of(t) -> tuple[str, int | None]:
    """Return (contract dtype, lanes or None) of a Numba type."""
    if isinstance(t, Vector):
        return t.dtype, t.width
    return CODES[types.unliteral(t)], None
