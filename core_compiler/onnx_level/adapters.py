"""Conversions of an op between consecutive versions of its ONNX definition.

The table has a row for every definition that changed in more than the accepted types; all others
carry over (see :func:`carry_over`).  The texts of the versions: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from core_compiler.ir import (
    Op,
    OpaqueType,
    TensorType,
    Type,
    Value,
    WeightStore,
    as_array,
)
from core_compiler.ir.parser import parse_type
from core_compiler.onnx_level.builder import Nodes
from core_compiler.onnx_level.dialect import (
    ABSENT,
    ANY_SIZE,
    NOTHING,
    PREFIX,
    SINCE,
    UNKNOWN,
    constant,
)


class CannotConvert(Exception):
    """The other version does not support this use of the op; the message names the feature."""


@dataclass
class NodeConversion:
    """A node that is converted to another version: its parts, and the nodes that replace it."""

    op: Op
    version: int  # the target definition
    nodes: Nodes
    producer_of: Callable[[Value], Op | None]

    def attr(self, name: str, default: Any = None) -> Any:
        return self.op.get(name, default)

    def input(self, place: int) -> Value | None:
        """Return an input, or None if it is omitted."""
        if place >= len(self.op.operands):
            return None
        value = self.op.operands[place]
        producer = self.producer_of(value)
        return None if producer is not None and producer.kind == ABSENT else value

    def array(self, place: int, what: str) -> np.ndarray | None:
        """Return an input's constant value, None if omitted; raise CannotSay if it is computed."""
        value = self.input(place)
        if value is None:
            return None
        held = constant(self.producer_of(value))
        if held is None:
            raise CannotConvert(f"{what} must be constant, but is computed")
        return as_array(held, self.nodes.weights)

    def ints(self, place: int, what: str) -> tuple[int, ...] | None:
        found = self.array(place, what)
        return None if found is None else tuple(map(int, found.reshape(-1)))

    def emit(self, *inputs: Value | None, without: Sequence[str] = (), **more: Any):
        """Emit the op in its other version, with these inputs and the changed attributes."""
        own = {
            n: v
            for n, v in self.op.attributes.items()
            if n not in without and n not in (SINCE, *more)
        }
        kept = counted(
            self.op,
            self.version,
            {n: v for n, v in {**own, **more}.items() if not n.startswith(PREFIX)},
        )
        return self.nodes.node(
            self.op.kind.removeprefix(PREFIX),
            *inputs,
            version=self.version,
            results=[v.type for v in self.op.results],
            **kept,
        )

    def rank(self) -> int:
        """Return the rank of the first input; raise CannotSay if it is unknown."""
        held = self.op.operands[0].type
        if not isinstance(held, TensorType):
            raise CannotConvert("the rank of its input is unknown (infer_shapes infers it)")
        return held.rank

    def like(self, number: float) -> Value:
        """Return a scalar of the first input's dtype."""
        held = self.op.operands[0].type
        if not isinstance(held, TensorType):
            raise CannotConvert("the type of its input is unknown (infer_shapes infers it)")
        return self.nodes.constant(np.array(number, held.dtype.numpy))


Adapter = Callable[[NodeConversion], Sequence[Value]]
#: (op type, current version, target version) -> adapter.
ADAPTERS: dict[tuple[str, int, int], Adapter] = {}


def adapts(op_type: str, old: int, new: int):
    def enter(adapter: Adapter) -> Adapter:
        ADAPTERS[op_type, old, new] = adapter
        return adapter

    return enter


# -- attributes that became inputs -----------------------------------------------------------------


def _becomes_input(op_type: str, old: int, new: int, name: str, place: int = 1) -> None:
    """Register a list of ints that was an attribute in ``old`` and is an input in ``new``."""

    def up(conversion: NodeConversion):
        given = conversion.attr(name)
        inputs = [conversion.input(i) for i in range(place)]
        held = None if given is None else conversion.nodes.ints(given)
        return conversion.emit(*inputs, held, without=[name])

    def down(conversion: NodeConversion):
        inputs = [conversion.input(i) for i in range(place)]
        more: dict[str, Any] = {name: conversion.ints(place, name)}
        return conversion.emit(*inputs, **more)

    ADAPTERS[op_type, old, new] = up
    ADAPTERS[op_type, new, old] = down


