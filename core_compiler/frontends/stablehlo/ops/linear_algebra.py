"""Factors and linear systems: StableHLO's ops, and the LAPACK calls of JAX on a CPU."""

from __future__ import annotations

from core_compiler.frontends import factors
from core_compiler.frontends.stablehlo.table import Context, call, op
from core_compiler.ir import Value
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.matrices import identity, triangle


@op("triangular_solve")
def triangular_solve(b, a, y):
    made = factors.triangular_solve(
        b,
        widened(b, a),
        widened(b, y),
        left=bool(b.attr("left_side")),
        lower=bool(b.attr("lower")),
        unit_diagonal=bool(b.attr("unit_diagonal")),
        transpose=b.attr("transpose_a") in ("TRANSPOSE", "ADJOINT"),
    )
    return as_dtype(b, made, y.type.dtype)


@op("cholesky")
def cholesky(b, a):
    made = factors.cholesky(b, widened(b, a), bool(b.attr("lower")))
    return as_dtype(b, made, a.type.dtype)


# -- LAPACK ----------------------------------------------------------------------------------------


def lapack(name: str):
    """Register a handler of LAPACK's ``name`` for f32 and f64."""
    return call(*(f"lapack_{kind}{name}_ffi" for kind in "sd"))


def _option(b: Context, name: str) -> str:
    """Return an option of the call: one letter."""
    return chr(int(b.attr("mhlo.backend_config")[name]))


def _constant(b: Context, number: int, result: int) -> Value:
    """Return a result of the call in which every element is ``number``."""
    wanted = b.results[result]
    return b.expand(b.constant(number, wanted.dtype), wanted.shape)


@lapack("trsm")
def trsm(b, a, y):
    return factors.triangular_solve(
        b,
        a,
        y,
        left=_option(b, "side") == "L",
        lower=_option(b, "uplo") == "L",
        unit_diagonal=_option(b, "diag") == "U",
        transpose=_option(b, "trans_x") != "N",
    )


@lapack("potrf")
def potrf(b, a):
    """Return the factor, with a's own elements in the other triangle, and LAPACK's status."""
    lower = _option(b, "uplo") == "L"
    made = factors.cholesky(b, a, lower)
    status = b.to(factors.first_not_positive(b, made), b.results[1].dtype)
    other = triangle(b, a, not lower, 1 if lower else -1)
    return b.add(made, other), status


@lapack("getrf")
def getrf(b, a):
    packed, _, swaps = b.lu(a)
    status = b.to(factors.first_zero(b, packed), b.results[2].dtype)
    return packed, b.add(swaps, b.scalar_like(1, swaps)), status


@lapack("geqrf")
def geqrf(b, a):
    return b.householder(a)


@lapack("orgqr")
def orgqr(b, packed, tau):
    return b.reflect(packed, tau, identity(b, packed, *packed.type.shape[-2:]))


@lapack("syevd")
def syevd(b, a):
    """Return the vectors, the eigenvalues, and the status 0; NaN stands for a failure."""
    symmetric = a if _option(b, "uplo") == "L" else factors.transposed(b, a)
    values, vectors = b.eigh(symmetric)
    return vectors, values, _constant(b, 0, 2)


@lapack("gesdd")
def gesdd(b, a):
    """Return what is left of a, the singular values, u, v' and the status 0."""
    mode = _option(b, "mode")
    u, s, v = b.svd(a, complete=mode == "A")
    if mode == "N":
        u, v = _constant(b, 0, 2), _constant(b, 0, 3)
    return a, s, u, v, _constant(b, 0, 4)
