"""Linear algebra of ATen (``torch.linalg``): factorisations, and what follows from them.

Torch raises an error for a singular matrix, or one that is not positive definite, where it asks for
no status. Here the result is what the arithmetic gives: infinities and NaN.
"""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends import factors
from core_compiler.frontends.pytorch.aten.table import I64, NotSupported, aten
from core_compiler.ir import Value, dtype
from core_compiler.ops.matrices import identity, scaled, transposed, triangle

I32 = dtype("i32")


def _no_status(b, like: Value) -> Value:
    return b.expand(b.constant(0, I32), like.type.shape[:-2])


def _empty(b, kind) -> Value:
    """Return torch's result for what was not asked for."""
    return b.expand(b.constant(0, kind), (0,))


def _symmetric(b, a) -> Value:
    """Return ``a``; in training, its gradient is torch's, that of the symmetric part."""
    if not b.symbols.training:
        return a
    mean = b.mul(b.add(a, transposed(b, a)), b.scalar_like(0.5, a))
    return b.add(b.stop_gradient(b.sub(a, mean)), mean)


# -- Cholesky factors ------------------------------------------------------------------------------


@aten("linalg_cholesky", "cholesky")
def cholesky(b, a, upper=False):
    return factors.cholesky(b, _symmetric(b, a), lower=not upper)


@aten("linalg_cholesky_ex")
def cholesky_ex(b, a, *, upper=False, check_errors=False):
    made = factors.cholesky(b, _symmetric(b, a), lower=not upper)
    return made, b.to(factors.first_not_positive(b, made), I32)


@aten("cholesky_solve")
def cholesky_solve(b, y, factor, upper=False):
    for transpose in (upper, not upper):
        y = factors.triangular_solve(b, factor, y, lower=not upper, transpose=transpose)
    return y


@aten("cholesky_inverse")
def cholesky_inverse(b, factor, upper=False):
    return cholesky_solve(b, identity(b, factor, *factor.type.shape[-2:]), factor, upper)


# -- triangular systems ----------------------------------------------------------------------------


@aten("linalg_solve_triangular")
def solve_triangular(b, a, y, *, upper, left=True, unitriangular=False):
    return factors.triangular_solve(
        b, a, y, lower=not upper, left=left, unit_diagonal=unitriangular
    )


@aten("triangular_solve")
def triangular_solve(b, y, a, upper=True, transpose=False, unitriangular=False):
    made = factors.triangular_solve(
        b, a, y, lower=not upper, transpose=transpose, unit_diagonal=unitriangular
    )
    return made, b.expand(a, (*made.type.shape[:-2], *a.type.shape[-2:]))


# -- LU --------------------------------------------------------------------------------------------


def _lu(b, a, pivot: bool) -> tuple[Value, Value, Value]:
    """Return the packed factors, the order of the rows, and torch's pivots (from 1)."""
    if not pivot:
        raise NotSupported("LU without pivoting")
    packed, order, swaps = b.lu(a)
    return packed, order, b.add(swaps, b.scalar_like(1, swaps))


@aten("linalg_lu_factor_ex", "_lu_with_info")
def lu_factor_ex(b, a, *options, pivot=True, check_errors=False):
    packed, _, pivots = _lu(b, a, options[0] if options else pivot)
    return packed, pivots, b.to(factors.first_zero(b, packed), I32)


@aten("linalg_lu_factor")
def lu_factor(b, a, *, pivot=True):
    return lu_factor_ex(b, a, pivot=pivot)[:2]


@aten("linalg_lu")
def lu(b, a, *, pivot=True):
    packed, order, _ = _lu(b, a, pivot)
    return (_permutation(b, packed, order), *_unpacked(b, packed))


def _permutation(b, like: Value, order: Value) -> Value:
    """Return P with a = P L U: 1 where the row is the one that became the column's."""
    rows = like.type.shape[-2]
    shape, lead = (*like.type.shape[:-2], rows, rows), like.type.rank - 2
    row = b.iota(shape=shape, dtype=I32, axis=lead)
    became = b.broadcast(order, shape=shape, dims=(*range(lead), lead + 1))
    return b.to(b.eq(row, became), like.type.dtype)


def _unpacked(b, packed: Value) -> tuple[Value, Value]:
    *_, rows, columns = packed.type.shape
    size, rank = min(rows, columns), packed.type.rank
    left = b.cut(packed, rank - 1, 0, size)
    lower = b.add(triangle(b, left, True, -1), identity(b, packed, rows, size))
    return lower, triangle(b, b.cut(packed, rank - 2, 0, size), False)


