"""Conversions of clamped floats to integers, which processors do in three instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core_compiler.codegen.source import use_counts
from core_compiler.ir import Block, Function, Op, Value, dtype
from core_compiler.kernel_ir.ops import element, is_pure
from core_compiler.kernel_ir.views import Constant

F32, I32 = dtype("f32"), dtype("i32")


@dataclass(frozen=True)
class Clamp:
    """A conversion to i32 of an f32 clamped to ``low`` and ``high``, constants in i32.

    ``inner``: the maximum and minimum, which nothing else reads.
    """

    x: Value
    low: Value
    high: Value
    inner: tuple[Op, Op]


def clamps(function: Function) -> dict[Op, Clamp]:
    """Return the casts of a kernel that convert clamped values."""
    body, found = function.body, {}
    uses, numbers = use_counts(body), _numbers(body)
    for block in (body, *(r for op in body.walk() for r in op.regions)):
        place = {op: i for i, op in enumerate(block.ops)}
        made = {op.result: op for op in block.ops if len(op.results) == 1}
        for op in block.ops:
            clamp = _clamp(op, made, numbers)
            if clamp is None or any(uses[each.result] != 1 for each in clamp.inner):
                continue
            # The value's text moves to the cast: no store may come between.
            between = block.ops[place[clamp.inner[0]] : place[op]]
            if all(map(is_pure, between)):
                found[op] = clamp
    return found


def _clamp(op: Op, made: Mapping[Value, Op], numbers: Mapping[Value, float]) -> Clamp | None:
    if op.kind != "kernel.cast" or element(op.result.type) is not I32:
        return None
    least = _of_constant(op.operands[0], "kernel.min", made, numbers)
    most = None if least is None else _of_constant(least[1], "kernel.max", made, numbers)
    if least is None or most is None or element(most[1].type) is not F32:
        return None
    smallest, _, high = least
    largest, x, low = most
    if not all(-(2**31) <= numbers[v] < 2**31 for v in (low, high)):
        return None
    return Clamp(x, low, high, (largest, smallest))


def _of_constant(
    value: Value, kind: str, made: Mapping[Value, Op], numbers: Mapping[Value, float]
) -> tuple[Op, Value, Value] | None:
    """Return the op ``kind`` that defines a value, its operand that varies, and its constant."""
    op = made.get(value)
    if op is None or op.kind != kind:
        return None
    varying = [v for v in op.operands if v not in numbers]
    constant = [v for v in op.operands if v in numbers]
    return (op, varying[0], constant[0]) if len(varying) == len(constant) == 1 else None


def _numbers(body: Block) -> dict[Value, float]:
    """Return the values of constants, also of those in all lanes of a vector."""
    found: dict[Value, float] = {}
    for op in body.walk():
        if op.kind == "kernel.constant":
            found[op.result] = float(Constant.of(op).value)
        elif op.kind == "kernel.broadcast" and op.operands[0] in found:
            found[op.result] = found[op.operands[0]]
    return found
