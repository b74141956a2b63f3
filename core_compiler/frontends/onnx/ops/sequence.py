"""Sequences of tensors and optional values of ONNX.

They only exist at import: entries are selected by known positions, and the module only contains the
tensors.
"""

from __future__ import annotations

from core_compiler.frontends.base import MAX_EXPANDED_COPIES, need_small
from core_compiler.frontends.onnx.table import (
    EMPTY,
    NotSupported,
    TensorSequence,
    axis_of,
    onnx_op,
)
from core_compiler.ir import Value, dtype

I1, I64 = dtype("i1"), dtype("i64")


@onnx_op("SequenceConstruct")
def sequence_construct(b, *tensors):
    return TensorSequence(tuple(_tensor(t) for t in tensors))


@onnx_op("SequenceEmpty")
def sequence_empty(b):
    return TensorSequence(())


@onnx_op("SequenceAt")
def sequence_at(b, sequence, position):
    held = _tensors(sequence)
    return held[_index(b, position, len(held), len(held) - 1)]


@onnx_op("SequenceInsert")
def sequence_insert(b, sequence, tensor, position=None):
    held = _tensors(sequence)
    place = len(held) if position is None else _index(b, position, len(held), len(held))
    return TensorSequence((*held[:place], _tensor(tensor), *held[place:]))


@onnx_op("SequenceErase")
def sequence_erase(b, sequence, position=None):
    held = _tensors(sequence)
    last = len(held) - 1
    place = last if position is None else _index(b, position, len(held), last)
    return TensorSequence((*held[:place], *held[place + 1 :]))


@onnx_op("SequenceLength")
def sequence_length(b, sequence):
    return b.constant(len(_tensors(sequence)), I64)


@onnx_op("SplitToSequence")
def split_to_sequence(b, x, sizes=None):
    axis = axis_of(b.attr("axis", 0), x.type.rank)
    total = x.type.shape[axis]
    if sizes is None:
        need_small(total, "parts of a tensor", MAX_EXPANDED_COPIES)
    given = [1] * total if sizes is None else b.ints(sizes, "the sizes")
    if sizes is not None and not sizes.type.rank:
        (part,) = given
        if part < 1:
            raise NotSupported(f"parts of length {part}")
        need_small(-(-total // part), "parts of a tensor", MAX_EXPANDED_COPIES)
        given = [min(part, total - start) for start in range(0, total, part)]
    if sum(given) != total or min(given, default=0) < 0:
        raise NotSupported(f"parts of lengths {given} of an axis of size {total}")
    parts, start = [], 0
    for length in given:
        part = b.cut(x, axis, start, start + length)
        if sizes is None and not b.attr("keepdims", 1):
            part = b.reshape(part, shape=_without(part.type.shape, axis))
        parts.append(part)
        start += length
    return TensorSequence(tuple(parts))


@onnx_op("ConcatFromSequence")
def concat_from_sequence(b, sequence):
    held = _tensors(sequence)
    if not held:
        raise NotSupported("joining an empty sequence")
    fresh = bool(b.attr("new_axis", 0))
    axis = axis_of(b.attr("axis"), held[0].type.rank + fresh)
    if fresh:
        held = tuple(b.reshape(v, shape=_insert_axis(v.type.shape, axis)) for v in held)
    return b.concat(*held, axis=axis)


@onnx_op("Optional")
def optional(b, value=None):
    return EMPTY if value is None else value


@onnx_op("OptionalHasElement")
def optional_has_element(b, value=None):
    return b.constant(value is not None and value is not EMPTY, I1)


@onnx_op("OptionalGetElement")
def optional_get_element(b, value):
    if value is EMPTY:
        raise NotSupported("the element of an empty optional")
    return value


def _tensors(sequence) -> tuple[Value, ...]:
    if not isinstance(sequence, TensorSequence):
        raise NotSupported("expected a sequence, got a tensor")
    return sequence.tensors


def _tensor(value) -> Value:
    if not isinstance(value, Value):
        raise NotSupported("a sequence entry that is not a tensor")
    return value


def _index(b, position, size: int, last: int) -> int:
    """Return a known position, counted from the end if negative; ``last`` is the largest."""
    (place,) = b.ints(position, "the position")
    settled = place + size if place < 0 else place
    if not 0 <= settled <= last:
        raise NotSupported(f"position {place} of a sequence of length {size}")
    return settled


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _insert_axis(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis:])
