"""Index maps of the data movement ops: the source of the element at an output index.

Each is ``(context, op, index) -> Read`` (see ``hooks.IndexMap``); ``context.read_index`` returns an
index that is read from an integer tensor.
"""

from __future__ import annotations

from core_compiler.ir.types import row_major
from core_compiler.ops import typed
from core_compiler.ops.affine import ZERO, AffineExpr, clamp, divide
from core_compiler.ops.hooks import Read


def linear(index, shape) -> AffineExpr:
    """Return the row-major position of ``index`` in ``shape``."""
    total = ZERO
    for i, stride in zip(index, row_major(shape), strict=True):
        total = total + i * stride
    return total


def unravel(position: AffineExpr, shape) -> list[AffineExpr]:
    """Return the index of a row-major position in ``shape``; the inverse of :func:`linear`."""
    index: list[AffineExpr] = []
    wide = [k for k, size in enumerate(shape) if size != 1]
    for k in reversed(range(len(shape))):
        if shape[k] == 1 or 0 in shape:
            index.append(ZERO)
        elif wide and k == wide[0]:
            index.append(position)
        else:
            position, rest = divide(position, shape[k])
            index.append(rest)
    return index[::-1]


def broadcast(context, op: typed.Broadcast, index) -> Read:
    x, dims = op.x.type, op.dims
    return Read(0, tuple(ZERO if x.shape[i] == 1 else index[d] for i, d in enumerate(dims)))


def reshape(context, op: typed.Reshape, index) -> Read:
    old, new = op.x.type.shape, op.result.type.shape
    return Read(0, reindex(index, new, old))


def reindex(index, new, old) -> tuple[AffineExpr, ...]:
    """Return the index in ``old`` of the element at ``index`` of ``new``.

    Runs of axes with equal products are matched first, so that unchanged axes stay as they are.
    """
    found: list[AffineExpr] = []
    i = j = 0
    while i < len(new) or j < len(old):
        a, b, p, q = [], [], 1, 1
        if i < len(new):
            a.append(i)
            p *= new[i]
            i += 1
        if j < len(old):
            b.append(j)
            q *= old[j]
            j += 1
        while p != q or not a or not b:
            if (p < q or not a) and i < len(new):
                a.append(i)
                p *= new[i]
                i += 1
            elif j < len(old):
                b.append(j)
                q *= old[j]
                j += 1
            elif i < len(new):
                a.append(i)
                p *= new[i]
                i += 1
            else:
                break
        if len(a) == len(b) == 1:
            found.append(index[a[0]])
        else:
            position = linear([index[k] for k in a], [new[k] for k in a])
            found.extend(unravel(position, [old[k] for k in b]))
    return tuple(found)


def transpose(context, op: typed.Transpose, index) -> Read:
    found: list[AffineExpr] = [ZERO] * len(index)
    for axis, source in enumerate(op.permutation):
        found[source] = index[axis]
    return Read(0, tuple(found))


def same(context, op, index) -> Read:
    return Read(0, tuple(index))


def slice_(context, op: typed.Slice, index) -> Read:
    return Read(
        0,
        tuple(
            i * stride + start
            for i, start, stride in zip(index, op.starts, op.strides, strict=True)
        ),
    )


def reverse(context, op: typed.Reverse, index) -> Read:
    shape = op.result.type.shape
    return Read(
        0, tuple(i * -1 + (shape[a] - 1) if a in op.axes else i for a, i in enumerate(index))
    )


def windows(context, op: typed.Windows, index) -> Read:
    rank = op.x.type.rank
    found = list(index[:rank])
    for number, axis in enumerate(op.axes):
        inside = index[rank + number] * op.dilations[number]
        found[axis] = found[axis] * op.strides[number] + inside
    return Read(0, tuple(found))


def pad(context, op: typed.Pad, index) -> Read:
    x = op.x.type
    inside, found = [], []
    for i, size, low, gap in zip(index, x.shape, op.low, op.interior, strict=True):
        position = i - low
        if gap:
            inside.append((position, 0, (size - 1) * (gap + 1) + 1 if size else 0))
            position, rest = divide(position, gap + 1)
            inside.append((rest, 0, 1))
        else:
            inside.append((position, 0, size))
        found.append(position)
    return _guarded(found, x.shape, inside, Read(1, ()))


