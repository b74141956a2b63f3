"""Factorisations and triangular systems of matrices, in the contract's order.

A sum of products subtracted from an element a is a chain ``s = fma(-x, y, s)`` from s = a, in
ascending order of the summed index. The loops here run it row by row for all elements of a row; any
other nesting of the loops has the same bits. Arrays are f32 or f64, [..., rows, columns].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numba
import numpy as np

from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.jit import FLAGS, instantiate, jit, reads, specialise, writes
from core_compiler.numerics.primitives import NUMBERS
from core_compiler.numerics.reference.dtypes import DTYPES, canonical_nan, dtype_name

#: Sweeps of a Jacobi iteration, which needs about 6 to 10.
SWEEPS = 32
#: Lanes of a product of two columns.
LANES = 32

# ruff: noqa: F821  (fma, sqrt, nan and others are bound per dtype by ``_kernel``)


def cholesky(a: np.ndarray) -> np.ndarray:
    """Return L with L L' = a, of which only the lower triangle is read; zeros above the diagonal.

    From the first column whose pivot is not positive, L is NaN on and below the diagonal.
    """
    upper = _stack(np.triu(a.swapaxes(-1, -2)))
    _kernel("cholesky", dtype_name(a.dtype))(upper)
    return _result(upper.reshape(a.shape).swapaxes(-1, -2))


def _cholesky_loop(u):
    """Factor in place: u[i, j] holds the element of row j and column i, for j >= i."""
    size = u.shape[1]
    for b in range(u.shape[0]):
        for k in range(size):
            root = sqrt(u[b, k, k]) if u[b, k, k] > zero else nan
            u[b, k, k] = root
            for j in range(k + 1, size):
                u[b, k, j] = u[b, k, j] / root
            for i in range(k + 1, size):
                factor = -u[b, k, i]
                for j in range(i, size):
                    u[b, i, j] = fma(factor, u[b, k, j], u[b, i, j])


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (packed, order, swaps): L below the diagonal (its own is 1) and U of the reordered a.

    ``order`` (i32) are the rows of a that became row 0, 1, ...; ``swaps`` (i32) the row with which
    row k was exchanged in step k. The pivot is the first of the largest magnitudes on and below the
    diagonal; a NaN is not larger than anything, and nothing is larger than a NaN.
    """
    packed, (*batch, rows, columns) = _stack(a).copy(), a.shape
    steps = min(rows, columns)
    order = np.empty((len(packed), rows), np.int32)
    swaps = np.empty((len(packed), steps), np.int32)
    _kernel("lu", dtype_name(a.dtype))(packed, order, swaps)
    return (
        _result(packed.reshape(a.shape)),
        order.reshape(*batch, rows),
        swaps.reshape(*batch, steps),
    )


def _lu_loop(a, order, swaps):
    rows, columns = a.shape[1], a.shape[2]
    for b in range(a.shape[0]):
        for i in range(rows):
            order[b, i] = i
        for k in range(min(rows, columns)):
            chosen = k
            for i in range(k + 1, rows):
                if abs(a[b, i, k]) > abs(a[b, chosen, k]):
                    chosen = i
            swaps[b, k] = chosen
            order[b, k], order[b, chosen] = order[b, chosen], order[b, k]
            for j in range(columns):
                a[b, k, j], a[b, chosen, j] = a[b, chosen, j], a[b, k, j]
            pivot = a[b, k, k]
            for i in range(k + 1, rows):
                if pivot != zero:
                    a[b, i, k] = a[b, i, k] / pivot
                factor = -a[b, i, k]
                for j in range(k + 1, columns):
                    a[b, i, j] = fma(factor, a[b, k, j], a[b, i, j])


def row_order(swaps: np.ndarray, rows: int) -> np.ndarray:
    """Return the ``order`` (i32) of ``rows`` rows that exchanges in sequence lead to.

    Step k exchanges rows k and ``swaps[k]``, which is clamped to the rows.
    """
    count, steps = math.prod(swaps.shape[:-1]), swaps.shape[-1]
    order = np.tile(np.arange(rows, dtype=np.int32), (count, 1))
    others = np.clip(swaps, 0, max(rows - 1, 0)).reshape(count, steps)
    for own, given in zip(order, others, strict=True):
        for k, other in enumerate(given):
            own[[k, other]] = own[[other, k]]
    return order.reshape(*swaps.shape[:-1], rows)


def triangular_solve(
    a: np.ndarray,
    b: np.ndarray,
    lower: bool = True,
    transposed: bool = False,
    unit_diagonal: bool = False,
) -> np.ndarray:
    """Return x with a x = b, or a' x = b if ``transposed``, for a triangle of a.

    Rows are solved one after another, from the one with a single unknown: the sum is in that order.
    Elements of the other triangle are not read, nor is the diagonal if it is ``unit_diagonal``.
    """
    forward = lower != transposed
    matrix, x = _stack(a.swapaxes(-1, -2) if transposed else a), _stack(b).copy()
    if not forward:  # the same order from the other end
        matrix, x = matrix[:, ::-1, ::-1], x[:, ::-1]
    matrix, x = np.ascontiguousarray(matrix), np.ascontiguousarray(x)
    _kernel("solve", dtype_name(a.dtype))(matrix, x, unit_diagonal)
    return _result((x if forward else x[:, ::-1]).reshape(b.shape))


