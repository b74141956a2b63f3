"""Linear systems and determinants from the factors of a matrix, for every frontend."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder, broadcast_shape
from core_compiler.ops.matrices import diagonal, identity, in_first_order, in_order, transposed


def triangular_solve(
    b: Builder,
    a: Value,
    y: Value,
    *,
    lower: bool,
    left: bool = True,
    transpose: bool = False,
    unit_diagonal: bool = False,
) -> Value:
    """Return x with a x = y (not ``left``: x a = y), or with a's transpose in place of a.

    The batches of a and y broadcast.
    """
    if not left:  # x a = y is a' x' = y'
        made = triangular_solve(
            b,
            a,
            transposed(b, y),
            lower=lower,
            transpose=not transpose,
            unit_diagonal=unit_diagonal,
        )
        return transposed(b, made)
    a, y = _in_one_batch(b, a, y)
    return b.op(
        "core.triangular_solve",
        (a, y),
        lower=lower,
        transposed=transpose,
        unit_diagonal=unit_diagonal,
    )


def _in_one_batch(b: Builder, *values: Value) -> list[Value]:
    batch = broadcast_shape(*(v.type.shape[:-2] for v in values))
    return [b.expand(v, (*batch, *v.type.shape[-2:])) for v in values]


def lu_solve(
    b: Builder, packed: Value, order: Value, y: Value, left: bool = True, transpose: bool = False
) -> Value:
    """Return x with a x = y (not ``left``: x a = y), or with a's transpose, from the LU of a."""
    if not left:
        made = lu_solve(b, packed, order, transposed(b, y), transpose=not transpose)
        return transposed(b, made)
    packed, y = _in_one_batch(b, packed, y)
    order = b.expand(order, packed.type.shape[:-1])
    if transpose:
        made = triangular_solve(b, packed, y, lower=False, transpose=True)
        made = triangular_solve(b, packed, made, lower=True, transpose=True, unit_diagonal=True)
        return in_first_order(b, made, order)
    made = triangular_solve(b, packed, in_order(b, y, order), lower=True, unit_diagonal=True)
    return triangular_solve(b, packed, made, lower=False)


def solve(b: Builder, a: Value, y: Value, left: bool = True) -> Value:
    """Return x with a x = y, or x a = y; infinite or NaN if a is singular."""
    packed, order, _ = b.lu(a)
    return lu_solve(b, packed, order, y, left)


def inverse(b: Builder, a: Value) -> Value:
    return solve(b, a, identity(b, a, *a.type.shape[-2:]))


def cholesky(b: Builder, a: Value, lower: bool = True) -> Value:
    """Return the lower (or upper) factor, from that triangle of a."""
    return b.cholesky(a) if lower else transposed(b, b.cholesky(transposed(b, a)))


def first_not_positive(b: Builder, factor: Value) -> Value:
    """Return LAPACK's status of a Cholesky factor, in i64.

    It is the number (from 1) of the first column whose pivot is not positive, or 0.
    """
    pivots = diagonal(b, factor)
    axis = pivots.type.rank - 1
    known = b.reduce_sum(b.cast(b.eq(pivots, pivots), dtype="i64"), axes=(axis,))
    size = b.scalar_like(pivots.type.shape[axis], known)
    return b.select(
        b.lt(known, size), b.add(known, b.scalar_like(1, known)), b.scalar_like(0, known)
    )


def first_zero(b: Builder, packed: Value) -> Value:
    """Return LAPACK's status of an LU in i64: the first pivot of 0 (counted from 1), or 0."""
    pivots = diagonal(b, packed)
    axis = pivots.type.rank - 1
    size = pivots.type.shape[axis]
    nonzero = b.cast(b.ne(pivots, b.scalar_like(0, pivots)), dtype="i64")
    before = b.reduce_sum(b.cumprod(nonzero, axis=axis), axes=(axis,))
    whole = b.lt(before, b.scalar_like(size, before))
    return b.select(whole, b.add(before, b.scalar_like(1, before)), b.scalar_like(0, before))


