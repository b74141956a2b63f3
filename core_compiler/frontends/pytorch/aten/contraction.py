"""Products of ATen: matmul and related ops, linear layers, attention."""

from __future__ import annotations

import math

from core_compiler.frontends.pytorch.aten.table import (
    NotSupported,
    Refused,
    aten,
    broadcast_shape,
)


def _swap_last(b, x):
    rank = x.type.rank
    return b.transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


@aten("mm", "bmm")
def mm(b, x, y):
    """Multiply in the result's dtype; products of narrow integers are wide and wrap alike."""
    return b.to(b.matmul(x, y), b.dtype)


@aten("_int_mm")
def int_mm(b, x, y):
    """Multiply bytes with sums in i32."""
    return b.matmul(b.to(x, b.dtype), b.to(y, b.dtype))


@aten("matmul", "mv", "dot", "vdot")
def matmul(b, x, y):
    """Translate torch.matmul.

    Vectors get an axis that is removed again, and batch axes broadcast; a shared right matrix
    becomes one product over merged rows.
    """
    shape = b.shape
    if x.type.rank == 1:
        x = b.reshape(x, shape=(1, *x.type.shape))
    if y.type.rank == 1:
        y = b.reshape(y, shape=(*y.type.shape, 1))
    if y.type.rank == 2 and x.type.rank > 2:
        rows = math.prod(x.type.shape[:-1])
        flat = b.reshape(x, shape=(rows, x.type.shape[-1]))
        return b.reshape(mm(b, flat, y), shape=shape)
    batch = broadcast_shape(x.type.shape[:-2], y.type.shape[:-2])
    x = b.expand(x, (*batch, *x.type.shape[-2:]))
    y = b.expand(y, (*batch, *y.type.shape[-2:]))
    return b.reshape(mm(b, x, y), shape=shape)


def _plus(b, product, addend, beta, alpha):
    """Compute ``beta * addend + alpha * product`` in the result's dtype."""
    product, addend = b.to(product, b.dtype), b.to(addend, b.dtype)
    if alpha != 1:
        product = b.mul(product, b.scalar_like(alpha, product))
    if beta == 0:
        return product
    if beta != 1:
        addend = b.mul(addend, b.scalar_like(beta, addend))
    return b.add(product, b.expand(addend, product.type.shape))


@aten("addmm", "baddbmm", "addmv")
def addmm(b, addend, x, y, *, beta=1, alpha=1):
    product = b.matmul(x, y) if y.type.rank > 1 else matmul(b, x, y)
    return _plus(b, product, addend, beta, alpha)


@aten("linear")
def linear(b, x, weight, bias=None):
    w = b.transpose(weight, permutation=(1, 0)) if weight.type.rank == 2 else weight
    if weight.type.rank == 1:
        raise NotSupported("a weight of rank 1")
    if bias is None or b.dtype.is_float:
        return b.to(b.linear(x, w, *(() if bias is None else (bias,))), b.dtype)
    return b.bias(b.to(b.linear(x, w), b.dtype), bias, x.type.rank - 1)


@aten("scaled_dot_product_attention")
def attention(
    b, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    if dropout_p and not b.symbols.training:
        raise Refused("attention with dropout; call model.eval()")
    if dropout_p:  # expanded, so that dropout applies to the weights
        raise NotSupported("attention with dropout")
    if enable_gqa and k.type.shape[-3] != q.type.shape[-3]:
        k, v = (_repeat_heads(b, x, q.type.shape[-3]) for x in (k, v))
    batch = broadcast_shape(*(x.type.shape[:-2] for x in (q, k, v)))
    q, k, v = (b.expand(x, (*batch, *x.type.shape[-2:])) for x in (q, k, v))
    factor = 1 / math.sqrt(q.type.shape[-1]) if scale is None else float(scale)
    # A query whose scores are all -infinity yields zeros, for any cause of them: torch's own
    # decomposition uses aten._safe_softmax, and its fused kernels agree.
    return b.attention(
        q,
        k,
        v,
        *(() if attn_mask is None else (attn_mask,)),
        scale=factor,
        causal=is_causal,
        empty_rows="zero",
    )


def _repeat_heads(b, x, heads: int):
    """Repeat each key/value head for its query heads (grouped-query attention)."""
    *batch, own, rows, width = x.type.shape
    axis = len(batch)
    wide = (*batch, own, heads // own, rows, width)
    dims = tuple(i if i <= axis else i + 1 for i in range(x.type.rank))
    return b.reshape(b.broadcast(x, shape=wide, dims=dims), shape=(*batch, heads, rows, width))
