"""Orthogonal factors: Householder reflectors, and Jacobi rotations of rows.

Loops as in :mod:`~core_compiler.lowering.linear_algebra`: one matrix at a time, in scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core_compiler.ir import Value
from core_compiler.lowering.linear_algebra import copied, matrices, matrix_memory, row_loop, write
from core_compiler.ops import typed

if TYPE_CHECKING:
    from core_compiler.kernel_ir.builder import KernelBuilder
    from core_compiler.lowering.custom import Custom

#: As in the reference: sweeps of an iteration, and lanes of a product of two rows.
SWEEPS, LANES = 32, 32


def numbers(kb: KernelBuilder, kind, *values: float) -> list[Value]:
    return [kb.number(value, kind) for value in values]


# -- reflectors ------------------------------------------------------------------------------------


def householder(c: Custom, op: typed.Householder) -> None:
    kb, (x,), (packed, tau) = c.kb, c.inputs, c.outputs
    rows, columns = c.extents[x][-2:]
    with matrices(c, x) as at:
        a = copied(c, x, at, "a")
        with kb.loop("step", 0, c.extents[tau][-1]) as k:
            factor = reflector(kb, a, k, k, rows)
            kb.store(factor, tau, *at(k))
            with kb.branch(kb.ne(factor, kb.number(0.0, factor.type))):
                ahead = kb.add(k, 1), columns
                apply_reflector(c, a, ahead, rows, k, factor, lambda i: kb.load(a, i, k))
        write(c, a, packed, at)


def reflector(kb: KernelBuilder, a: Value, row: Value, k: Value, rows: Value) -> Value:
    """Emit the reflector that makes column k 0 below a row, in its place; return its factor."""
    zero, after = kb.number(0.0, a.type.dtype), kb.add(row, 1)
    with kb.loop("measured", after, rows, init=[zero]) as (i, largest):
        kb.carry(kb.max(largest, kb.abs(kb.load(a, i, k))))
    below = kb.results[0]

    def made() -> Value:
        first = kb.load(a, row, k)
        scale = kb.max(below, kb.abs(first))
        with kb.loop("squared", row, rows, init=[zero]) as (i, total):
            part = kb.div(kb.load(a, i, k), scale)
            kb.carry(kb.fma(part, part, total))
        norm = kb.mul(scale, kb.sqrt(kb.results[0]))
        kept = kb.select(kb.lt(first, zero), norm, kb.neg(norm))
        divisor = kb.sub(first, kept)
        kb.store(kept, a, row, k)
        with kb.loop("scaled", after, rows) as i:
            kb.store(kb.div(kb.load(a, i, k), divisor), a, i, k)
        return kb.div(kb.sub(kept, first), kept)

    return kb.choose(kb.eq(below, zero), lambda: zero, made)[0]


def apply_reflector(
    c: Custom,
    target: Value,
    columns: tuple[Value | int, Value],
    rows: Value,
    row: Value,
    factor: Value,
    vector: Callable[[Value], Value],
) -> None:
    """Emit a reflector, with 1 in ``row`` and ``vector(i)`` below it, applied to ``columns``."""
    kb, after = c.kb, c.kb.add(row, 1)
    with row_loop(c, "reflected", *columns) as j:
        with kb.loop("along", after, rows, init=[kb.load(target, row, j)]) as (i, total):
            kb.carry(kb.fma(vector(i), kb.load(target, i, j), total))
        share = kb.mul(kb.results[0], factor)
        kb.store(kb.sub(kb.load(target, row, j), share), target, row, j)
        with kb.loop("changed", after, rows) as i:
            kb.store(kb.fma(kb.neg(vector(i)), share, kb.load(target, i, j)), target, i, j)


def reflect(c: Custom, op: typed.Reflect) -> None:
    kb, (packed, tau, given), (y,) = c.kb, c.inputs, c.outputs
    rows, columns = c.extents[given][-2:]
    steps = c.extents[tau][-1]
    with matrices(c, given) as at:
        made = copied(c, given, at, "c")
        with kb.loop("step", 0, steps) as step:
            k = step if op.transposed else kb.sub(kb.sub(steps, 1), step)
            factor = kb.load(tau, *at(k))
            with kb.branch(kb.ne(factor, kb.number(0.0, factor.type))):
                apply_reflector(
                    c, made, (0, columns), rows, k, factor, lambda i: kb.load(packed, *at(i, k))
                )
        write(c, made, y, at)


# -- rotations -------------------------------------------------------------------------------------


def unit_roundoff(kind) -> float:
    """Return the unit roundoff."""
    return 2.0**-24 if kind.bits == 32 else 2.0**-53


def _rotation(kb: KernelBuilder, difference: Value, product: Value) -> tuple[Value, ...]:
    """Emit (t, s, tau), as the reference's ``_rotation``."""
    half, one, zero = numbers(kb, product.type, 0.5, 1.0, 0.0)
    ratio = kb.div(kb.mul(difference, half), product)
    t = kb.div(one, kb.add(kb.abs(ratio), kb.sqrt(kb.fma(ratio, ratio, one))))
    t = kb.select(kb.lt(ratio, zero), kb.neg(t), t)
    cosine = kb.div(one, kb.sqrt(kb.fma(t, t, one)))
    s = kb.mul(t, cosine)
    return t, s, kb.div(s, kb.add(one, cosine))


