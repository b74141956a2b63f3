"""Matrix products and general contractions in the contract's order.

Per output element, K is cut into chunks of 256: ``acc = fma(a, b, acc)`` from +0 inside a chunk,
chunk sums added in order. The kernel holds a tile of four rows by two vectors of columns in
registers; output elements are independent, so the order per element is unchanged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numba
import numpy as np

from core_compiler.numerics.jit import jit, reads, specialise, writes
from core_compiler.numerics.primitives import NUMBERS
from core_compiler.numerics.reference.dtypes import accumulator, cast, dtype_name, is_float, widen
from core_compiler.numerics.vectors import vector_operations

#: Terms of a chunk of a matrix product.
CHUNK = 256


def matmul(a: np.ndarray, b: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
    """Multiply [..., M, K] x [..., K, N] -> [..., M, N] with broadcast batch axes.

    Floats of at most 16 bits are widened exactly, accumulated in f32 and rounded once to ``dtype``
    (default: the operands' common dtype, f32 if they differ). Integers of up to 32 bits accumulate
    in i32 and wrap; the result is i32.
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul of {a.shape} and {b.shape}: K must agree, 2 axes at least")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    ia, ib = (_operand_of_batch(x.shape[:-2], batch) for x in (a, b))
    if _is_zero(a, b):
        return np.zeros((*batch, a.shape[-2], b.shape[-1]), a.dtype if dtype is None else dtype)
    left, right = (  # not -1: K may be 0
        widen_for_contraction(x, y).reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
        for x, y in ((a, b), (b, a))
    )
    total = contract_matrices(left, right, ia, ib)
    return round_total(total, a, b, dtype).reshape(*batch, a.shape[-2], b.shape[-1])


def contract(
    a: np.ndarray,
    b: np.ndarray,
    batch_dims: tuple[Sequence[int], Sequence[int]] = ((), ()),
    contracting_dims: tuple[Sequence[int], Sequence[int]] = ((), ()),
    dtype: np.dtype | None = None,
) -> np.ndarray:
    """Sum products over paired axes (StableHLO's dot_general).

    ``batch_dims`` and ``contracting_dims`` list axes of a and of b, pairwise. K order: the
    contracted axes as listed, last fastest. Result axes: batch, free of a, free of b.
    """
    (batch_a, batch_b), (k_a, k_b) = batch_dims, contracting_dims
    free_a = [i for i in range(a.ndim) if i not in (*batch_a, *k_a)]
    free_b = [i for i in range(b.ndim) if i not in (*batch_b, *k_b)]
    sizes = [
        [x.shape[i] for i in dims]
        for x, dims in ((a, batch_a), (b, batch_b), (a, k_a), (b, k_b), (a, free_a), (b, free_b))
    ]
    if sizes[0] != sizes[1] or sizes[2] != sizes[3]:
        raise ValueError(f"contract of {a.shape} and {b.shape}: paired axes differ in size")
    batch, k, m, n = (math.prod(sizes[i]) for i in (0, 2, 4, 5))
    left = a.transpose(*batch_a, *free_a, *k_a).reshape(batch, m, k)
    right = b.transpose(*batch_b, *k_b, *free_b).reshape(batch, k, n)
    return matmul(left, right, dtype).reshape((*sizes[0], *sizes[4], *sizes[5]))


def contract_matrices(
    a: np.ndarray, b: np.ndarray, ia: np.ndarray, ib: np.ndarray, chunk: int = CHUNK
) -> np.ndarray:
    """Return out[t] = a[ia[t]] @ b[ib[t]] in chunks of ``chunk``.

    a is [*, M, K], b is [*, K, N], both f32, f64, i32 or i64 (u64); out is [len(ia), M, N].
    """
    m, n = a.shape[1], b.shape[2]
    if n < 16 and m > n:  # put the longer side on the vector axis; fma(a, b, c) = fma(b, a, c)
        swapped = contract_matrices(b.transpose(0, 2, 1), a.transpose(0, 2, 1), ib, ia, chunk)
        return np.ascontiguousarray(swapped.transpose(0, 2, 1))
    terms, columns = a.shape[2], 2 * _lanes(a.dtype)
    if not (len(ia) and m and n and terms):
        return np.zeros((len(ia), m, n), a.dtype)
    if _has_zero_terms(a, b) or _has_zero_terms(b, a):
        return np.zeros((len(ia), m, n), a.dtype)
    # Rows and columns are padded to whole tiles, whose extra results are dropped.
    rows, panels = -(-m // 4) * 4, -(-n // columns)
    left = np.pad(a, ((0, 0), (0, rows - m), (0, 0))) if rows != m else np.ascontiguousarray(a)
    spare = panels * columns - n
    right = np.pad(b, ((0, 0), (0, 0), (0, spare))) if spare else b
    right = right.reshape(-1, terms, panels, columns).swapaxes(1, 2)
    right = np.ascontiguousarray(right)
    out = np.empty((len(ia), rows, panels * columns), a.dtype)
    kernel = _kernel(dtype_name(a.dtype))
    kernel(left.reshape(-1), right.reshape(-1), ia, ib, terms, rows, panels, chunk, out.reshape(-1))
    return np.ascontiguousarray(out[:, :m, :n])


def _has_zero_terms(zeros: np.ndarray, others: np.ndarray) -> bool:
    """Return whether each product is a zero of either sign: they all add up to +0.

    So are those of a recurrent layer's first state, whose constant is often all that is computed
    here: then no kernel has to be compiled.
    """
    return not zeros.any() and bool(np.isfinite(others).all())


def widen_for_contraction(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return x in the dtype in which a contraction with ``other`` accumulates."""
    if is_float(x.dtype) != is_float(other.dtype):
        raise TypeError(f"contraction of {x.dtype} and {other.dtype}: cast one of them")
    wide = np.result_type(accumulator(x.dtype), accumulator(other.dtype))
    return np.ascontiguousarray(widen(x).astype(wide, copy=False))


def round_total(
    total: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: np.dtype | None
) -> np.ndarray:
    """Return the total cast once to ``dtype`` or to the operands' common float dtype."""
    if dtype is None:
        same_float = a.dtype == b.dtype and is_float(a.dtype)
        dtype = a.dtype if same_float else total.dtype
    return total if total.dtype == dtype else cast(total, dtype)


def _is_zero(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether a product of floats is +0, as those of a recurrent layer's first step are.

    All terms are ±0, which are added to +0. No loop is compiled for it.
    """
    if a.dtype != b.dtype or not is_float(a.dtype) or (a.any() and b.any()):
        return False
    return bool(np.isfinite(a).all() and np.isfinite(b).all())


def _operand_of_batch(shape: tuple[int, ...], batch: tuple[int, ...]) -> np.ndarray:
    index = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    return np.ascontiguousarray(np.broadcast_to(index, batch)).reshape(-1)


# ruff: noqa: F821  (vector operations, ``LANES`` and ``zero`` are bound per dtype by ``_kernel``)


def _contract_loop(a, b, ia, ib, terms, rows, panels, chunk, out):
    """Contract flat arrays.

    a is [*, rows, terms], with rows a multiple of 4; b is [*, panels, terms, 2 LANES]; out is
    [len(ia), rows, panels, 2 LANES]. Flat and scalar on purpose: with array slices Numba and LLVM
    would take ten times as long to compile.
    """
    for t in range(ia.shape[0]):
        for panel in range(panels):
            b_start = (ib[t] * panels + panel) * terms * (2 * LANES)
            for m in range(0, rows, 4):
                a_start = (ia[t] * rows + m) * terms
                o = ((t * rows + m) * panels + panel) * (2 * LANES)
                t00 = t01 = t10 = t11 = t20 = t21 = t30 = t31 = splat(zero)
                for k0 in range(0, terms, chunk):
                    c00 = c01 = c10 = c11 = c20 = c21 = c30 = c31 = splat(zero)
                    for k in range(k0, min(k0 + chunk, terms)):
                        b0 = load(b, b_start + k * (2 * LANES))
                        b1 = load(b, b_start + k * (2 * LANES) + LANES)
                        x = splat_at(a, a_start + k)
                        c00 = fma(x, b0, c00)
                        c01 = fma(x, b1, c01)
                        x = splat_at(a, a_start + terms + k)
                        c10 = fma(x, b0, c10)
                        c11 = fma(x, b1, c11)
                        x = splat_at(a, a_start + 2 * terms + k)
                        c20 = fma(x, b0, c20)
                        c21 = fma(x, b1, c21)
                        x = splat_at(a, a_start + 3 * terms + k)
                        c30 = fma(x, b0, c30)
                        c31 = fma(x, b1, c31)
                    # The first sum is used directly and not added to +0: it may be -0 (by
                    # underflow).
                    first = k0 == 0
                    t00 = c00 if first else add(t00, c00)
                    t01 = c01 if first else add(t01, c01)
                    t10 = c10 if first else add(t10, c10)
                    t11 = c11 if first else add(t11, c11)
                    t20 = c20 if first else add(t20, c20)
                    t21 = c21 if first else add(t21, c21)
                    t30 = c30 if first else add(t30, c30)
                    t31 = c31 if first else add(t31, c31)
                width = panels * (2 * LANES)
                store(out, o, t00)
                store(out, o + LANES, t01)
                store(out, o + width, t10)
                store(out, o + width + LANES, t11)
                store(out, o + 2 * width, t20)
                store(out, o + 2 * width + LANES, t21)
                store(out, o + 3 * width, t30)
                store(out, o + 3 * width + LANES, t31)


def _lanes(dtype: np.dtype) -> int:
    return 64 // dtype.itemsize


@functools.cache
def _kernel(dtype: str):
    scalar = accumulator_type(dtype)
    lanes = _lanes(np.dtype(scalar))
    bound = {**vector_operations(dtype, lanes), "LANES": lanes, "zero": scalar(0)}
    element, intp = NUMBERS[dtype], numba.intp
    return jit(
        specialise(_contract_loop, f"contract_{dtype}", **bound),
        reads(element, 1),
        reads(element, 1),
        reads(intp, 1),
        reads(intp, 1),
        intp,
        intp,
        intp,
        intp,
        writes(element, 1),
    )


def accumulator_type(dtype: str) -> type:
    return {
        "f32": np.float32,
        "f64": np.float64,
        "i32": np.int32,
        "i64": np.int64,
        "u64": np.uint64,
    }[dtype]