for _name, _old, _new, _list in (
    ("Squeeze", 11, 13, "axes"),
    ("Unsqueeze", 11, 13, "axes"),
    ("Split", 11, 13, "split"),
):
    _becomes_input(_name, _old, _new, _list)


def _reduction(op_type: str, old: int, new: int) -> None:
    def up(conversion: NodeConversion):
        axes = conversion.attr("axes")
        held = None if axes is None else conversion.nodes.ints(axes)
        return conversion.emit(conversion.input(0), held, without=["axes"])

    def down(conversion: NodeConversion):
        axes = conversion.ints(1, "axes")
        if not axes and conversion.attr("noop_with_empty_axes", 0):
            return _each_alone(conversion, op_type)
        return conversion.emit(
            conversion.input(0), without=["noop_with_empty_axes"], axes=axes or None
        )

    ADAPTERS[op_type, old, new] = up
    ADAPTERS[op_type, new, old] = down


def _each_alone(conversion: NodeConversion, op_type: str):
    """Reduce over no axes, which applies to every element separately."""
    x, steps = conversion.input(0), _ALONE.get(op_type, ("Identity",))
    for step in steps:
        inputs = (x, x) if step == "Mul" else (x,)
        x = conversion.nodes.one(
            step, *inputs, version=conversion.version, like=conversion.op.result.type
        )
    return (x,)


#: Reductions that are not the identity on a single element.
_ALONE = {
    "ReduceL1": ("Abs",),
    "ReduceL2": ("Mul", "Sqrt"),
    "ReduceSumSquare": ("Mul",),
    "ReduceLogSum": ("Log",),
}
_reduction("ReduceSum", 11, 13)
for _name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"):
    _reduction(f"Reduce{_name}", 13, 18)


@adapts("Clip", 6, 11)
def _clip_up(conversion: NodeConversion):
    low, high = conversion.attr("min"), conversion.attr("max")
    limits = [None if limit is None else conversion.like(limit) for limit in (low, high)]
    return conversion.emit(conversion.input(0), *limits, without=["min", "max"])


@adapts("Clip", 11, 6)
def _clip_down(conversion: NodeConversion):
    limits = [conversion.array(i, name) for i, name in ((1, "min"), (2, "max"))]
    low, high = (None if a is None else float(a.reshape(-1)[0]) for a in limits)
    return conversion.emit(conversion.input(0), min=low, max=high)


@adapts("Dropout", 10, 12)
def _dropout_up(conversion: NodeConversion):
    ratio = conversion.nodes.constant(np.array(conversion.attr("ratio", 0.5), np.float32))
    return _masked(
        conversion, conversion.emit(conversion.input(0), ratio, without=["ratio"]), False
    )


@adapts("Dropout", 12, 10)
def _dropout_down(conversion: NodeConversion):
    training = conversion.array(2, "training_mode")
    if training is not None and training.any():
        raise CannotConvert("it is in training mode")
    ratio = conversion.array(1, "ratio")
    given = None if ratio is None else float(ratio.reshape(-1)[0])
    return _masked(
        conversion, conversion.emit(conversion.input(0), without=["seed"], ratio=given), True
    )


def _masked(conversion: NodeConversion, made: Sequence[Value], mask_value: bool) -> Sequence[Value]:
    """Return ``made`` with the mask of a Dropout that drops nothing.

    It is false before version 12, true from then on.
    """
    if len(made) < 2 or conversion.op.results[1].type is NOTHING:
        return made
    nodes = conversion.nodes
    shape = nodes.one("Shape", conversion.input(0), version=1)
    mask = nodes.one(
        "Expand",
        nodes.constant(np.array([mask_value])),
        shape,
        version=8,
        like=conversion.op.results[1].type,
    )
    return made[0], mask


@adapts("Pad", 2, 11)
def _pad_up(conversion: NodeConversion):
    value = conversion.like(conversion.attr("value", 0.0))
    return conversion.emit(
        conversion.input(0),
        conversion.nodes.ints(conversion.attr("pads")),
        value,
        without=["pads", "value"],
    )


