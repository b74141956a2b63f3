"""Eigenvalues of symmetric matrices and singular values, in the contract's order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.numerics.reference.dtypes import dtype_name
from core_compiler.numerics.reference.linear_algebra import PARTS, Kind, compiled, result, stack

#: The maximum number of sweeps of a Jacobi iteration, which needs about 6 to 10, and of QL steps
#: for an eigenvalue, which needs about 2.
SWEEPS, STEPS = 32, 32
#: Lanes of a product of two columns.
LANES = 32

# ruff: noqa: F821  (fma, sqrt, nan and others are bound per dtype by ``compiled``)


def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (w, v): eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices.

    Only the lower triangle of a is read. In each vector the first element of the largest magnitude
    is positive. The matrix is divided by its largest magnitude, made tridiagonal by reflectors, and
    then diagonal by implicit QL steps (Golub and Van Loan, "Matrix Computations", section 8.3).
    """
    lower = np.tril(a)
    work = stack(lower + np.tril(a, -1).swapaxes(-1, -2)).copy()
    values, vectors = np.full(work.shape[:2], np.nan, a.dtype), np.full_like(work, np.nan)
    _kernel("eigh", dtype_name(a.dtype))(work, values, vectors)
    return result(values.reshape(a.shape[:-1])), result(vectors.reshape(a.shape))


def _eigh_loop(a, values, vectors):
    size = a.shape[1]
    d, e, tau = np.empty(size, a.dtype), np.empty(size, a.dtype), np.empty(size, a.dtype)
    v, w, z = np.empty(size, a.dtype), np.empty(size, a.dtype), np.empty((size, size), a.dtype)
    for b in range(a.shape[0]):
        x, made = a[b], vectors[b]
        largest = zero
        for i in range(size):
            for j in range(i + 1):
                largest = maximum(largest, abs(x[i, j]))
        if largest * zero != zero:  # a NaN or an infinity
            continue
        scale = largest if largest > zero else one
        for i in range(size):
            for j in range(size):
                x[i, j] = x[i, j] / scale
                z[i, j] = one if i == j else zero
        tridiagonal(x, d, e, tau, v, w)
        ql(d, e, z)
        for p in range(size):
            rank = 0
            for q in range(size):
                rank += d[q] < d[p] or (d[q] == d[p] and q < p)
            values[b, rank] = d[p] * scale
            for i in range(size):
                made[i, rank] = z[p, i]
        for k in range(size - 3, -1, -1):
            if tau[k] != zero:
                reflect_rows(x, k + 1, k, tau[k], made, 0, w)
        for j in range(size):
            largest = made[0, j]
            for i in range(1, size):
                largest = made[i, j] if abs(made[i, j]) > abs(largest) else largest
            for i in range(size):
                made[i, j] = -made[i, j] if largest < zero else made[i, j]


def _tridiagonal(x, d, e, tau, v, w):
    """Make x tridiagonal: diagonal d, subdiagonal e; column k keeps its reflector."""
    size = x.shape[0]
    for k in range(size):
        tau[k] = reflector(x, k + 1, k) if k + 2 < size else zero
        d[k] = x[k, k]
        e[k] = x[k + 1, k] if k + 1 < size else zero
        if tau[k] == zero:
            continue
        v[k + 1] = one
        for i in range(k + 2, size):
            v[i] = x[i, k]
        for j in range(k + 1, size):
            w[j] = zero
        for i in range(k + 1, size):
            for j in range(k + 1, size):
                w[j] = fma(v[i], x[i, j], w[j])
        share = zero
        for j in range(k + 1, size):
            w[j] = w[j] * tau[k]
            share = fma(w[j], v[j], share)
        share = share * (tau[k] * half)
        for j in range(k + 1, size):
            w[j] = fma(-share, v[j], w[j])
        for i in range(k + 1, size):
            for j in range(k + 1, size):
                x[i, j] = x[i, j] - (v[i] * w[j] + w[i] * v[j])


def _ql(d, e, z):
    """Make a tridiagonal matrix diagonal; the rows of z rotate along."""
    size = d.shape[0]
    for low in range(size):
        for _ in range(STEPS):
            high = low
            while high < size - 1:
                if abs(e[high]) <= fma(unit, abs(d[high]) + abs(d[high + 1]), unit * unit):
                    break
                high += 1
            if high == low:
                break
            ratio = (d[low + 1] - d[low]) / (e[low] + e[low])
            root = sqrt(fma(ratio, ratio, one))
            g = (d[high] - d[low]) + e[low] / (ratio - root if ratio < zero else ratio + root)
            s, c, p = one, one, zero
            for i in range(high - 1, low - 1, -1):
                f, b = s * e[i], c * e[i]
                root = sqrt(fma(f, f, g * g))
                e[i + 1] = root
                s = f / root if root != zero else zero
                c = g / root if root != zero else one
                g = d[i + 1] - p
                root = fma(d[i] - g, s, (c + c) * b)
                p = s * root
                d[i + 1] = g + p
                g = fma(c, root, -b)
                for j in range(size):
                    above, below = z[i, j], z[i + 1, j]
                    z[i + 1, j] = fma(s, above, c * below)
                    z[i, j] = fma(c, above, -(s * below))
            d[low] = d[low] - p
            e[low] = g
            e[high] = zero


