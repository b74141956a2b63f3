"""Sorting: stable; NaN is greatest; -0 equals +0."""

from __future__ import annotations

from core_compiler.ir import DType, tensor
from core_compiler.ops import hooks, typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import FOLLOWS
from core_compiler.ops.rules import (
    BOOL,
    I64,
    INTEGERS,
    NUMBERS,
    need,
    need_axis,
    need_dtype,
    replaced,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

sort = lazy_module.module("core_compiler.numerics.reference.sort")

_AXIS = Attr(int, doc="the axis that is sorted")
_DESCENDING = Attr(bool, False, "largest first; equal elements keep their order")


def _comparisons(op: typed.Argsort | typed.Sort | typed.Topk) -> int:
    """Return n log2 n comparisons per row."""
    x = op.x.type
    return x.elements * max(1, (x.shape[op.axis] - 1).bit_length())


def _sort_rule(types, attributes):
    (x,) = types
    need_dtype("x", x, (*NUMBERS, BOOL))
    need_axis(attributes["axis"], x.rank)
    return (tensor(x.shape, x.dtype),)


def _sort(arrays, attributes, types):
    return (sort.sort(arrays[0], attributes["axis"], attributes["descending"]),)


declare(
    OpDef(
        "core.sort",
        "The elements of each row along an axis in ascending or descending order",
        ("x",),
        _sort_rule,
        _sort,
        attributes={"axis": _AXIS, "descending": _DESCENDING},
        flops=_comparisons,
        traits=traits("exact", "selects"),
        precision=FOLLOWS,
        lower=hooks.Custom("sort"),
        gradient=RULES["sort"],
    )
)


def _argsort_rule(types, attributes):
    need_dtype("dtype", attributes["dtype"], INTEGERS)
    (made,) = _sort_rule(types, attributes)
    return (made.with_(dtype=attributes["dtype"]),)


def _argsort(arrays, attributes, types):
    order = sort.argsort(arrays[0], attributes["axis"], attributes["descending"])
    return (order.astype(types[0].dtype.numpy),)


declare(
    OpDef(
        "core.argsort",
        "The positions along an axis in the order that sorts x",
        ("x",),
        _argsort_rule,
        _argsort,
        attributes={
            "axis": _AXIS,
            "descending": _DESCENDING,
            "dtype": Attr(DType, I64, "the positions' dtype"),
        },
        flops=_comparisons,
        traits=traits("exact", "positions"),
        lower=hooks.Custom("sort"),
        gradient=CONSTANT,
    )
)


def _topk_rule(types, attributes):
    (x,), axis, k = types, attributes["axis"], attributes["k"]
    need_dtype("x", x, (*NUMBERS, BOOL))
    need_axis(axis, x.rank)
    size = x.shape[axis]
    need(k >= 0 and (isinstance(size, str) or k <= size), f"k = {k} of {size} elements")
    shape = replaced(x.shape, axis, k)
    return tensor(shape, x.dtype), tensor(shape, I64)


def _topk(arrays, attributes, types):
    return sort.top_k(arrays[0], attributes["k"], attributes["axis"], attributes["largest"])


declare(
    OpDef(
        "core.topk",
        "(values, positions) of the k largest or smallest along an axis, sorted; the first of "
        "equals comes first",
        ("x",),
        _topk_rule,
        _topk,
        attributes={
            "axis": _AXIS,
            "k": Attr(int, doc="number of elements"),
            "largest": Attr(bool, True, "the largest, in descending order; else the smallest"),
        },
        flops=_comparisons,
        traits=traits("exact", "positions"),
        precision=FOLLOWS,
        lower=hooks.Custom("topk"),
        gradient=RULES["topk"],
    )
)
