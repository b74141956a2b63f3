"""The functions called by generated source, created on demand from their names.

=======================================  ========================================================
``invoke_3(k, scratch, p, q, n)``        another kernel, at address k, with its three arguments
``f32(x)``, ``i64(x)`` ...               a number of that dtype
``exp_f32(x)``, ``fma_f32x16(a, b, c)``  a contract function, on scalars or on 16 lanes
``buffer_f32(args, slot, n)``            the kernel's buffer argument in a slot; buffer ``n``
``size(args, n)``                        the index argument in slot ``n`` of the argument block
``scratch_f32(base, offset, n)``         memory of this thread, at byte ``offset``; buffer ``n``
``registers_f32(32, n)``                 a small array that LLVM keeps in registers; buffer ``n``
``load_f32x16(p, i)``                    lanes i, i+1, ...;  ``load_some_f32x16(p, i, count)``
``store_f32x16(p, i, v)``                ``store_some_f32x16(p, i, v, count)``
``gather_f32x16(p, i, step, count)``     lanes i, i+step, ...
``scatter_f32x16(p, i, v, step, count)``
``splat_f32x16(x)``, ``lane_f32x16(v, 3)``  all lanes x; lane 3.     ``lanes_i64x16()`` 0, 1, 2 ...
``shuffle_f32x16(v, w, (0, 1, 2))``      lanes selected from v then w
``as_i64_f32x16(x)``                     bit cast and conversions: ``convert_f32_i64x16(x)``
``and_boolx16(p, q)``, ``not_bool(p)``   logic on i1
=======================================  ========================================================
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic
from typing_extensions import override

from core_compiler.codegen import intrinsics
from core_compiler.codegen.cpu.values import CONTRACT, INTRINSICS, address, entry_alloca, splat
from core_compiler.codegen.memory import disjoint, memory_bytes, memory_type, narrow, widen
from core_compiler.codegen.values import NUMBA, Pointer, Vector
from core_compiler.numerics.functions import NAMESPACE, integer_power
from core_compiler.numerics.jit import inline_jit
from core_compiler.numerics.primitives import PRIMITIVES

_FORM = re.compile(r"(?P<stem>\w+)_(?P<dtype>[a-z]+[a-z0-9]*?)x(?P<width>\d+)$")
_I8P, _I32, _I64 = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)


class Namespace(intrinsics.Namespace):
    """The globals of one generated module, for this processor."""

    @override
    def make(self, name: str) -> Callable:
        if name == "size":
            return _size
        stem, _, rest = name.partition("_")
        if stem == "invoke":
            return _invoke(int(rest))
        if stem in _MEMORY_FORMS:
            return _MEMORY_FORMS[stem](rest, self.owner, self.buffers)
        found = _FORM.match(name)
        if found and found["stem"] in _VECTOR_FORMS:
            return _VECTOR_FORMS[found["stem"]](found["dtype"], int(found["width"]))
        if found:
            return contract_function(f"{found['stem']}_{found['dtype']}", int(found["width"]))
        return contract_function(name, None)


# -- buffers ---------------------------------------------------------------------------------------


def _literal(argument) -> int:
    if not isinstance(argument, types.IntegerLiteral):
        raise TypingError("a buffer's number and a register array's size must be literals")
    return argument.literal_value


def _slot(builder, args, number: int):
    """Load entry ``number`` of the argument block, which is constant while the kernel runs."""
    base = builder.inttoptr(args, _I64.as_pointer())
    loaded = builder.load(builder.gep(base, [ir.Constant(_I64, number)]), align=8)
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded


@intrinsic(prefer_literal=True)
def _size(typing, args, number):
    place = _literal(number)

    def codegen(context, builder, sig, values):
        return _slot(builder, values[0], place)

    return types.int64(types.int64, number), codegen


def _buffer(dtype: str, owner: str, count: int):
    @intrinsic(prefer_literal=True)
    def buffer(typing, args, slot, number):
        kind, place = Pointer(dtype, owner, _literal(number), count), _literal(slot)

        def codegen(context, builder, sig, values):
            return builder.inttoptr(_slot(builder, values[0], place), _I8P)

        return kind(types.int64, slot, number), codegen

    return buffer


def _scratch(dtype: str, owner: str, count: int):
    @intrinsic(prefer_literal=True)
    def scratch(typing, base, offset, number):
        kind = Pointer(dtype, owner, _literal(number), count)

        def codegen(context, builder, sig, values):
            return builder.inttoptr(builder.add(*values[:2]), _I8P)

        return kind(types.int64, types.int64, number), codegen

    return scratch


def _registers(dtype: str, owner: str, count: int):
    @intrinsic(prefer_literal=True)
    def registers(typing, elements, number):
        kind = Pointer(dtype, owner, _literal(number), count)
        size = _literal(elements)

        def codegen(context, builder, sig, values):
            memory = ir.ArrayType(memory_type(kind.memory), size)
            return builder.bitcast(entry_alloca(builder, memory, 64), _I8P)

        return kind(elements, number), codegen

    return registers


def _moved(dtype: str, owner: str, count: int):
    """Return ``offset_f32(p, n)``: the buffer from element ``n`` on."""

    @intrinsic
    def offset(typing, pointer, elements):
        def codegen(context, builder, sig, values):
            return builder.bitcast(address(builder, pointer, *values), _I8P)

        return pointer(pointer, types.int64), codegen

    return offset


_MEMORY_FORMS = {
    "buffer": _buffer,
    "scratch": _scratch,
    "registers": _registers,
    "offset": _moved,
}


def _invoke(count: int):
    """Return a call of ``kernel(args, 0, 1, scratch)`` with an argument block on the stack."""

    def typed(typing, address, scratch, *arguments):
        def codegen(context, builder, sig, values):
            target, memory, *given = values
            block = entry_alloca(builder, ir.ArrayType(_I64, count), 64)
            for place, value in enumerate(given):
                if isinstance(value.type, ir.PointerType):
                    value = builder.ptrtoint(value, _I64)
                zero = ir.Constant(_I64, 0)
                builder.store(value, builder.gep(block, [zero, ir.Constant(_I64, place)]))
            kind = ir.FunctionType(ir.VoidType(), [_I64] * 4)
            function = builder.inttoptr(target, kind.as_pointer())
            bounds = [ir.Constant(_I64, 0), ir.Constant(_I64, 1)]
            builder.call(function, [builder.ptrtoint(block, _I64), *bounds, memory])
            return context.get_dummy_value()

        widened = [a if isinstance(a, Pointer) else types.int64 for a in arguments]
        return types.void(types.int64, types.int64, *widened), codegen

    names = ", ".join(f"a{i}" for i in range(count))
    made: dict = {"typed": typed}
    text = f"def invoke(typing, address, scratch, {names}):\n"
    exec(f"{text}    return typed(typing, address, scratch, {names})\n", made)
    return intrinsic(made["invoke"])


# -- vectors in memory -----------------------------------------------------------------------------


def _numbers(width: int, kind=_I32):
    return ir.Constant(ir.VectorType(kind, width), list(range(width)))


def _mask(builder, count, width: int):
    """Return a mask of the lanes below ``count`` (any 64-bit number)."""
    whole = ir.Constant(_I64, width)
    small = builder.select(builder.icmp_signed("<", count, whole), count, whole)
    small = builder.select(
        builder.icmp_signed("<", small, ir.Constant(_I64, 0)), ir.Constant(_I64, 0), small
    )
    return builder.icmp_signed(
        "<", _numbers(width), splat(builder, builder.trunc(small, _I32), width)
    )


def _intrinsic(builder, name: str, result, *arguments):
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _suffix(raw: ir.VectorType) -> str:
    element = {"float": "f32", "double": "f64"}.get(str(raw.element), str(raw.element))
    return f"v{raw.count}{element}"


def _place(builder, pointer: Pointer, values, width: int):
    """Return the LLVM type of ``width`` elements, and their address; ``values``: base, index..."""
    base, index = values[:2]
    raw = ir.VectorType(memory_type(pointer.memory), width)
    return raw, builder.bitcast(address(builder, pointer, base, index), raw.as_pointer())


def _strided(builder, pointer: Pointer, base, index, step, width: int):
    """Return a vector of pointers to elements index, index + step, ..."""
    offsets = builder.mul(_numbers(width, _I64), splat(builder, step, width))
    offsets = builder.add(offsets, splat(builder, index, width))
    size = ir.Constant(ir.VectorType(_I64, width), [memory_bytes(pointer.memory)] * width)
    bases = splat(builder, builder.ptrtoint(base, _I64), width)
    addresses = builder.add(bases, builder.mul(offsets, size))
    kind = ir.VectorType(memory_type(pointer.memory).as_pointer(), width)
    return builder.inttoptr(addresses, kind)


def _load(dtype: str, width: int):
    @intrinsic
    def load(typing, pointer, index):
        def codegen(context, builder, sig, values):
            _, place = _place(builder, pointer, values, width)
            loaded = builder.load(place, align=memory_bytes(pointer.memory))
            disjoint(builder, pointer, loaded)
            return widen(builder, loaded, pointer, width)

        return Vector(pointer.value, width)(pointer, types.int64), codegen

    return load


def _load_some(dtype: str, width: int):
    @intrinsic
    def load_some(typing, pointer, index, count):
        def codegen(context, builder, sig, values):
            raw, place = _place(builder, pointer, values, width)
            loaded = _intrinsic(
                builder,
                f"llvm.masked.load.{_suffix(raw)}.p0",
                raw,
                place,
                ir.Constant(_I32, memory_bytes(pointer.memory)),
                _mask(builder, values[2], width),
                ir.Constant(raw, [0] * width),
            )
            disjoint(builder, pointer, loaded)
            return widen(builder, loaded, pointer, width)

        return Vector(pointer.value, width)(pointer, types.int64, types.int64), codegen

    return load_some


def _gather(dtype: str, width: int):
    @intrinsic
    def gather(typing, pointer, index, step, count):
        def codegen(context, builder, sig, values):
            base, index, step, count = values
            raw = ir.VectorType(memory_type(pointer.memory), width)
            places = _strided(builder, pointer, base, index, step, width)
            loaded = _intrinsic(
                builder,
                f"llvm.masked.gather.{_suffix(raw)}.v{width}p0",
                raw,
                places,
                ir.Constant(_I32, memory_bytes(pointer.memory)),
                _mask(builder, count, width),
                ir.Constant(raw, [0] * width),
            )
            disjoint(builder, pointer, loaded)
            return widen(builder, loaded, pointer, width)

        return Vector(pointer.value, width)(pointer, *[types.int64] * 3), codegen

    return gather


def _store(dtype: str, width: int):
    @intrinsic
    def store(typing, pointer, index, value):
        def codegen(context, builder, sig, values):
            _, place = _place(builder, pointer, values, width)
            raw = narrow(builder, values[2], pointer, width)
            disjoint(
                builder, pointer, builder.store(raw, place, align=memory_bytes(pointer.memory))
            )
            return context.get_dummy_value()

        return types.none(pointer, types.int64, Vector(pointer.value, width)), codegen

    return store


def _store_some(dtype: str, width: int):
    @intrinsic
    def store_some(typing, pointer, index, value, count):
        def codegen(context, builder, sig, values):
            raw_type, place = _place(builder, pointer, values, width)
            raw = narrow(builder, values[2], pointer, width)
            stored = _intrinsic(
                builder,
                f"llvm.masked.store.{_suffix(raw_type)}.p0",
                ir.VoidType(),
                raw,
                place,
                ir.Constant(_I32, memory_bytes(pointer.memory)),
                _mask(builder, values[3], width),
            )
            disjoint(builder, pointer, stored)
            return context.get_dummy_value()

        kind = Vector(pointer.value, width)
        return types.none(pointer, types.int64, kind, types.int64), codegen

    return store_some


def _scatter(dtype: str, width: int):
    @intrinsic
    def scatter(typing, pointer, index, value, step, count):
        def codegen(context, builder, sig, values):
            base, index, value, step, count = values
            raw = narrow(builder, value, pointer, width)
            places = _strided(builder, pointer, base, index, step, width)
            stored = _intrinsic(
                builder,
                f"llvm.masked.scatter.{_suffix(raw.type)}.v{width}p0",
                ir.VoidType(),
                raw,
                places,
                ir.Constant(_I32, memory_bytes(pointer.memory)),
                _mask(builder, count, width),
            )
            disjoint(builder, pointer, stored)
            return context.get_dummy_value()

        kind = Vector(pointer.value, width)
        return types.none(pointer, types.int64, kind, types.int64, types.int64), codegen

    return scatter


# -- vectors in registers --------------------------------------------------------------------------


def _lane(dtype: str, width: int):
    @intrinsic(prefer_literal=True)
    def lane(typing, vector, number):
        place = _literal(number)

        def codegen(context, builder, sig, values):
            return builder.extract_element(values[0], ir.Constant(_I32, place))

        return NUMBA[dtype](vector, number), codegen

    return lane


def _shuffle(dtype: str, width: int):
    @intrinsic(prefer_literal=True)
    def shuffle(typing, v, w, mask):
        picked = [_literal(m) for m in mask]

        def codegen(context, builder, sig, values):
            kind = ir.VectorType(_I32, len(picked))
            return builder.shuffle_vector(values[0], values[1], ir.Constant(kind, picked))

        return Vector(dtype, len(picked))(v, w, mask), codegen

    return shuffle


_VECTOR_FORMS: dict[str, Callable] = {
    "load": _load,
    "load_some": _load_some,
    "gather": _gather,
    "store": _store,
    "store_some": _store_some,
    "scatter": _scatter,
    "splat": INTRINSICS.splat_form,
    "lane": _lane,
    "lanes": INTRINSICS.lanes_form,
    "shuffle": _shuffle,
}


# -- contract functions ----------------------------------------------------------------------------


def contract_function(name: str, width: int | None) -> Callable:
    """Return the contract function as an intrinsic; one with loops is Numba's own."""
    logic = INTRINSICS.logic(name, width)
    if logic is not None:
        return logic
    stem, _, dtype = name.rpartition("_")
    if stem == "power":
        return _integer_power(dtype)
    if name in CONTRACT.functions and width is None and not _straight(name):
        return NAMESPACE[name]
    return INTRINSICS.traced(name, width)


@functools.cache
def _integer_power(dtype: str):
    return inline_jit(integer_power(dtype, PRIMITIVES))


def _straight(name: str) -> bool:
    dtype = name.rpartition("_")[2]
    if dtype not in NUMBA or name.startswith(("convert", "select", "from_bits", "round")):
        return True
    return CONTRACT.is_traceable(name, (dtype,) * CONTRACT.arity(name))