@adapts("Pad", 11, 2)
def _pad_down(conversion: NodeConversion):
    value = conversion.array(2, "constant_value")
    return conversion.emit(
        conversion.input(0),
        pads=conversion.ints(1, "pads"),
        value=None if value is None else float(value.reshape(-1)[0]),
    )


@adapts("Pad", 18, 13)
def _pad_without_axes(conversion: NodeConversion):
    axes = conversion.ints(3, "axes")
    if axes is None:
        return conversion.emit(*(conversion.input(i) for i in range(3)))
    rank, pads = conversion.rank(), conversion.ints(1, "pads") or ()
    whole = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        whole[axis % rank], whole[axis % rank + rank] = pads[i], pads[i + len(axes)]
    return conversion.emit(conversion.input(0), conversion.nodes.ints(whole), conversion.input(2))


@adapts("Slice", 1, 10)
def _slice_up(conversion: NodeConversion):
    axes = conversion.attr("axes")
    held = None if axes is None else conversion.nodes.ints(axes)
    starts, ends = (conversion.nodes.ints(conversion.attr(n)) for n in ("starts", "ends"))
    return conversion.emit(
        conversion.input(0), starts, ends, held, without=["starts", "ends", "axes"]
    )


@adapts("Slice", 10, 1)
def _slice_down(conversion: NodeConversion):
    steps = conversion.ints(4, "steps")
    if steps is not None and set(steps) != {1}:
        raise CannotConvert(f"its steps are {steps}")
    return conversion.emit(
        conversion.input(0),
        starts=conversion.ints(1, "starts"),
        ends=conversion.ints(2, "ends"),
        axes=conversion.ints(3, "axes"),
    )


@adapts("TopK", 1, 10)
def _topk_up(conversion: NodeConversion):
    return conversion.emit(
        conversion.input(0), conversion.nodes.ints([conversion.attr("k")]), without=["k"]
    )


@adapts("TopK", 10, 1)
def _topk_down(conversion: NodeConversion):
    (count,) = conversion.ints(1, "K") or (0,)
    return conversion.emit(conversion.input(0), k=count)


@adapts("DFT", 17, 20)
def _dft_up(conversion: NodeConversion):
    axis = conversion.nodes.constant(np.array(conversion.attr("axis", 1), np.int64))
    return conversion.emit(conversion.input(0), conversion.input(1), axis, without=["axis"])


@adapts("DFT", 20, 17)
def _dft_down(conversion: NodeConversion):
    axis = conversion.array(2, "axis")
    return conversion.emit(
        conversion.input(0),
        conversion.input(1),
        axis=-2 if axis is None else int(axis.reshape(-1)[0]),
    )


@adapts("Upsample", 7, 9)
def _upsample_up(conversion: NodeConversion):
    scales = conversion.nodes.constant(np.array(conversion.attr("scales"), np.float32))
    return conversion.emit(conversion.input(0), scales, without=["scales"])


# -- changed semantics -----------------------------------------------------------------------------


