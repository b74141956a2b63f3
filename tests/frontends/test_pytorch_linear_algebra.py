"""``torch.linalg``, from PyTorch: values, forms, and what a failure gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.frontends.pytorch import import_exported
from core_compiler.frontends.pytorch.signs import with_signs
from core_compiler.ops import evaluate_block
from core_compiler.support.errors import UserError
from core_compiler.training.graph.autodiff import pullback
from tests.frontends.programs import Program, agrees, execute, exported
from tests.slow import slow_but

linalg = torch.linalg


def _normal(seed: int, *shape: int):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


A, B, TALL, WIDE = _normal(0, 2, 5, 5), _normal(1, 2, 5, 3), _normal(2, 6, 4), _normal(3, 2, 3, 5)
S = A @ A.mT + torch.eye(5, dtype=torch.float64)
FACTOR = linalg.cholesky(S)
PACKED, PIVOTS = linalg.lu_factor(A)


def _eigh(x):
    return with_signs(torch.ops.aten.linalg_eigh.default, linalg.eigh(x))


def _svd(x, full_matrices=False):
    return with_signs(torch.ops.aten.linalg_svd.default, linalg.svd(x, full_matrices))


CASES = {
    "cholesky": (linalg.cholesky, S),
    "cholesky, upper": (lambda x: linalg.cholesky(x, upper=True), S),
    "cholesky, old": (torch.cholesky, S),
    "cholesky_ex": (linalg.cholesky_ex, S),
    "cholesky_solve": (torch.cholesky_solve, B, FACTOR),
    "cholesky_solve, upper": (lambda b, x: torch.cholesky_solve(b, x.mT, upper=True), B, FACTOR),
    "cholesky_inverse": (torch.cholesky_inverse, FACTOR),
    "solve": (linalg.solve, A, B),
    "solve from the left": (lambda a, b: linalg.solve(a, b.mT, left=False), A, B),
    "solve a vector": (linalg.solve, A[0], B[0, :, 0]),
    "solve a batch of vectors": (linalg.solve, A, B[..., 0]),
    "solve a batch with one matrix": (linalg.solve, A[0], B),
    "solve_ex": (linalg.solve_ex, A, B),
    "solve with a transposed matrix": (lambda a, b: linalg.solve(a.mT, b), A, B),
    "lu": (linalg.lu, A),
    "lu, tall": (linalg.lu, TALL),
    "lu, wide": (linalg.lu, WIDE),
    "lu_factor": (linalg.lu_factor, A),
    "lu_factor_ex": (linalg.lu_factor_ex, TALL),
    "lu, old": (torch.lu, A),
    "lu_unpack": (torch.lu_unpack, PACKED, PIVOTS),
    "lu_solve": (linalg.lu_solve, PACKED, PIVOTS, B),
    "lu_solve, old": (torch.lu_solve, B, PACKED, PIVOTS),
    "lu_solve of the transpose": (
        lambda *x: linalg.lu_solve(*x, adjoint=True),
        PACKED,
        PIVOTS,
        B,
    ),
    "lu_solve from the left": (
        lambda lu, p, b: linalg.lu_solve(lu, p, b.mT, left=False),
        PACKED,
        PIVOTS,
        B,
    ),
    "inv": (linalg.inv, A),
    "inverse": (torch.inverse, A),
    "inv_ex": (linalg.inv_ex, A),
    "det": (linalg.det, A),
    "det of a singular matrix": (linalg.det, torch.ones(3, 3)),
    "slogdet": (linalg.slogdet, A),
    "slogdet of a singular matrix": (linalg.slogdet, torch.ones(3, 3)),
    "logdet": (torch.logdet, torch.stack([S[0], -S[0]])),
    "solve_triangular": (lambda a, b: linalg.solve_triangular(a, b, upper=True), A, B),
    "solve_triangular from the left": (
        lambda a, b: linalg.solve_triangular(a, b.mT, upper=False, left=False),
        FACTOR,
        B,
    ),
    "solve_triangular of ones": (
        lambda a, b: linalg.solve_triangular(a[0], b, upper=False, unitriangular=True),
        A,
        B,
    ),
    "triangular_solve": (
        lambda b, a: torch.triangular_solve(b, a, upper=False, transpose=True),
        B,
        FACTOR,
    ),
    "qr": (linalg.qr, TALL),
    "qr, complete": (lambda x: linalg.qr(x, mode="complete"), TALL),
    "qr, r": (lambda x: linalg.qr(x, mode="r").R, WIDE),
    "qr, old": (torch.qr, WIDE),
    "geqrf": (torch.geqrf, TALL),
    "householder_product": (lambda x: linalg.householder_product(*torch.geqrf(x)), TALL),
    "ormqr": (
        lambda x, c: torch.ormqr(*torch.geqrf(x), c, left=False, transpose=True),
        TALL,
        _normal(4, 2, 6),
    ),
    "eigh": (_eigh, S),
    "eigh, upper": (lambda x: linalg.eigh(x.triu(), UPLO="U").eigenvalues, S),
    "eigvalsh": (linalg.eigvalsh, S),
    "svd": (_svd, TALL),
    "svd, wide": (_svd, WIDE),
    "svd, complete": (lambda x: _svd(x, full_matrices=True), A),
    "svd, old": (lambda x: torch.svd(x).S, WIDE),
    "svdvals": (linalg.svdvals, WIDE),
    "pinv": (linalg.pinv, WIDE),
    "pinv, hermitian": (lambda x: linalg.pinv(x, hermitian=True), S),
    "pinv of low rank": (linalg.pinv, TALL[:, :1] @ TALL[:1]),
    "pinverse": (torch.pinverse, TALL),
    "matrix_rank": (linalg.matrix_rank, torch.stack([A[0], A[0, :1].T @ A[0, :1]])),
    "matrix_rank, atol": (lambda x: linalg.matrix_rank(x, atol=1.0), A),
    "cond": (linalg.cond, A),
    "cond, 1": (lambda x: linalg.cond(x, 1), A),
    "matrix_norm, nuclear": (lambda x: linalg.matrix_norm(x, "nuc"), WIDE),
    "matrix_norm, 2": (lambda x: linalg.matrix_norm(x, 2), WIDE),
    "norm, -2": (lambda x: linalg.norm(x, -2), TALL),
    "matrix_power": (lambda x: linalg.matrix_power(x, 5), A),
    "matrix_power, negative": (lambda x: linalg.matrix_power(x, -3), A),
    "matrix_exp": (linalg.matrix_exp, torch.stack([A[0], A[1] / 9, A[0] * 9])),
    "multi_dot": (lambda x, y: linalg.multi_dot([x, y, y.T, x]), A[0], B[0]),
    "tensorinv": (lambda x: linalg.tensorinv(x, ind=1), _normal(5, 4, 2, 2)),
    "tensorsolve": (linalg.tensorsolve, _normal(5, 4, 2, 2), _normal(6, 4)),
    "vander": (linalg.vander, B[0, 0]),
    "cross": (linalg.cross, B, B[:, :1] + 1),
    "log_prob": (
        lambda m, factor, x: torch.distributions.MultivariateNormal(
            m, scale_tril=factor, validate_args=False
        ).log_prob(x),
        B[0, :, 0],
        FACTOR[0],
        B[0, :, 1],
    ),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_the_import_agrees_with_torch(name):
    function, *inputs = CASES[name]
    agrees(function, *inputs)


@pytest.mark.parametrize("name", slow_but(("det",), ("solve", "det", "svd")))
def test_compiled_it_agrees_with_torch(name):
    function, *inputs = CASES[name]
    inputs = [x.float() for x in inputs]
    compiled = cc.compile(Program(function), tuple(inputs), check=True)
    wanted = function(*inputs)
    for ours, theirs in zip(
        compiled(*inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        torch.testing.assert_close(torch.as_tensor(ours), theirs, rtol=1e-4, atol=1e-5)


#: Name -> scalar loss of matrices, whose eigenvectors' signs do not matter.
LOSSES = {
    "cholesky": (lambda x: linalg.cholesky(x).square().sum(), S),
    "cholesky, upper": (lambda x: linalg.cholesky(x, upper=True).sin().sum(), S),
    "solve": (lambda a, b: linalg.solve(a, b).square().sum(), A, B),
    "solve from the left": (lambda a, b: linalg.solve(a, b.mT, left=False).sin().sum(), A, B),
    "inv": (lambda a: linalg.inv(a).sin().sum(), A),
    "det": (lambda a: linalg.det(a).sin().sum(), A),
    "slogdet": (lambda a: linalg.slogdet(a).logabsdet.sum(), A),
    "solve_triangular": (
        lambda a, b: linalg.solve_triangular(a, b, upper=True).square().sum(),
        S,
        B,
    ),
    "lu": (lambda a: sum(x.sin().sum() for x in linalg.lu(a)[1:]), A),
    "qr": (lambda a: sum(x.sin().sum() for x in linalg.qr(a)), TALL),
    "eigh": (lambda a: linalg.eigh(a).eigenvectors.square().sin().sum(), S),
    "eigvalsh": (lambda a: linalg.eigvalsh(a, UPLO="U").sin().sum(), A),
    "svdvals": (lambda a: linalg.svdvals(a).sin().sum(), WIDE),
    "svd": (
        lambda a: sum(
            x.square().sin().sum() for x in linalg.svd(a, full_matrices=False) if x.ndim > 1
        ),
        TALL,
    ),
    "pinv": (lambda a: linalg.pinv(a).sin().sum(), WIDE),
    "matrix_exp": (lambda a: linalg.matrix_exp(a).sin().sum(), A / 4),
    "a likelihood": (
        lambda m, s: (
            -(
                torch.distributions.MultivariateNormal(m, s, validate_args=False).log_prob(m.sin())
            ).sum()
        ),
        B[0, :, 0],
        S[0],
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_torchs(name):
    function, *inputs = LOSSES[name]
    wanted = torch.autograd.grad(function(*(x.requires_grad_() for x in inputs)), inputs)
    given = [x.detach() for x in inputs]
    program = import_exported(exported(function, *given), training=True)
    module = pullback(program.module)
    state = [np.zeros((), np.int64)] * 2  # the seed and the iteration, which nothing reads
    arrays = [*(x.numpy() for x in given), *state, np.ones(())]
    made = evaluate_block(module.main.body, arrays, module.weights)
    for ours, theirs in zip(made, wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), theirs)


@pytest.mark.parametrize(
    "function", [lambda x: linalg.lu(x).U.sum(), lambda x: linalg.qr(x, mode="complete").Q.sum()]
)
def test_gradients_of_other_shapes_are_refused(function):
    program = import_exported(exported(function, TALL), training=True)
    with pytest.raises(UserError, match="cannot be differentiated"):
        pullback(program.module)


def test_the_status_of_a_factor_is_lapacks():
    bad = torch.diag(torch.tensor([1.0, 2.0, -3.0, 4.0]))
    given = torch.stack([torch.eye(4), bad])
    (_, status) = execute(import_exported(exported(linalg.cholesky_ex, given)), given)
    assert status.tolist() == linalg.cholesky_ex(given).info.tolist() == [0, 3]
    given = torch.stack([torch.eye(4), torch.diag(torch.tensor([1.0, 0.0, 0.0, 4.0]))])
    (_, _, status) = execute(import_exported(exported(linalg.lu_factor_ex, given)), given)
    assert status.tolist() == linalg.lu_factor_ex(given).info.tolist() == [0, 2]


def test_a_singular_matrix_is_not_an_error():
    given = torch.ones(3, 3), torch.ones(3, 1)
    program = exported(linalg.solve, torch.eye(3), given[1])
    (made,) = execute(import_exported(program), *given)
    assert not made.isfinite().all()


def test_lu_without_pivots_is_refused():
    from torch.export import export

    with pytest.raises(UserError, match="LU without pivoting"):
        import_exported(export(Program(lambda x: linalg.lu(x, pivot=False)), (A,), strict=False))
