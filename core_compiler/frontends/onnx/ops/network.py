"""Layers of ONNX: products, convolutions, losses, normalisation."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from core_compiler.frontends.base import MAX_EXPANDED_COPIES, need_small
from core_compiler.frontends.onnx.statistics import current_statistic, set_next_statistic
from core_compiler.frontends.onnx.table import NotSupported, axis_of, onnx_op
from core_compiler.ir import dtype
from core_compiler.ops.builder import broadcast_shape

F32 = dtype("f32")


@onnx_op("MatMul")
def matmul(b, x, y):
    lead, tail = x.type.rank == 1, y.type.rank == 1
    if lead:
        x = b.reshape(x, shape=(1, *x.type.shape))
    if tail:
        y = b.reshape(y, shape=(*y.type.shape, 1))
    if y.type.rank == 2 and x.type.rank > 2:
        rows, whole = prod(x.type.shape[:-1]), (*x.type.shape[:-1], y.type.shape[-1])
        made = b.reshape(b.matmul(b.reshape(x, shape=(rows, x.type.shape[-1])), y), shape=whole)
    else:
        batch = broadcast_shape(x.type.shape[:-2], y.type.shape[:-2])
        made = b.matmul(
            b.expand(x, (*batch, *x.type.shape[-2:])), b.expand(y, (*batch, *y.type.shape[-2:]))
        )
    shape = list(made.type.shape)
    if lead:
        del shape[-2]
    if tail:
        del shape[-1]
    return b.reshape(made, shape=tuple(shape)) if lead or tail else made


@onnx_op("Gemm")
def gemm(b, x, y, c=None):
    x = b.transpose(x, permutation=(1, 0)) if b.attr("transA", 0) else x
    y = b.transpose(y, permutation=(1, 0)) if b.attr("transB", 0) else y
    alpha, beta = float(b.attr("alpha", 1.0)), float(b.attr("beta", 1.0))
    if not x.type.dtype.is_float and not (alpha.is_integer() and beta.is_integer()):
        raise NotSupported(f"integers, with alpha {alpha:g} and beta {beta:g}")
    product = b.matmul(x, y)
    if alpha != 1:
        product = b.mul(product, b.scalar_like(alpha, product))
    if c is None:
        return product
    if beta != 1:
        c = b.mul(c, b.scalar_like(beta, c))
    return b.add(product, b.expand(c, product.type.shape))


@onnx_op("com.microsoft::FusedMatMul")
def fused_matmul(b, x, y):
    if b.attr("transBatchA", 0) or b.attr("transBatchB", 0):
        raise NotSupported("transposed batch axes")

    def turned(v, name):
        order = (*range(v.type.rank - 2), v.type.rank - 1, v.type.rank - 2)
        return b.transpose(v, permutation=order) if b.attr(name, 0) and v.type.rank > 1 else v

    product = matmul(b, turned(x, "transA"), turned(y, "transB"))
    alpha = float(b.attr("alpha", 1.0))
    return product if alpha == 1 else b.mul(product, b.scalar_like(alpha, product))


@onnx_op("Einsum")
def einsum(b, *xs):
    """Reduce two operands at a time: take diagonals, sum letters used once, then contract."""
    inputs, _, output = b.attr("equation").replace(" ", "").partition("->")
    names = [_letters(part, x.type.rank) for part, x in zip(inputs.split(","), xs, strict=True)]
    if "->" not in b.attr("equation"):
        flat = [c for n in names for c in n]
        output = "".join(sorted({c for c in flat if c.isalpha() and flat.count(c) == 1}))
        output = f"...{output}"
    spread = max((n for n in names), key=lambda n: sum(c.isdigit() for c in n))
    wanted = _letters(output, spread=[c for c in spread if c.isdigit()])
    terms = [_diagonal(b, x, n) for x, n in zip(xs, names, strict=True)]
    x, letters = terms[0]
    for number, (y, other) in enumerate(terms[1:], 1):
        later = {c for _, n in terms[number + 1 :] for c in n} | set(wanted)
        x, letters = _contracted(b, x, letters, y, other, later)
    summed = tuple(i for i, c in enumerate(letters) if c not in wanted)
    if summed:
        x = b.reduce_sum(x, axes=summed)
        letters = [c for c in letters if c in wanted]
    return b.transpose(x, permutation=tuple(letters.index(c) for c in wanted))


def _letters(part: str, rank: int = 0, spread: list[str] | None = None) -> list[str]:
    """Return the names of the axes; ``...`` is ``spread``, else numbers counted from ``rank``."""
    head, dots, tail = part.partition("...")
    if not dots:
        return list(part)
    if spread is None:
        count = rank - len(head) - len(tail)
        spread = [str(i) for i in reversed(range(count))]
    return [*head, *spread, *tail]


def _diagonal(b, x, names: list[str]):
    """Reduce repeated letters of an operand to their diagonal."""
    for letter in dict.fromkeys(names):
        if names.count(letter) > 1:
            i = names.index(letter)
            j = names.index(letter, i + 1)
            rows, columns = (b.iota(shape=x.type.shape, dtype="i64", axis=a) for a in (i, j))
            x = b.select(b.eq(rows, columns), x, b.scalar_like(0, x))
            x = b.reduce_sum(x, axes=(j,))
            return _diagonal(b, x, names[:j] + names[j + 1 :])
    return x, list(names)


def _contracted(b, x, left, y, right, later):
    shared = [c for c in left if c in right]
    for letter in shared:
        i, j = left.index(letter), right.index(letter)
        if x.type.shape[i] != y.type.shape[j]:
            raise NotSupported("an equation that broadcasts an axis of size 1")
    batch = [c for c in shared if c in later]
    summed = [c for c in shared if c not in later]
    made = b.contract(
        x,
        y,
        batch_a=tuple(map(left.index, batch)),
        batch_b=tuple(map(right.index, batch)),
        contract_a=tuple(map(left.index, summed)),
        contract_b=tuple(map(right.index, summed)),
    )
    rest = [c for c in left if c not in shared] + [c for c in right if c not in shared]
    return made, batch + rest


def spatial_pads(b, x, window, strides, dilations) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis, also from ``auto_pad``."""
    count = len(window)
    auto = b.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = b.attr("pads") or [0] * (2 * count)
        return tuple(pads[:count]), tuple(pads[count:])
    if auto == "VALID":
        return (0,) * count, (0,) * count
    low, high = [], []
    for size, k, s, d in zip(x.type.shape[-count:], window, strides, dilations, strict=True):
        total = max(0, (math.ceil(size / s) - 1) * s + d * (k - 1) + 1 - size)
        small, large = total // 2, total - total // 2
        low.append(small if auto == "SAME_UPPER" else large)
        high.append(large if auto == "SAME_UPPER" else small)
    return tuple(low), tuple(high)