def _flattened(op_type: str) -> None:
    """Register Softmax and similar ops.

    The old version reduces over all axes from ``axis`` on, the new one over a single axis.
    """

    def over_one(conversion: NodeConversion, axis: int) -> bool:
        shape = conversion.op.operands[0].type.shape
        return axis == len(shape) - 1 or all(d == 1 for d in shape[axis + 1 :])

    def up(conversion: NodeConversion):
        axis = conversion.attr("axis", 1) % max(conversion.rank(), 1)
        if over_one(conversion, axis):
            return conversion.emit(conversion.input(0), axis=axis)
        shape = conversion.op.operands[0].type
        if not shape.is_static:
            raise CannotConvert("it is over several axes of unknown size")
        flat = shape.with_(shape=(prod(shape.shape[:axis]), prod(shape.shape[axis:])))
        rows = conversion.nodes.one(
            "Reshape", conversion.input(0), conversion.nodes.ints(flat.shape), version=5, like=flat
        )
        made = conversion.nodes.one(op_type, rows, version=conversion.version, axis=1, like=flat)
        return conversion.nodes.node(
            "Reshape", made, conversion.nodes.ints(shape.shape), version=5, results=[shape]
        )

    def down(conversion: NodeConversion):
        rank = conversion.rank()
        axis = conversion.attr("axis", -1) % max(rank, 1)
        if over_one(conversion, axis):
            return conversion.emit(conversion.input(0), axis=axis)
        order = [*(i for i in range(rank) if i != axis), axis]
        back = [order.index(i) for i in range(rank)]
        held = conversion.op.operands[0].type
        moved = held.with_(shape=[held.shape[i] for i in order])
        turned = conversion.nodes.one(
            "Transpose", conversion.input(0), version=1, perm=tuple(order), like=moved
        )
        made = conversion.nodes.one(
            op_type, turned, version=conversion.version, axis=rank - 1, like=moved
        )
        return conversion.nodes.node(
            "Transpose", made, version=1, perm=tuple(back), results=[conversion.op.result.type]
        )

    ADAPTERS[op_type, 11, 13] = up
    ADAPTERS[op_type, 13, 11] = down


for _name in ("Softmax", "LogSoftmax", "Hardmax"):
    _flattened(_name)


def _broadcasting_down(conversion: NodeConversion):
    """Expand the inputs: before version 8 all of them have the same shape."""
    types = {v.type for v in conversion.op.operands}
    (held, *others) = types
    if others or not isinstance(held, TensorType) or ANY_SIZE in held.shape:
        raise CannotConvert("its inputs may have different shapes")
    return conversion.emit(*conversion.op.operands)


for _name in ("Max", "Mean", "Min", "Sum"):
    ADAPTERS[_name, 8, 6] = _broadcasting_down


@adapts("RoiAlign", 10, 16)
def _roi_align_up(conversion: NodeConversion):
    return conversion.emit(
        *conversion.op.operands, coordinate_transformation_mode="output_half_pixel"
    )


@adapts("RoiAlign", 16, 10)
def _roi_align_down(conversion: NodeConversion):
    if conversion.attr("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise CannotConvert("it uses half_pixel coordinates")
    return conversion.emit(*conversion.op.operands, without=["coordinate_transformation_mode"])


_SAMPLING = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}


@adapts("GridSample", 16, 20)
def _grid_sample_up(conversion: NodeConversion):
    return conversion.emit(
        *conversion.op.operands, mode=_SAMPLING[conversion.attr("mode", "bilinear")]
    )


@adapts("GridSample", 20, 16)
def _grid_sample_down(conversion: NodeConversion):
    names = {new: old for old, new in _SAMPLING.items()}
    if conversion.rank() != 4:
        raise CannotConvert("its input does not have four dimensions")
    return conversion.emit(*conversion.op.operands, mode=names[conversion.attr("mode", "linear")])


@adapts("Split", 13, 18)
def _split_up(conversion: NodeConversion):
    parts = None if conversion.input(1) is not None else len(conversion.op.results)
    return conversion.emit(conversion.input(0), conversion.input(1), num_outputs=parts)


