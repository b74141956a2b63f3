"""Attention, rotary embeddings and cached keys of ONNX (opset 23 and newer) and com.microsoft."""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends.onnx.reading import dtype_of
from core_compiler.frontends.onnx.table import NotSupported, axis_of, onnx_op
from core_compiler.ir import dtype

I64, BOOL = dtype("i64"), dtype("i1")


def split_heads(b, x, heads: int):
    """Reshape [batch, length, heads * width] to [batch, heads, length, width]."""
    batch, length, hidden = x.type.shape
    return b.transpose(
        b.reshape(x, shape=(batch, length, heads, hidden // heads)), permutation=(0, 2, 1, 3)
    )


def merge_heads(b, x):
    batch, heads, length, width = x.type.shape
    return b.reshape(b.transpose(x, permutation=(0, 2, 1, 3)), shape=(batch, length, heads * width))


def repeat_heads(b, x, heads: int):
    """Repeat each key/value head for its query heads (grouped-query attention)."""
    batch, own, length, width = x.type.shape
    if own == heads:
        return x
    wide = b.broadcast(x, shape=(batch, own, heads // own, length, width), dims=(0, 1, 3, 4))
    return b.reshape(wide, shape=(batch, heads, length, width))


@onnx_op("Attention")
def attention(b, q, k, v, mask=None, past_key=None, past_value=None, filled=None):
    flat = q.type.rank == 3
    if flat:
        q = split_heads(b, q, int(b.attr("q_num_heads")))
        k, v = (split_heads(b, x, int(b.attr("kv_num_heads"))) for x in (k, v))
    past = 0
    if past_key is not None:
        past = past_key.type.shape[2]
        k, v = b.concat(past_key, k, axis=2), b.concat(past_value, v, axis=2)
    present = (k, v)
    heads = q.type.shape[1]
    k, v = repeat_heads(b, k, heads), repeat_heads(b, v, heads)
    scale = float(b.attr("scale", 1 / math.sqrt(q.type.shape[-1])))
    allowed = _allowed(b, q, k, filled, past)
    plain = not b.attr("softcap", 0.0) and not b.attr("softmax_precision")
    wants_scores = len(b.node.output) > 3 and b.node.output[3]
    if plain and not wants_scores:
        made = _composite(b, q, k, v, mask, allowed, scale)
        scores = None
    else:
        made, scores = _spelled_out(b, q, k, v, mask, allowed, scale)
    made = merge_heads(b, made) if flat else made
    return made, *present, scores


def _allowed(b, q, k, filled, past: int):
    """Return the keys that each query can attend to, by position; None for all of them.

    The causal mask, the sliding window and the filled part of the cache are combined into an i1
    mask that broadcasts to the scores.
    """
    queries, keys = q.type.shape[2], k.type.shape[2]
    shape = (1, 1, queries, keys)
    rows, columns = (b.iota(shape=shape, dtype=I64, axis=a) for a in (2, 3))
    offset = b.expand(b.constant(np.int64(past)), shape)
    parts = []
    if filled is not None:
        batch = filled.type.shape[0]
        wide = (batch, 1, queries, keys)
        rows, columns = b.expand(rows, wide), b.expand(columns, wide)
        count = b.broadcast(b.to(filled, I64), shape=wide, dims=(0,))
        parts.append(b.lt(columns, count))
        offset = b.sub(count, b.scalar_like(queries, count)) if not past else b.expand(offset, wide)
    ahead = b.sub(b.add(rows, offset), columns)  # the distance of a key behind the query
    left, right = int(b.attr("left_window_size", -1)), int(b.attr("right_window_size", -1))
    if b.attr("is_causal", 0):
        parts.append(b.ge(ahead, b.scalar_like(0, ahead)))
    if left >= 0:
        parts.append(b.le(ahead, b.scalar_like(left, ahead)))
    if right >= 0:
        parts.append(b.ge(ahead, b.scalar_like(-right, ahead)))
    seen = None
    for part in parts:
        seen = part if seen is None else b.and_(seen, part)
    return seen


def _full_mask(b, mask, keys: int):
    """Extend the mask to all keys; the missing ones are hidden."""
    missing = keys - mask.type.shape[-1]
    if missing <= 0:
        return mask
    fill = (
        b.constant(False, BOOL)
        if mask.type.dtype is BOOL
        else b.constant(float("-inf"), mask.type.dtype)
    )
    rank = mask.type.rank
    return b.pad(
        mask, fill, low=(0,) * rank, high=(*(0,) * (rank - 1), missing), interior=(0,) * rank
    )


def _composite(b, q, k, v, mask, allowed, scale):
    if mask is not None:
        mask = _full_mask(b, mask, k.type.shape[2])
        if allowed is not None:
            if mask.type.dtype is BOOL:
                mask = b.and_(*b.broadcast_together(mask, allowed))
            else:
                seen, bias = b.broadcast_together(allowed, mask)
                mask = b.select(seen, bias, b.scalar_like(float("-inf"), bias))
    else:
        mask = allowed
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    return b.attention(*operands, scale=scale, empty_rows="zero")


def _spelled_out(b, q, k, v, mask, allowed, scale):
    """Expand the op to primitives, for a soft cap, another softmax precision, or its scores."""
    kind = q.type.dtype
    factor = b.scalar_like(math.sqrt(scale), q)
    keys = b.mul(k, b.scalar_like(math.sqrt(scale), k))
    scores = b.matmul(b.mul(q, factor), b.transpose(keys, permutation=(0, 1, 3, 2)))
    outputs = {0: scores}
    cap = float(b.attr("softcap", 0.0))
    if cap > 0:
        bound = b.scalar_like(cap, scores)
        scores = b.mul(b.tanh(b.div(scores, bound)), bound)
    outputs[1] = scores
    hidden = float("-inf")
    if mask is not None:
        mask = _full_mask(b, mask, k.type.shape[2])
        mask = b.expand(mask, scores.type.shape)
        if mask.type.dtype is BOOL:
            scores = b.select(mask, scores, b.scalar_like(hidden, scores))
        else:
            scores = b.add(scores, mask)
    if allowed is not None:
        scores = b.select(
            b.expand(allowed, scores.type.shape), scores, b.scalar_like(hidden, scores)
        )
    outputs[2] = scores
    wide = dtype_of(b.attr("softmax_precision")) if b.attr("softmax_precision") else kind
    shares = b.softmax(b.to(scores, wide), axis=3, empty_rows="zero")
    shares = b.to(shares, kind)
    outputs[3] = shares
    return b.matmul(shares, v), outputs[int(b.attr("qk_matmul_output_mode", 0))]


@onnx_op("RotaryEmbedding")
def rotary_embedding(b, x, cos, sin, positions=None):
    flat = x.type.rank == 3
    if flat:
        x = split_heads(b, x, int(b.attr("num_heads")))
    batch, heads, length, width = x.type.shape
    rotated = int(b.attr("rotary_embedding_dim", 0)) or width
    if positions is not None:
        cos, sin = b.take(cos, positions, axis=0), b.take(sin, positions, axis=0)
    half = (batch, heads, length, rotated // 2)
    cos, sin = (b.broadcast(v, shape=half, dims=(0, 2, 3)) for v in (cos, sin))
    rest = b.cut(x, 3, rotated, width) if rotated < width else None
    x = b.cut(x, 3, 0, rotated)
    if b.attr("interleaved", 0):
        first, second = b.cut(x, 3, 0, rotated, 2), b.cut(x, 3, 1, rotated, 2)
    else:
        first, second = b.cut(x, 3, 0, rotated // 2), b.cut(x, 3, rotated // 2, rotated)
    real = b.sub(b.mul(cos, first), b.mul(sin, second))
    imaginary = b.add(b.mul(sin, first), b.mul(cos, second))
    if b.attr("interleaved", 0):
        pairs = [b.reshape(v, shape=(*half, 1)) for v in (real, imaginary)]
        made = b.reshape(b.concat(*pairs, axis=4), shape=(batch, heads, length, rotated))
    else:
        made = b.concat(real, imaginary, axis=3)
    made = made if rest is None else b.concat(made, rest, axis=3)
    return merge_heads(b, made) if flat else made


@onnx_op("TensorScatter")
def tensor_scatter(b, past, update, starts=None):
    """Write ``update`` into ``past`` along ``axis``, for each batch element at its own start."""
    shape, axis = update.type.shape, axis_of(b.attr("axis", -2), past.type.rank)
    places = b.iota(shape=shape, dtype=I64, axis=axis)
    if starts is not None:
        places = b.add(places, b.broadcast(b.to(starts, I64), shape=shape, dims=(0,)))
    if b.attr("mode", "linear") == "circular":
        places = b.mod(places, b.scalar_like(past.type.shape[axis], places))
    return b.scatter_along(past, places, update, axis=axis, mode="set")


# -- com.microsoft ---------------------------------------------------------------------------------


@onnx_op("com.microsoft::MultiHeadAttention")
def multi_head_attention(b, q, k=None, v=None, bias=None, padding=None, scores=None, *rest):
    if any(x is not None for x in (k is None or None, bias, padding, *rest)) or v is None:
        raise NotSupported("packed inputs, a bias, a padding mask or a cache")
    heads = int(b.attr("num_heads"))
    q, k, v = (split_heads(b, x, heads) if x.type.rank == 3 else x for x in (q, k, v))
    scale = float(b.attr("scale", 1 / math.sqrt(q.type.shape[-1])))
    operands = (q, k, v) if scores is None else (q, k, v, scores)
    made = b.attention(*operands, scale=scale, causal=bool(b.attr("unidirectional", 0)))
    return merge_heads(b, made)
