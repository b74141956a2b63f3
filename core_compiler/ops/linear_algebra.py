"""Linear algebra: factorisations and triangular systems of f32 and f64 matrices.

The last two axes are those of a matrix, all others of a batch. Every sum runs in the order that
docs/numerics.md states under "Linear algebra". Narrower floats are not supported, as in torch.
"""

from __future__ import annotations

from math import prod

from core_compiler.ir import TensorType, tensor
from core_compiler.ops import factor_expansions, hooks, matrices, typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import MATRIX
from core_compiler.ops.rules import (
    F32,
    F64,
    I32,
    INTEGERS,
    need,
    need_dtype,
    need_same_dtype,
    need_shape,
    need_static,
    show,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

reference = lazy_module.module("core_compiler.numerics.reference.linear_algebra")
eigenvalues = lazy_module.module("core_compiler.numerics.reference.eigenvalues")


def _need_matrix(name: str, found: TensorType) -> None:
    need_dtype(name, found, (F32, F64))
    need(found.rank >= 2, f"{name} has rank {found.rank}, expected a matrix or a batch of them")


def _need_square(name: str, found: TensorType) -> None:
    _need_matrix(name, found)
    rows, columns = found.shape[-2:]
    need(rows == columns, f"{name} has matrices {show((rows, columns))}, expected square ones")


def _steps(found: TensorType) -> int:
    """Return the number of columns that a factorisation eliminates."""
    rows, columns = (need_static("a", d) for d in found.shape[-2:])
    return min(rows, columns)


def _matrices(x: TensorType) -> int:
    return prod(need_static("a", d) for d in x.shape[:-2])


# -- triangular factors ----------------------------------------------------------------------------


def _cholesky_rule(types, attributes):
    (a,) = types
    _need_square("a", a)
    return (tensor(a.shape, a.dtype),)


declare(
    OpDef(
        "core.cholesky",
        "The lower triangular L with L L' = a, of which the lower triangle is read; NaN on and "
        "below the diagonal from the first column whose pivot is not positive",
        ("a",),
        _cholesky_rule,
        lambda arrays, attributes, types: (reference.cholesky(arrays[0]),),
        flops=lambda op: _matrices(op.a.type) * op.a.type.shape[-1] ** 3 // 3,
        traits=traits("factor"),
        precision=MATRIX,
        lower=hooks.Custom("cholesky"),
        expand=factor_expansions.cholesky,
        gradient=RULES["cholesky"],
    )
)


def _lu_rule(types, attributes):
    (a,) = types
    _need_matrix("a", a)
    *batch, rows, _ = a.shape
    order, swaps = tensor((*batch, rows), I32), tensor((*batch, _steps(a)), I32)
    return tensor(a.shape, a.dtype), order, swaps


def _lu_flops(op: typed.Lu) -> int:
    rows, columns = op.a.type.shape[-2:]
    steps = min(rows, columns)
    products = sum((rows - k - 1) * (2 * (columns - k - 1) + 1) for k in range(steps))
    return _matrices(op.a.type) * products


declare(
    OpDef(
        "core.lu",
        "(packed, order, swaps): a with its rows in `order` is L U. L is below the diagonal of "
        "packed (and 1 on it), U above and on it; row k was exchanged with row swaps[k] in step k",
        ("a",),
        _lu_rule,
        lambda arrays, attributes, types: reference.lu(arrays[0]),
        flops=_lu_flops,
        traits=traits("factor"),
        precision=MATRIX,
        lower=hooks.Custom("lu"),
        expand=factor_expansions.lu,
        gradient=RULES["lu"],
    )
)


def _row_order_rule(types, attributes):
    (swaps,), rows = types, attributes["rows"]
    need_dtype("swaps", swaps, INTEGERS)
    need(swaps.rank >= 1, "swaps has rank 0, expected rows of exchanges")
    steps = need_static("swaps", swaps.shape[-1])
    need(steps <= rows, f"{steps} exchanges of {rows} rows")
    return (tensor((*swaps.shape[:-1], rows), I32),)


declare(
    OpDef(
        "core.row_order",
        "The rows, numbered before, in their order after exchanging row k with row swaps[k] for "
        "ascending k; swaps are clamped to the rows",
        ("swaps",),
        _row_order_rule,
        lambda arrays, attributes, types: (reference.row_order(arrays[0], attributes["rows"]),),
        attributes={"rows": Attr(int, doc="number of rows")},
        flops=lambda op: op.swaps.type.elements,
        lower=hooks.Custom("row_order"),
        expand=factor_expansions.row_order,
        gradient=CONSTANT,
    )
)


def _triangular_solve_rule(types, attributes):
    a, b = types
    _need_square("a", a)
    _need_matrix("b", b)
    need_same_dtype(("a", "b"), types)
    need_shape("b", b, (*a.shape[:-1], b.shape[-1]))
    return (tensor(b.shape, b.dtype),)


declare(
    OpDef(
        "core.triangular_solve",
        "The x with a x = b, or a' x = b, for a triangle of a; the other triangle is not read",
        ("a", "b"),
        _triangular_solve_rule,
        lambda arrays, attributes, types: (reference.triangular_solve(*arrays, **attributes),),
        attributes={
            "lower": Attr(bool, True, "read the lower triangle of a, else the upper one"),
            "transposed": Attr(bool, False, "solve with the transpose of that triangle"),
            "unit_diagonal": Attr(bool, False, "the diagonal is 1, and not read"),
        },
        flops=lambda op: op.b.type.elements * op.a.type.shape[-1],
        traits=traits("factor"),
        precision=MATRIX,
        lower=hooks.Custom("triangular_solve"),
        expand=factor_expansions.triangular_solve,
        gradient=RULES["triangular_solve"],
    )
)


# -- orthogonal factors ----------------------------------------------------------------------------


def _householder_rule(types, attributes):
    (a,) = types
    _need_matrix("a", a)
    return tensor(a.shape, a.dtype), tensor((*a.shape[:-2], _steps(a)), a.dtype)


def _householder_flops(op: typed.Householder) -> int:
    rows, columns = op.a.type.shape[-2:]
    steps = min(rows, columns)
    return _matrices(op.a.type) * sum(4 * (rows - k) * (columns - k) for k in range(steps))


declare(
    OpDef(
        "core.householder",
        "(packed, tau): R of a = Q R on and above the diagonal; reflector k is 1 - tau[k] v v' "
        "with v = (0, ..., 1, packed[k + 1:, k])",
        ("a",),
        _householder_rule,
        lambda arrays, attributes, types: reference.householder(arrays[0]),
        flops=_householder_flops,
        traits=traits("factor"),
        precision=MATRIX,
        lower=hooks.Custom("householder"),
    )
)


def _reflect_rule(types, attributes):
    packed, tau, c = types
    for name, found in (("packed", packed), ("c", c)):
        _need_matrix(name, found)
    need_same_dtype(("packed", "tau", "c"), types)
    steps = need_static("tau", tau.shape[-1]) if tau.rank else 0
    need_shape("tau", tau, (*packed.shape[:-2], steps))
    need(steps <= _steps(packed), f"{steps} reflectors of matrices {show(packed.shape[-2:])}")
    need_shape("c", c, (*packed.shape[:-1], c.shape[-1]))
    return (tensor(c.shape, c.dtype),)


declare(
    OpDef(
        "core.reflect",
        "Q c, or Q' c, for the product Q = H0 H1 ... of the reflectors of `householder`",
        ("packed", "tau", "c"),
        _reflect_rule,
        lambda arrays, attributes, types: (reference.reflect(*arrays, **attributes),),
        attributes={"transposed": Attr(bool, False, "apply the transpose of Q")},
        flops=lambda op: 4 * op.c.type.elements * op.tau.type.shape[-1],
        traits=traits("factor"),
        precision=MATRIX,
        lower=hooks.Custom("reflect"),
    )
)


def _qr_rule(types, attributes):
    (a,) = types
    _need_matrix("a", a)
    rows, columns = a.shape[-2:]
    inner = rows if attributes["complete"] else _steps(a)
    return tuple(
        tensor((*a.shape[:-2], *shape), a.dtype) for shape in ((rows, inner), (inner, columns))
    )


def _qr(b, op: typed.Qr):
    rows = op.a.type.shape[-2]
    inner = rows if op.complete else _steps(op.a.type)
    packed, tau = b.householder(op.a)
    q = b.reflect(packed, tau, matrices.identity(b, op.a, rows, inner))
    upper = b.cut(packed, op.a.type.rank - 2, 0, inner)
    return q, matrices.triangle(b, upper, lower=False)


declare(
    OpDef(
        "core.qr",
        "(q, r): a = q r with orthonormal columns of q and an upper triangular r",
        ("a",),
        _qr_rule,
        attributes={"complete": Attr(bool, False, "q is square, else as small as possible")},
        decompose=_qr,
        traits=traits("factor"),
        precision=MATRIX,
        gradient=RULES["qr"],
    )
)


# -- eigenvalues and singular values ---------------------------------------------------------------

#: Sweeps of a Jacobi iteration that a cost assumes.
_SWEEPS = 8


def _eigh_rule(types, attributes):
    (a,) = types
    _need_square("a", a)
    return tensor(a.shape[:-1], a.dtype), tensor(a.shape, a.dtype)


declare(
    OpDef(
        "core.eigh",
        "(w, v): the eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices, of "
        "which the lower triangle is read; the first largest element of a vector is positive",
        ("a",),
        _eigh_rule,
        lambda arrays, attributes, types: eigenvalues.eigh(arrays[0]),
        flops=lambda op: 9 * _matrices(op.a.type) * op.a.type.shape[-1] ** 3,
        traits=traits("factor"),
        precision=MATRIX,
        lower=hooks.Custom("eigh"),
        gradient=RULES["eigh"],
    )
)


def _orthogonal_columns_rule(types, attributes):
    (a,) = types
    _need_matrix("a", a)
    rows, columns = (need_static("a", d) for d in a.shape[-2:])
    need(rows >= columns, f"a has {columns} columns, expected at most {rows}, the number of rows")
    batch = a.shape[:-2]
    shapes = ((columns,), (rows, columns), (columns, columns))
    return tuple(tensor((*batch, *shape), a.dtype) for shape in shapes)


def _orthogonal_columns_flops(op: typed.OrthogonalColumns) -> int:
    rows, columns = op.a.type.shape[-2:]
    return _SWEEPS * _matrices(op.a.type) * columns**2 * (7 * rows + 4 * columns)


declare(
    OpDef(
        "core.orthogonal_columns",
        "(s, product, v): an orthogonal v that makes the columns of a v orthogonal, with norms s "
        "in descending order: the singular values. product is a v over a's largest magnitude; the "
        "first largest element of a column of v is positive",
        ("a",),
        _orthogonal_columns_rule,
        lambda arrays, attributes, types: eigenvalues.orthogonal_columns(arrays[0]),
        flops=_orthogonal_columns_flops,
        traits=traits("factor"),
        precision=MATRIX,
        lower=hooks.Custom("orthogonal_columns"),
    )
)


def _svd_rule(types, attributes):
    (a,) = types
    _need_matrix("a", a)
    rows, columns = a.shape[-2:]
    small = _steps(a)
    left, right = (rows, columns) if attributes["complete"] else (small, small)
    shapes = ((rows, left), (small,), (right, columns))
    return tuple(tensor((*a.shape[:-2], *shape), a.dtype) for shape in shapes)


def _svd(b, op: typed.Svd):
    """Return u, s, v'; the left vectors are the orthogonal factor of the rotated columns.

    Those are orthogonal already, so R is diagonal, and its signs are moved into the vectors. A
    column of zeros gets a vector, too.
    """
    a, axis = op.a, op.a.type.rank - 2
    rows, columns = a.type.shape[-2:]
    wide = rows < columns
    s, product, v = b.orthogonal_columns(matrices.transposed(b, a) if wide else a)
    long, short = max(rows, columns), min(rows, columns)
    packed, tau = b.householder(product)
    signs = matrices.diagonal(b, packed)
    signs = b.select(
        b.lt(signs, b.scalar_like(0, signs)), b.scalar_like(-1, signs), b.scalar_like(1, signs)
    )
    inner = long if op.complete else short
    if inner > short:
        signs = b.concat(
            signs,
            b.expand(b.constant(1, a.type.dtype), (*signs.type.shape[:-1], inner - short)),
            axis=axis,
        )
    u = b.reflect(packed, tau, matrices.identity(b, a, long, inner))
    u = matrices.scaled(b, u, signs, rows=False)
    return (v, s, matrices.transposed(b, u)) if wide else (u, s, matrices.transposed(b, v))


declare(
    OpDef(
        "core.svd",
        "(u, s, v'): a = u diag(s) v' with orthonormal columns of u and v, and s descending",
        ("a",),
        _svd_rule,
        attributes={"complete": Attr(bool, False, "u and v are square, else as small as possible")},
        decompose=_svd,
        traits=traits("factor"),
        precision=MATRIX,
        gradient=RULES["svd"],
    )
)