def _rotate(c: Custom, name: str, x: Value, p: Value, q: Value, s: Value, tau: Value) -> None:
    """Emit the rotation of rows p and q of ``x``."""
    kb = c.kb
    with row_loop(c, name, 0, c.extents[x][-1]) as r:
        g, h = kb.load(x, p, r), kb.load(x, q, r)
        kb.store(kb.fma(kb.neg(s), kb.fma(g, tau, h), g), x, p, r)
        kb.store(kb.fma(s, kb.fma(kb.neg(h), tau, g), h), x, q, r)


def _sweeps(
    kb: KernelBuilder,
    size: Value,
    measure: Callable[[Value, Value], tuple[Value, tuple[Value, ...]]],
    rotate: Callable[..., None],
) -> None:
    """Emit sweeps over p < q until one rotates nothing.

    ``measure(p, q)`` returns whether to rotate, and values for ``rotate(p, q, *values)``.
    """
    none, some = kb.index(0), kb.index(1)
    with kb.loop("sweep", 0, SWEEPS, init=[some]) as (_, active):
        last = kb.select(kb.eq(active, none), none, kb.sub(size, 1))
        with kb.loop("p", 0, last, init=[none]) as (p, rotated):
            with kb.loop("q", kb.add(p, 1), size, init=[rotated]) as (q, before):
                condition, values = measure(p, q)

                def apply() -> Value:
                    rotate(p, q, *values)
                    return some

                kb.carry(*kb.choose(condition, apply, lambda: before))
            kb.carry(*kb.results)
        kb.carry(*kb.results)


def identity(c: Custom, name: str, kind, size: Value) -> Value:
    """Emit an identity in scratch memory."""
    kb, memory = c.kb, matrix_memory(c, name, kind, size, size)
    zero, one = numbers(kb, kind, 0.0, 1.0)
    with kb.loop(f"{name}_row", 0, size) as i:
        with row_loop(c, f"{name}_column", 0, size) as j:
            kb.store(zero, memory, i, j)
        kb.store(one, memory, i, i)
    return memory


def rank_of(kb: KernelBuilder, size: Value, p: Value, key: Callable, test: str) -> Value:
    """Emit how many keys come before p's: by ``test``, or equal and of a smaller index."""
    mine = key(p)
    with kb.loop("compared", 0, size, init=[kb.index(0)]) as (q, rank):
        tied = kb.and_(kb.eq(key(q), mine), kb.lt(q, p))
        first = kb.or_(kb.op(test, key(q), mine), tied)
        kb.carry(kb.add(rank, kb.select(first, kb.index(1), kb.index(0))))
    return kb.results[0]


def unknown(c: Custom, name: str, buffer: Value, at: Callable) -> None:
    """Emit NaN in every element of a matrix of a result."""
    kb, (rows, columns) = c.kb, c.extents[buffer][-2:]
    nan = kb.number(float("nan"), buffer.type.dtype)
    with kb.loop(f"{name}_row", 0, rows) as i, row_loop(c, f"{name}_column", 0, columns) as j:
        kb.store(nan, buffer, *at(i, j))


def _is_negative(kb: KernelBuilder, x: Value, p: Value, size: Value) -> Value:
    """Emit whether the first element of the largest magnitude of row p is negative."""
    with kb.loop("signed", 1, size, init=[kb.load(x, p, 0)]) as (r, largest):
        other = kb.load(x, p, r)
        kb.carry(kb.select(kb.gt(kb.abs(other), kb.abs(largest)), other, largest))
    return kb.lt(kb.results[0], kb.number(0.0, x.type.dtype))