def _order(b, pivots: Value, rows: int) -> Value:
    return b.row_order(b.sub(pivots, b.scalar_like(1, pivots)), rows=rows)


@aten("lu_unpack")
def lu_unpack(b, packed, pivots, unpack_data=True, unpack_pivots=True):
    kind, rows = packed.type.dtype, packed.type.shape[-2]
    order = _order(b, pivots, rows) if unpack_pivots else None
    p = _empty(b, kind) if order is None else _permutation(b, packed, order)
    lower, upper = _unpacked(b, packed) if unpack_data else (_empty(b, kind),) * 2
    return p, lower, upper


@aten("linalg_lu_solve")
def linalg_lu_solve(b, packed, pivots, y, *, left=True, adjoint=False):
    order = _order(b, pivots, packed.type.shape[-2])
    return factors.lu_solve(b, packed, order, y, left, adjoint)


@aten("lu_solve")
def lu_solve(b, y, packed, pivots):
    return linalg_lu_solve(b, packed, pivots, y)


@aten("_linalg_solve_ex")
def solve_with_factors(b, a, y, *, left=True, check_errors=False):
    packed, order, pivots = _lu(b, a, True)
    vector = y.type.rank == 1 or y.type.shape == a.type.shape[:-1]
    right = b.reshape(y, shape=(*y.type.shape, 1)) if vector else y
    if vector and not left:
        raise NotSupported("a vector on the left of a matrix")
    made = factors.lu_solve(b, packed, order, right, left)
    made = b.reshape(made, shape=made.type.shape[:-1]) if vector else made
    return made, packed, pivots, b.to(factors.first_zero(b, packed), I32)


@aten("linalg_solve")
def solve(b, a, y, *, left=True):
    return solve_with_factors(b, a, y, left=left)[0]


@aten("linalg_solve_ex")
def solve_ex(b, a, y, *, left=True, check_errors=False):
    made, _, _, status = solve_with_factors(b, a, y, left=left)
    return made, status


@aten("linalg_inv", "inverse")
def inv(b, a):
    return factors.inverse(b, a)


@aten("linalg_inv_ex")
def inv_ex(b, a, *, check_errors=False):
    packed, order, _ = b.lu(a)
    made = factors.lu_solve(b, packed, order, identity(b, a, *a.type.shape[-2:]))
    return made, b.to(factors.first_zero(b, packed), I32)


@aten("_linalg_check_errors")
def check_errors(b, status, name, *, is_matrix):
    """Do nothing: a result that torch would reject is infinite or NaN."""
    return ()


@aten("_linalg_det")
def det_with_factors(b, a):
    packed, _, swaps = b.lu(a)
    return factors.determinant(b, packed, swaps), packed, b.add(swaps, b.scalar_like(1, swaps))


@aten("linalg_det", "det")
def det(b, a):
    return det_with_factors(b, a)[0]


@aten("_linalg_slogdet")
def slogdet_with_factors(b, a):
    packed, _, swaps = b.lu(a)
    pivots = b.add(swaps, b.scalar_like(1, swaps))
    return (*factors.sign_and_logarithm(b, packed, swaps), packed, pivots)


@aten("linalg_slogdet", "slogdet")
def slogdet(b, a):
    return slogdet_with_factors(b, a)[:2]


@aten("logdet")
def logdet(b, a):
    """Return the logarithm: NaN for a negative determinant."""
    sign, logarithm = slogdet(b, a)
    return b.add(b.log(sign), logarithm)


# -- orthogonal factors ----------------------------------------------------------------------------


@aten("linalg_qr")
def linalg_qr(b, a, mode="reduced"):
    q, r = b.qr(a, complete=mode == "complete")
    return (_empty(b, a.type.dtype) if mode == "r" else q), r


@aten("qr")
def qr(b, a, some=True):
    return b.qr(a, complete=not some)


@aten("geqrf")
def geqrf(b, a):
    return b.householder(a)


@aten("linalg_householder_product", "orgqr")
def householder_product(b, packed, tau):
    return b.reflect(packed, tau, identity(b, packed, *packed.type.shape[-2:]))


@aten("ormqr")
def ormqr(b, packed, tau, c, left=True, transpose=False):
    """Return Q c, or c Q, or with the transpose of Q."""
    if left:
        return b.reflect(packed, tau, c, transposed=transpose)
    return transposed(b, b.reflect(packed, tau, transposed(b, c), transposed=not transpose))


# -- eigenvalues and singular values ---------------------------------------------------------------


