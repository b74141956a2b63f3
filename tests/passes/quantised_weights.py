"""Products with weights of few bits in blocks, as programs."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import dtype
from core_compiler.kernel_ir.scalars import integer_range


def integers(kind: str, shape, seed: int = 0, stored: str | None = None) -> np.ndarray:
    """Random integers in the range of ``kind``, of the NumPy dtype of ``stored``."""
    low, high = integer_range(dtype(kind))
    made = np.random.default_rng(seed).integers(low, high + 1, shape)
    return made.astype(dtype(stored or kind).numpy)


def linear(
    kind: str = "i4",
    columns: int = 256,
    block: int = 32,
    turned: bool = True,
    stored: str | None = None,
    zeros: bool = False,
):
    """``x @ w`` with ``w = (q - z) * s``, a scale and zero point for each block of rows.

    ``turned``: q is [columns, rows], otherwise [rows, columns].
    """

    def build(b, x):
        rows = x.type.shape[-1]
        blocks = rows // block
        shape = (columns, blocks, block) if turned else (blocks, block, columns)
        parts = (columns, blocks) if turned else (blocks, columns)
        dims = (0, 1) if turned else (0, 2)
        given = (columns, rows) if turned else (rows, columns)
        q = b.constant(integers(kind, given, stored=stored), dtype(stored or kind))
        scales = np.random.default_rng(1).uniform(-0.1, 0.1, parts).astype(np.float32)
        whole = b.reshape(b.cast(q, dtype="i32"), shape=shape)
        if zeros:
            points = b.cast(b.constant(integers(kind, parts, 2), dtype(kind)), dtype="i32")
            whole = b.sub(whole, b.broadcast(points, shape=shape, dims=dims))
        number = b.cast(whole, dtype="f32")
        number = b.mul(number, b.broadcast(b.constant(scales), shape=shape, dims=dims))
        w = b.reshape(number, shape=given)
        return b.matmul(x, b.transpose(w, permutation=(1, 0)) if turned else w)

    return build
