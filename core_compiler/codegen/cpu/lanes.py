"""Vectors in the memory of this processor: LLVM's masked loads and stores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from typing_extensions import override

from core_compiler.codegen.contract import Contract
from core_compiler.codegen.intrinsics import ElementAddress, Intrinsics
from core_compiler.codegen.memory import disjoint, memory_bytes, memory_type
from core_compiler.codegen.values import Pointer
from core_compiler.numerics.narrow import NARROW_FLOATS
from core_compiler.numerics.primitives import LEAF_TABLE

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def address(builder: ir.IRBuilder, pointer: Pointer, base, index):
    """Return the LLVM pointer to element ``index``."""
    element = memory_type(pointer.memory)
    typed = builder.bitcast(base, element.as_pointer())
    return builder.gep(typed, [index])


class _Intrinsics(Intrinsics):
    @override
    def splat(self, builder, value, width: int):
        return _splat(builder, value, width)

    @override
    def element_address(
        self, builder, pointer: Pointer, at: ElementAddress, width: int | None
    ) -> tuple:
        element_address = address(builder, pointer, *at)
        if width is not None:
            element_address = builder.bitcast(element_address, _raw(pointer, width).as_pointer())
        return element_address, memory_bytes(pointer.memory)

    @override
    def load_lanes(
        self, builder, pointer: Pointer, at: ElementAddress, width: int, count, step=None
    ):
        if step is None:
            return self._load_masked(builder, pointer, at, width, count)
        arguments = builder, pointer, at, width, count

        def other() -> ir.Value:
            backwards, any_step = self._load_backwards, self._gather_lanes
            return _equals(
                builder, step, -1, lambda: backwards(*arguments), lambda: any_step(*arguments, step)
            )

        return _equals(builder, step, 2, lambda: self._load_every_second(*arguments), other)

    def _load_masked(self, builder, pointer: Pointer, at: ElementAddress, width: int, count):
        raw = _raw(pointer, width)
        place, _ = self.element_address(builder, pointer, at, width)
        align, none = ir.Constant(_I32, memory_bytes(pointer.memory)), ir.Constant(raw, [0] * width)
        mask = _mask(builder, count, width)
        loaded = _masked(builder, f"load.{_suffix(raw)}.p0", raw, place, align, mask, none)
        disjoint(builder, pointer, loaded)
        return loaded

    def _load_every_second(self, builder, pointer: Pointer, at: ElementAddress, width: int, count):
        """Load two vectors and keep their even lanes: many processors gather lane by lane."""
        base, index = at
        last = builder.sub(builder.mul(count, ir.Constant(_I64, 2)), ir.Constant(_I64, 1))
        length = ir.Constant(_I64, width)
        low = self._load_masked(builder, pointer, (base, index), width, last)
        second = base, builder.add(index, length)
        high = self._load_masked(builder, pointer, second, width, builder.sub(last, length))
        even = ir.Constant(ir.VectorType(_I32, width), list(range(0, 2 * width, 2)))
        return builder.shuffle_vector(low, high, even)

    def _load_backwards(self, builder, pointer: Pointer, at: ElementAddress, width: int, count):
        """Load the lanes' elements in the order of their addresses, and turn them."""
        base, index = at
        first = base, builder.sub(index, ir.Constant(_I64, width - 1))
        raw, backwards = _raw(pointer, width), list(range(width - 1, -1, -1))
        place, _ = self.element_address(builder, pointer, first, width)
        align, none = ir.Constant(_I32, memory_bytes(pointer.memory)), ir.Constant(raw, [0] * width)
        turn, lanes = (
            ir.Constant(ir.VectorType(_I32, width), backwards),
            _mask(builder, count, width),
        )
        mask = builder.shuffle_vector(lanes, lanes, turn)
        loaded = _masked(builder, f"load.{_suffix(raw)}.p0", raw, place, align, mask, none)
        disjoint(builder, pointer, loaded)
        return builder.shuffle_vector(loaded, none, turn)

    def _gather_lanes(self, builder, pointer: Pointer, at: ElementAddress, width: int, count, step):
        raw = _raw(pointer, width)
        places = _strided(builder, pointer, at, step, width)
        align, none = ir.Constant(_I32, memory_bytes(pointer.memory)), ir.Constant(raw, [0] * width)
        mask, name = _mask(builder, count, width), f"gather.{_suffix(raw)}.v{width}p0"
        loaded = _masked(builder, name, raw, places, align, mask, none)
        disjoint(builder, pointer, loaded)
        return loaded

    @override
    def store_lanes(
        self, builder, pointer: Pointer, at: ElementAddress, raw, count, step=None
    ) -> None:
        width = raw.type.count
        if step is None:
            element_address, _ = self.element_address(builder, pointer, at, width)
            name = f"store.{_suffix(raw.type)}.p0"
        else:
            name = f"scatter.{_suffix(raw.type)}.v{width}p0"
            element_address = _strided(builder, pointer, at, step, width)
        align, mask = ir.Constant(_I32, memory_bytes(pointer.memory)), _mask(builder, count, width)
        stored = _masked(builder, name, ir.VoidType(), raw, element_address, align, mask)
        disjoint(builder, pointer, stored)


