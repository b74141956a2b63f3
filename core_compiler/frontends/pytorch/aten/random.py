"""Random tensors of ATen: Philox numbers of the numerics contract, a stream for each op.

Torch's own generator gives other numbers: a compiled model draws the same ones on every target and
in every call; in training those of its seed and iteration.
"""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.pytorch.aten.table import F32, I64, Refused, aten
from core_compiler.ir import dtype


def drawn(b, kind: str, shape, wanted):
    """Random numbers, of a stream of their own."""
    given = b.symbols.random or (b.constant(np.int64(0)),)
    return b.op(f"core.random_{kind}", given, shape=tuple(shape), dtype=wanted,
                stream=b.symbols.next_stream())  # fmt: skip


@aten("rand", "rand_like")
def rand(b, *args, **kwargs):
    return drawn(b, "uniform", b.shape, b.dtype)


@aten("randn", "randn_like")
def randn(b, *args, **kwargs):
    return drawn(b, "normal", b.shape, b.dtype)


@aten("randperm")
def randperm(b, count, **kwargs):
    """The order of as many random words: of equal ones the first comes first."""
    words = drawn(b, "bits", (b.symbols.number(count),), dtype("ui32"))
    return b.to(b.to(b.argsort(words, axis=0), I64), b.dtype)


@aten("dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(b, x, p=0.5, train=False):
    """Srivastava et al. (2014): an element stays with probability 1 - p and is divided by it."""
    name = str(b.node.target).split(".")[1]
    native = name == "native_dropout"
    if not train or not p:
        return (x, None) if native else x
    if p == 1:  # nothing is drawn
        made = b.mul(x, b.scalar_like(0, x))
        return (made, b.expand(b.constant(False), x.type.shape)) if native else made
    if not b.symbols.training:
        raise Refused("dropout in training mode; call model.eval()")
    if "alpha" in name:
        raise Refused("alpha dropout")
    shape = x.type.shape
    drawn_for = shape if "feature" not in name else (*shape[:2], *[1] * (len(shape) - 2))
    kept = b.ge(u := drawn(b, "uniform", drawn_for, F32), b.scalar_like(float(p), u))
    one = b.scalar_like(1 / (1 - p), u)
    mask = b.to(b.select(kept, one, b.scalar_like(0, u)), x.type.dtype)
    if mask.type.shape != shape:
        mask = b.broadcast(mask, shape=shape, dims=tuple(range(len(shape))))
    made = b.mul(x, mask)
    return (made, kept) if native else made
