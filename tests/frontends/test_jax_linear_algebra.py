"""``jax.numpy.linalg``, which a CPU computes by calls of LAPACK."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.test_stablehlo import agree
from tests.slow import slow_but

jax = pytest.importorskip("jax", reason="JAX is the oracle")
jnp = jax.numpy

RANDOM = np.random.default_rng(0)
A, B, TALL, WIDE = (
    RANDOM.standard_normal(shape).astype(np.float32)
    for shape in ((2, 5, 5), (2, 5, 3), (6, 4), (3, 5))
)
S = A @ A.swapaxes(-1, -2) + np.eye(5, dtype=np.float32)


def signed(vectors):
    """Vectors (columns) whose first largest element is positive."""
    places = jnp.abs(vectors).argmax(-2, keepdims=True)
    return vectors * jnp.sign(jnp.take_along_axis(vectors, places, -2))


CASES = {
    "cholesky": (jnp.linalg.cholesky, S),
    "cholesky, upper": (lambda x: jnp.linalg.cholesky(x, upper=True), S),
    "solve": (jnp.linalg.solve, A, B),
    "inv": (jnp.linalg.inv, A),
    "det": (jnp.linalg.det, A),
    "slogdet": (jnp.linalg.slogdet, A),
    "lu": (jax.scipy.linalg.lu, A[0]),
    "qr": (jnp.linalg.qr, TALL),
    "qr, complete": (lambda x: jnp.linalg.qr(x, mode="complete"), TALL),
    "qr, wide": (jnp.linalg.qr, WIDE),
    "eigh": (lambda x: (jnp.linalg.eigh(x)[0], signed(jnp.linalg.eigh(x)[1])), S),
    "svd": (lambda x: jnp.linalg.svd(x)[1], TALL),
    "svd, left": (lambda x: signed(jnp.linalg.svd(x, full_matrices=False)[0]), WIDE),
    "pinv": (jnp.linalg.pinv, WIDE),
    "norm, 2": (lambda x: jnp.linalg.norm(x, 2), TALL),
    "matrix_rank": (jnp.linalg.matrix_rank, TALL),
    "lstsq": (lambda x, y: jnp.linalg.lstsq(x, y)[0], TALL, TALL[:, :2]),
    "solve_triangular": (
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b, trans=1, unit_diagonal=True),
        A[0],
        B[0],
    ),
    "cho_solve": (
        lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b),
        S[0],
        B[0],
    ),
    "expm": (jax.scipy.linalg.expm, A[0]),
    "gradient of a solution": (jax.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum()), A, B),
}


@pytest.mark.parametrize(
    "name", slow_but(("cholesky", "solve", "slogdet", "qr, complete", "eigh", "svd, left"), CASES)
)
def test_the_reference_agrees_with_jax(name):
    function, *arguments = CASES[name]
    agree(function, *arguments, tolerance=1e-4)
