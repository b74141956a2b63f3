"""Cholesky factors and triangular systems, column by column.

They occur as StableHLO's ops and as the LAPACK calls that JAX uses instead on a CPU.
"""

from __future__ import annotations

from core_compiler.frontends.stablehlo.table import Context, NotSupported, call, op
from core_compiler.ir import Value

#: The maximum number of unrolled columns.
COLUMNS = 256


def _need_small(n: int) -> None:
    if n > COLUMNS:
        raise NotSupported(f"a matrix of {n} columns (at most {COLUMNS})")


def _transposed(b: Context, x: Value) -> Value:
    rank = x.type.rank
    return b.transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


@op("triangular_solve")
def triangular_solve(b, a, y):
    transposed = b.attr("transpose_a") in ("TRANSPOSE", "ADJOINT")
    return solved(
        b,
        a,
        y,
        bool(b.attr("left_side")),
        bool(b.attr("lower")),
        bool(b.attr("unit_diagonal")),
        transposed,
    )


def solved(
    b: Context, a: Value, y: Value, left: bool, lower: bool, unit: bool, transposed: bool
) -> Value:
    """Solve op(a) x = y, or (not ``left``) x op(a) = y, by substitution, one row after another."""
    if transposed:
        a, lower = _transposed(b, a), not lower
    if not left:  # x a = y is a' x' = y'
        a, lower, y = _transposed(b, a), not lower, _transposed(b, y)
    made = _substituted(b, a, y, lower, unit)
    return made if left else _transposed(b, made)


def _substituted(b: Context, a: Value, y: Value, lower: bool, unit: bool) -> Value:
    n, rank = a.type.shape[-1], a.type.rank
    _need_small(n)
    rows: dict[int, Value] = {}
    for step in range(n):
        i = step if lower else n - 1 - step
        row = b.cut(y, rank - 2, i, i + 1)
        done = sorted(rows)
        if done:
            parts = b.cut(b.cut(a, rank - 2, i, i + 1), rank - 1, done[0], done[-1] + 1)
            known = b.concat(*(rows[j] for j in done), axis=rank - 2)
            row = b.sub(row, b.matmul(parts, known))
        if not unit:
            pivot = b.cut(b.cut(a, rank - 2, i, i + 1), rank - 1, i, i + 1)
            row = b.div(row, b.expand(pivot, row.type.shape))
        rows[i] = row
    return b.concat(*(rows[i] for i in range(n)), axis=rank - 2) if n else y


@op("cholesky")
def cholesky(b, a):
    return factor(b, a, bool(b.attr("lower")))


def factor(b: Context, a: Value, lower: bool) -> Value:
    """Return the Cholesky factor of a symmetric positive definite matrix (Cholesky-Crout).

    It is computed left to right, and NaN if the matrix is not positive definite.
    """
    a = a if lower else _transposed(b, a)
    n, rank = a.type.shape[-1], a.type.rank
    _need_small(n)
    made = None
    for j in range(n):
        column = b.cut(b.cut(a, rank - 1, j, j + 1), rank - 2, j, n)
        if made is not None:
            below = b.cut(made, rank - 2, j, n)
            row = _transposed(b, b.cut(made, rank - 2, j, j + 1))
            column = b.sub(column, b.matmul(below, row))
        pivot = b.sqrt(b.cut(column, rank - 2, 0, 1))
        column = b.div(column, b.expand(pivot, column.type.shape))
        low = [0] * rank
        low[rank - 2] = j
        column = b.pad(
            column,
            b.constant(0, a.type.dtype),
            low=tuple(low),
            high=(0,) * rank,
            interior=(0,) * rank,
        )
        made = column if made is None else b.concat(made, column, axis=rank - 1)
    if made is None:
        return a
    return made if lower else _transposed(b, made)


@call(*(f"lapack_{kind}trsm_ffi" for kind in "sd"))
def trsm(b, a, y):
    how = b.attr("mhlo.backend_config")
    word = {name: chr(int(how[name])) for name in ("side", "uplo", "diag", "trans_x")}
    return solved(
        b,
        a,
        y,
        word["side"] == "L",
        word["uplo"] == "L",
        word["diag"] == "U",
        word["trans_x"] != "N",
    )


@call(*(f"lapack_{kind}potrf_ffi" for kind in "sd"))
def potrf(b, a):
    """Return the factor, with a's own elements in the other triangle, and LAPACK's status.

    The status is 0 if there is a factor, 1 if a is not positive definite.
    """
    _factor, info = b.results
    lower = chr(int(b.attr("mhlo.backend_config")["uplo"])) == "L"
    if 0 in a.type.shape:
        return a, b.broadcast(b.constant(0, info.dtype), shape=info.shape, dims=())
    made = factor(b, a, lower)
    rank = made.type.rank
    bad = b.reduce_max(b.cast(b.is_nan(made), dtype="i32"), axes=(rank - 2, rank - 1))
    row, column = (b.iota(shape=a.type.shape, dtype="i64", axis=rank - i) for i in (2, 1))
    inside = b.ge(row, column) if lower else b.le(row, column)
    return b.select(inside, made, a), b.to(bad, info.dtype)
