"""Gradients of products and convolutions, which are products and convolutions again.

Axes that a gradient sums over come first in K, the last one fastest (numerics contract).
"""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype
from core_compiler.ops.gradients.table import of_each, rounded


def _product(b: Builder, x: Value, y: Value, batch, summed, like: Value) -> Value:
    """Return ``contract`` of two values, one of them a cotangent, in the wider dtype.

    The result has the dtype of ``like``.
    """
    if x.type.dtype is not y.type.dtype:
        wide = max((x.type.dtype, y.type.dtype), key=lambda d: d.bits)
        x, y = as_dtype(b, x, wide), as_dtype(b, y, wide)
    made = b.contract(
        x, y, batch_a=batch[0], batch_b=batch[1], contract_a=summed[0], contract_b=summed[1]
    )
    return rounded(b, made, like)


@of_each("matmul")
def _matmul(b, op, dy):
    x, y = op.operands
    rank = x.type.rank
    lead, rows, columns = tuple(range(rank - 2)), rank - 2, rank - 1
    return (
        lambda: _product(b, dy, y, (lead, lead), ((columns,), (columns,)), x),
        lambda: _product(b, x, dy, (lead, lead), ((rows,), (rows,)), y),
    )


@of_each("contract")
def _contract(b, op: typed.Contract, dy):
    x, y = op.operands
    batch_a, batch_b = op.batch_a, op.batch_b
    summed_a, summed_b = op.contract_a, op.contract_b
    free_a, free_b = (
        [i for i in range(v.type.rank) if i not in gone]
        for v, gone in ((x, batch_a + summed_a), (y, batch_b + summed_b))
    )
    lead = tuple(range(len(batch_a)))
    first = tuple(range(len(lead), len(lead) + len(free_a)))
    last = tuple(range(len(lead) + len(free_a), dy.type.rank))

    def placed(made: Value, axes: list[int]) -> Value:
        """Transpose ``made`` so that its axis i becomes ``axes[i]``."""
        there = [axes.index(i) for i in range(len(axes))]
        return made if there == sorted(there) else b.transpose(made, permutation=there)

    def of_a() -> Value:
        made = _product(b, dy, y, (lead, batch_b), (last, tuple(free_b)), x)
        order = sorted(range(len(summed_b)), key=lambda i: summed_b[i])
        return placed(made, [*batch_a, *free_a, *(summed_a[i] for i in order)])

    def of_b() -> Value:
        made = _product(b, x, dy, (batch_a, lead), (tuple(free_a), first), y)
        order = sorted(range(len(summed_a)), key=lambda i: summed_a[i])
        return placed(made, [*batch_b, *(summed_b[i] for i in order), *free_b])

    return of_a, of_b


def _settings(op: typed.Convolution | typed.ConvWeightGradient) -> dict:
    return op.pick("strides", "low", "high", "dilations", "groups")


@of_each("conv")
def _conv(b, op: typed.Conv, dy):
    x, w = op.operands
    settings = _settings(op)

    def of_x() -> Value:
        """Return the gradient; the end that no window reaches becomes padding of the result."""
        reached = [
            (m - 1) * s + d * (k - 1) + 1 - low - high
            for m, s, d, k, low, high in zip(
                dy.type.shape[2:],
                op.strides,
                op.dilations,
                w.type.shape[2:],
                op.low,
                op.high,
                strict=True,
            )
        ]
        left = tuple(n - r for n, r in zip(x.type.shape[2:], reached, strict=True))
        wide, weights = _alike(b, dy, w)
        return rounded(b, b.conv_transpose(wide, weights, output_padding=left, **settings), x)

    def of_w() -> Value:
        image, wide = _alike(b, x, dy)
        made = b.conv_weight_gradient(image, wide, kernel=w.type.shape[2:], **settings)
        return rounded(b, made, w)

    return of_x, of_w


@of_each("conv_transpose")
def _conv_transpose(b, op: typed.ConvTranspose, dy):
    """Return the gradient of a transposed convolution.

    It is the input gradient of a convolution, so its own gradients are that convolution, and the
    weight gradient with image and result exchanged.
    """
    x, w = op.operands
    settings = _settings(op)
    # No window covers the elements added at the end.
    settings["high"] = tuple(h - e for h, e in zip(op.high, op.output_padding, strict=True))

    def of_x() -> Value:
        wide, weights = _alike(b, dy, w)
        return rounded(b, b.conv(wide, weights, **settings), x)

    def of_w() -> Value:
        wide, image = _alike(b, dy, x)
        made = b.conv_weight_gradient(wide, image, kernel=w.type.shape[2:], **settings)
        return rounded(b, made, w)

    return of_x, of_w


def _alike(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Return both values in the wider of their dtypes."""
    wide = max((x.type.dtype, y.type.dtype), key=lambda d: d.bits)
    return as_dtype(b, x, wide), as_dtype(b, y, wide)


@of_each("conv_weight_gradient")
def _conv_weight_gradient(b, op, dy):
    """Return the gradient; the op is linear in the image and in ``dy``, the weights' cotangent."""
    x, given = op.operands
    convolution = op.with_(kind="core.conv", operands=(x, dy), results=(given,))
    of_x, _ = _conv(b, convolution, given)

    def of_given() -> Value:
        image, weights = _alike(b, x, dy)
        return rounded(b, b.conv(image, weights, **_settings(op)), given)

    return of_x, of_given
