"""Contractions as batched products, and integer products as sums."""

from __future__ import annotations

from math import prod

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import others
from core_compiler.ops.rules import accumulator


def contract(b: Builder, op: typed.Contract) -> Value:
    """Permute and merge axes, multiply [batch, M, K] by [batch, K, N], and split the axes again."""
    x, y = op.operands
    free_x = others(x.type.rank, (*op.batch_a, *op.contract_a))
    free_y = others(y.type.rank, (*op.batch_b, *op.contract_b))
    batch = prod(x.type.shape[a] for a in op.batch_a)
    k = prod(x.type.shape[a] for a in op.contract_a)
    x = b.transpose(x, permutation=(*op.batch_a, *free_x, *op.contract_a))
    y = b.transpose(y, permutation=(*op.batch_b, *op.contract_b, *free_y))
    x = b.reshape(x, shape=(batch, x.type.elements // (batch * k), k))
    y = b.reshape(y, shape=(batch, k, y.type.elements // (batch * k)))
    options = {"accumulate": op.accumulate} if op.accumulate is not None else {}
    return b.reshape(b.matmul(x, y, **options), shape=op.result.type.shape)


def integer_matmul(b: Builder, op: typed.Matmul) -> Value:
    """Compute all M * K * N products and sum them over K in the accumulator's dtype; exact."""
    x, y = op.operands
    *batch, m, k = x.type.shape
    lead, each = tuple(range(len(batch))), (*batch, m, k, y.type.shape[-1])
    wide, last = accumulator(x.type.dtype), len(batch)
    x = b.broadcast(b.cast(x, dtype=wide), shape=each, dims=(*lead, last, last + 1))
    y = b.broadcast(b.cast(y, dtype=wide), shape=each, dims=(*lead, last + 1, last + 2))
    return b.reduce_sum(b.mul(x, y), axes=(last + 1,))
