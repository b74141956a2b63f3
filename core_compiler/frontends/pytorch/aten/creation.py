"""Creation ops of ATen."""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.pytorch.aten.table import (
    I64,
    aten,
)


@aten("empty", "empty_like", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided")
def empty(b, *args, **kwargs):
    """Return zeros for a tensor whose content torch leaves undefined."""
    return _filled(b, 0)


@aten("eye", "eye.m")
def eye(b, *args, **kwargs):
    rows, columns = (b.iota(shape=b.shape, dtype=I64, axis=a) for a in (0, 1))
    return b.cast(b.eq(rows, columns), dtype=b.dtype)


@aten("tril", "triu")
def triangle(b, x, diagonal=0):
    upper = str(b.node.target).split(".")[1].startswith("triu")
    rank, shape = x.type.rank, x.type.shape
    rows = b.iota(shape=shape, dtype=I64, axis=rank - 2)
    columns = b.iota(shape=shape, dtype=I64, axis=rank - 1)
    reach = b.add(rows, b.scalar_like(diagonal, rows))
    inside = b.ge(columns, reach) if upper else b.le(columns, reach)
    return b.select(inside, x, b.scalar_like(0, x))


def _filled(b, number):
    return b.expand(b.constant(np.asarray(number).astype(b.dtype.numpy)), b.shape)


@aten("full", "full_like", "new_full")
def full(b, x, *args, **kwargs):
    name = str(b.node.target).split(".")[1]
    number = args[1] if name == "new_full" else args[0]
    return b.expand(b.value(number, b.dtype), b.shape)


@aten("zeros", "zeros_like", "new_zeros")
def zeros(b, *args, **kwargs):
    return _filled(b, 0)


@aten("ones", "ones_like", "new_ones")
def ones(b, *args, **kwargs):
    return _filled(b, 1)


@aten("scalar_tensor")
def scalar_tensor(b, number, **kwargs):
    return b.value(number, b.dtype)


@aten("fill")
def fill(b, x, number):
    return b.expand(b.value(number, b.dtype), b.shape)


@aten("copy")
def copy(b, x, source, non_blocking=False):
    return b.expand(b.to(source, x.type.dtype), x.type.shape)


@aten("arange", "arange.start", "arange.start_step")
def arange(b, *args, **kwargs):
    numbers = [a for a in args if a is not None]
    start, step = 0, kwargs.get("step", 1)
    if len(numbers) == 1:
        pass
    elif len(numbers) == 2:
        start = numbers[0]
    else:
        start, _, step = numbers[:3]
    count = b.shape[0]
    if b.dtype.is_float:
        return b.constant((start + np.arange(count, dtype=np.float64) * step).astype(b.dtype.numpy))
    steps = b.iota(shape=(count,), dtype=b.dtype, axis=0)
    if step != 1:
        steps = b.mul(steps, b.scalar_like(step, steps))
    return b.add(steps, b.scalar_like(start, steps)) if start else steps
