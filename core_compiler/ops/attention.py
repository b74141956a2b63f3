"""Scaled dot-product attention: a composite.

Vaswani et al., "Attention is all you need" (2017). Scores and softmax of 16-bit floats run in f32;
the weights are rounded to the operands' dtype before they are multiplied by the values. Keys that a
mask or ``causal`` hides have the score ``hidden``, -infinity by default, so weight +0: they remain
terms of the sum over values. A floating-point mask has the operands' dtype, or that of the scores.
"""

from __future__ import annotations

from math import inf, sqrt

from core_compiler.ir import Value, tensor
from core_compiler.ops import typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.builder import broadcast_shape
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.precision import FOLLOWS, Narrow
from core_compiler.ops.rules import (
    BOOL,
    FLOATS,
    accumulator,
    need,
    need_dtype,
    need_rank,
    need_same_dtype,
    need_static,
    refuse,
    show,
)


def _rule(types, attributes):
    q, k, v, *mask = types
    need_dtype("q", q, FLOATS)
    need_same_dtype(("q", "k", "v"), types[:3])
    need(q.rank >= 2, f"q has rank {q.rank}, expected [batch.., queries, width]")
    for name, other in (("k", k), ("v", v)):
        need_rank(name, other, q.rank)
        need(
            other.shape[:-2] == q.shape[:-2],
            f"batch axes of q are {show(q.shape[:-2])} but of {name} {show(other.shape[:-2])}",
        )
    need(q.shape[-1] == k.shape[-1], f"width of q is {q.shape[-1]} but of k is {k.shape[-1]}")
    need(k.shape[-2] == v.shape[-2], f"k has {k.shape[-2]} keys but v has {v.shape[-2]}")
    if attributes["scale"] is None:
        need_static("the width of q", q.shape[-1])
    if mask:
        need_dtype("mask", mask[0], (BOOL, q.dtype, accumulator(q.dtype)))
        _need_mask(mask[0], (*q.shape[:-1], k.shape[-2]))
    return (tensor((*q.shape[:-1], v.shape[-1]), q.dtype),)


def _need_mask(mask, scores) -> None:
    """Check that the mask broadcasts by NumPy's rules to the shape of the scores."""
    try:
        fits = broadcast_shape(mask.shape, scores) == scores
    except ValueError:
        fits = False
    if not fits:
        refuse(f"mask of shape {show(mask.shape)} does not broadcast to the scores {show(scores)}")


def _attention(b, op: typed.Attention):
    q, k, v, *mask = op.operands
    dtype = q.type.dtype
    wide = accumulator(dtype)
    rank = q.type.rank
    swap = (*range(rank - 2), rank - 1, rank - 2)
    scores = b.matmul(q, b.transpose(k, permutation=swap), accumulate=wide)
    scale = op.scale
    factor = 1 / sqrt(q.type.shape[-1]) if scale is None else scale
    scores = b.mul(scores, b.scalar_like(factor, scores))
    if mask:
        scores = _masked(b, scores, mask[0], op.hidden)
    if op.causal:
        scores = _hide_scores(b, _causal_mask(b, scores), scores, op.hidden)
    shares = b.softmax(scores, axis=rank - 1, empty_rows=op.empty_rows)
    return b.matmul(as_dtype(b, shares, dtype), v)


def _masked(b, scores: Value, mask: Value, hidden: float) -> Value:
    wide = b.expand(widened(b, mask), scores.type.shape)
    return _hide_scores(b, wide, scores, hidden) if mask.type.dtype is BOOL else b.add(scores, wide)


def _hide_scores(b, visible: Value, scores: Value, hidden: float) -> Value:
    """Return the scores, with ``hidden`` where not ``visible``."""
    return b.select(visible, scores, b.scalar_like(hidden, scores))


def _causal_mask(b, scores: Value) -> Value:
    """Return whether the key's position is at most the query's, both counted from 0."""
    shape = scores.type.shape[-2:]
    query, key = (b.iota(shape=shape, dtype="i32", axis=axis) for axis in (0, 1))
    return b.expand(b.le(key, query), scores.type.shape)


declare(
    OpDef(
        "core.attention",
        "softmax(scale * (q @ k^T) + mask) @ v over [batch.., queries, width], "
        "[batch.., keys, width], [batch.., keys, value width]",
        ("q", "k", "v", "mask?"),
        _rule,
        attributes={
            "scale": Attr(float, None, "factor of the scores; absent: 1 / sqrt(width)"),
            "causal": Attr(bool, False, "query i sees keys 0..i"),
            "hidden": Attr(
                float,
                -inf,
                "the score of a key hidden by causal or a boolean mask; "
                "if finite, a query with all keys hidden weights them equally",
            ),
            "empty_rows": Attr(
                str, "nan", "the weights of a query that sees no key", choices=("nan", "zero")
            ),
        },
        decompose=_attention,
        precision=Narrow(3),
    )
)


# -- rotary position embeddings --------------------------------------------------------------------


def _rotary_rule(types, attributes):
    x, *angles = types
    need_dtype("x", x, FLOATS)
    need(x.rank >= 1, "x has rank 0, expected [.., width]")
    width = need_static("the width of x", x.shape[-1])
    need(width % 2 == 0, f"the width of x is {width}, expected an even number")
    need_same_dtype(("x", "cos", "sin"), types)
    for name, each in zip(("cos", "sin"), angles, strict=True):
        need_rank(name, each, x.rank)
        need(
            all(mine in (1, size) for mine, size in zip(each.shape, x.shape, strict=True)),
            f"{name} of shape {show(each.shape)} does not broadcast to x, {show(x.shape)}",
        )
    return (x,)


def _rotary(b, op: typed.RotaryEmbedding):
    x, cos, sin = op.operands
    shape = x.type.shape
    turned = _quarter_turn(b, x, op.interleaved)
    cos, sin = (b.expand(v, shape) for v in (cos, sin))
    return b.add(b.mul(x, cos), b.mul(turned, sin))


def _quarter_turn(b, x: Value, interleaved: bool) -> Value:
    """Return (-v, u) for each pair (u, v) of the last axis."""
    *lead, width = x.type.shape
    pairs = (*lead, width // 2, 2) if interleaved else (*lead, 2, width // 2)
    axis = len(lead) + interleaved
    x = b.reshape(x, shape=pairs)
    first, second = (
        b.slice(
            x,
            starts=(0,) * axis + (part,) + (0,) * (len(pairs) - axis - 1),
            limits=(*pairs[:axis], part + 1, *pairs[axis + 1 :]),
            strides=(1,) * len(pairs),
        )
        for part in (0, 1)
    )
    return b.reshape(b.concat(b.neg(second), first, axis=axis), shape=(*lead, width))


declare(
    OpDef(
        "core.rotary_embedding",
        "x * cos + y * sin over [.., width], where y has (-v, u) for each pair (u, v) of x, in the "
        'operands\' dtype (Su et al., "RoFormer", 2021)',
        ("x", "cos", "sin"),
        _rotary_rule,
        attributes={
            "interleaved": Attr(
                bool, False, "pairs are adjacent elements, not elements of two halves"
            ),
        },
        decompose=_rotary,
        precision=FOLLOWS,
    )
)
