"""Gradients of factorisations and triangular systems: products and triangular systems again.

Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008); for LU, the rules of ``torch.linalg``.
"""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.gradients.table import NoGradient, gradient, of_one
from core_compiler.ops.matrices import (
    identity,
    in_first_order,
    scaled,
    transposed,
    triangle,
)


def _halved_diagonal(b: Builder, x: Value) -> Value:
    """Return the lower triangle of ``x``, with half of its diagonal."""
    whole, strict = triangle(b, x, True), triangle(b, x, True, -1)
    return b.mul(b.add(whole, strict), b.scalar_like(0.5, x))


@of_one("cholesky")
def _cholesky(b, op: typed.Cholesky, dy):
    """Return L'^-1 tril(L' dL) L^-1, with half of the diagonal in the middle."""
    factor = op.result
    inner = _halved_diagonal(b, b.matmul(transposed(b, factor), triangle(b, dy, True)))
    left = b.triangular_solve(factor, inner, transposed=True)
    made = b.triangular_solve(factor, transposed(b, left), transposed=True)
    return _of_lower_triangle(b, made)


def _of_lower_triangle(b: Builder, dy: Value) -> Value:
    """Return the gradient of the lower triangle from that of a whole symmetric matrix."""
    return b.add(triangle(b, dy, True), triangle(b, transposed(b, dy), True, -1))


@gradient("triangular_solve")
def _triangular_solve(b, op: typed.TriangularSolve, cotangents, wanted):
    (dx,) = cotangents
    flipped = {**op.pick("lower", "unit_diagonal"), "transposed": not op.transposed}
    db = b.triangular_solve(op.a, dx, **flipped)
    if not wanted[0]:
        return None, db
    pair = (op.result, db) if op.transposed else (db, op.result)
    da = b.neg(b.matmul(pair[0], transposed(b, pair[1])))
    offset = int(op.unit_diagonal) * (-1 if op.lower else 1)
    return triangle(b, da, op.lower, offset), db if wanted[1] else None


@gradient("lu")
def _lu(b, op: typed.Lu, cotangents, wanted):
    """Return P' L'^-1 (tril(L' dL, -1) + triu(dU U')) U'^-1, for square matrices."""
    packed, order, _ = op.results
    dy = cotangents[0]
    rows, columns = packed.type.shape[-2:]
    if rows != columns:
        raise NoGradient(f"LU of matrices {rows} x {columns}: only of square ones")
    if dy is None:
        return (None,)
    below = triangle(b, packed, True, -1)
    factor = b.add(below, identity(b, packed, rows, rows))
    upper = triangle(b, packed, False)
    inner = b.add(
        triangle(b, b.matmul(transposed(b, factor), triangle(b, dy, True, -1)), True, -1),
        triangle(b, b.matmul(triangle(b, dy, False), transposed(b, upper)), False),
    )
    left = b.triangular_solve(packed, inner, transposed=True, unit_diagonal=True)
    made = transposed(b, b.triangular_solve(packed, transposed(b, left), lower=False))
    return (in_first_order(b, made, order),)


def _or_zero(b: Builder, cotangent: Value | None, like: Value) -> Value:
    return b.scalar_like(0, like) if cotangent is None else cotangent


@gradient("qr")
def _qr(b, op: typed.Qr, cotangents, wanted):
    """Return (dQ + Q sym(M)) R'^-1 with M = R dR' - dQ' Q, for at least as many rows as columns.

    sym(M) has M's lower triangle, mirrored.
    """
    q, r = op.results
    rows, columns = op.a.type.shape[-2:]
    if rows < columns or (op.complete and rows != columns):
        raise NoGradient(f"QR of matrices {rows} x {columns}: q must have {columns} columns")
    dq, dr = (_or_zero(b, d, x) for d, x in zip(cotangents, op.results, strict=True))
    inner = b.sub(b.matmul(r, transposed(b, dr)), b.matmul(transposed(b, dq), q))
    mirrored = b.add(triangle(b, inner, True), transposed(b, triangle(b, inner, True, -1)))
    made = b.add(dq, b.matmul(q, mirrored))
    return (transposed(b, b.triangular_solve(r, transposed(b, made), lower=False)),)


def _differences(b: Builder, w: Value, like: Value) -> Value:
    """Return w[j] - w[i] for all pairs, with 1 on the diagonal."""
    rank = like.type.rank
    lead = tuple(range(rank - 2))
    row, column = (b.broadcast(w, shape=like.type.shape, dims=(*lead, rank - n)) for n in (2, 1))
    n = like.type.shape[-1]
    return b.add(b.sub(column, row), identity(b, like, n, n))


@gradient("eigh")
def _eigh(b, op: typed.Eigh, cotangents, wanted):
    """Return V (diag(dw) + (V' dV) / E) V' with E[i, j] = w[j] - w[i]."""
    w, v = op.results
    dw, dv = cotangents
    n = v.type.shape[-1]
    one = identity(b, v, n, n)
    inner = scaled(b, one, _or_zero(b, dw, w), rows=True)
    if dv is not None:
        turned = b.matmul(transposed(b, v), dv)
        off = b.mul(turned, b.sub(b.scalar_like(1, one), one))
        inner = b.add(inner, b.div(off, _differences(b, w, v)))
    return (_of_lower_triangle(b, b.matmul(b.matmul(v, inner), transposed(b, v))),)


@gradient("svd")
def _svd(b, op: typed.Svd, cotangents, wanted):
    """Return U (diag(ds) + (skew(U' dU) S + S skew(V' dV)) / E) V', and the parts outside U and V.

    E[i, j] = s[j]^2 - s[i]^2 (Townsend, "Differentiating the singular value decomposition", 2016).
    """
    u, s, vt = op.results
    du, ds, dvt = cotangents
    rows, columns = op.a.type.shape[-2:]
    if op.complete and rows != columns:
        raise NoGradient(f"complete SVD of matrices {rows} x {columns}")
    n, v = s.type.shape[-1], transposed(b, vt)
    one = identity(b, op.a, n, n)
    inner = scaled(b, one, _or_zero(b, ds, s), rows=True)
    gaps = _differences(b, b.mul(s, s), one)
    sides = ((u, du, False), (v, None if dvt is None else transposed(b, dvt), True))
    for side, cotangent, right in sides:
        if cotangent is not None:
            turned = b.matmul(transposed(b, side), cotangent)
            skew = b.div(b.sub(turned, transposed(b, turned)), gaps)
            inner = b.add(inner, scaled(b, skew, s, rows=right))
    made = b.matmul(b.matmul(u, inner), vt)
    for (side, cotangent, right), size in zip(sides, (rows, columns), strict=True):
        if cotangent is not None and size > n:
            outside = b.sub(cotangent, b.matmul(side, b.matmul(transposed(b, side), cotangent)))
            part = scaled(b, outside, b.div(b.scalar_like(1, s), s), rows=False)
            outer = b.matmul(u, transposed(b, part)) if right else b.matmul(part, vt)
            made = b.add(made, outer)
    return (made,)