def signed(kb: KernelBuilder, element: Value, negative: Value) -> Value:
    return kb.select(negative, kb.neg(element), element)


def _dot(c: Custom, name: str, x: Value, p: Value, q: Value) -> Value:
    """Emit the product of rows p and q of ``x`` in 32 lanes."""
    kb, kind, size = c.kb, x.type.dtype, c.extents[x][-1]
    lanes = kb.alloc((LANES,), kind, space="register", name=name)
    with kb.loop(f"{name}_start", 0, LANES, loop="vector") as lane:
        kb.store(kb.number(0.0, kind), lanes, lane)
    with kb.loop(f"{name}_at", 0, size, LANES) as start:
        count = kb.min(kb.sub(size, start), LANES)
        with kb.loop(f"{name}_lane", 0, count, loop="vector") as lane:
            r = kb.add(start, lane)
            made = kb.fma(kb.load(x, p, r), kb.load(x, q, r), kb.load(lanes, lane))
            kb.store(made, lanes, lane)
    for half in (16, 8, 4, 2, 1):
        with kb.loop(f"{name}_tree{half}", 0, half, loop="vector") as lane:
            pair = kb.load(lanes, lane), kb.load(lanes, kb.add(lane, half))
            kb.store(kb.add(*pair), lanes, lane)
    return kb.load(lanes, 0)


def orthogonal_columns(c: Custom, op: typed.OrthogonalColumns) -> None:
    """Emit the rotations of the columns, which are rows of the scratch memory."""
    kb, (a,), (values, product, right) = c.kb, c.inputs, c.outputs
    (rows, columns), kind = c.extents[a][-2:], a.type.dtype
    zero, one, nan, unit = numbers(kb, kind, 0.0, 1.0, float("nan"), unit_roundoff(kind))
    with matrices(c, a) as at:
        x = matrix_memory(c, "x", kind, columns, rows)
        norms = kb.alloc((columns.name,), kind, columns, name="norms")
        v = identity(c, "v", kind, columns)
        with kb.loop("row", 0, columns, init=[zero]) as (i, so_far):
            with kb.loop("element", 0, rows, init=[so_far]) as (j, largest):
                kb.carry(kb.max(largest, kb.abs(kb.load(a, *at(j, i)))))
            kb.carry(*kb.results)
        largest = kb.results[0]
        scale = kb.select(kb.gt(largest, zero), largest, one)
        with kb.loop("read_row", 0, columns) as i, row_loop(c, "read", 0, rows) as j:
            kb.store(kb.div(kb.load(a, *at(j, i)), scale), x, i, j)
        size = kb.cast(kb.cast(kb.max(rows, 16), "i64"), kind)
        limit = kb.mul(unit, kb.sqrt(size))

        def measure(p: Value, q: Value) -> tuple[Value, tuple[Value, ...]]:
            first, second = _dot(c, "first", x, p, p), _dot(c, "second", x, q, q)
            both = _dot(c, "both", x, p, q)
            bound = kb.mul(limit, kb.mul(kb.sqrt(first), kb.sqrt(second)))
            return kb.gt(kb.abs(both), bound), (first, second, both)

        def rotate(p: Value, q: Value, first: Value, second: Value, both: Value) -> None:
            _, s, tau = _rotation(kb, kb.sub(second, first), both)
            _rotate(c, "turned", x, p, q, s, tau)
            _rotate(c, "collected", v, p, q, s, tau)

        _sweeps(kb, columns, measure, rotate)
        with kb.loop("normed", 0, columns) as p:
            kb.store(kb.sqrt(_dot(c, "norm", x, p, p)), norms, p)
        unknown(c, "no_product", product, at)
        unknown(c, "no_right", right, at)
        with row_loop(c, "no_value", 0, columns) as i:
            kb.store(nan, values, *at(i))
        valid = kb.mul(largest, zero)
        with kb.branch(kb.eq(valid, valid)), kb.loop("written", 0, columns) as p:
            rank = rank_of(kb, columns, p, lambda q: kb.load(norms, q), "gt")
            kb.store(kb.mul(kb.load(norms, p), scale), values, *at(rank))
            negative = _is_negative(kb, v, p, columns)
            with row_loop(c, "column", 0, rows) as r:
                kb.store(signed(kb, kb.load(x, p, r), negative), product, *at(r, rank))
            with row_loop(c, "vector", 0, columns) as r:
                kb.store(signed(kb, kb.load(v, p, r), negative), right, *at(r, rank))
