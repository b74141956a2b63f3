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
``prefetch_f32(p, i)``                   fetch the cache line of element i into the second cache
``gather_f32x16(p, i, step, count)``     lanes i, i+step, ...
``scatter_f32x16(p, i, v, step, count)``
``splat_f32x16(x)``, ``lane_f32x16(v, 3)``  all lanes x; lane 3.     ``lanes_i64x16()`` 0, 1, 2 ...
``shuffle_f32x16(v, w, (0, 1, 2))``      lanes selected from v then w
``word_u8x4(v)``                         the bits of four bytes as one i32
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
from core_compiler.codegen.cpu.lanes import CONTRACT, INTRINSICS, address
from core_compiler.codegen.cpu.source import ARGUMENTS, argument_groups
from core_compiler.codegen.cpu.values import entry_alloca
from core_compiler.codegen.memory import memory_type
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


def takes_literals(name: str) -> bool:
    """Return whether the function ``name`` needs the values of its integer arguments."""
    stem = name.partition("_")[0]
    numbered = [form for form in _MEMORY_FORMS if form not in ("offset", "prefetch")]
    return stem in ("size", "lane", "shuffle", *numbered)


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


def _prefetch(dtype: str, owner: str, count: int):
    """Return ``prefetch_f32(p, i)``: a hint that element ``i``, which need not exist, is read."""

    @intrinsic
    def prefetch(typing, pointer, element):
        def codegen(context, builder, sig, values):
            kind = ir.FunctionType(ir.VoidType(), [_I8P, _I32, _I32, _I32])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            where = builder.bitcast(address(builder, pointer, *values), _I8P)
            builder.call(hint, [where, *(ir.Constant(_I32, n) for n in (_READ, _SECOND, _DATA))])
            return context.get_dummy_value()

        return types.void(pointer, types.int64), codegen

    return prefetch


#: What LLVM's prefetch takes: to read, into the second-level cache, data.
_READ, _SECOND, _DATA = 0, 2, 1

_MEMORY_FORMS = {
    "prefetch": _prefetch,
    "buffer": _buffer,
    "scratch": _scratch,
    "registers": _registers,
    "offset": _moved,
}


def _invoke(count: int):
    """Return a call of ``kernel(args, 0, 1, scratch)`` with an argument block on the stack.

    More than :data:`ARGUMENTS` arguments are passed in tuples of that many.
    """

    def typed(typing, address, scratch, *arguments):
        def codegen(context, builder, sig, values):
            target, memory, *given = values
            if count > ARGUMENTS:
                given = [v for group in given for v in cgutils.unpack_tuple(builder, group)]
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

        given = [t for a in arguments for t in (a.types if count > ARGUMENTS else (a,))]
        widened = [a if isinstance(a, Pointer) else types.int64 for a in given]
        if count > ARGUMENTS:
            widened = [types.Tuple(part) for part in argument_groups(widened)]
        return types.void(types.int64, types.int64, *widened), codegen

    given = -(-count // ARGUMENTS) if count > ARGUMENTS else count
    names = ", ".join(f"a{i}" for i in range(given))
    made: dict = {"typed": typed}
    text = f"def invoke(typing, address, scratch, {names}):\n"
    exec(f"{text}    return typed(typing, address, scratch, {names})\n", made)
    return intrinsic(made["invoke"])


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
    **INTRINSICS.forms,
    "lane": _lane,
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