def parity(b: Builder, swaps: Value, kind) -> Value:
    """Return 1, or -1 for an odd number of exchanges, as ``kind``."""
    axis = swaps.type.rank - 1
    own = b.iota(shape=swaps.type.shape, dtype=swaps.type.dtype, axis=axis)
    count = b.reduce_sum(b.cast(b.ne(swaps, own), dtype="i64"), axes=(axis,))
    odd = b.op("core.and", (count, b.scalar_like(1, count)))
    return b.cast(b.sub(b.scalar_like(1, odd), b.add(odd, odd)), dtype=kind)


def determinant(b: Builder, packed: Value, swaps: Value) -> Value:
    pivots = diagonal(b, packed)
    product = b.reduce_prod(pivots, axes=(pivots.type.rank - 1,))
    return b.mul(parity(b, swaps, packed.type.dtype), product)


def sign_and_logarithm(b: Builder, packed: Value, swaps: Value) -> tuple[Value, Value]:
    """Return the sign of the determinant, and the logarithm of its magnitude."""
    pivots = diagonal(b, packed)
    axes = (pivots.type.rank - 1,)
    sign = b.mul(parity(b, swaps, packed.type.dtype), b.reduce_prod(b.sign(pivots), axes=axes))
    return sign, b.reduce_sum(b.log(b.abs(pivots)), axes=axes)


#: Padé approximants of the exponential by dtype: the coefficients, from the constant one on, and
#: the largest norm for which they are exact to rounding (Higham, "The scaling and squaring method
#: for the matrix exponential revisited", 2005).
_PADE = {
    "f32": ((17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1), 3.925724783138660),
    "f64": (
        (
            64764752532480000,
            32382376266240000,
            7771770303897600,
            1187353796428800,
            129060195264000,
            10559470521600,
            670442572800,
            33522128640,
            1323241920,
            40840800,
            960960,
            16380,
            182,
            1,
        ),
        5.371920351148152,
    ),
}
#: The maximum number of squarings of an exponential, as in JAX.
_SQUARINGS = 16


def exponential(b: Builder, a: Value) -> Value:
    """Return e^a by scaling and squaring; NaN if the norm of a exceeds 2^16 times the bound."""
    terms, bound = _PADE[a.type.dtype.name]
    rank = a.type.rank
    sums = b.reduce_sum(b.abs(a), axes=(rank - 2,))
    norm = b.reduce_max(sums, axes=(rank - 2,)) if a.type.elements else None
    if norm is None:
        return a

    def is_above(number: float) -> Value:
        above = b.gt(norm, b.scalar_like(number, norm))
        return b.broadcast(above, shape=a.type.shape, dims=tuple(range(rank - 2)))

    large = [is_above(bound * 2.0**i) for i in range(_SQUARINGS + 1)]
    for each in large[:-1]:
        a = b.select(each, b.mul(a, b.scalar_like(0.5, a)), a)
    made = _rational(b, a, terms)
    for each in reversed(large[:-1]):
        made = b.select(each, b.matmul(made, made), made)
    return b.select(large[-1], b.scalar_like(float("nan"), made), made)


def _rational(b: Builder, a: Value, terms: tuple[int, ...]) -> Value:
    """Return p(-a)^-1 p(a) for the polynomial with these coefficients."""
    square = b.matmul(a, a)
    power = identity(b, a, *a.type.shape[-2:])
    even = odd = None
    for number in range(0, len(terms), 2):
        if number:
            power = b.matmul(power, square)
        first, second = (b.mul(power, b.scalar_like(terms[number + n], power)) for n in (0, 1))
        even = first if even is None else b.add(even, first)
        odd = second if odd is None else b.add(odd, second)
    odd = b.matmul(a, odd)
    return solve(b, b.sub(even, odd), b.add(even, odd))
