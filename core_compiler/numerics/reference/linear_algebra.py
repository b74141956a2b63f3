"""Factorisations and triangular systems of matrices, in the contract's order.

A sum of products subtracted from an element a is a chain ``s = fma(-x, y, s)`` from s = a, in
ascending order of the summed index. The loops here run it row by row for all elements of a row; any
other nesting of the loops has the same bits. Arrays are f32 or f64, [..., rows, columns].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numba
import numpy as np

from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.jit import FLAGS, instantiate, jit, reads, specialise, writes
from core_compiler.numerics.primitives import NUMBERS
from core_compiler.numerics.reference.dtypes import DTYPES, canonical_nan, dtype_name

# ruff: noqa: F821  (fma, sqrt, nan and others are bound per dtype by ``_kernel``)


def cholesky(a: np.ndarray) -> np.ndarray:
    """Return L with L L' = a, of which only the lower triangle is read; zeros above the diagonal.

    From the first column whose pivot is not positive, L is NaN on and below the diagonal.
    """
    upper = stack(np.triu(a.swapaxes(-1, -2)))
    _kernel("cholesky", dtype_name(a.dtype))(upper)
    return result(upper.reshape(a.shape).swapaxes(-1, -2))


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
    packed, (*batch, rows, columns) = stack(a).copy(), a.shape
    steps = min(rows, columns)
    order = np.empty((len(packed), rows), np.int32)
    swaps = np.empty((len(packed), steps), np.int32)
    _kernel("lu", dtype_name(a.dtype))(packed, order, swaps)
    return (
        result(packed.reshape(a.shape)),
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
    matrix, x = stack(a.swapaxes(-1, -2) if transposed else a), stack(b).copy()
    if not forward:  # the same order from the other end
        matrix, x = matrix[:, ::-1, ::-1], x[:, ::-1]
    matrix, x = np.ascontiguousarray(matrix), np.ascontiguousarray(x)
    _kernel("solve", dtype_name(a.dtype))(matrix, x, unit_diagonal)
    return result((x if forward else x[:, ::-1]).reshape(b.shape))


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
    packed = stack(a).copy()
    tau = np.zeros((len(packed), min(a.shape[-2:])), a.dtype)
    _kernel("householder", dtype_name(a.dtype))(packed, tau)
    return result(packed.reshape(a.shape)), result(tau.reshape(*a.shape[:-2], tau.shape[1]))


def _householder_loop(a, tau):
    w = np.empty(a.shape[2], a.dtype)
    for b in range(a.shape[0]):
        for k in range(tau.shape[1]):
            tau[b, k] = reflector(a[b], k, k)
            if tau[b, k] != zero:
                reflect_rows(a[b], k, k, tau[b, k], a[b], k + 1, w)


def _reflector(a, row, k):
    """Return the factor of the reflector that makes column k 0 below a row; keep it in place."""
    rows = a.shape[0]
    below = zero
    for i in range(row + 1, rows):
        below = maximum(below, abs(a[i, k]))
    if below == zero:
        return zero
    first = a[row, k]
    scale = maximum(below, abs(first))
    total = zero
    for i in range(row, rows):
        part = a[i, k] / scale
        total = fma(part, part, total)
    norm = scale * sqrt(total)
    made = norm if first < zero else -norm
    divisor = first - made
    a[row, k] = made
    for i in range(row + 1, rows):
        a[i, k] = a[i, k] / divisor
    return (made - first) / made


def _reflect_rows(packed, row, k, tau, target, start, w):
    """Apply the reflector of column k to the columns of ``target`` from ``start`` on."""
    rows, columns = target.shape
    for j in range(start, columns):
        w[j] = target[row, j]
    for i in range(row + 1, rows):
        for j in range(start, columns):
            w[j] = fma(packed[i, k], target[i, j], w[j])
    for j in range(start, columns):
        w[j] = w[j] * tau
        target[row, j] = target[row, j] - w[j]
    for i in range(row + 1, rows):
        factor = -packed[i, k]
        for j in range(start, columns):
            target[i, j] = fma(factor, w[j], target[i, j])


def reflect(
    packed: np.ndarray, tau: np.ndarray, c: np.ndarray, transposed: bool = False
) -> np.ndarray:
    """Return Q c, or Q' c if ``transposed``, for the reflectors of :func:`householder`."""
    made = stack(c).copy()
    flat = np.ascontiguousarray(tau).reshape(len(made), tau.shape[-1])
    _kernel("reflect", dtype_name(c.dtype))(stack(packed), flat, made, transposed)
    return result(made.reshape(c.shape))


def _reflect_loop(packed, tau, c, transposed):
    steps = tau.shape[1]
    w = np.empty(c.shape[2], c.dtype)
    for b in range(c.shape[0]):
        for step in range(steps):
            k = step if transposed else steps - 1 - step
            if tau[b, k] != zero:
                reflect_rows(packed[b], k, k, tau[b, k], c[b], 0, w)


# -- compiled loops --------------------------------------------------------------------------------

#: An array of a loop by its rank (negative: written), or another argument by its name.
Kind = int | str


def stack(a: np.ndarray) -> np.ndarray:
    """Return the matrices one after another, as a contiguous array of rank 3."""
    return np.ascontiguousarray(a).reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def result(x: np.ndarray) -> np.ndarray:
    return canonical_nan(np.ascontiguousarray(x))


#: Parts of the loops, compiled for each dtype: callees first.
PARTS: dict[str, Callable] = {"reflector": _reflector, "reflect_rows": _reflect_rows}

_LOOPS: dict[str, tuple[Callable, Sequence[Kind]]] = {
    "cholesky": (_cholesky_loop, (-3,)),
    "lu": (_lu_loop, (-3, "i32", "i32")),
    "solve": (_solve_loop, (3, -3, "flag")),
    "householder": (_householder_loop, (-3, -2)),
    "reflect": (_reflect_loop, (3, 2, -3, "flag")),
}


@functools.cache
def _kernel(name: str, dtype: str) -> Callable:
    return compiled(*_LOOPS[name], PARTS, dtype)


def compiled(
    loop: Callable, kinds: Sequence[Kind], parts: Mapping[str, Callable], dtype: str
) -> Callable:
    """Return a loop over arrays of ``dtype``, compiled with its ``parts``."""
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
    bound |= instantiate(parts, numba.njit(**FLAGS), bound)
    arguments = {"flag": numba.boolean, "i32": writes(NUMBERS["i32"], 2)}
    typed = [
        arguments[kind]
        if isinstance(kind, str)
        else (reads(number, kind) if kind > 0 else writes(number, -kind))
        for kind in kinds
    ]
    return jit(specialise(loop, f"{loop.__name__.strip('_')}_{dtype}", **bound), *typed)
