"""Random tensors of ATen, by :mod:`core_compiler.frontends.random_numbers`."""

from __future__ import annotations

from core_compiler.frontends.pytorch.aten.table import I64, Refused, aten
from core_compiler.ir import dtype


@aten("rand", "rand_like")
def rand(b, *args, **kwargs):
    return b.symbols.draws.numbers(b, "uniform", b.shape, b.dtype)


@aten("randn", "randn_like")
def randn(b, *args, **kwargs):
    return b.symbols.draws.numbers(b, "normal", b.shape, b.dtype)


@aten("randperm")
def randperm(b, count, **kwargs):
    """Return the order of ``count`` random words; it is stable."""
    words = b.symbols.draws.numbers(b, "bits", (b.symbols.number(count),), dtype("ui32"))
    return b.to(b.to(b.argsort(words, axis=0), I64), b.dtype)


@aten("dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(b, x, p=0.5, train=False):
    name = str(b.node.target).split(".")[1]
    native = name == "native_dropout"
    if not train or not p:
        return (x, None) if native else x
    if not b.symbols.training and p != 1:
        raise Refused("dropout in training mode; call model.eval()")
    if "alpha" in name and p != 1:
        raise Refused("alpha dropout")
    shape = x.type.shape
    drawn = shape if "feature" not in name else (*shape[:2], *[1] * (len(shape) - 2))
    made, kept = b.symbols.draws.dropped(b, x, float(p), drawn)
    return (made, kept) if native else made
