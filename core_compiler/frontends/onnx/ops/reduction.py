"""Reductions, softmax, scans and sorting of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from core_compiler.frontends.onnx.table import TABLE, axis_of, onnx_op
from core_compiler.ir import dtype
from core_compiler.ops.quantised import integer_range

I64 = dtype("i64")


def _reduced(b, x, axes, build):
    """Reduce with ``build`` over axes from an input or attribute.

    Handles ``keepdims`` and the two meanings of an empty list.
    """
    given = b.axes(axes, x.type.rank)
    if not given:
        if b.attr("noop_with_empty_axes", 0):
            return build(x, ())
        given = tuple(range(x.type.rank))
    made = build(x, given)
    if b.attr("keepdims", 1):
        return b.reshape(
            made, shape=tuple(1 if i in given else d for i, d in enumerate(x.type.shape))
        )
    return made


def _in_floats(handler):
    """Wrap ``handler`` to compute integers in f64 and truncate the result."""

    def on_any(b, x, axes=None):
        kind = x.type.dtype
        if kind.is_float:
            return handler(b, x, axes)
        return b.cast(handler(b, b.cast(x, dtype="f64"), axes), dtype=kind)

    return on_any


def _simple(kind: str):
    def handler(b, x, axes=None):
        return _reduced(b, x, axes, lambda v, a: b.op(f"core.{kind}", (v,), axes=a) if a else v)

    return handler


TABLE["ReduceSum"], TABLE["ReduceProd"] = _simple("reduce_sum"), _simple("reduce_prod")
TABLE["ReduceMean"] = _in_floats(_simple("mean"))


def _extreme(kind: str, on_bool: str):
    def handler(b, x, axes=None):
        name = on_bool if x.type.dtype.kind == "bool" else kind
        if 0 in x.type.shape:
            return _reduced(b, x, axes, lambda v, a: _of_empty(b, v, a, kind))
        return _reduced(b, x, axes, lambda v, a: b.op(f"core.{name}", (v,), axes=a) if a else v)

    return handler


def _of_empty(b, x, axes, kind: str):
    """Return the extreme of an empty tensor: the identity, an infinity or the end of the range."""
    held = x.type.dtype
    if held.is_float:
        low, high = float("-inf"), float("inf")
    else:
        low, high = (0, 1) if held.kind == "bool" else integer_range(held)
    limit = low if kind == "reduce_max" else high
    shape = tuple(d for i, d in enumerate(x.type.shape) if i not in axes)
    return b.expand(b.constant(limit, x.type.dtype), shape)


TABLE["ReduceMax"] = _extreme("reduce_max", "reduce_or")
TABLE["ReduceMin"] = _extreme("reduce_min", "reduce_and")


def _total(b, v, axes):
    return b.reduce_sum(v, axes=axes) if axes else v


@onnx_op("ReduceL1")
def reduce_l1(b, x, axes=None):
    return _reduced(b, x, axes, lambda v, a: _total(b, b.abs(v), a))


@onnx_op("ReduceL2")
@_in_floats
def reduce_l2(b, x, axes=None):
    return _reduced(b, x, axes, lambda v, a: b.sqrt(_total(b, b.mul(v, v), a)))


@onnx_op("ReduceSumSquare")
def reduce_sum_square(b, x, axes=None):
    return _reduced(b, x, axes, lambda v, a: _total(b, b.mul(v, v), a))


@onnx_op("ReduceLogSum")
@_in_floats
def reduce_log_sum(b, x, axes=None):
    return _reduced(b, x, axes, lambda v, a: b.log(_total(b, v, a)))


@onnx_op("ReduceLogSumExp")
@_in_floats
def reduce_log_sum_exp(b, x, axes=None):
    if 0 in x.type.shape:
        return _reduced(b, x, axes, lambda v, a: _of_empty(b, v, a, "reduce_max"))
    return _reduced(b, x, axes, lambda v, a: b.logsumexp(v, axes=a) if a else v)


def _along(b, x, apply: Callable[[Any, int], Any]):
    """Apply softmax or a similar op.

    Before opset 13 the axes from ``axis`` on are flattened to one.
    """
    rank = x.type.rank
    axis = axis_of(b.attr("axis", 1 if b.opset < 13 else -1), rank)
    if b.opset >= 13 or axis == rank - 1:
        return apply(x, axis)
    rows = prod(x.type.shape[:axis])
    flat = b.reshape(x, shape=(rows, x.type.elements // max(rows, 1)))
    return b.reshape(apply(flat, 1), shape=x.type.shape)


@onnx_op("Softmax")
def softmax(b, x):
    return _along(b, x, lambda v, axis: b.softmax(v, axis=axis))


@onnx_op("LogSoftmax")
def log_softmax(b, x):
    return _along(b, x, lambda v, axis: b.log_softmax(v, axis=axis))


@onnx_op("ArgMax", "ArgMin")
def arg(b, x):
    axis = axis_of(b.attr("axis", 0), x.type.rank)
    name = b.node.op_type.lower()
    if b.attr("select_last_index", 0):
        size = x.type.shape[axis]
        place = b.op(f"core.{name}", (b.reverse(x, axes=(axis,)),), axis=axis, dtype=I64)
        place = b.sub(b.scalar_like(size - 1, place), place)
    else:
        place = b.op(f"core.{name}", (x,), axis=axis, dtype=I64)
    if b.attr("keepdims", 1):
        return b.reshape(
            place, shape=tuple(1 if i == axis else d for i, d in enumerate(x.type.shape))
        )
    return place


@onnx_op("CumSum", "CumProd")
def cumulative(b, x, axis):
    (axis,) = b.ints(axis, "axis")
    return b.op(
        f"core.{b.node.op_type.lower()}",
        (x,),
        axis=axis_of(axis, x.type.rank),
        reverse=bool(b.attr("reverse", 0)),
        exclusive=bool(b.attr("exclusive", 0)),
    )


@onnx_op("TopK")
def topk(b, x, k=None):
    count = b.ints(k, "k")[0] if k is not None else b.attr("k")
    return b.topk(
        x,
        axis=axis_of(b.attr("axis", -1), x.type.rank),
        k=int(count),
        largest=bool(b.attr("largest", 1)),
    )


@onnx_op("Hardmax")
def hardmax(b, x):
    def first_largest(v, axis: int):
        shape, rank = v.type.shape, v.type.rank
        place = b.argmax(v, axis=axis, dtype=I64)
        others = tuple(i for i in range(rank) if i != axis)
        here = b.eq(
            b.iota(shape=shape, dtype=I64, axis=axis), b.broadcast(place, shape=shape, dims=others)
        )
        return b.cast(here, dtype=v.type.dtype)

    return _along(b, x, first_largest)