def _equals(
    builder, step, number: int, then: Callable[[], ir.Value], otherwise: Callable[[], ir.Value]
) -> ir.Value:
    """Return what ``then`` emits, for a run in which ``step`` is ``number``, else ``otherwise``."""
    found = []
    with builder.if_else(builder.icmp_signed("==", step, ir.Constant(_I64, number))) as sides:
        for side, emit in zip(sides, (then, otherwise), strict=True):
            with side:
                found.append((emit(), builder.block))
    chosen = builder.phi(found[0][0].type)
    for value, block in found:
        chosen.add_incoming(value, block)
    return chosen


def _splat(builder, value, width: int):
    kind = ir.VectorType(value.type, width)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, width), [0] * width)
    return builder.shuffle_vector(one, undefined, zeros)


def _raw(pointer: Pointer, width: int) -> ir.VectorType:
    return ir.VectorType(memory_type(pointer.memory), width)


def _numbers(width: int, kind):
    return ir.Constant(ir.VectorType(kind, width), list(range(width)))


def _mask(builder, count, width: int):
    """Return a mask of the lanes below ``count`` (any 64-bit number)."""
    whole = ir.Constant(_I64, width)
    small = builder.select(builder.icmp_signed("<", count, whole), count, whole)
    small = builder.select(
        builder.icmp_signed("<", small, ir.Constant(_I64, 0)), ir.Constant(_I64, 0), small
    )
    below = _splat(builder, builder.trunc(small, _I32), width)
    return builder.icmp_signed("<", _numbers(width, _I32), below)


