"""Short vectors in the memory of a GPU: whole ones if they are aligned, else lane by lane."""

from __future__ import annotations

from llvmlite import ir
from numba.cuda.extending import intrinsic
from typing_extensions import override

from core_compiler.codegen.cuda.leaves import CONTRACT
from core_compiler.codegen.cuda.values import SPACES
from core_compiler.codegen.intrinsics import ElementAddress, Intrinsics
from core_compiler.codegen.memory import disjoint, memory_bytes, memory_type, widen
from core_compiler.codegen.values import Pointer

_I32, _I64 = ir.IntType(32), ir.IntType(64)


class _Intrinsics(Intrinsics):
    @override
    def splat(self, builder, value, width: int):
        return _vector(builder, [value] * width)

    @override
    def element_address(
        self, builder, pointer: Pointer, at: ElementAddress, width: int | None
    ) -> tuple:
        base, index = at
        element_address, size = builder.gep(base, [index]), memory_bytes(pointer.memory)
        if width is None:
            return element_address, size
        raw = ir.VectorType(memory_type(pointer.memory), width)
        return builder.bitcast(element_address, raw.as_pointer(SPACES[pointer.space])), size * width

    @override
    def load_lanes(
        self, builder, pointer: Pointer, at: ElementAddress, width: int, count, step=None
    ):
        lanes = []
        for lane in range(width):
            element_address, before = _lane_at(builder, at, lane, step), builder.block
            with builder.if_then(builder.icmp_signed("<", _I64(lane), count)):
                loaded = builder.load(element_address, align=memory_bytes(pointer.memory))
                disjoint(builder, pointer, loaded)
                inside = builder.block
            value = builder.phi(loaded.type)
            value.add_incoming(ir.Constant(loaded.type, 0), before)
            value.add_incoming(loaded, inside)
            lanes.append(widen(builder, value, pointer, None))
        return _vector(builder, lanes)

    @override
    def store_lanes(
        self, builder, pointer: Pointer, at: ElementAddress, raw, count, step=None
    ) -> None:
        for lane in range(raw.type.count):
            element_address = _lane_at(builder, at, lane, step)
            element = builder.extract_element(raw, _I32(lane))
            with builder.if_then(builder.icmp_signed("<", _I64(lane), count)):
                stored = builder.store(element, element_address, align=memory_bytes(pointer.memory))
                disjoint(builder, pointer, stored)


def _vector(builder, lanes):
    made = ir.Constant(ir.VectorType(lanes[0].type, len(lanes)), ir.Undefined)
    for lane, value in enumerate(lanes):
        made = builder.insert_element(made, value, _I32(lane))
    return made


def _lane_at(builder, at: ElementAddress, lane: int, step):
    """Return the address of a lane."""
    base, index = at
    far = _I64(lane) if step is None else builder.mul(step, _I64(lane))
    return builder.gep(base, [builder.add(index, far)])


INTRINSICS = _Intrinsics(intrinsic, CONTRACT)
