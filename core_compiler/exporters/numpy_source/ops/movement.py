"""Data movement, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.exporters.numpy_source.table import core, in_f32
from core_compiler.exporters.numpy_source.text import quoted, sequence
from core_compiler.ops import typed


def _shape(sizes: Sequence[int]) -> str:
    """Return sizes as arguments of reshape."""
    return ", ".join(map(str, sizes)) or "()"


@core("reshape")
def reshape(w, op: typed.Reshape, x):
    if op.x.type.shape == op.shape:
        return x
    return f"{x}.reshape({_shape(op.result.type.shape)})"


@core("transpose")
def transpose(w, op: typed.Transpose, x):
    return f"{x}.transpose({', '.join(map(str, op.permutation))})" if op.permutation else x


@core("slice")
def slice_(w, op: typed.Slice, x):
    rows = zip(op.x.type.shape, op.starts, op.limits, op.strides, strict=True)
    return _indexed(x, [_cut(*row) for row in rows])


def _cut(size: int, start: int, limit: int | str, step: int) -> str:
    first, last = str(start or ""), "" if limit == size else str(limit)
    return f"{first}:{last}" + (f":{step}" if step != 1 else "")


def _indexed(x: str, parts: list[str]) -> str:
    while parts and parts[-1] == ":":
        parts.pop()
    return f"{x}[{', '.join(parts)}]" if parts else x


@core("reverse")
def reverse(w, op: typed.Reverse, x):
    axes = op.axes
    return _indexed(x, ["::-1" if a in axes else ":" for a in range(op.result.type.rank)])


@core("pad")
def pad(w, op: typed.Pad, x, value):
    low, high, interior = op.low, op.high, op.interior
    if not any((*low, *high, *interior)):
        return x
    if not any(interior) and min((*low, *high), default=0) >= 0:
        widths = sequence(sequence(pair) for pair in zip(low, high, strict=True))
        return f"np.pad({x}, {widths}, constant_values={value})"
    return w.call("pad", x, value, sequence(low), sequence(high), sequence(interior))


@core("concat")
def concat(w, op: typed.Concat, *xs):
    return f"np.concatenate([{', '.join(xs)}], {op.axis})"


@core("dynamic_slice")
def dynamic_slice(w, op: typed.DynamicSlice, x, *starts):
    return w.call("dynamic_slice", x, sequence(starts), sequence(op.sizes))


@core("dynamic_update_slice")
def dynamic_update_slice(w, op, x, update, *starts):
    return w.call("dynamic_update_slice", x, update, sequence(starts))


# -- gathers and scatters --------------------------------------------------------------------------


@core("take")
def take(w, op: typed.Take, x, indices):
    """Use NumPy's clip mode, except for positions that no signed integer represents."""
    axis, size = op.axis, op.x.type.shape[op.axis]
    if op.indices.type.dtype.name == "ui64":
        return f"np.take({x}, {w.call('clamped', indices, size)}, {axis})"
    return f'np.take({x}, {indices}, {axis}, mode="clip")'


@core("take_along")
def take_along(w, op: typed.TakeAlong, x, indices):
    return w.call("take_along", x, indices, op.axis)


@core("gather_nd")
def gather_nd(w, op: typed.GatherNd, x, indices):
    batch = op.batch_dims
    return w.call("gather_nd", x, indices, **({"batch_dims": batch} if batch else {}))


@core("scatter_along")
@in_f32
def scatter_along(w, op: typed.ScatterAlong, x, indices, updates):
    return w.call("scatter_along", x, indices, updates, op.axis, quoted(op.mode))


@core("scatter_nd")
@in_f32
def scatter_nd(w, op: typed.ScatterNd, x, indices, updates):
    return w.call("scatter_nd", x, indices, updates, quoted(op.mode))
