"""Factorisations and linear systems; oracles: torch and NumPy in f64."""

from __future__ import annotations

import numpy as np

from tests.ops.samples.base import Sample, sample, torch_oracle, values

DTYPES = ("f32", "f64")


def symmetric(shape, name: str, key: object = 0) -> np.ndarray:
    x = values(shape, name, -1, 1, key)
    return x + x.swapaxes(-1, -2)


def positive(shape, name: str) -> np.ndarray:
    x = values(shape, name, -1, 1, "positive")
    return x @ x.swapaxes(-1, -2) + np.eye(shape[-1], dtype=x.dtype)


def _lu(x):
    import torch

    packed, pivots = torch.linalg.lu_factor(torch.from_numpy(x))
    return packed.numpy(), _order(x.shape[-2])(pivots.numpy() - 1), pivots.numpy() - 1


def _order(rows: int):
    """The order of rows from torch's permutation matrix."""

    def oracle(swaps):
        import torch

        swaps = np.clip(swaps, 0, rows - 1)
        some = torch.zeros(*swaps.shape[:-1], rows, swaps.shape[-1])
        permutation, _, _ = torch.lu_unpack(some, torch.from_numpy(swaps).int() + 1)
        return permutation.argmax(-2).int().numpy()

    return oracle


def signed(vectors: np.ndarray) -> np.ndarray:
    """1, or -1 for columns whose first element of the largest magnitude is negative."""
    places = np.abs(vectors).argmax(-2)
    return np.sign(np.take_along_axis(vectors, places[..., None, :], -2))


def _eigh(x):
    w, v = np.linalg.eigh(x)
    return w, v * signed(v)


def _orthogonal_columns(x):
    _, s, right = np.linalg.svd(x, full_matrices=False)
    v = right.swapaxes(-1, -2)
    v = v * signed(v)
    return s, x @ v / np.abs(x).max((-1, -2), keepdims=True), v


def _svd(x):
    u, s, right = np.linalg.svd(x, full_matrices=False)
    sign = signed(right.swapaxes(-1, -2) if x.shape[-2] >= x.shape[-1] else u)
    return u * sign, s, right * sign.swapaxes(-1, -2)


def _solves(name: str) -> list[Sample]:
    import torch

    made = []
    a = values((2, 7, 7), name, -0.3, 0.3) + 2 * np.eye(7).astype(name.replace("f", "float"))
    b = values((2, 7, 3), name)
    for lower in (False, True):
        for transposed in (False, True):
            for unit in (False, True):

                def oracle(a, b, lower=lower, transposed=transposed, unit=unit):
                    a = (a.tril() if lower else a.triu()).mT if transposed else a
                    upper = lower == transposed
                    return torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)

                options = {"lower": lower, "transposed": transposed, "unit_diagonal": unit}
                label = "-".join(key for key, on in options.items() if on)
                made.append(
                    sample(
                        "triangular_solve",
                        a,
                        b,
                        oracle=torch_oracle(oracle),
                        label=label,
                        **options,
                    )
                )
    return made


def _factors(name: str) -> list[Sample]:
    import torch

    a, tall, wide = (values(s, name, key="factor") for s in ((2, 6, 6), (3, 7, 4), (4, 9)))
    packed, tau = (t.numpy() for t in torch.geqrf(torch.from_numpy(tall)))
    c = values((3, 7, 5), name, key="c")
    made = [
        sample("cholesky", positive((2, 6, 6), name), oracle=np.linalg.cholesky, slack=4),
        sample(
            "cholesky", positive((5, 5), name), oracle=np.linalg.cholesky, label="single", slack=4
        ),
        *(
            sample("lu", x, oracle=_lu, label=label, slack=8)
            for x, label in ((a, "square"), (tall, "tall"), (wide, "wide"))
        ),
        *(
            sample("householder", x, oracle=torch_oracle(torch.geqrf), label=label, slack=8)
            for x, label in ((a, "square"), (tall, "tall"), (wide, "wide"))
        ),
        *(
            sample(
                "reflect",
                packed,
                tau,
                c,
                transposed=transposed,
                label=str(transposed),
                slack=4,
                oracle=torch_oracle(lambda *x, t=transposed: torch.ormqr(*x, transpose=t)),
            )
            for transposed in (False, True)
        ),
        *(
            sample(
                "qr",
                x,
                complete=complete,
                label=f"{label}-{complete}",
                slack=16,
                oracle=torch_oracle(lambda x, m=mode: torch.linalg.qr(x, mode=m)),
            )
            for x, label in ((a, "square"), (tall, "tall"), (wide, "wide"))
            for complete, mode in ((False, "reduced"), (True, "complete"))
        ),
        sample("eigh", symmetric((2, 6, 6), name), oracle=_eigh, slack=16),
        sample("orthogonal_columns", tall, oracle=_orthogonal_columns, slack=16),
        *(
            sample("svd", x, oracle=_svd, label=label, slack=16)
            for x, label in ((a, "square"), (tall, "tall"), (wide, "wide"))
        ),
    ]
    return made


SAMPLES = [
    sample("row_order", values((2, 5), "i32", -2, 8), oracle=_order(6), exact=True, rows=6),
    *(s for name in DTYPES for s in (*_solves(name), *_factors(name))),
]
