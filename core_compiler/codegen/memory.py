"""Conversion of buffer elements to values, and alias metadata, for all targets.

A pointer's type has ``value`` (the type in computations), ``memory`` (the type in memory: ``f32``,
``u16``...), and its buffer and kernel: ``number`` of ``count`` in ``owner``.
"""

from __future__ import annotations

from llvmlite import ir

from core_compiler.codegen.contract import element_type, lanes_of


def memory_type(memory: str) -> ir.Type:
    return element_type(memory)


def memory_bytes(memory: str) -> int:
    return int(memory[1:]) // 8


def disjoint(builder: ir.IRBuilder, pointer, instruction) -> None:
    """Mark an access as disjoint from all other buffers of the kernel."""
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


def widen(builder: ir.IRBuilder, raw, pointer, width: int | None):
    """Convert from memory's representation to a value's: bytes to i1, narrow float codes to i32."""
    target = lanes_of(pointer.value, width)
    if raw.type == target:
        return raw
    if pointer.value == "bool":
        zero = ir.Constant(raw.type, [0] * width if width else 0)
        return builder.icmp_unsigned("!=", raw, zero)
    return builder.zext(raw, target)


def narrow(builder: ir.IRBuilder, value, pointer, width: int | None):
    """Convert from a value's representation to memory's; the inverse of :func:`widen`."""
    memory = memory_type(pointer.memory)
    target = ir.VectorType(memory, width) if width else memory
    if value.type == target:
        return value
    if pointer.value == "bool":
        return builder.zext(value, target)
    return builder.trunc(value, target)
