"""Layout arithmetic shared by the passes that place axes in memory.

An *order* lists a tensor's logical axes from slowest to fastest; None is row-major.  A transpose or
a reshape whose result type has the order derived here is a *free view*: the same memory, no copy.
"""

from __future__ import annotations

from core_compiler.ir import Op
from core_compiler.ir.types import ordered_strides
from core_compiler.ops import typed

Order = tuple[int, ...] | None

#: Ops that are views of their operand's memory where its order allows it.
VIEWS = ("core.transpose", "core.reshape")


def normal(order: Order, shape) -> Order:
    """Return the canonical form of an order: None if row-major (ignoring axes of size 1)."""
    if order is None:
        return None
    wide = [a for a in order if shape[a] != 1]
    if wide == sorted(wide):
        return None
    return tuple(order)


def transposed(order: Order, permutation) -> Order:
    """Return the order of ``transpose(x)`` as a view of ``x``.

    Result axis j is the operand's axis permutation[j].
    """
    order = tuple(range(len(permutation))) if order is None else order
    place = {axis: j for j, axis in enumerate(permutation)}
    return tuple(place[a] for a in order)


def reshaped(shape, order: Order, new_shape) -> tuple[bool, Order]:
    """Return whether reshaping is a view of the same memory, and the view's order.

    Walks the axes of both shapes in logical order and matches runs of equal products; a run of old
    axes may merge only if they are adjacent in memory, in logical order.
    """
    if order is None:
        return True, None
    strides = ordered_strides(shape, order)
    old = [(d, s) for d, s in zip(shape, strides, strict=True) if d != 1]
    result: list[int] = []
    i = 0
    pending = list(new_shape)
    j = 0
    while j < len(pending):
        if pending[j] == 1:
            result.append(0)
            j += 1
            continue
        if i >= len(old):
            return False, None
        size, stride = old[i]
        i += 1
        run = [pending[j]]
        j += 1
        product = run[0]
        while product != size:
            if product < size:
                if j >= len(pending):
                    return False, None
                run.append(pending[j])
                product *= pending[j]
                j += 1
            else:
                if i >= len(old) or old[i][1] * old[i][0] != stride:
                    return False, None
                size *= old[i][0]
                stride = old[i][1]
                i += 1
        step = stride
        tail = []
        for d in reversed(run):
            tail.append(step)
            step *= d
        result.extend(reversed(tail))
    axes = sorted(range(len(new_shape)), key=lambda a: (-result[a] if new_shape[a] != 1 else 0, a))
    wide = [a for a in axes if new_shape[a] != 1]
    ones = [a for a in range(len(new_shape)) if new_shape[a] == 1]
    return True, normal(tuple(ones + wide), new_shape)


def view_order(op: Op) -> tuple[bool, Order]:
    """Return whether a transpose or reshape can be a view of its operand, and its order."""
    return order_over(op, op.operands[0].type.order)


def order_over(op: Op, order: Order) -> tuple[bool, Order]:
    """Return what :func:`view_order` does if the operand of ``op`` has the order ``order``."""
    transpose = typed.Transpose.match(op)
    if transpose is not None:
        return True, normal(transposed(order, transpose.permutation), op.result.type.shape)
    if op.kind == "core.reshape":
        return reshaped(op.operands[0].type.shape, order, op.result.type.shape)
    return False, None


def is_free_view(op: Op) -> bool:
    """Return whether ``op`` moves no data: a transpose or reshape whose result is a view."""
    if op.kind not in VIEWS:
        return False
    possible, order = view_order(op)
    return possible and normal(op.result.type.order, op.result.type.shape) == order
