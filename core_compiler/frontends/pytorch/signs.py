"""Signs of eigenvectors and singular vectors, which torch leaves open.

Before a comparison, torch's own are given the signs that the ops here have: the first element of
the largest magnitude is positive.
"""

from __future__ import annotations

from typing import Any

_EIGENVECTORS = frozenset({"aten.linalg_eigh", "aten._linalg_eigh"})
#: Singular vectors, and whether the right ones are rows.
_SINGULAR_VECTORS = {"aten.linalg_svd": True, "aten._linalg_svd": True, "aten.svd": False}


def with_signs(target: Any, made: Any) -> Any:
    """Return an op's results with those signs; ``made`` itself for other ops."""
    name = str(target).rpartition(".")[0]
    if made is None or (name not in _EIGENVECTORS and name not in _SINGULAR_VECTORS):
        return made
    if name in _EIGENVECTORS:
        values, vectors = made
        return values, vectors * _signs(vectors) if vectors.ndim > 1 else vectors
    left, values, right = made
    if left.ndim < 2:  # only the values were asked for
        return made
    right = right.mT if _SINGULAR_VECTORS[name] else right
    count = values.shape[-1]
    signs = _signs((right if left.shape[-2] >= right.shape[-2] else left)[..., :count])
    left, right = (_scaled(x, signs, count) for x in (left, right))
    return left, values, right.mT if _SINGULAR_VECTORS[name] else right


def _signs(vectors: Any) -> Any:
    import torch

    if not vectors.numel():
        return torch.ones_like(vectors[..., :1, :])
    places = vectors.abs().argmax(-2, keepdim=True)
    one = torch.ones_like(vectors[..., :1, :])
    return torch.where(vectors.gather(-2, places) < 0, -one, one)


def _scaled(vectors: Any, signs: Any, count: int) -> Any:
    """Return ``vectors`` with the first ``count`` columns times their signs."""
    import torch

    return torch.cat((vectors[..., :count] * signs, vectors[..., count:]), -1)
