"""Constants and data movement in tensor and linalg; exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core_compiler.exporters.mlir.linalg.context import (
    I64,
    PARALLEL,
    Linalg,
    identity,
    op,
)
from core_compiler.exporters.mlir.linalg.scalars import convert
from core_compiler.exporters.mlir.literals import constant_text, stored, type_text
from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.shapes import groups, kept_ranges
from core_compiler.ir import Dense, TensorType, tensor
from core_compiler.ir.types import INDEX
from core_compiler.ops import typed


@op("constant")
def constant(b: Linalg, op: typed.Constant) -> Ref:
    value = op.value
    argument = b.parameter(op)
    if argument is not None:
        return argument
    made = tensor(value.type.shape, value.type.dtype)
    if isinstance(value, Dense):
        array = b.shared.array(value)
        ref = b.writer.constant(f"arith.constant {constant_text(array, made.dtype)}", made)
        if array.size == 1:
            b.numbers[ref.number] = array.reshape(())
        return ref
    held = tensor(made.shape, stored(made.dtype))
    text = f"arith.constant dense_resource<{b.shared.resource(value)}> : {type_text(held)}"
    ref = b.writer.constant(text, held, op.result.name)
    if made.dtype.bits >= 8:
        return ref.read_as(made)

    def narrowed(x: Ref) -> Ref:
        bits = b.converted("arith.trunci", x, f"i{made.dtype.bits}")
        if made.dtype.is_float:
            return b.converted("arith.bitcast", bits, made.dtype)
        return bits.read_as(made.dtype)

    return b.each(narrowed, ref, dtype=made.dtype)


@op("iota")
def iota(b: Linalg, op: typed.Iota) -> Ref:
    made = op.result.type

    def body(_: Ref) -> Ref:
        place = b.converted("arith.index_cast", b.loop_index(op.axis), I64)
        return convert(b, place, made.dtype)

    return from_places(b, made, body)


def from_places(b: Linalg, type_: TensorType, body) -> Ref:
    """Return a tensor whose elements ``body`` computes from the loop indices."""
    results = [(b.empty(type_), identity(type_.rank))]
    return b.generic([], results, [PARALLEL] * type_.rank, body)[0]


@op("broadcast")
def broadcast(b: Linalg, op: typed.Broadcast, x: Ref) -> Ref:
    """Return ``x`` broadcast to the result's shape.

    A scalar becomes a constant of that shape.  Otherwise axes of size 1 are dropped first, because
    ``linalg.broadcast`` adds axes and does not stretch any.
    """
    made = tensor(op.result.type.shape, op.result.type.dtype)
    if x.number in b.numbers:
        number = b.numbers[x.number]
        text = constant_text(number.reshape((1,)), made.dtype)
        splat = f"arith.constant {text[: text.rindex(' : ')]} : {type_text(made)}"
        ref = b.writer.constant(splat, made)
        b.numbers[ref.number] = number
        return ref
    kept = [i for i, axis in enumerate(op.dims) if x.type.shape[i] == made.shape[axis]]
    x = reshaped(b, x, [x.type.shape[i] for i in kept])
    axes = [op.dims[i] for i in kept]
    added = [a for a in range(made.rank) if a not in axes]
    if not added:
        return x
    ref = b.writer.line(
        f"linalg.broadcast ins({x} : {type_text(x.type)}) "
        f"outs({b.empty(made)} : {type_text(made)}) dimensions = {added}",
        made,
    )
    b.spread[ref.number] = x, [identity(made.rank)[a] for a in axes]
    return ref


@op("reshape")
def reshape(b: Linalg, op: typed.Reshape, x: Ref) -> Ref:
    return reshaped(b, x, op.result.type.shape)


def reshaped(b: Linalg, x: Ref, shape: Sequence[Any]) -> Ref:
    """Return ``x`` reshaped: axes merged, split, or merged into one and split."""
    made = tensor(shape, x.type.dtype)
    if made is x.type:
        return x
    if made.elements == 0:
        return b.empty(made)
    merged, split = groups(x.type.shape, made.shape), groups(made.shape, x.type.shape)
    if merged is not None:
        return b.writer.line(
            f"tensor.collapse_shape {x} {merged} : {type_text(x.type)} into {type_text(made)}", made
        )
    if split is not None:
        return b.writer.line(
            f"tensor.expand_shape {x} {split} output_shape {list(made.shape)} : "
            f"{type_text(x.type)} into {type_text(made)}",
            made,
        )
    return reshaped(b, reshaped(b, x, (made.elements,)), shape)


@op("transpose")
def transpose(b: Linalg, op: typed.Transpose, x: Ref) -> Ref:
    return transposed(b, x, op.permutation)


def transposed(b: Linalg, x: Ref, permutation: Sequence[int]) -> Ref:
    if list(permutation) == list(range(x.type.rank)):
        return x
    made = tensor([x.type.shape[a] for a in permutation], x.type.dtype)
    return b.writer.line(
        f"linalg.transpose ins({x} : {type_text(x.type)}) outs({b.empty(made)} : "
        f"{type_text(made)}) permutation = {list(permutation)}",
        made,
    )


@op("slice")
def slice_(b: Linalg, op: typed.Slice, x: Ref) -> Ref:
    return cut(b, x, list(op.starts), op.result.type.shape, op.strides)


def cut(
    b: Linalg,
    x: Ref,
    starts: Sequence[int | Ref],
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Ref:
    """Extract a box of a tensor at positions that are static or of type index."""
    made = tensor(sizes, x.type.dtype)
    strides = list(strides or [1] * made.rank)
    at = ", ".join(f"{s}" for s in starts)
    return b.writer.line(
        f"tensor.extract_slice {x}[{at}] {list(made.shape)} {strides} : {type_text(x.type)} to "
        f"{type_text(made)}",
        made,
    )


def insert_slice(
    b: Linalg,
    update: Ref,
    x: Ref,
    starts: Sequence[int | Ref],
    strides: Sequence[int] | None = None,
) -> Ref:
    """Return ``x`` with a box replaced."""
    strides = list(strides or [1] * x.type.rank)
    at = ", ".join(f"{s}" for s in starts)
    return b.writer.line(
        f"tensor.insert_slice {update} into {x}[{at}] {list(update.type.shape)} {strides} : "
        f"{type_text(update.type)} into {type_text(x.type)}",
        x.type,
    )


@op("reverse")
def reverse(b: Linalg, op: typed.Reverse, x: Ref) -> Ref:
    def body(_: Ref) -> Ref:
        places = [b.loop_index(axis) for axis in range(x.type.rank)]
        for axis in op.axes:
            last = b.place(x.type.shape[axis] - 1)
            places[axis] = b.same("arith.subi", last, places[axis])
        return b.element(x, *places)

    return from_places(b, x.type, body)


@op("pad")
def pad(b: Linalg, op: typed.Pad, x: Ref, value: Ref) -> Ref:
    scalar, interior = b.number(value), op.interior
    made = tensor(op.result.type.shape, x.type.dtype)
    extents: Sequence[Any] = made.shape
    kept = kept_ranges(x.type.shape, op.low, extents, interior)
    if any(count == 0 for _, count, _ in kept):
        return b.filled(scalar, made)
    first, sizes, begin = ([row[i] for row in kept] for i in range(3))
    if tuple(sizes) != x.type.shape:
        x = cut(b, x, first, sizes)
    if any(interior):
        return insert_slice(b, x, b.filled(scalar, made), begin, [i + 1 for i in interior])
    high = [e - p - n for e, p, n in zip(extents, begin, sizes, strict=True)]
    return padded(b, x, scalar, begin, high)


def padded(b: Linalg, x: Ref, scalar: Ref, low: Sequence[int], high: Sequence[int]) -> Ref:
    """Return ``x`` padded with a scalar."""
    if not any((*low, *high)):
        return x
    sizes = zip(x.type.shape, low, high, strict=True)
    made = tensor([sum(parts) for parts in sizes], x.type.dtype)
    with b.writer.region((INDEX,) * made.rank) as region:
        b.writer.end(f"tensor.yield {scalar} : {type_text(scalar.type)}")
    return b.writer.line(
        f"tensor.pad {x} low{list(low)} high{list(high)} {region} : {type_text(x.type)} to "
        f"{type_text(made)}",
        made,
        regions=(region,),
    )


@op("concat")
def concat(b: Linalg, op: typed.Concat, *xs: Ref) -> Ref:
    made = op.result.type
    names, types = ", ".join(f"{x}" for x in xs), ", ".join(type_text(x.type) for x in xs)
    return b.writer.line(
        f"tensor.concat dim({op.axis}) {names} : ({types}) -> {type_text(made)}",
        tensor(made.shape, made.dtype),
    )


@op("dynamic_slice")
def dynamic_slice(b: Linalg, op: typed.DynamicSlice, x: Ref, *starts: Ref) -> Ref:
    sizes = op.result.type.shape
    return cut(b, x, _inside(b, x, starts, sizes), sizes)


@op("dynamic_update_slice")
def dynamic_update_slice(
    b: Linalg, op: typed.DynamicUpdateSlice, x: Ref, update: Ref, *starts: Ref
) -> Ref:
    return insert_slice(b, update, x, _inside(b, x, starts, update.type.shape))


def _inside(b: Linalg, x: Ref, starts: Sequence[Ref], sizes: Sequence[int]) -> list[Ref]:
    """Return run-time starts, clamped so that a box of ``sizes`` fits."""
    room = [size - part for size, part in zip(x.type.shape, sizes, strict=True)]
    return [b.clamped(b.number(s), r) for s, r in zip(starts, room, strict=True)]