@onnx_op("Conv")
def conv(b, x, w, bias=None):
    count = w.type.rank - 2
    strides = tuple(b.attr("strides") or [1] * count)
    dilations = tuple(b.attr("dilations") or [1] * count)
    low, high = spatial_pads(b, x, w.type.shape[2:], strides, dilations)
    made = b.conv(
        x,
        w,
        strides=strides,
        low=low,
        high=high,
        dilations=dilations,
        groups=int(b.attr("group", 1)),
    )
    return b.bias(made, bias, 1)


@onnx_op("ConvTranspose")
def conv_transpose(b, x, w, bias=None):
    count = w.type.rank - 2
    strides = tuple(b.attr("strides") or [1] * count)
    dilations = tuple(b.attr("dilations") or [1] * count)
    extra = tuple(b.attr("output_padding") or [0] * count)
    kernel = w.type.shape[2:]
    wanted = b.attr("output_shape")
    auto = b.attr("auto_pad", "NOTSET")
    if wanted or auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = (
            wanted[-count:]
            if wanted
            else [d * s for d, s in zip(x.type.shape[2:], strides, strict=True)]
        )
        lows, highs = [], []
        for i in range(count):
            full = (
                strides[i] * (x.type.shape[2 + i] - 1)
                + extra[i]
                + (kernel[i] - 1) * dilations[i]
                + 1
            )
            total = full - sizes[i]
            small, large = total // 2, total - total // 2
            lows.append(small if auto == "SAME_UPPER" else large)
            highs.append(large if auto == "SAME_UPPER" else small)
        low, high = tuple(lows), tuple(highs)
    else:
        low, high = spatial_pads(b, x, kernel, strides, dilations)
    made = b.conv_transpose(
        x,
        w,
        strides=strides,
        low=tuple(low),
        high=tuple(high),
        dilations=dilations,
        output_padding=extra,
        groups=int(b.attr("group", 1)),
    )
    return b.bias(made, bias, 1)