def _rotation(difference, product):
    """Return (t, s, tau) of the rotation that makes the off-diagonal ``product`` 0.

    ``difference`` is the second diagonal element minus the first; t is the tangent of the smaller
    angle, s its sine, and tau = s / (1 + cosine).
    """
    ratio = difference * half / product
    t = one / (abs(ratio) + sqrt(fma(ratio, ratio, one)))
    t = -t if ratio < zero else t
    cosine = one / sqrt(fma(t, t, one))
    s = t * cosine
    return t, s, s / (one + cosine)


def _rotate_rows(x, p, q, s, tau):
    for r in range(x.shape[1]):
        g, h = x[p, r], x[q, r]
        x[p, r] = fma(-s, fma(g, tau, h), g)
        x[q, r] = fma(s, fma(-h, tau, g), h)


def _is_negative(x, p):
    """Return whether the first element of the largest magnitude of row p is negative."""
    largest = x[p, 0]
    for r in range(1, x.shape[1]):
        if abs(x[p, r]) > abs(largest):
            largest = x[p, r]
    return largest < zero


def orthogonal_columns(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (s, product, v) with product = a v for an orthogonal v, and orthogonal columns.

    ``s`` are their norms, which descend: the singular values of a. ``product`` is divided by the
    largest magnitude of a. In each column of v the first element of the largest magnitude is
    positive. One-sided cyclic Jacobi (Golub and Van Loan, section 8.6.3), for at
    least as many rows as columns: sweeps over pairs of columns p < q, row by row, until a sweep
    rotates nothing, at most ``SWEEPS``. Their products are sums in 32 lanes, of fused terms.
    """
    work = stack(a.swapaxes(-1, -2)).copy()
    count, size, _ = work.shape
    vectors = np.broadcast_to(np.eye(size, dtype=a.dtype), (count, size, size)).copy()
    values = np.full((count, size), np.nan, a.dtype)
    product, v = np.full_like(work, np.nan), np.full_like(vectors, np.nan)
    _kernel("columns", dtype_name(a.dtype))(work, vectors, values, product, v)
    batch, rows = a.shape[:-2], a.shape[-2]
    return (
        result(values.reshape(*batch, size)),
        result(product.reshape(*batch, size, rows).swapaxes(-1, -2)),
        result(v.reshape(*batch, size, size).swapaxes(-1, -2)),
    )


def _lanes_dot(x, p, q):
    """Return the product of two rows: 32 lanes from +0, then a tree, as in a reduction."""
    lanes = np.zeros(LANES, x.dtype)
    for r in range(x.shape[1]):
        lanes[r % LANES] = fma(x[p, r], x[q, r], lanes[r % LANES])
    width = LANES // 2
    while width:
        for lane in range(width):
            lanes[lane] = lanes[lane] + lanes[lane + width]
        width //= 2
    return lanes[0]


def _columns_loop(work, vectors, values, product, out):
    size, rows = work.shape[1], work.shape[2]
    for b in range(work.shape[0]):
        x, v = work[b], vectors[b]
        largest = zero
        for p in range(size):
            for r in range(rows):
                largest = maximum(largest, abs(x[p, r]))
        valid = largest * zero
        scale = largest if largest > zero else one
        for p in range(size):
            for r in range(rows):
                x[p, r] = x[p, r] / scale
        for _ in range(SWEEPS):
            rotated = False
            for p in range(size - 1):
                for q in range(p + 1, size):
                    first, second = dot(x, p, p), dot(x, q, q)
                    both = dot(x, p, q)
                    if abs(both) > limit(rows) * (sqrt(first) * sqrt(second)):
                        rotated = True
                        _, s, tau = rotation(second - first, both)
                        rotate_rows(x, p, q, s, tau)
                        rotate_rows(v, p, q, s, tau)
            if not rotated:
                break
        norms = np.empty(size, work.dtype)
        for p in range(size):
            norms[p] = sqrt(dot(x, p, p))
        for p in range(size):
            rank = 0
            for q in range(size):
                rank += norms[q] > norms[p] or (norms[q] == norms[p] and q < p)
            if valid == valid:
                values[b, rank] = norms[p] * scale
                negative = is_negative(v, p)
                for r in range(rows):
                    product[b, rank, r] = -x[p, r] if negative else x[p, r]
                for r in range(size):
                    out[b, rank, r] = -v[p, r] if negative else v[p, r]


def _limit(rows):
    """Return how far from orthogonal two columns may be: the error of their product."""
    return unit * sqrt(convert(max(rows, 16)))


_PARTS: dict[str, Callable] = {
    **PARTS,
    "tridiagonal": _tridiagonal,
    "ql": _ql,
    "rotation": _rotation,
    "rotate_rows": _rotate_rows,
    "is_negative": _is_negative,
    "dot": _lanes_dot,
    "limit": _limit,
}
_LOOPS: dict[str, tuple[Callable, Sequence[Kind]]] = {
    "eigh": (_eigh_loop, (-3, -2, -3)),
    "columns": (_columns_loop, (-3, -3, -2, -3, -3)),
}


@functools.cache
def _kernel(name: str, dtype: str) -> Callable:
    return compiled(*_LOOPS[name], _PARTS, dtype)
