"""The data models of generated source on this processor, and its operators on them.

Pointers and vectors are primitives of LLVM: elements are read and written with ``p[i]``, vectors
added and multiplied with Python's operators.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, register_model

from core_compiler.codegen.contract import lanes_of
from core_compiler.codegen.cpu.lanes import CONTRACT, address
from core_compiler.codegen.memory import disjoint, memory_bytes, narrow, widen
from core_compiler.codegen.values import NUMBA, Pointer, Vector, dtype_of


@register_model(Pointer)
class _PointerModel(models.PrimitiveModel):
    def __init__(self, manager, pointer):
        super().__init__(manager, pointer, ir.IntType(8).as_pointer())


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, lanes_of(vector.dtype, vector.width))


# -- memory ----------------------------------------------------------------------------------------


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    def generic(self, args, kws):
        if len(args) == 2 and isinstance(args[0], Pointer) and isinstance(args[1], types.Integer):
            return signature(NUMBA[args[0].value], args[0], types.int64)


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    def generic(self, args, kws):
        if len(args) == 3 and isinstance(args[0], Pointer) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.int64, NUMBA[args[0].value])


@lower_builtin(operator.getitem, Pointer, types.int64)
def _getitem(context, builder, sig, args):
    pointer = sig.args[0]
    loaded = builder.load(address(builder, pointer, *args), align=memory_bytes(pointer.memory))
    disjoint(builder, pointer, loaded)
    return widen(builder, loaded, pointer, None)


@lower_builtin(operator.setitem, Pointer, types.int64, types.Any)
def _setitem(context, builder, sig, args):
    pointer, (base, index, value) = sig.args[0], args
    raw = narrow(builder, value, pointer, None)
    stored = builder.store(
        raw, address(builder, pointer, base, index), align=memory_bytes(pointer.memory)
    )
    disjoint(builder, pointer, stored)
    return context.get_dummy_value()


# -- vector arithmetic with Python's operators -----------------------------------------------------

_OPERATORS = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
}


def _declare_operator(function, name: str) -> None:
    @infer_global(function)
    class _Operator(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return signature(args[0], *args)

    @lower_builtin(function, Vector, Vector)
    def _lower(context, builder, sig, args):
        dtype, width = dtype_of(sig.args[0])
        return CONTRACT.emit(builder, f"{name}_{dtype}", args, (dtype, dtype), width)


for _function, _name in _OPERATORS.items():
    _declare_operator(_function, _name)


def entry_alloca(builder: ir.IRBuilder, kind: ir.Type, align: int):
    """Allocate stack memory with the lifetime of the function."""
    made = cgutils.alloca_once(builder, kind)
    made.align = align
    return made