def concat(context, op: typed.Concat, index) -> Read:
    axis, start = op.axis, 0
    parts = []
    for number, operand in enumerate(op.operands):
        size = operand.type.shape[axis]
        position = (*index[:axis], index[axis] - start, *index[axis + 1 :])
        if size and 0 not in operand.type.shape:
            # Positions before ``start`` are of the parts before, which are tried first.
            inside = (index[axis], min(0, index[axis].range[0]), start + size)
            parts.append((number, position, operand.type.shape, inside))
        start += size
    if not parts:
        return Read(0, tuple(ZERO for _ in index))
    number, position, shape, _ = parts[-1]
    read = Read(number, tuple(_clamped(position, shape)))
    for number, position, shape, condition in reversed(parts[:-1]):
        read = _guarded(position, shape, [condition], read, number)
    return read


def _clamped(index, shape):
    return [clamp(i, 0, max(size - 1, 0)) for i, size in zip(index, shape, strict=True)]


def _guarded(index, shape, conditions, otherwise: Read, operand: int = 0) -> Read:
    """Return a read under the conditions that can fail; its index is clamped and always valid."""
    open_ = tuple(c for c in conditions if not (c[1] <= c[0].range[0] and c[0].range[1] < c[2]))
    if any(c[0].range[1] < c[1] or c[0].range[0] >= c[2] for c in open_) or 0 in shape:
        return otherwise
    if not open_:  # it may be read beside an earlier choice, at any position
        return Read(operand, tuple(_clamped(index, shape)))
    return Read(operand, tuple(_clamped(index, shape)), open_, otherwise)


def take(context, op: typed.Take, index) -> Read:
    x, indices = (v.type for v in op.operands)
    axis = op.axis
    where = index[axis : axis + indices.rank]
    row = context.read_index(op.indices, where, 0, x.shape[axis] - 1)
    return Read(0, (*index[:axis], row, *index[axis + indices.rank :]))


def take_along(context, op: typed.TakeAlong, index) -> Read:
    axis = op.axis
    row = context.read_index(op.indices, index, 0, op.x.type.shape[axis] - 1)
    return Read(0, (*index[:axis], row, *index[axis + 1 :]))


def gather_nd(context, op: typed.GatherNd, index) -> Read:
    x, indices = (v.type for v in op.operands)
    batch, depth = op.batch_dims, indices.shape[-1]
    where = index[: indices.rank - 1]
    picked = tuple(
        context.read_index(op.indices, (*where, ZERO + k), 0, x.shape[batch + k] - 1)
        for k in range(depth)
    )
    return Read(0, (*index[:batch], *picked, *index[indices.rank - 1 :]))


def box_starts(
    context, op: typed.DynamicSlice | typed.DynamicUpdateSlice, starts, sizes
) -> tuple[AffineExpr, ...]:
    """Return the start of a box of ``sizes`` in operand 0, clamped so that it fits."""
    return tuple(
        context.read_index(start, (), 0, size - wanted) if size > wanted else ZERO
        for start, size, wanted in zip(starts, op.x.type.shape, sizes, strict=True)
    )


def dynamic_slice(context, op: typed.DynamicSlice, index) -> Read:
    starts = box_starts(context, op, op.operands[1:], op.sizes)
    return Read(0, tuple(i + s for i, s in zip(index, starts, strict=True)))


def update_starts(context, op: typed.DynamicUpdateSlice) -> tuple[AffineExpr, ...]:
    return box_starts(context, op, op.operands[2:], op.update.type.shape)


def dynamic_update_slice(context, op: typed.DynamicUpdateSlice, index) -> Read:
    update = op.update.type
    places, inside = [], []
    starts = update_starts(context, op)
    for start, i, wanted in zip(starts, index, update.shape, strict=True):
        places.append(i - start)
        inside.append((i - start, 0, wanted))
    return _guarded(places, update.shape, inside, Read(0, tuple(index)), 1)