def _solve_loop(a, x, unit_diagonal):
    size, columns = x.shape[1], x.shape[2]
    for b in range(x.shape[0]):
        for k in range(size):
            if not unit_diagonal:
                for j in range(columns):
                    x[b, k, j] = x[b, k, j] / a[b, k, k]
            for i in range(k + 1, size):
                factor = -a[b, i, k]
                for j in range(columns):
                    x[b, i, j] = fma(factor, x[b, k, j], x[b, i, j])


# -- orthogonal factors ----------------------------------------------------------------------------


def householder(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (packed, tau): R on and above the diagonal, and below it the vectors of reflectors.

    Reflector k is H = 1 - tau[k] v v', with v = (0, ..., 1, packed[k + 1:, k]); Q = H0 H1 ... is
    the orthogonal factor of a = Q R. As in LAPACK, R's diagonal has the opposite sign of what it
    replaces, and tau is 0 where a column is 0 below the diagonal already.
    """
    packed = _stack(a).copy()
    tau = np.zeros((len(packed), min(a.shape[-2:])), a.dtype)
    _kernel("householder", dtype_name(a.dtype))(packed, tau)
    return _result(packed.reshape(a.shape)), _result(tau.reshape(*a.shape[:-2], tau.shape[1]))


def _householder_loop(a, tau):
    rows, columns = a.shape[1], a.shape[2]
    w = np.empty(columns, a.dtype)
    for b in range(a.shape[0]):
        for k in range(tau.shape[1]):
            below = zero
            for i in range(k + 1, rows):
                below = maximum(below, abs(a[b, i, k]))
            if below == zero:
                continue
            first = a[b, k, k]
            scale = maximum(below, abs(first))
            total = zero
            for i in range(k, rows):
                part = a[b, i, k] / scale
                total = fma(part, part, total)
            norm = scale * sqrt(total)
            made = norm if first < zero else -norm
            tau[b, k] = (made - first) / made
            divisor = first - made
            a[b, k, k] = made
            for i in range(k + 1, rows):
                a[b, i, k] = a[b, i, k] / divisor
            reflect_rows(a[b], k, tau[b, k], a[b], k + 1, w)


def _reflect_rows(packed, k, tau, target, start, w):
    """Apply reflector k to the columns of ``target`` from ``start`` on."""
    rows, columns = target.shape
    for j in range(start, columns):
        w[j] = target[k, j]
    for i in range(k + 1, rows):
        for j in range(start, columns):
            w[j] = fma(packed[i, k], target[i, j], w[j])
    for j in range(start, columns):
        w[j] = w[j] * tau
        target[k, j] = target[k, j] - w[j]
    for i in range(k + 1, rows):
        factor = -packed[i, k]
        for j in range(start, columns):
            target[i, j] = fma(factor, w[j], target[i, j])


def reflect(
    packed: np.ndarray, tau: np.ndarray, c: np.ndarray, transposed: bool = False
) -> np.ndarray:
    """Return Q c, or Q' c if ``transposed``, for the reflectors of :func:`householder`."""
    made = _stack(c).copy()
    flat = np.ascontiguousarray(tau).reshape(len(made), tau.shape[-1])
    _kernel("reflect", dtype_name(c.dtype))(_stack(packed), flat, made, transposed)
    return _result(made.reshape(c.shape))


def _reflect_loop(packed, tau, c, transposed):
    steps = tau.shape[1]
    w = np.empty(c.shape[2], c.dtype)
    for b in range(c.shape[0]):
        for step in range(steps):
            k = step if transposed else steps - 1 - step
            if tau[b, k] != zero:
                reflect_rows(packed[b], k, tau[b, k], c[b], 0, w)


# -- eigenvalues and singular values ---------------------------------------------------------------


def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (w, v): eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices.

    Only the lower triangle of a is read. In each vector the first element of the largest magnitude
    is positive. Cyclic Jacobi (Golub and Van Loan, "Matrix Computations", section 8.5): sweeps over
    p < q row by row, until a sweep rotates nothing, at most ``SWEEPS``.
    """
    lower = np.tril(a)
    work = _stack(lower + np.tril(a, -1).swapaxes(-1, -2)).copy()
    size = a.shape[-1]
    vectors = np.broadcast_to(np.eye(size, dtype=a.dtype), work.shape).copy()
    values, made = np.full((len(work), size), np.nan, a.dtype), np.full_like(work, np.nan)
    _kernel("eigh", dtype_name(a.dtype))(work, vectors, values, made)
    return (
        _result(values.reshape(a.shape[:-1])),
        _result(made.reshape(a.shape).swapaxes(-1, -2)),
    )


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


def _eigh_loop(a, vectors, values, out):
    size = a.shape[1]
    for b in range(a.shape[0]):
        x, v = a[b], vectors[b]
        valid = zero
        for p in range(size):
            for q in range(size):
                valid = fma(x[p, q], zero, valid)
        for _ in range(SWEEPS):
            rotated = False
            for p in range(size - 1):
                for q in range(p + 1, size):
                    first, second, product = x[p, p], x[q, q], x[p, q]
                    if abs(product) > unit * (sqrt(abs(first)) * sqrt(abs(second))):
                        rotated = True
                        t, s, tau = rotation(second - first, product)
                        rotate_rows(x, p, q, s, tau)
                        x[p, p] = fma(-t, product, first)
                        x[q, q] = fma(t, product, second)
                        x[p, q] = zero
                        x[q, p] = zero
                        for r in range(size):
                            x[r, p] = x[p, r]
                            x[r, q] = x[q, r]
                        rotate_rows(v, p, q, s, tau)
            if not rotated:
                break
        for p in range(size):
            rank = 0
            for q in range(size):
                rank += x[q, q] < x[p, p] or (x[q, q] == x[p, p] and q < p)
            if valid == valid:
                values[b, rank] = x[p, p]
                negative = is_negative(v, p)
                for r in range(size):
                    out[b, rank, r] = -v[p, r] if negative else v[p, r]


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
    work = _stack(a.swapaxes(-1, -2)).copy()
    count, size, _ = work.shape
    vectors = np.broadcast_to(np.eye(size, dtype=a.dtype), (count, size, size)).copy()
    values = np.full((count, size), np.nan, a.dtype)
    product, v = np.full_like(work, np.nan), np.full_like(vectors, np.nan)
    _kernel("columns", dtype_name(a.dtype))(work, vectors, values, product, v)
    batch, rows = a.shape[:-2], a.shape[-2]
    return (
        _result(values.reshape(*batch, size)),
        _result(product.reshape(*batch, size, rows).swapaxes(-1, -2)),
        _result(v.reshape(*batch, size, size).swapaxes(-1, -2)),
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


# -- compiled loops --------------------------------------------------------------------------------


def _stack(a: np.ndarray) -> np.ndarray:
    """Return the matrices one after another, as a contiguous array of rank 3."""
    return np.ascontiguousarray(a).reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def _result(x: np.ndarray) -> np.ndarray:
    return canonical_nan(np.ascontiguousarray(x))


#: The loops by name, with the ranks of their arrays (negative: written) or the type of a flag.
_LOOPS: dict[str, tuple[Callable, Sequence[int | str]]] = {
    "cholesky": (_cholesky_loop, (-3,)),
    "lu": (_lu_loop, (-3, "i32", "i32")),
    "solve": (_solve_loop, (3, -3, "flag")),
    "householder": (_householder_loop, (-3, -2)),
    "reflect": (_reflect_loop, (3, 2, -3, "flag")),
    "eigh": (_eigh_loop, (-3, -3, -2, -3)),
    "columns": (_columns_loop, (-3, -3, -2, -3, -3)),
}


def _limit(rows):
    """Return how far from orthogonal two columns may be: the error of their product."""
    return unit * sqrt(convert(max(rows, 16)))


#: Parts of the loops, compiled for each dtype: callees first.
_PARTS: dict[str, Callable] = {
    "reflect_rows": _reflect_rows,
    "rotation": _rotation,
    "rotate_rows": _rotate_rows,
    "is_negative": _is_negative,
    "dot": _lanes_dot,
    "limit": _limit,
}


@functools.cache
def _kernel(name: str, dtype: str):
    number, scalar = NUMBERS[dtype], DTYPES[dtype].type
    bound = {
        "fma": NAMESPACE[f"fma_{dtype}"],
        "sqrt": NAMESPACE[f"sqrt_{dtype}"],
        "maximum": NAMESPACE[f"maximum_{dtype}"],
        "convert": NAMESPACE[f"convert_i64_{dtype}"],
        "unit": scalar(2.0**-24 if dtype == "f32" else 2.0**-53),
        "zero": scalar(0),
        "half": scalar(0.5),
        "one": scalar(1),
        "nan": scalar(np.nan),
    }
    bound |= instantiate(_PARTS, numba.njit(**FLAGS), bound)
    loop, kinds = _LOOPS[name]
    typed = [
        {"flag": numba.boolean, "i32": writes(NUMBERS["i32"], 2)}[kind]
        if isinstance(kind, str)
        else (reads(number, kind) if kind > 0 else writes(number, -kind))
        for kind in kinds
    ]
    return jit(specialise(loop, f"{name}_{dtype}", **bound), *typed)
