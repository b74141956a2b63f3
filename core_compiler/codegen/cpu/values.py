"""The Numba types of generated source: pointers into buffers, and vectors in registers.

A pointer's type carries which buffer of which kernel it walks, so that every load and store can
tell LLVM that different buffers do not overlap (``alias.scope`` and ``noalias`` metadata): loops
then vectorise without run-time checks.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, register_model

from core_compiler.codegen.contract import Contract, lanes_of
from core_compiler.kernels.primitives import LEAF_TABLE, NUMBERS, boolean

#: The contract's functions on this processor.
CONTRACT = Contract(LEAF_TABLE)

NUMBA = {**NUMBERS, "bool": boolean}
CODES = {numba_type: code for code, numba_type in NUMBA.items()}


class Pointer(types.Type):
    """Elements of ``memory`` (what is stored: ``f32``, ``u16``...) read as ``value`` (what code
    computes with); buffer ``number`` of ``count`` in kernel ``owner``."""

    def __init__(self, value: str, memory: str, owner: str, number: int, count: int):
        self.value, self.memory = value, memory
        self.owner, self.number, self.count = owner, number, count
        super().__init__(name=f"pointer({value}, {memory}, {owner}, {number}/{count})")


@register_model(Pointer)
class _PointerModel(models.PrimitiveModel):
    def __init__(self, manager, pointer):
        super().__init__(manager, pointer, ir.IntType(8).as_pointer())


class Vector(types.Type):
    """``width`` lanes of a contract dtype."""

    def __init__(self, dtype: str, width: int):
        self.dtype, self.width = dtype, width
        super().__init__(name=f"{dtype}x{width}")

    @property
    def ir_type(self) -> ir.VectorType:
        return lanes_of(self.dtype, self.width)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, vector.ir_type)


def numba_type(dtype: str, width: int | None):
    return NUMBA[dtype] if width is None else Vector(dtype, width)


def dtype_of(t) -> tuple[str, int | None]:
    """(contract dtype, lanes or None) of a Numba type."""
    if isinstance(t, Vector):
        return t.dtype, t.width
    return CODES[types.unliteral(t)], None


# -- memory ----------------------------------------------------------------------------------------

_MEMORY_TYPE = {"f32": ir.FloatType(), "f64": ir.DoubleType()}


def memory_type(memory: str) -> ir.Type:
    return _MEMORY_TYPE.get(memory) or ir.IntType(int(memory[1:]))


def memory_bytes(memory: str) -> int:
    return int(memory[1:]) // 8


def address(builder: ir.IRBuilder, pointer: Pointer, base, index):
    """The LLVM pointer to element ``index``."""
    element = memory_type(pointer.memory)
    typed = builder.bitcast(base, element.as_pointer())
    return builder.gep(typed, [index])


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
    stored = builder.store(raw, address(builder, pointer, base, index),
                           align=memory_bytes(pointer.memory))  # fmt: skip
    disjoint(builder, pointer, stored)
    return context.get_dummy_value()


# -- vector arithmetic with Python's operators -----------------------------------------------------

_OPERATORS = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
}  # fmt: skip


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
    """Stack memory that lives as long as the function."""
    made = cgutils.alloca_once(builder, kind)
    made.align = align
    return made
