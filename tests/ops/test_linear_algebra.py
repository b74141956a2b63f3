"""Factorisations: scaled residuals as in LAPACK's tests, failures, batches, and threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.ops import TypeRuleError, evaluate_block
from tests.examples import examples
from tests.kernels.kernel_helpers import bits
from tests.passes.programs import program

#: LAPACK's own tests pass a scaled residual below 30.
THRESHOLD = 30
UNIT = {"f32": 2.0**-24, "f64": 2.0**-53}
NAN, INF = np.nan, np.inf


def run(build, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    names = {"float32": "f32", "float64": "f64", "int32": "i32"}
    types = ("x".join([*map(str, a.shape), names[a.dtype.name]]) for a in arrays)
    return evaluate_block(program(build, *types).main.body, arrays)


def norm(x: np.ndarray) -> float:
    return float(np.abs(x).sum(-1).max(initial=0))


def residual(error: np.ndarray, scale: float, size: int, kind: str) -> float:
    """|error| / (|scale| n u), of LAPACK Working Note 41."""
    return (
        0.0 if not error.any() else norm(error) / (max(scale, 1e-300) * max(size, 1) * UNIT[kind])
    )


@st.composite
def matrices(draw, square: bool = False, most: int = 24):
    """A matrix, its dtype, and some graded rows: entries over twelve orders of magnitude."""
    kind = draw(st.sampled_from(("f32", "f64")))
    rows = draw(st.integers(1, most))
    columns = rows if square else draw(st.integers(1, most))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = random.standard_normal((rows, columns))
    if draw(st.booleans()):
        x *= 10.0 ** random.integers(-6, 7, (rows, 1))
    if draw(st.booleans()):  # of low rank
        x[:, columns // 2 :] = x[:, : columns - columns // 2]
    return x.astype(kind.replace("f", "float")), kind


@settings(max_examples=examples(40), deadline=None)
@given(matrices())
def test_lu_is_backward_stable_and_its_factors_are_bounded(drawn):
    a, kind = drawn
    packed, order, swaps = run(lambda b, x: b.lu(x), a)
    size = min(a.shape)
    wide = packed.astype(np.float64)
    lower = np.tril(wide, -1)[:, :size] + np.eye(a.shape[0], size)
    upper = np.triu(wide)[:size]
    assert np.abs(lower).max() <= 1
    assert sorted(order) == list(range(len(a)))
    assert all(k <= other < len(a) for k, other in enumerate(swaps))
    error = a[order] - lower @ upper
    assert residual(error, norm(lower) * norm(upper), size, kind) < THRESHOLD


@settings(max_examples=examples(40), deadline=None)
@given(matrices())
def test_qr_is_backward_stable_and_orthogonal(drawn):
    a, kind = drawn
    q, r = (x.astype(np.float64) for x in run(lambda b, x: b.qr(x, complete=True), a))
    assert np.array_equal(r, np.triu(r))
    assert residual(a - q @ r, norm(a), max(a.shape), kind) < THRESHOLD
    assert residual(q.T @ q - np.eye(len(q)), 1, max(a.shape), kind) < THRESHOLD


@settings(max_examples=examples(40), deadline=None)
@given(matrices(square=True, most=16))
def test_eigh_is_backward_stable_orthogonal_and_ascending(drawn):
    a, kind = drawn
    a = a + a.T
    w, v = (x.astype(np.float64) for x in run(lambda b, x: b.eigh(x), a))
    assert (np.diff(w) >= 0).all()
    assert residual(a @ v - v * w, norm(a), len(a), kind) < THRESHOLD
    assert residual(v.T @ v - np.eye(len(v)), 1, len(a), kind) < THRESHOLD
    assert np.abs(w - np.linalg.eigvalsh(a.astype(np.float64))).max() <= (
        THRESHOLD * len(a) * UNIT[kind] * norm(a)
    )


@settings(max_examples=examples(40), deadline=None)
@given(matrices(most=16))
def test_svd_is_backward_stable_orthogonal_and_descending(drawn):
    a, kind = drawn
    u, s, v = (x.astype(np.float64) for x in run(lambda b, x: b.svd(x, complete=True), a))
    size = max(a.shape)
    assert (s >= 0).all()
    assert (np.diff(s) <= 0).all()
    made = u[:, : len(s)] * s @ v[: len(s)]
    assert residual(a - made, norm(a), size, kind) < THRESHOLD
    for x in (u, v):
        assert residual(x.T @ x - np.eye(len(x)), 1, size, kind) < THRESHOLD


@settings(max_examples=examples(40), deadline=None)
@given(matrices(square=True), st.integers(0, 5))
def test_cholesky_and_its_systems_are_backward_stable(drawn, columns):
    x, kind = drawn
    a = x @ x.T + (norm(x @ x.T) * len(x) * 4 * UNIT[kind] * np.eye(len(x))).astype(x.dtype)
    b = np.random.default_rng(0).standard_normal((len(x), columns)).astype(x.dtype)
    (factor,) = run(lambda b, x: b.cholesky(x), a)
    wide = factor.astype(np.float64)
    assert np.array_equal(wide, np.tril(wide))
    assert residual(a - wide @ wide.T, norm(a), len(a), kind) < THRESHOLD
    for transposed in (False, True):
        (y,) = run(lambda b, a, y, t=transposed: b.triangular_solve(a, y, transposed=t), factor, b)
        own = wide.T if transposed else wide
        bound = norm(own) * norm(y.astype(np.float64)) + norm(b)
        assert residual(own @ y - b, bound, len(a), kind) < THRESHOLD


def test_a_matrix_that_is_not_positive_definite_is_nan_from_that_column_on():
    a = np.diag([4.0, 9.0, -1.0, 16.0]).astype(np.float32)
    a[1, 0] = 2
    (factor,) = run(lambda b, x: b.cholesky(x), a)
    known = np.linalg.cholesky(a[:2, :2])
    np.testing.assert_allclose(factor[:2, :2], known, rtol=1e-6)
    inside = np.tril(np.ones((4, 4), bool))
    assert np.isnan(factor[:, 2:][inside[:, 2:]]).all()
    assert (factor[~inside] == 0).all()
    for pivot in (0.0, NAN, -0.0):
        (factor,) = run(lambda b, x: b.cholesky(x), np.full((1, 1), pivot, np.float32))
        assert np.isnan(factor).all()


def test_a_singular_matrix_has_a_zero_pivot_and_solves_to_no_number():
    a = np.array([[1, 2], [2, 4]], np.float64)
    packed, _, _ = run(lambda b, x: b.lu(x), a)
    assert packed[1, 1] == 0
    (solved,) = run(lambda b, u, y: b.triangular_solve(u, y, lower=False), packed, np.ones((2, 1)))
    assert not np.isfinite(solved).any()
    packed, order, _ = run(lambda b, x: b.lu(x), np.zeros((3, 3), np.float32))
    assert not packed.any()
    assert list(order) == [0, 1, 2]


def test_the_first_of_the_largest_magnitudes_is_the_pivot():
    a = np.array([[1, 0], [-3, 0], [3, 0], [NAN, 0]], np.float32)
    _, order, swaps = run(lambda b, x: b.lu(x), a)
    assert swaps[0] == 1
    assert order[0] == 1
    _, _, swaps = run(lambda b, x: b.lu(x), a[::-1].copy())
    assert swaps[0] == 0  # nothing is larger than a NaN


def test_eigenvalues_of_a_matrix_with_a_nan_or_infinity_are_nan():
    for hurt in (NAN, INF):
        a = np.eye(3, dtype=np.float32)
        a[2, 0] = hurt
        assert all(np.isnan(x).all() for x in run(lambda b, x: b.eigh(x), a))
        assert all(np.isnan(x).all() for x in run(lambda b, x: b.orthogonal_columns(x), a))
        a = a.T.copy()  # above the diagonal, which is not read
        w, v = run(lambda b, x: b.eigh(x), a)
        assert np.array_equal(w, np.ones(3))
        assert np.array_equal(v, np.eye(3))


#: Ops of square matrices: each row of the batch is independent.
SQUARE = {
    "cholesky": lambda b, x: b.cholesky(x),
    "lu": lambda b, x: b.lu(x),
    "solve": lambda b, x: b.triangular_solve(x, x),
    "qr": lambda b, x: b.qr(x),
    "eigh": lambda b, x: b.eigh(x),
    "svd": lambda b, x: b.svd(x),
}


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("batch", [(), (0,), (2, 0), (3,)])
@pytest.mark.parametrize("name", SQUARE)
def test_small_matrices_and_empty_batches(name, batch, size):
    a = np.full((*batch, size, size), 4, np.float32)
    for made in run(SQUARE[name], a):
        assert made.shape[: len(batch)] == batch
        assert np.isfinite(made).all()


@pytest.mark.parametrize("name", SQUARE)
def test_a_matrix_of_a_batch_has_the_bits_that_it_has_alone(name):
    x = np.random.default_rng(0).standard_normal((3, 6, 6)).astype(np.float32)
    a = x @ x.swapaxes(-1, -2)
    whole = run(SQUARE[name], a)
    for number in range(3):
        alone = run(SQUARE[name], a[number])
        assert [bits(w[number]) for w in whole] == [bits(s) for s in alone]


def test_threads_do_not_change_a_bit():
    x = np.random.default_rng(0).standard_normal((5, 35, 35)).astype(np.float32)
    module = program(lambda b, x: (*b.lu(x), *b.eigh(x)), "5x35x35xf32")
    wanted = [bits(v) for v in evaluate_block(module.main.body, [x])]
    for threads in (1, 2):
        compiled = cc.compile(module, threads=threads)
        assert [bits(v) for v in compiled(x)] == wanted


@pytest.mark.parametrize(
    ("build", "types", "message"),
    [
        (lambda b, x: b.cholesky(x), ("3x4xf32",), "matrices (3, 4), expected square ones"),
        (lambda b, x: b.lu(x), ("4xf32",), "rank 1, expected a matrix"),
        (lambda b, x: b.eigh(x), ("4x4xbf16",), "a is bf16, expected f32 or f64"),
        (lambda b, x: b.lu(x), ("4x4xi32",), "a is i32, expected f32 or f64"),
        (lambda b, x: b.orthogonal_columns(x), ("3x4xf32",), "4 columns, expected at most 3"),
        (lambda b, x: b.row_order(x, rows=3), ("4xi32",), "4 exchanges of 3 rows"),
        (
            lambda b, a, x: b.triangular_solve(a, x),
            ("3x3xf32", "4x2xf32"),
            "b has shape (4, 2), expected (3, 2)",
        ),
    ],
)
def test_what_is_no_matrix_of_these_is_refused(build, types, message):
    with pytest.raises(TypeRuleError, match=message.replace("(", r"\(").replace(")", r"\)")):
        program(build, *types)
