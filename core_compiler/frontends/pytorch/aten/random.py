"""Random tensors of ATen: Philox numbers of the numerics contract, a stream for each op.

Torch's own generator gives other numbers: a compiled model draws the same ones on every target and
in every call.
"""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.pytorch.aten.table import I64, aten
from core_compiler.ir import dtype


def _drawn(b, kind: str, shape, wanted):
    seed = b.constant(np.int64(0))
    return b.op(f"core.random_{kind}", (seed,), shape=tuple(shape), dtype=wanted,
                stream=b.symbols.next_stream())  # fmt: skip


@aten("rand", "rand_like")
def rand(b, *args, **kwargs):
    return _drawn(b, "uniform", b.shape, b.dtype)


@aten("randn", "randn_like")
def randn(b, *args, **kwargs):
    return _drawn(b, "normal", b.shape, b.dtype)


@aten("randperm")
def randperm(b, count, **kwargs):
    """The order of as many random words: of equal ones the first comes first."""
    words = _drawn(b, "bits", (b.symbols.number(count),), dtype("ui32"))
    return b.to(b.to(b.argsort(words, axis=0), I64), b.dtype)