def _masked(builder, name: str, result, *arguments):
    kind = ir.FunctionType(result, [a.type for a in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.{name}")
    return builder.call(function, arguments)


def _suffix(raw: ir.VectorType) -> str:
    element = {"float": "f32", "double": "f64"}.get(str(raw.element), str(raw.element))
    return f"v{raw.count}{element}"


def _strided(builder, pointer: Pointer, at: ElementAddress, step, width: int):
    """Return a vector of pointers to elements index, index + step, ..."""
    base, index = at
    offsets = builder.mul(_numbers(width, _I64), _splat(builder, step, width))
    offsets = builder.add(offsets, _splat(builder, index, width))
    size = ir.Constant(ir.VectorType(_I64, width), [memory_bytes(pointer.memory)] * width)
    bases = _splat(builder, builder.ptrtoint(base, _I64), width)
    addresses = builder.add(bases, builder.mul(offsets, size))
    kind = ir.VectorType(memory_type(pointer.memory).as_pointer(), width)
    return builder.inttoptr(addresses, kind)


_BYTE = ir.IntType(8)
#: Lanes -> LLVM's intrinsic, and the features of a processor that has it.
_DOT4 = {
    16: ("llvm.x86.avx512.vpdpbusd.512", ("avx512vnni",)),
    8: ("llvm.x86.avx512.vpdpbusd.256", ("avx512vnni", "avx512vl")),
    4: ("llvm.x86.avx512.vpdpbusd.128", ("avx512vnni", "avx512vl")),
}


def _dot4(builder, dtype, a, b, acc):
    """Add four products of bytes: one instruction where the processor has it."""
    width = a.type.count if isinstance(a.type, ir.VectorType) else 0
    name, features = _DOT4.get(width, ("", ()))
    if not name or not all(_features().get(each, False) for each in features):
        return LEAF_TABLE["dot4_i32"][-1](builder, dtype, a, b, acc)
    bytes_ = ir.VectorType(_BYTE, 4 * width)
    arguments = [acc, builder.bitcast(a, bytes_), builder.bitcast(b, bytes_)]
    kind = ir.FunctionType(acc.type, [v.type for v in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _clamp_to_i32(builder, dtype, x, low, high):
    """Convert ``x``, clamped to two integers; NaN gives 0.

    A comparison that is false for NaN chooses ``low``: one instruction, and one for ``high``.
    """
    above = builder.select(builder.fcmp_ordered(">", x, low), x, low)
    inside = builder.select(builder.fcmp_ordered("<", above, high), above, high)
    whole = builder.fptosi(inside, _like(x.type, _I32))
    return builder.select(builder.fcmp_ordered("ord", x, x), whole, ir.Constant(whole.type, None))


@functools.cache
def _features() -> Mapping[str, bool]:
    return llvm.get_host_cpu_features()


def _half_to_f32(builder, dtype, code):
    half = _like(code.type, ir.HalfType())
    return builder.fpext(
        builder.bitcast(builder.trunc(code, _like(code.type, _HALF_BITS)), half),
        _like(code.type, ir.FloatType()),
    )


def _f32_to_half(builder, dtype, x):
    half = builder.fptrunc(x, _like(x.type, ir.HalfType()))
    return builder.zext(builder.bitcast(half, _like(x.type, _HALF_BITS)), _like(x.type, _I32))


_HALF_BITS = ir.IntType(16)


def _like(shape: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType(element, shape.count) if isinstance(shape, ir.VectorType) else element


def _table() -> dict[str, tuple]:
    arguments, result, dtype, _ = LEAF_TABLE["dot4_i32"]
    return {
        **LEAF_TABLE,
        "dot4_i32": (arguments, result, dtype, _dot4),
        "clamp_to_i32": ((types.float32,) * 3, types.int32, "f32", _clamp_to_i32),
        "half_to_f32": ((types.int32,), types.float32, "f32", _half_to_f32),
        "f32_to_half": ((types.float32,), types.int32, "f32", _f32_to_half),
    }


def _conversions(names: Mapping[str, Callable]) -> dict[str, Callable]:
    """Return f16's conversions by the processor's instructions, if it has them.

    They are exact or round to nearest even, also to and from subnormals. Of NaN they keep the
    payload, and the contract does not.
    """
    if not _features().get("f16c", False):
        return {}
    f16 = NARROW_FLOATS["f16"]
    select, from_bits, choose = names["select_f32"], names["from_bits_f32"], names["select_i32"]
    and_, or_ = names["and_i32"], names["or_i32"]

    def decode(code):
        value = names["half_to_f32"](code)
        return select(value != value, from_bits(names["i32"](CANONICAL_NAN)), value)

    def encode(x, saturate):
        code = names["f32_to_half"](x)
        infinite = names["eq_i32"](and_(code, names["i32"](0x7FFF)), names["i32"](f16.overflow))
        largest = or_(and_(code, names["i32"](0x8000)), names["i32"](f16.maximum))
        code = choose(infinite & names["boolean"](saturate), largest, code)
        return choose(x != x, names["i32"](f16.nan), code)

    return {
        "convert_f16_f32": decode,
        "convert_f32_f16": encode,
        "round_f16_f32": lambda x: decode(encode(x, 0)),
    }


#: f32's canonical NaN.
CANONICAL_NAN = 0x7FC00000
#: The contract's functions on this processor.
CONTRACT = Contract(_table(), _conversions)
INTRINSICS = _Intrinsics(intrinsic, CONTRACT)
