"""Eigenvalues of symmetric matrices: reflectors to a tridiagonal one, then implicit QL steps.

The rows of the rotated memory are eigenvectors, so that a rotation runs along two rows. They become
columns before the reflectors are applied, which run along all columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core_compiler.ir import Value
from core_compiler.lowering.linear_algebra import matrices, matrix_memory, row_loop
from core_compiler.lowering.orthogonal import (
    apply_reflector,
    identity,
    numbers,
    rank_of,
    reflector,
    signed,
    unit_roundoff,
    unknown,
)
from core_compiler.ops import typed

if TYPE_CHECKING:
    from core_compiler.lowering.custom import Custom

#: The maximum number of QL steps for an eigenvalue, as in the reference.
STEPS = 32


def eigh(c: Custom, op: typed.Eigh) -> None:
    kb, (a,), (values, vectors) = c.kb, c.inputs, c.outputs
    n, kind = c.extents[a][-1], a.type.dtype
    zero, one, nan = numbers(kb, kind, 0.0, 1.0, float("nan"))
    with matrices(c, a) as at:
        x, made = (matrix_memory(c, name, kind, n, n) for name in ("x", "made"))
        d, e, tau, v, w = (
            kb.alloc((n.name,), kind, n, name=name) for name in ("d", "e", "tau", "v", "w")
        )
        unknown(c, "no_vector", vectors, at)
        with row_loop(c, "no_value", 0, n) as i:
            kb.store(nan, values, *at(i))
        with kb.loop("row", 0, n, init=[zero]) as (i, so_far):
            with kb.loop("column", 0, kb.add(i, 1), init=[so_far]) as (j, largest):
                kb.carry(kb.max(largest, kb.abs(kb.load(a, *at(i, j)))))
            kb.carry(*kb.results)
        largest = kb.results[0]
        scale = kb.select(kb.gt(largest, zero), largest, one)
        with kb.loop("read_row", 0, n) as i, row_loop(c, "read", 0, kb.add(i, 1)) as j:
            part = kb.div(kb.load(a, *at(i, j)), scale)
            kb.store(part, x, i, j)
            kb.store(part, x, j, i)
        with kb.branch(kb.eq(kb.mul(largest, zero), zero)):
            _tridiagonal(c, x, n, _Vectors(d, e, tau, v, w))
            z = identity(c, "z", kind, n)
            _ql(c, z, n, d, e)
            with kb.loop("ranked", 0, n) as p:
                rank = rank_of(kb, n, p, lambda q: kb.load(d, q), "lt")
                kb.store(kb.mul(kb.load(d, p), scale), values, *at(rank))
                with row_loop(c, "turned", 0, n) as i:
                    kb.store(kb.load(z, p, i), made, i, rank)
            with kb.loop("reflection", 0, kb.max(kb.sub(n, 2), 0)) as step:
                k = kb.sub(kb.sub(n, 3), step)
                factor = kb.load(tau, k)
                with kb.branch(kb.ne(factor, zero)):
                    apply_reflector(
                        c, made, (0, n), n, kb.add(k, 1), factor, lambda i: kb.load(x, i, k)
                    )
            with row_loop(c, "vector", 0, n) as j:
                with kb.loop("element", 1, n, init=[kb.load(made, 0, j)]) as (i, top):
                    other = kb.load(made, i, j)
                    kb.carry(kb.select(kb.gt(kb.abs(other), kb.abs(top)), other, top))
                negative = kb.lt(kb.results[0], zero)
                with kb.loop("signed", 0, n) as i:
                    kb.store(signed(kb, kb.load(made, i, j), negative), vectors, *at(i, j))


@dataclass(frozen=True)
class _Vectors:
    """Scratch memory: diagonal, subdiagonal, factors of reflectors, a reflector, and a product."""

    d: Value
    e: Value
    tau: Value
    v: Value
    w: Value


def _tridiagonal(c: Custom, x: Value, n: Value, of: _Vectors) -> None:
    """Emit the reduction of ``x``, whose column k keeps its reflector."""
    kb, kind = c.kb, x.type.dtype
    zero, half, one = numbers(kb, kind, 0.0, 0.5, 1.0)
    v, w = of.v, of.w
    with kb.loop("step", 0, n) as k:
        after = kb.add(k, 1)
        (factor,) = kb.choose(
            kb.lt(kb.add(k, 2), n), lambda: reflector(kb, x, after, k, n), lambda: zero
        )
        kb.store(factor, of.tau, k)
        kb.store(kb.load(x, k, k), of.d, k)
        (below,) = kb.choose(kb.lt(after, n), lambda: kb.load(x, after, k), lambda: zero)
        kb.store(below, of.e, k)
        with kb.branch(kb.ne(factor, zero)):
            kb.store(one, v, after)
            with kb.loop("copied", kb.add(k, 2), n) as i:
                kb.store(kb.load(x, i, k), v, i)
            with row_loop(c, "product", after, n) as j:
                with kb.loop("term", after, n, init=[zero]) as (i, total):
                    kb.carry(kb.fma(kb.load(v, i), kb.load(x, i, j), total))
                kb.store(kb.mul(kb.results[0], factor), w, j)
            with kb.loop("shared", after, n, init=[zero]) as (j, total):
                kb.carry(kb.fma(kb.load(w, j), kb.load(v, j), total))
            share = kb.mul(kb.results[0], kb.mul(factor, half))
            with row_loop(c, "corrected", after, n) as j:
                kb.store(kb.fma(kb.neg(share), kb.load(v, j), kb.load(w, j)), w, j)
            with kb.loop("i", after, n) as i, row_loop(c, "j", after, n) as j:
                parts = kb.mul(kb.load(v, i), kb.load(w, j)), kb.mul(kb.load(w, i), kb.load(v, j))
                kb.store(kb.sub(kb.load(x, i, j), kb.add(*parts)), x, i, j)


def _ql(c: Custom, z: Value, n: Value, d: Value, e: Value) -> None:
    """Emit QL steps for each eigenvalue until its subdiagonal element is negligible."""
    kb, no, yes = c.kb, c.kb.index(0), c.kb.index(1)
    last = kb.sub(n, 1)
    with kb.loop("low", 0, n) as low, kb.loop("iteration", 0, STEPS, init=[yes]) as (_, active):
        end = kb.select(kb.eq(active, no), low, last)
        with kb.loop("sought", low, end, init=[last]) as (i, found):
            small = kb.and_(_is_negligible(c, d, e, i), kb.lt(i, found))
            kb.carry(kb.select(small, i, found))
        high = kb.select(kb.eq(active, no), low, kb.results[0])

        def step() -> Value:
            _ql_step(c, z, d, e, low, high)
            return yes

        kb.carry(*kb.choose(kb.gt(high, low), step, lambda: no))


def _is_negligible(c: Custom, d: Value, e: Value, i: Value) -> Value:
    kb, u = c.kb, unit_roundoff(d.type.dtype)
    unit, least = numbers(kb, d.type.dtype, u, u * u)
    both = kb.add(kb.abs(kb.load(d, i)), kb.abs(kb.load(d, kb.add(i, 1))))
    return kb.le(kb.abs(kb.load(e, i)), kb.fma(unit, both, least))


def _ql_step(c: Custom, z: Value, d: Value, e: Value, low: Value, high: Value) -> None:
    """Emit a step with an implicit shift on rows ``low`` to ``high``."""
    kb, kind = c.kb, d.type.dtype
    zero, one = numbers(kb, kind, 0.0, 1.0)
    first, edge = kb.load(d, low), kb.load(e, low)
    ratio = kb.div(kb.sub(kb.load(d, kb.add(low, 1)), first), kb.add(edge, edge))
    root = kb.sqrt(kb.fma(ratio, ratio, one))
    root = kb.select(kb.lt(ratio, zero), kb.sub(ratio, root), kb.add(ratio, root))
    shifted = kb.add(kb.sub(kb.load(d, high), first), kb.div(edge, root))
    init = [one, one, zero, shifted]
    with kb.loop("back", 0, kb.sub(high, low), init=init) as (step, s, cosine, p, g):
        after = kb.sub(high, step)
        i = kb.sub(after, 1)
        f, b = kb.mul(s, kb.load(e, i)), kb.mul(cosine, kb.load(e, i))
        root = kb.sqrt(kb.fma(f, f, kb.mul(g, g)))
        kb.store(root, e, after)
        some = kb.ne(root, zero)
        s = kb.select(some, kb.div(f, root), zero)
        cosine = kb.select(some, kb.div(g, root), one)
        g = kb.sub(kb.load(d, after), p)
        root = kb.fma(kb.sub(kb.load(d, i), g), s, kb.mul(kb.add(cosine, cosine), b))
        p = kb.mul(s, root)
        kb.store(kb.add(g, p), d, after)
        with row_loop(c, "rotated", 0, c.extents[z][-1]) as j:
            above, below = kb.load(z, i, j), kb.load(z, after, j)
            kb.store(kb.fma(s, above, kb.mul(cosine, below)), z, after, j)
            kb.store(kb.fma(cosine, above, kb.neg(kb.mul(s, below))), z, i, j)
        kb.carry(s, cosine, p, kb.fma(cosine, root, kb.neg(b)))
    _, _, p, g = kb.results
    kb.store(kb.sub(kb.load(d, low), p), d, low)
    kb.store(g, e, low)
    kb.store(zero, e, high)