@onnx_op("NegativeLogLikelihoodLoss")
def nll_loss(b, x, targets, weight=None):
    weights = () if weight is None else (weight,)
    return b.in_range(b.nll_loss(x, targets, *weights, **_loss_options(b)))


@onnx_op("SoftmaxCrossEntropyLoss")
def cross_entropy(b, scores, targets, weight=None):
    weights = () if weight is None else (weight,)
    made = b.in_range(b.cross_entropy(scores, targets, *weights, **_loss_options(b)))
    if len(b.node.output) > 1 and b.node.output[1]:
        return made, b.log_softmax(scores, axis=1)
    return made


def _loss_options(b) -> dict:
    ignored = b.attr("ignore_index")
    options = {"reduction": b.attr("reduction", "mean")}
    return options if ignored is None else {**options, "ignore_index": int(ignored)}


@onnx_op("BatchNormalization")
def batch_norm(b, x, scale, bias, mean, variance):
    """Normalise by the batch in training, regardless of ``training_mode``.

    Most models that users train were exported for inference.
    """
    training = b.importer.training or b.attr("training_mode", 0)
    if (
        not training
        and b.opset < 14
        and (len([n for n in b.node.output if n]) > 1 or (b.opset < 7 and not b.attr("is_test", 0)))
    ):
        raise NotSupported(
            "batch normalisation in training mode; export the model in evaluation mode"
        )
    if b.opset < 9 and not b.attr("spatial", 1):
        raise NotSupported("batch normalisation that is not spatial")
    if x.type.rank == 1:
        raise NotSupported("batch normalisation of rank 1")
    affine, epsilon = [b.to(v, x.type.dtype) for v in (scale, bias)], float(b.attr("epsilon", 1e-5))
    if not training:
        known = [b.to(v, x.type.dtype) for v in (mean, variance)]
        return b.batch_norm(x, *affine, *known, epsilon=epsilon)
    axes = tuple(i for i in range(x.type.rank) if i != 1)
    found = [b.mean(x, axes=axes), b.variance(x, axes=axes, plain=True)]
    moved = [_moved(b, *pair) for pair in zip((mean, variance), found, strict=True)]
    # Before version 14 the statistics of the batch are results too.
    return b.batch_norm(x, *affine, *found, epsilon=epsilon), *moved, *found


def _moved(b, statistic, new):
    """Update a running statistic with a batch; ``momentum`` is the weight of the old value."""
    keep, kind = float(b.attr("momentum", 0.9)), statistic.type.dtype
    old = b.to(current_statistic(b.importer, statistic), new.type.dtype)
    after = b.to(
        b.add(b.mul(old, b.scalar_like(keep, old)), b.mul(new, b.scalar_like(1 - keep, new))), kind
    )
    set_next_statistic(b.importer, statistic, after)
    return after


@onnx_op("LayerNormalization")
def layer_norm(b, x, scale, bias=None):
    axis = axis_of(b.attr("axis", -1), x.type.rank)
    shape = x.type.shape[axis:]
    scale = b.expand(scale, shape)
    affine = (scale,) if bias is None else (scale, b.expand(bias, shape))
    epsilon = float(b.attr("epsilon", 1e-5))
    made = b.layer_norm(x, *affine, axis=axis, epsilon=epsilon)
    if len(b.node.output) == 1 or not any(b.node.output[1:]):
        return made
    axes = tuple(range(axis, x.type.rank))
    kept = (*x.type.shape[:axis], *(1,) * len(axes))
    x = b.to(x, F32) if x.type.dtype.bits < 32 else x  # ``stash_type``
    spread = b.variance(x, axes=axes, plain=True)
    inverse = b.div(b.scalar_like(1, spread), b.sqrt(b.add(spread, b.scalar_like(epsilon, spread))))
    return made, b.reshape(b.mean(x, axes=axes), shape=kept), b.reshape(inverse, shape=kept)