@adapts("Split", 18, 13)
def _split_down(conversion: NodeConversion):
    """Convert to equal parts, or to explicit sizes for a smaller last part (new in version 18)."""
    if conversion.input(1) is not None:
        return conversion.emit(conversion.input(0), conversion.input(1))
    axis, held, parts = (
        conversion.attr("axis", 0),
        conversion.op.operands[0].type,
        len(conversion.op.results),
    )
    sizes: list[Any] = [
        v.type.shape[axis] if isinstance(v.type, TensorType) else None
        for v in conversion.op.results
    ]
    if not all(isinstance(size, int) for size in sizes):
        size = held.shape[axis] if isinstance(held, TensorType) else None
        if not isinstance(size, int):
            raise CannotConvert("the size of the axis that it splits is unknown")
        each = -(-size // parts)
        sizes = [each] * (parts - 1) + [size - each * (parts - 1)]
    return conversion.emit(
        conversion.input(0), conversion.nodes.ints(sizes), without=["num_outputs"]
    )


@adapts("Reshape", 14, 13)
def _reshape_down(conversion: NodeConversion):
    if conversion.attr("allowzero", 0) and 0 in (conversion.ints(1, "shape") or ()):
        raise CannotConvert("a 0 in its shape means size 0")
    return conversion.emit(*conversion.op.operands, without=["allowzero"])


@adapts("BatchNormalization", 7, 9)
def _batch_norm_spatial(conversion: NodeConversion):
    if not conversion.attr("spatial", 1):
        raise CannotConvert("it has separate statistics for every element")
    return conversion.emit(*conversion.op.operands, without=["spatial"])


@adapts("BatchNormalization", 9, 14)
def _batch_norm_up(conversion: NodeConversion):
    if len(conversion.op.results) > 1:
        raise CannotConvert("it is in training mode")
    return conversion.emit(*conversion.op.operands)


@adapts("GroupNormalization", 18, 21)
def _group_norm_up(conversion: NodeConversion):
    return _per_channel(
        conversion,
        lambda each, groups: np.repeat(each, conversion.op.operands[0].type.shape[1] // groups),
    )


@adapts("GroupNormalization", 21, 18)
def _group_norm_down(conversion: NodeConversion):
    def per_group(each: np.ndarray, groups: int) -> np.ndarray:
        parts = each.reshape(groups, -1)
        if np.any(parts != parts[:, :1]):
            raise CannotConvert("its scale or bias differs within a group")
        return np.ascontiguousarray(parts[:, 0])

    return _per_channel(conversion, per_group)


def _per_channel(conversion: NodeConversion, change):
    groups, shape = conversion.attr("num_groups"), conversion.op.operands[0].type
    if not isinstance(shape, TensorType) or not isinstance(shape.shape[1], int):
        raise CannotConvert("the number of channels is unknown")
    held = [conversion.array(i, name) for i, name in ((1, "scale"), (2, "bias"))]
    made = [conversion.nodes.constant(change(a, groups)) for a in held if a is not None]
    return conversion.emit(conversion.input(0), *made)


@adapts("Upsample", 9, 10)
def _upsample_to_resize(conversion: NodeConversion):
    """Replace the deprecated op by a Resize of version 10."""
    return conversion.nodes.node(
        "Resize",
        conversion.input(0),
        conversion.input(1),
        version=10,
        results=[v.type for v in conversion.op.results],
        mode=conversion.attr("mode"),
    )


@adapts("Resize", 10, 11)
def _resize_up(conversion: NodeConversion):
    nearest = "floor"
    held = constant(conversion.producer_of(conversion.op.operands[1]))
    if held is not None and conversion.attr("mode", "nearest") == "nearest":
        scales = as_array(held, conversion.nodes.weights)
        nearest = "ceil" if np.any(scales < 1) else "floor"  # for an axis that shrinks
        if nearest == "ceil" and np.any(scales > 1):
            raise CannotConvert("one axis shrinks, another grows")
    return conversion.emit(
        conversion.input(0),
        conversion.nodes.constant(np.empty(0, np.float32)),
        conversion.input(1),
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest,
    )


@adapts("Resize", 13, 11)
def _resize_with_all_inputs(conversion: NodeConversion):
    empty = np.empty(0, np.float32)
    roi, scales = (conversion.input(i) for i in (1, 2))
    given = [v if v is not None else conversion.nodes.constant(empty) for v in (roi, scales)]
    return conversion.emit(conversion.input(0), *given, conversion.input(3))


@adapts("Resize", 18, 13)
def _resize_all_axes(conversion: NodeConversion):
    """Expand the scales and sizes of selected axes to all axes."""
    later = ["antialias", "axes", "keep_aspect_ratio_policy"]
    if conversion.attr("antialias", 0):
        raise CannotConvert("it uses antialias")
    axes, sizes, shape = (
        conversion.attr("axes"),
        conversion.ints(3, "sizes"),
        conversion.op.operands[0].type,
    )
    if sizes is not None and conversion.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise CannotConvert("it keeps the aspect ratio")
    if axes is None:
        return conversion.emit(*(conversion.input(i) for i in range(4)), without=later)
    rank = conversion.rank()
    places = [axis % rank for axis in axes]
    if sizes is not None:
        if not shape.is_static:
            raise CannotConvert("it resizes some axes, and the sizes of the others are unknown")
        whole = dict(enumerate(shape.shape)) | dict(zip(places, sizes, strict=True))
        return conversion.emit(
            conversion.input(0),
            None,
            None,
            conversion.nodes.ints([whole[i] for i in range(rank)]),
            without=later,
        )
    scales = conversion.array(2, "scales")
    region = conversion.array(1, "roi")
    if scales is None or (region is not None and region.size):
        raise CannotConvert("its region is given for some axes only")
    every = np.ones(rank, np.float32)
    every[places] = scales
    return conversion.emit(
        conversion.input(0), None, conversion.nodes.constant(every), without=later
    )


@adapts("AveragePool", 22, 19)
@adapts("MaxPool", 22, 12)
def _pool_down(conversion: NodeConversion):
    if conversion.attr(
        "ceil_mode", 0
    ):  # the last window may start in the padding before version 22
        raise CannotConvert("it rounds its size up")
    return conversion.emit(conversion.input(0))


@adapts("OptionalGetElement", 18, 15)
@adapts("OptionalHasElement", 18, 15)
def _optional_down(conversion: NodeConversion):
    held = conversion.op.operands[0].type if conversion.op.operands else None
    if not isinstance(held, OpaqueType) or not held.text.startswith("!onnx.opt"):
        raise CannotConvert("its input is not an optional value")
    return conversion.emit(conversion.input(0))


@adapts("Resize", 11, 10)
def _resize_down(conversion: NodeConversion):
    mode = conversion.attr("mode", "nearest")
    fits = conversion.attr("coordinate_transformation_mode", "half_pixel") == "asymmetric" and (
        mode == "linear" or (mode == "nearest" and conversion.attr("nearest_mode") == "floor")
    )
    if not fits or conversion.input(3) is not None:
        raise CannotConvert("version 10 supports only asymmetric coordinates, floor and scales")
    return conversion.emit(
        conversion.input(0),
        conversion.input(2),
        without=[
            "coordinate_transformation_mode",
            "nearest_mode",
            "cubic_coeff_a",
            "exclude_outside",
            "extrapolation_value",
        ],
    )


# -- unchanged definitions -------------------------------------------------------------------------


def carry_over(op: Op, old, new) -> Op:
    """Return ``op`` with the definition ``new`` instead of ``old`` if they are equivalent.

    A default that differs is written explicitly; an attribute that ``new`` lacks is dropped if it
    has its default value.  Raise CannotSay if it does not, and for inputs and types that ``new``
    lacks.
    """
    own = dict(op.attributes)
    for name in sorted(old.attributes.keys() | new.attributes.keys()):
        before, after = _default(old, name), _default(new, name)
        if name not in new.attributes:
            if name in own and own[name] != before and not _neutral(name, own[name]):
                raise CannotConvert(f"{name} is {own[name]}")
            own.pop(name, None)
        elif name in old.attributes and name not in own and before != after:
            own[name] = before
    for name, value in own.items():
        if new.since_version < _VALUES_SINCE.get((op.kind.removeprefix(PREFIX), name, value), 0):
            raise CannotConvert(f"{name} is {value}")
    if not new.min_input <= len(op.operands) <= new.max_input:
        raise CannotConvert(f"it has {len(op.operands)} inputs")
    if not new.min_output <= len(op.results) <= new.max_output:
        raise CannotConvert(f"it has {len(op.results)} results")
    _check_types(op, new)
    own = counted(op, new.since_version, own)
    return op.with_(attributes={**own, SINCE: new.since_version})


#: Attribute values that were added later: (op type, attribute, value) -> version.
_VALUES_SINCE = {
    ("Pad", "mode", "wrap"): 19,
    ("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"): 19,
    **{
        (kind, "reduction", how): 18
        for kind in ("ScatterElements", "ScatterND")
        for how in ("max", "min")
    },
}
#: Ops whose axes refer to their result.
_ADD_AXES = (f"{PREFIX}Unsqueeze", f"{PREFIX}OneHot")


def counted(op: Op, version: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``attributes`` with negative axes counted from the start if the version requires it.

    Versions before 11 do not support negative axes.  Raise CannotSay if the rank is unknown.
    """
    own = dict(attributes)
    for name in ("axis", "axes") if version < 11 else ():
        given = own.get(name)
        axes = given if isinstance(given, tuple) else (given,)
        if given is None or all(axis >= 0 for axis in axes):
            continue
        held = (op.results if op.kind in _ADD_AXES else op.operands)[0].type
        if not isinstance(held, TensorType):
            raise CannotConvert("the rank of its input is unknown (infer_shapes infers it)")
        places = tuple(axis % held.rank for axis in axes)
        own[name] = places if isinstance(given, tuple) else places[0]
    return own


def _neutral(name: str, value: Any) -> bool:
    """Return whether a value is equivalent to omitting the attribute."""
    return name == "dilations" and set(value) == {1}


def _default(schema, name: str) -> Any:
    import onnx

    held = schema.attributes.get(name)
    if held is None or not held.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(held.default_value)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


def _check_types(op: Op, schema) -> None:
    bound: dict[str, str] = {}  # type parameter -> the type it is bound to
    for what, values, formal in (
        ("input", op.operands, schema.inputs),
        ("result", op.results, schema.outputs),
    ):
        for place, value in enumerate(values):
            name = _type_name(value.type)
            if name and formal:
                wanted = formal[min(place, len(formal) - 1)]
                if name not in wanted.types and wanted.types:
                    raise CannotConvert(f"its {what} {wanted.name} is {name}")
                if wanted.is_homogeneous and bound.setdefault(wanted.type_str, name) != name:
                    raise CannotConvert(
                        f"its {what} {wanted.name} is {name}, but others of this "
                        f"type are {bound[wanted.type_str]}"
                    )


def _type_name(held: Type) -> str:
    """Return the name of a type in schemas, or "" if the type is unknown."""
    if isinstance(held, TensorType):
        return f"tensor({_TYPE_NAMES[held.dtype.name]})"
    if not isinstance(held, OpaqueType) or held in (UNKNOWN, NOTHING):
        return ""
    outer, _, inner = held.text.removesuffix(">").partition("<")
    if outer == "!onnx.unranked":
        return f"tensor({_TYPE_NAMES[inner]})"
    wrapped = {"!onnx.seq": "seq", "!onnx.opt": "optional"}.get(outer)
    within = _type_name(parse_type(inner)) if wrapped else ""
    return f"{wrapped}({within})" if within else ""


#: The names of dtypes in ONNX's schemas.
_TYPE_NAMES = {
    "f32": "float",
    "f64": "double",
    "f16": "float16",
    "bf16": "bfloat16",
    "i1": "bool",
    **{f"i{b}": f"int{b}" for b in (2, 4, 8, 16, 32, 64)},
    **{f"ui{b}": f"uint{b}" for b in (2, 4, 8, 16, 32, 64)},
    "f8E4M3FN": "float8e4m3fn",
    "f8E4M3FNUZ": "float8e4m3fnuz",
    "f8E5M2": "float8e5m2",
    "f8E5M2FNUZ": "float8e5m2fnuz",
    "f4E2M1FN": "float4e2m1",
    "f8E8M0FNU": "float8e8m0",
}


def apply_adapter(
    op: Op, version: int, weights: WeightStore, producer_of: Callable[[Value], Op | None]
) -> tuple[list[Op], Sequence[Value]] | None:
    """Convert ``op`` to its neighbouring definition ``version``; None if the table has no row.

    Return the new nodes and their values for its results.  Raise CannotSay if the conversion is not
    possible.
    """
    adapter = ADAPTERS.get((op.kind.removeprefix(PREFIX), op[SINCE], version))
    if adapter is None:
        return None
    nodes = Nodes(weights)
    values = adapter(NodeConversion(op, version, nodes, producer_of))
    return nodes.ops, values
