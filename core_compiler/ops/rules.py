"""The common parts of type rules: dtype classes, checks of axes and shapes, layouts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NoReturn

from core_compiler.ir import DType, TensorType, dtype
from core_compiler.ir.views import OpView
from core_compiler.ops import dims
from core_compiler.ops.base import TypeRuleError

#: Floats with arithmetic; the narrower ones are storage formats (cast, move, contract).
FLOATS = tuple(map(dtype, ("f64", "f32", "f16", "bf16")))
SIGNED = tuple(map(dtype, ("i8", "i16", "i32", "i64")))
UNSIGNED = tuple(map(dtype, ("ui8", "ui16", "ui32", "ui64")))
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
BOOL = dtype("i1")
LOGICAL = (*INTEGERS, BOOL)
I32, I64, F32, F64 = map(dtype, ("i32", "i64", "f32", "f64"))

_CLASSES = {
    FLOATS: "a float of 16 bits or more",
    INTEGERS: "an integer",
    NUMBERS: "a number",
    (BOOL,): "i1",
    LOGICAL: "an integer or i1",
    FLOATS + SIGNED: "a float or signed integer",
}


def need(condition: bool, message: str) -> None:
    """Raise TypeRuleError with ``message`` unless ``condition``."""
    if not condition:
        raise TypeRuleError(message)


def refuse(message: str) -> NoReturn:
    raise TypeRuleError(message)


def need_dtype(name: str, found: TensorType | DType, allowed: Sequence[DType]) -> None:
    """Check that ``found``'s dtype is one of ``allowed``."""
    found = found.dtype if isinstance(found, TensorType) else found
    wanted = _CLASSES.get(tuple(allowed)) or " or ".join(d.name for d in allowed)
    need(found in allowed, f"{name} is {found.name}, expected {wanted}")


def need_same_dtype(names: Sequence[str], types: Sequence[TensorType]) -> None:
    for name, other in zip(names[1:], types[1:], strict=False):
        need(
            other.dtype is types[0].dtype,
            f"{names[0]} is {types[0].dtype.name} but {name} is {other.dtype.name}",
        )


def need_shape(name: str, found: TensorType, shape: Sequence) -> None:
    shape = tuple(shape)
    need(found.shape == shape, f"{name} has shape {show(found.shape)}, expected {show(shape)}")


def need_same_shape(names: Sequence[str], types: Sequence[TensorType]) -> None:
    for name, other in zip(names[1:], types[1:], strict=False):
        need(
            other.shape == types[0].shape,
            f"{names[0]} has shape {show(types[0].shape)} but {name} has {show(other.shape)}"
            " (broadcast is explicit)",
        )


def need_rank(name: str, found: TensorType, rank: int) -> None:
    need(found.rank == rank, f"{name} has rank {found.rank}, expected {rank}")


def need_axis(axis: int, rank: int, name: str = "axis") -> int:
    """Check that ``axis`` is one of ``rank`` axes, counted from 0."""
    need(
        0 <= axis < rank,
        f"{name} {axis} is not in 0..{rank - 1}" if rank else f"{name} {axis} of a rank-0 tensor",
    )
    return axis


def need_axes(axes: Sequence[int], rank: int, name: str = "axes") -> tuple[int, ...]:
    """Check that ``axes`` are distinct axes in ascending order."""
    for axis in axes:
        need_axis(axis, rank, f"{name}: axis")
    need(
        all(a < b for a, b in itertools.pairwise(axes)),
        f"{name} {show(axes)} must be ascending and distinct",
    )
    return tuple(axes)


def need_length(name: str, given: Sequence, length: int) -> None:
    need(len(given) == length, f"{name} {show(given)} has {len(given)} entries, expected {length}")


def need_static(name: str, size) -> int:
    """Check that ``size`` is a number, for rules that do not support symbols."""
    need(isinstance(size, int), f"{name} is the symbolic size {size!r}; bind it to a number first")
    return size


def need_index(name: str, found: TensorType) -> None:
    """Check that ``found`` contains positions: any integer dtype."""
    need_dtype(name, found, INTEGERS)


def show(shape: Sequence) -> str:
    return f"({', '.join(map(str, shape))})"


def common_order(*types: TensorType) -> tuple[int, ...] | None:
    """Return the memory order that all operands of the result's rank share, else row-major.

    Operands of rank below 2, or without a size above 1 on two axes, fit any order.
    """
    orders = dict.fromkeys(t.order for t in types if sum(d != 1 for d in t.shape) > 1)
    return next(iter(orders)) if len(orders) == 1 else None


def without(shape: Sequence, axes: Sequence[int]) -> tuple:
    """Return ``shape`` without ``axes``."""
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def replaced(shape: Sequence, axis: int, size) -> tuple:
    """Return ``shape`` with another size on ``axis``."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def window_size(name: str, size, window, stride: int, low: int, high: int, dilation: int):
    """Return the number of positions of a window.

    It is ``(size + low + high - (dilation * (window - 1) + 1)) // stride + 1``.
    """
    span = dims.add(dims.multiply(dilation, dims.subtract(window, 1)), 1)
    room = dims.subtract(dims.add(size, low, high), span)
    if isinstance(room, int):
        need(
            room >= 0,
            f"{name}: window of span {span} exceeds the padded size {dims.add(size, low, high)}",
        )
    steps = dims.floor_divide(room, stride)
    if steps is None:
        refuse(f"{name}: symbolic size {size!r} with stride {stride}; bind it first")
    return dims.add(steps, 1)


def accumulator(operand: DType) -> DType:
    """Return the dtype in which sums of products run.

    It is f64 for f64 and f32 for other floats; 64-bit integers keep their own dtype, others use
    i32.
    """
    if operand.is_float:
        return F64 if operand is F64 else F32
    return operand if operand.bits == 64 else I32


def free(op) -> int:
    """Return the flops of an op that only moves elements."""
    return 0


def each_operand(op: OpView) -> int:
    """Return the flops of an op with one operation per element of its first operand."""
    return op.operands[0].type.elements