@aten("linalg_eigh", "_linalg_eigh")
def eigh(b, a, triangle="L", compute_v=True):
    a = _symmetric(b, a)
    values, vectors = b.eigh(a if triangle.upper() == "L" else transposed(b, a))
    return values, vectors if compute_v else _empty(b, a.type.dtype)


@aten("linalg_eigvalsh")
def eigvalsh(b, a, triangle="L"):
    return eigh(b, a, triangle)[0]


@aten("linalg_svd", "_linalg_svd")
def svd(b, a, full_matrices=True, compute_uv=True, *, driver=None):
    u, s, v = b.svd(a, complete=full_matrices and compute_uv)
    return (u, s, v) if compute_uv else (_empty(b, a.type.dtype), s, _empty(b, a.type.dtype))


@aten("svd")
def svd_with_v(b, a, some=True, compute_uv=True):
    """Return torch's older form: v itself, and zeros for vectors that were not asked for."""
    u, s, v = b.svd(a, complete=not some or not compute_uv)
    u, v = (x if compute_uv else b.scalar_like(0, x) for x in (u, transposed(b, v)))
    return u, s, v


@aten("linalg_svdvals")
def svdvals(b, a, *, driver=None):
    return b.svd(a)[1]


def _spectrum(b, a, hermitian: bool) -> Value:
    """Return the singular values, in any order; of a symmetric matrix |eigenvalues|."""
    return b.abs(eigh(b, a)[0]) if hermitian else b.svd(a)[1]


def _is_large(b, a, sizes: Value, atol, rtol) -> Value:
    """Return which singular values are above max(atol, rtol times the largest)."""
    kind, axis = a.type.dtype, sizes.type.rank - 1
    if not sizes.type.shape[axis]:
        return b.gt(sizes, sizes)
    bounds = sizes.type.shape[:-1]
    smallest = max(a.type.shape[-2:]) * float(np.finfo(kind.numpy).eps)
    absolute = b.expand(b.value(0.0 if atol is None else atol, kind), bounds)
    if rtol is None:
        by_default, none = b.scalar_like(smallest, absolute), b.scalar_like(0, absolute)
        relative = b.select(b.gt(absolute, none), none, by_default)
    else:
        relative = b.expand(b.value(rtol, kind), bounds)
    limit = b.max(absolute, b.mul(relative, b.reduce_max(sizes, axes=(axis,))))
    return b.gt(sizes, b.broadcast(limit, shape=sizes.type.shape, dims=tuple(range(axis))))


@aten("linalg_matrix_rank")
def matrix_rank_above(b, a, tol, hermitian=False):
    return matrix_rank(b, a, atol=tol, rtol=0.0, hermitian=hermitian)


@aten("linalg_matrix_rank.atol_rtol_tensor", "linalg_matrix_rank.atol_rtol_float")
def matrix_rank(b, a, *, atol=None, rtol=None, hermitian=False):
    sizes = _spectrum(b, a, hermitian)
    large = b.cast(_is_large(b, a, sizes, atol, rtol), dtype=I64)
    return b.reduce_sum(large, axes=(sizes.type.rank - 1,))


@aten("linalg_pinv", "linalg_pinv.rcond_tensor")
def pinv_within(b, a, rcond=1e-15, hermitian=False):
    return pinv(b, a, rtol=rcond, hermitian=hermitian)


@aten("pinverse")
def pinverse(b, a, rcond=1e-15):
    return pinv(b, a, rtol=rcond)


@aten("linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_float")
def pinv(b, a, *, atol=None, rtol=None, hermitian=False):
    if hermitian:
        values, u = eigh(b, a)
        sizes, v = b.abs(values), u
    else:
        u, values, right = b.svd(a)
        sizes, v = values, transposed(b, right)
    large = _is_large(b, a, sizes, atol, rtol)
    one, zero = b.scalar_like(1, values), b.scalar_like(0, values)
    inverses = b.select(large, b.div(one, b.select(large, values, one)), zero)
    return b.matmul(scaled(b, v, inverses, rows=False), transposed(b, u))


@aten("linalg_matrix_exp", "matrix_exp")
def matrix_exp(b, a):
    return factors.exponential(b, a)


@aten("linalg_tensorinv")
def tensorinv(b, x, ind=2):
    """Return the inverse of the map from the axes ``ind`` on to those before."""
    size = x.type.shape
    rows = math.prod(size[:ind])
    made = factors.inverse(b, b.reshape(x, shape=(rows, x.type.elements // max(rows, 1))))
    return b.reshape(made, shape=(*size[ind:], *size[:ind]))
