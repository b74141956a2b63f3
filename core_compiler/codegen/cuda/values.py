"""The data models of generated CUDA source: pointers into a memory space, and short vectors."""

from __future__ import annotations

from llvmlite import ir
from numba.cuda.extending import core_models, register_model

from core_compiler.codegen.contract import lanes_of
from core_compiler.codegen.memory import memory_type
from core_compiler.codegen.values import Pointer, Vector

#: NVVM's address spaces; arrays of a thread are generic, so that NVVM can split them.
SPACES = {"registers": 0, "global": 1, "shared": 3}


def pointer_type(pointer: Pointer) -> ir.PointerType:
    """Return the LLVM type of a pointer."""
    return memory_type(pointer.memory).as_pointer(SPACES[pointer.space])


@register_model(Pointer)
class _PointerModel(core_models.PrimitiveModel):
    def __init__(self, manager, pointer):
        super().__init__(manager, pointer, pointer_type(pointer))


@register_model(Vector)
class _VectorModel(core_models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, lanes_of(vector.dtype, vector.width))
