"""The types of generated CUDA source: pointers into a memory space, and short vectors."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.cuda.extending import core_models, register_model

from core_compiler.codegen.contract import element_type, lanes_of
from core_compiler.kernels.primitives import NUMBERS, boolean

NUMBA = {**NUMBERS, "bool": boolean}
CODES = {numba_type: code for code, numba_type in NUMBA.items()}
#: NVVM's address spaces; arrays of a thread are generic, so that NVVM can take them apart.
SPACES = {"registers": 0, "global": 1, "shared": 3}
#: Memory of the dtypes that are no numbers of the contract: i1 takes a byte, codes their bits.
_MEMORY = {"bool": "u8", "bf16": "u16", "f16": "u16"}


class Pointer(types.Type):
    """Elements of ``memory`` (what is stored) read as ``value`` (what code computes with) in
    ``space``; buffer ``number`` of ``count`` in kernel ``owner``."""

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
    """(contract dtype, lanes or None) of a Numba type."""
    if isinstance(t, Vector):
        return t.dtype, t.width
    return CODES[types.unliteral(t)], None


def memory_type(memory: str) -> ir.Type:
    return element_type(memory)


def memory_bytes(memory: str) -> int:
    return int(memory[1:]) // 8


def disjoint(builder: ir.IRBuilder, pointer: Pointer, instruction) -> None:
    """Say that the access touches no other buffer of the kernel."""
    if pointer.count < 2:
        return
    module = builder.module
    domain = module.add_metadata([f"kernel {pointer.owner}"])
    scopes = [
        module.add_metadata([f"{pointer.owner} buffer {n}", domain]) for n in range(pointer.count)
    ]
    others = [s for n, s in enumerate(scopes) if n != pointer.number]
    instruction.set_metadata("alias.scope", module.add_metadata([scopes[pointer.number]]))
    instruction.set_metadata("noalias", module.add_metadata(others))


def widen(builder: ir.IRBuilder, raw, pointer: Pointer, width: int | None):
    """Memory's representation to a value's: bytes to i1, codes of narrow floats to i32."""
    target = lanes_of(pointer.value, width)
    if raw.type == target:
        return raw
    if pointer.value == "bool":
        zero = ir.Constant(raw.type, [0] * width if width else 0)
        return builder.icmp_unsigned("!=", raw, zero)
    return builder.zext(raw, target)


def narrow(builder: ir.IRBuilder, value, pointer: Pointer, width: int | None):
    """The inverse of :func:`widen`."""
    memory = memory_type(pointer.memory)
    target = ir.VectorType(memory, width) if width else memory
    if value.type == target:
        return value
    if pointer.value == "bool":
        return builder.zext(value, target)
    return builder.trunc(value, target)
