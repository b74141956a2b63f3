"""The functions called by generated CUDA source, created on demand from their names.

=======================================  ========================================================
``thread()``, ``block()``                this thread's number in its block; its block's in the grid
``barrier()``                            waits until all threads of the block have arrived
``copy_f32(q, i, p, j)``                 q[i] = p[j], from global to shared memory, by the time the
                                         thread has waited for its copies
``copy_some_f32(q, i, p, j, c)``         the same if c, else +0
``commit_copies()``                      ends a group of this thread's copies
``wait_for_copies()``                    waits until all its groups have taken place
``quotient(a, b)``, ``remainder(a, b)``  of numbers from 0 to 2**32 - 1, in 32 bits
``buffer_f32_2(address)``                a buffer argument; buffer 2
``shared_f32_256_2()``                   memory of the block, 256 elements; buffer 2
``registers_f32_32_2()``                 an array of this thread, which NVVM splits if it can
``offset_f32(p, i)``                     the buffer from element ``i`` on
``load_f32(p, i)``, ``store_f32(p, i, v)``       one element
``load_f32x4(p, i)``, ``store_f32x4(p, i, v)``   lanes i, i+1, ... of aligned memory
``load_some_f32x4(p, i, count)``                 the lanes below count, the others 0
``store_some_f32x4(p, i, v, count)``             the lanes below count
``gather_f32x4(p, i, step, count)``              lanes i, i+step, ...
``scatter_f32x4(p, i, v, step, count)``
``splat_f32x4(x)``, ``lane_f32x4_3(v)``          all lanes x; lane 3
``lanes_i64x4()``                        0, 1, 2, 3
``exp_f32(x)``, ``fma_f32x4(a, b, c)``   a contract function, on scalars or on lanes
``and_bool(p, q)``, ``not_bool(p)``      logic on i1
=======================================  ========================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable

from llvmlite import ir
from numba.core import types
from numba.cuda.extending import intrinsic
from typing_extensions import override

from core_compiler.codegen import intrinsics
from core_compiler.codegen.cuda.functions import contract_function
from core_compiler.codegen.cuda.lanes import INTRINSICS
from core_compiler.codegen.cuda.leaves import call
from core_compiler.codegen.cuda.values import SPACES, pointer_type
from core_compiler.codegen.memory import memory_bytes, memory_type
from core_compiler.codegen.values import NUMBA, Pointer, Vector
from core_compiler.numerics.primitives import boolean

_FORM = re.compile(r"(?P<stem>\w+?)_(?P<dtype>[a-z][a-z0-9]*?)(?:x(?P<width>\d+))?(?:_(\d+))?$")
_I1, _I32, _I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


class Namespace(intrinsics.Namespace):
    """The globals of one generated module, for CUDA."""

    @override
    def make(self, name: str) -> Callable:
        if name in _PLAIN:
            return _PLAIN[name]
        stem, _, rest = name.partition("_")
        if stem == "copy":
            return _copy(rest.startswith("some_"))
        if stem in _MEMORY_FORMS:
            dtype, *numbers = rest.split("_")
            return _MEMORY_FORMS[stem](dtype, self.owner, self.buffers, *map(int, numbers))
        if lane := re.fullmatch(r"lane_([a-z]+\d*)x(\d+)_(\d+)", name):
            return _lane(lane[1], int(lane[2]), int(lane[3]))
        found = _FORM.match(name)
        if found is None:
            return contract_function(name, None)
        width = int(found["width"]) if found["width"] else None
        if found["stem"] in INTRINSICS.forms:
            return INTRINSICS.forms[found["stem"]](found["dtype"], width)
        return contract_function(f"{found['stem']}_{found['dtype']}" if width else name, width)


# -- thread indices --------------------------------------------------------------------------------


def _register(name: str):
    @intrinsic
    def read(typing):
        def codegen(context, builder, sig, values):
            number = call(builder, f"llvm.nvvm.read.ptx.sreg.{name}", _I32)
            return builder.zext(number, _I64)

        return types.int64(), codegen

    return read


@intrinsic
def _barrier(typing):
    def codegen(context, builder, sig, values):
        call(builder, "llvm.nvvm.barrier0", ir.VoidType())
        return context.get_dummy_value()

    return types.none(), codegen


def _divided(method: str):
    @intrinsic
    def divided(typing, a, b):
        def codegen(context, builder, sig, values):
            parts = [builder.trunc(v, _I32) for v in values]
            return builder.zext(getattr(builder, method)(*parts), _I64)

        return types.int64(types.int64, types.int64), codegen

    return divided


def _written(text: str):
    """Return the intrinsic that is one instruction of PTX, between accesses to memory."""

    @intrinsic
    def written(typing):
        def codegen(context, builder, sig, values):
            builder.asm(ir.FunctionType(ir.VoidType(), []), text, "~{memory}", [], True)
            return context.get_dummy_value()

        return types.none(), codegen

    return written


_PLAIN: dict[str, Callable] = {
    "thread": _register("tid.x"),
    "block": _register("ctaid.x"),
    "barrier": _barrier,
    "commit_copies": _written("cp.async.commit_group;"),
    "wait_for_copies": _written("cp.async.wait_group 0;"),
    "quotient": _divided("udiv"),
    "remainder": _divided("urem"),
}


# -- buffers ---------------------------------------------------------------------------------------


def _buffer(dtype: str, owner: str, count: int, number: int):
    kind = Pointer(dtype, owner, number, count, "global")

    @intrinsic
    def buffer(typing, address):
        def codegen(context, builder, sig, values):
            return builder.inttoptr(values[0], pointer_type(kind))

        return kind(types.int64), codegen

    return buffer


def _shared(dtype: str, owner: str, count: int, elements: int, number: int):
    kind = Pointer(dtype, owner, number, count, "shared")

    @intrinsic
    def shared(typing):
        def codegen(context, builder, sig, values):
            memory = ir.ArrayType(memory_type(kind.memory), elements)
            name = f"shared_{number}"
            array = ir.GlobalVariable(builder.module, memory, name, SPACES["shared"])
            array.linkage, array.align = "internal", 16
            array.initializer = ir.Constant(memory, ir.Undefined)
            zero = ir.Constant(_I32, 0)
            return builder.gep(array, [zero, zero])

        return kind(), codegen

    return shared


def _moved(dtype: str, owner: str, count: int):
    @intrinsic
    def offset(typing, pointer, elements):
        def codegen(context, builder, sig, values):
            return builder.gep(values[0], [values[1]])

        return pointer(pointer, types.int64), codegen

    return offset


def _copy(some: bool):
    """Return ``copy_f32(q, i, p, j)``, or ``copy_some_f32(q, i, p, j, c)`` (PTX ISA, cp.async)."""

    def code(builder, q, to, p, source, condition=None):
        size = memory_bytes(q.memory)
        (to, i), (source, j) = to, source
        operands = [
            builder.ptrtoint(builder.gep(to, [i]), _I32),
            builder.ptrtoint(builder.gep(source, [j]), _I64),
        ]
        kinds, text = "r,l", f"cp.async.ca.shared.global [$0], [$1], {size}"
        if condition is not None:
            operands.append(builder.select(condition, _I32(size), _I32(0)))
            kinds, text = "r,l,r", f"{text}, $2"
        function = ir.FunctionType(ir.VoidType(), [o.type for o in operands])
        builder.asm(function, f"{text};", f"{kinds},~{{memory}}", operands, True)

    if some:

        @intrinsic
        def copy_some(typing, q, i, p, j, condition):
            def codegen(context, builder, sig, values):
                code(builder, q, values[:2], p, values[2:4], values[4])
                return context.get_dummy_value()

            return types.none(q, types.int64, p, types.int64, boolean), codegen

        return copy_some

    @intrinsic
    def copy(typing, q, i, p, j):
        def codegen(context, builder, sig, values):
            code(builder, q, values[:2], p, values[2:4])
            return context.get_dummy_value()

        return types.none(q, types.int64, p, types.int64), codegen

    return copy


def _registers(dtype: str, owner: str, count: int, elements: int, number: int):
    kind = Pointer(dtype, owner, number, count, "registers")

    @intrinsic
    def registers(typing):
        def codegen(context, builder, sig, values):
            memory = ir.ArrayType(memory_type(kind.memory), elements)
            with builder.goto_entry_block():
                array = builder.alloca(memory)
            array.align = 16
            zero = ir.Constant(_I32, 0)
            return builder.gep(array, [zero, zero])

        return kind(), codegen

    return registers


_MEMORY_FORMS: dict[str, Callable] = {
    "buffer": _buffer,
    "shared": _shared,
    "registers": _registers,
    "offset": _moved,
}


def _lane(dtype: str, width: int, number: int):
    @intrinsic
    def lane(typing, vector):
        def codegen(context, builder, sig, values):
            return builder.extract_element(values[0], ir.Constant(_I32, number))

        return NUMBA[dtype](Vector(dtype, width)), codegen

    return lane