@onnx_op("com.microsoft::SkipLayerNormalization")
def skip_layer_norm(b, x, skip, scale, shift=None, bias=None):
    total = _skipped(b, x, skip, bias)
    affine = (scale,) if shift is None else (scale, shift)
    made = b.layer_norm(
        total, *affine, axis=x.type.rank - 1, epsilon=float(b.attr("epsilon", 1e-12))
    )
    return made, None, None, total


@onnx_op("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_rms_norm(b, x, skip, scale, bias=None):
    total = _skipped(b, x, skip, bias)
    made = b.rms_norm(total, scale, axis=x.type.rank - 1, epsilon=float(b.attr("epsilon", 1e-12)))
    return made, None, None, total


def _skipped(b, x, skip, bias):
    total = b.add(x, b.expand(skip, x.type.shape))
    return total if bias is None else b.add(total, b.expand(bias, x.type.shape))


@onnx_op(
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "com.microsoft::SimplifiedLayerNormalization",
)
def rms_norm(b, x, scale):
    axis = axis_of(b.attr("axis", -1), x.type.rank)
    return b.rms_norm(
        x, b.expand(scale, x.type.shape[axis:]), axis=axis, epsilon=float(b.attr("epsilon", 1e-5))
    )


@onnx_op("GroupNormalization")
def group_norm(b, x, scale, bias):
    groups = int(b.attr("num_groups"))
    if scale.type.shape[0] != x.type.shape[1]:
        each = x.type.shape[1] // groups
        scale, bias = (
            b.reshape(b.broadcast(v, shape=(groups, each), dims=(0,)), shape=(x.type.shape[1],))
            for v in (scale, bias)
        )
    return b.group_norm(x, scale, bias, groups=groups, epsilon=float(b.attr("epsilon", 1e-5)))


@onnx_op("InstanceNormalization")
def instance_norm(b, x, scale, bias):
    return b.instance_norm(x, scale, bias, epsilon=float(b.attr("epsilon", 1e-5)))


@onnx_op("LpNormalization")
def lp_normalization(b, x):
    axis = axis_of(b.attr("axis", -1), x.type.rank)
    kept = tuple(i for i in range(x.type.rank) if i != axis)
    if b.attr("p", 2) == 1:
        total = b.reduce_sum(b.abs(x), axes=(axis,))
    else:
        total = b.sqrt(b.reduce_sum(b.mul(x, x), axes=(axis,)))
    spread = b.broadcast(total, shape=x.type.shape, dims=kept)
    zero = b.scalar_like(0, x)
    return b.select(b.eq(spread, zero), zero, b.div(x, spread))


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(b, x):
    axes = tuple(sorted(axis_of(a, x.type.rank) for a in b.attr("axes", [0, 2, 3])))
    kept = tuple(i for i in range(x.type.rank) if i not in axes)

    def spread(v):
        return b.broadcast(v, shape=x.type.shape, dims=kept)

    deviation = spread(b.standard_deviation(x, axes=axes))
    return b.div(b.centre(x, axes=axes), b.add(deviation, b.scalar_like(1e-9, x)))


@onnx_op("LRN")
def lrn(b, x):
    size = int(b.attr("size"))
    need_small(size, "neighbours of a channel", MAX_EXPANDED_COPIES)
    alpha, beta, bias = (
        float(b.attr(n, d)) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    rank, channels = x.type.rank, x.type.shape[1]
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    square = b.mul(x, x)
    zero = b.constant(np.zeros((), x.type.dtype.numpy))

    def around(amount):
        return tuple(amount if i == 1 else 0 for i in range(rank))

    wide = b.pad(square, zero, low=around(low), high=around(high), interior=(0,) * rank)
    total = b.cut(wide, 1, 0, channels)
    for shift in range(1, size):
        total = b.add(total, b.cut(wide, 1, shift, shift + channels))
    scaled = b.add(b.scalar_like(bias, x), b.mul(total, b.scalar_like(alpha / size, x)))
    return b.div(x, b.pow(scaled, b.scalar_like(beta, x)))
