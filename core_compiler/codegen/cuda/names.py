"""The functions called by generated CUDA source, created on demand from their names.

=======================================  ========================================================
``thread()``, ``block()``                this thread's number in its block; its block's in the grid
``barrier()``                            waits until all threads of the block have arrived
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
from core_compiler.codegen.cuda.leaves import call
from core_compiler.codegen.cuda.values import INTRINSICS, SPACES, pointer_type
from core_compiler.codegen.memory import disjoint, memory_bytes, memory_type, narrow, widen
from core_compiler.codegen.values import NUMBA, Pointer, Vector, numba_type

_FORM = re.compile(r"(?P<stem>\w+?)_(?P<dtype>[a-z][a-z0-9]*?)(?:x(?P<width>\d+))?(?:_(\d+))?$")
_I1, _I32, _I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


class Namespace(intrinsics.Namespace):
    """The globals of one generated module, for CUDA."""

    @override
    def make(self, name: str) -> Callable:
        if name in _PLAIN:
            return _PLAIN[name]
        stem, _, rest = name.partition("_")
        if stem in _MEMORY_FORMS:
            dtype, *numbers = rest.split("_")
            return _MEMORY_FORMS[stem](dtype, self.owner, self.buffers, *map(int, numbers))
        if lane := re.fullmatch(r"lane_([a-z]+\d*)x(\d+)_(\d+)", name):
            return _lane(lane[1], int(lane[2]), int(lane[3]))
        found = _FORM.match(name)
        if found is None:
            return contract_function(name, None)
        width = int(found["width"]) if found["width"] else None
        if found["stem"] in _VALUE_FORMS:
            return _VALUE_FORMS[found["stem"]](found["dtype"], width)
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


_PLAIN: dict[str, Callable] = {
    "thread": _register("tid.x"),
    "block": _register("ctaid.x"),
    "barrier": _barrier,
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


# -- values in memory ------------------------------------------------------------------------------


def _place(builder, pointer: Pointer, values, width: int | None):
    """Return the address of ``width`` elements and their alignment in bytes.

    ``values`` are base, index...
    """
    place, size = builder.gep(values[0], [values[1]]), memory_bytes(pointer.memory)
    if width is None:
        return place, size
    raw = ir.VectorType(memory_type(pointer.memory), width)
    return builder.bitcast(place, raw.as_pointer(SPACES[pointer.space])), size * width


def _load(dtype: str, width: int | None):
    @intrinsic
    def load(typing, pointer, index):
        def codegen(context, builder, sig, values):
            place, align = _place(builder, pointer, values, width)
            loaded = builder.load(place, align=align)
            disjoint(builder, pointer, loaded)
            return widen(builder, loaded, pointer, width)

        return numba_type(pointer.value, width)(pointer, types.int64), codegen

    return load


def _store(dtype: str, width: int | None):
    @intrinsic
    def store(typing, pointer, index, value):
        def codegen(context, builder, sig, values):
            place, align = _place(builder, pointer, values, width)
            raw = narrow(builder, values[2], pointer, width)
            disjoint(builder, pointer, builder.store(raw, place, align=align))
            return context.get_dummy_value()

        kind = numba_type(pointer.value, width)
        return types.none(pointer, types.int64, kind), codegen

    return store


def _lane_at(builder, values, lane: int, step=None):
    """Return the address of a lane; ``values`` are base, index..."""
    far = _I64(lane) if step is None else builder.mul(step, _I64(lane))
    return builder.gep(values[0], [builder.add(values[1], far)])


def _loaded_below(builder, pointer: Pointer, values, width: int, count, step=None):
    """Load a vector of the lanes below ``count``; the others are not read and are 0."""
    lanes = []
    for lane in range(width):
        place, before = _lane_at(builder, values, lane, step), builder.block
        with builder.if_then(builder.icmp_signed("<", _I64(lane), count)):
            loaded = builder.load(place, align=memory_bytes(pointer.memory))
            disjoint(builder, pointer, loaded)
            inside = builder.block
        value = builder.phi(loaded.type)
        value.add_incoming(ir.Constant(loaded.type, 0), before)
        value.add_incoming(loaded, inside)
        lanes.append(widen(builder, value, pointer, None))
    made = ir.Constant(ir.VectorType(lanes[0].type, width), ir.Undefined)
    for lane, value in enumerate(lanes):
        made = builder.insert_element(made, value, _I32(lane))
    return made


def _store_below(builder, pointer: Pointer, values, width: int, count, step=None) -> None:
    raw = narrow(builder, values[2], pointer, width)
    for lane in range(width):
        place, element = (
            _lane_at(builder, values, lane, step),
            builder.extract_element(raw, _I32(lane)),
        )
        with builder.if_then(builder.icmp_signed("<", _I64(lane), count)):
            stored = builder.store(element, place, align=memory_bytes(pointer.memory))
            disjoint(builder, pointer, stored)


def _load_some(dtype: str, width: int):
    @intrinsic
    def load_some(typing, pointer, index, count):
        def codegen(context, builder, sig, values):
            return _loaded_below(builder, pointer, values, width, values[2])

        return numba_type(pointer.value, width)(pointer, types.int64, types.int64), codegen

    return load_some


def _gather(dtype: str, width: int):
    @intrinsic
    def gather(typing, pointer, index, step, count):
        def codegen(context, builder, sig, values):
            return _loaded_below(builder, pointer, values, width, values[3], values[2])

        numbers = [types.int64] * 3
        return numba_type(pointer.value, width)(pointer, *numbers), codegen

    return gather


def _store_some(dtype: str, width: int):
    @intrinsic
    def store_some(typing, pointer, index, value, count):
        def codegen(context, builder, sig, values):
            _store_below(builder, pointer, values, width, values[3])
            return context.get_dummy_value()

        kind = numba_type(pointer.value, width)
        return types.none(pointer, types.int64, kind, types.int64), codegen

    return store_some


def _scatter(dtype: str, width: int):
    @intrinsic
    def scatter(typing, pointer, index, value, step, count):
        def codegen(context, builder, sig, values):
            _store_below(builder, pointer, values, width, values[4], values[3])
            return context.get_dummy_value()

        kind = numba_type(pointer.value, width)
        return types.none(pointer, types.int64, kind, types.int64, types.int64), codegen

    return scatter


def _lane(dtype: str, width: int, number: int):
    @intrinsic
    def lane(typing, vector):
        def codegen(context, builder, sig, values):
            return builder.extract_element(values[0], ir.Constant(_I32, number))

        return NUMBA[dtype](Vector(dtype, width)), codegen

    return lane


_VALUE_FORMS: dict[str, Callable] = {
    "load": _load,
    "load_some": _load_some,
    "gather": _gather,
    "store": _store,
    "store_some": _store_some,
    "scatter": _scatter,
    "splat": INTRINSICS.splat_form,
    "lanes": INTRINSICS.lanes_form,
}
