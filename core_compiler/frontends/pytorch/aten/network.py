"""Layers of ATen: convolutions, normalisation, losses."""

from __future__ import annotations

from math import prod

from core_compiler.frontends.pytorch.aten.table import NotSupported, aten, axis_of, per_axis, wide
from core_compiler.frontends.pytorch.tensors import element_of


def _conv(b, x, w, bias, stride, padding, dilation, groups):
    spatial = w.type.rank - 2
    lifted = x.type.rank == spatial + 1
    if lifted:
        x = b.reshape(x, shape=(1, *x.type.shape))
    strides, dilations = per_axis(stride, spatial), per_axis(dilation, spatial)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilations, w.type.shape[2:], strict=True)]
        low, high = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    else:
        low = high = (0,) * spatial if padding == "valid" else per_axis(padding, spatial)
    made = b.conv(x, w, strides=strides, low=low, high=high, dilations=dilations, groups=groups)
    made = b.bias(b.to(made, b.dtype), bias, 1)  # products of narrow integers are computed wide
    return b.reshape(made, shape=made.type.shape[1:]) if lifted else made


@aten("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def conv(b, x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return _conv(b, x, w, bias, stride, padding, dilation, groups)


@aten("convolution", "_convolution")
def convolution(
    b, x, w, bias, stride, padding, dilation, transposed, output_padding, groups, *rest
):
    if transposed:
        return _conv_transpose(b, x, w, bias, stride, padding, output_padding, groups, dilation)
    return _conv(b, x, w, bias, stride, padding, dilation, groups)


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(b, x, w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return _conv_transpose(b, x, w, bias, stride, padding, output_padding, groups, dilation)


def _conv_transpose(b, x, w, bias, stride, padding, output_padding, groups, dilation):
    spatial = w.type.rank - 2
    lifted = x.type.rank == spatial + 1
    if lifted:
        x = b.reshape(x, shape=(1, *x.type.shape))
    pads = per_axis(padding, spatial)
    made = b.conv_transpose(
        x,
        w,
        strides=per_axis(stride, spatial),
        low=pads,
        high=pads,
        groups=groups,
        dilations=per_axis(dilation, spatial),
        output_padding=per_axis(output_padding, spatial),
    )
    made = b.bias(b.to(made, b.dtype), bias, 1)
    return b.reshape(made, shape=made.type.shape[1:]) if lifted else made


def _or_constant(b, value, number, like):
    """Return a per-channel vector, or ``number`` for each channel if the model has none."""
    if value is not None:
        return value
    return b.expand(b.constant(number, like.type.dtype), (like.type.shape[1],))


@aten("batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "native_batch_norm")
def batch_norm(b, x, weight, bias, mean, variance, *rest):
    name = str(b.node.target).split(".")[1]
    training = rest[0] if name in ("batch_norm", "native_batch_norm") else False
    epsilon = rest[2] if name in ("batch_norm", "native_batch_norm") else rest[1]
    if training and (mean is not None or name != "batch_norm"):
        raise NotSupported("batch normalisation that updates the statistics passed to it")
    if not x.type.elements and name == "batch_norm":
        return x  # torch even accepts it without an axis of channels
    if mean is None:  # none are stored: use those of the batch
        axes = tuple(i for i in range(x.type.rank) if i != 1)
        mean, variance = b.mean(x, axes=axes), b.variance(x, axes=axes, plain=True)
    b.only_first("a saved statistic")
    made = b.batch_norm(
        x,
        _or_constant(b, weight, 1, x),
        _or_constant(b, bias, 0, x),
        mean,
        variance,
        epsilon=float(epsilon),
    )
    return made if name == "batch_norm" else (made, None, None)


@aten("_native_batch_norm_legit_functional")
def batch_norm_of_batch(b, x, weight, bias, mean, variance, training, momentum, epsilon):
    """Normalise by the batch's own statistics; results 3 and 4 are the next running ones."""
    if not training or b.uses(1) or b.uses(2):
        raise NotSupported("the saved statistics of a batch normalisation")
    axes = tuple(i for i in range(x.type.rank) if i != 1)
    count = prod(x.type.shape[a] for a in axes)
    affine = [_or_constant(b, weight, 1, x), _or_constant(b, bias, 0, x)]
    # Torch's statistics are f32 for narrower inputs, and so are all values derived from them.
    narrow, kind = x.type.dtype, element_of(b.meta[3].dtype)
    x, *affine, mean, variance = (b.to(v, kind) for v in (x, *affine, mean, variance))
    own, spread = b.mean(x, axes=axes), b.variance(x, axes=axes, plain=True)
    made = b.batch_norm(x, *affine, own, spread, epsilon=float(epsilon))
    unbiased = b.mul(spread, b.scalar_like(count / max(count - 1, 1), spread))

    def moved(old, new):
        kept = b.mul(old, b.scalar_like(1 - momentum, old))
        return b.add(b.mul(new, b.scalar_like(momentum, old)), kept)

    return b.to(made, narrow), None, None, moved(mean, own), moved(variance, unbiased)


@aten("layer_norm", "native_layer_norm")
def layer_norm(b, x, shape, weight=None, bias=None, epsilon=1e-5, *rest):
    axis = x.type.rank - len(shape)
    if weight is None and bias is not None:
        weight = b.expand(b.constant(1, x.type.dtype), shape)
    affine = [v for v in (weight, bias) if v is not None]
    b.only_first("the mean or deviation")
    made = b.layer_norm(x, *affine, axis=axis, epsilon=float(epsilon))
    return (made, None, None) if "native" in str(b.node.target) else made


@aten("rms_norm", "_fused_rms_norm")
def rms_norm(b, x, shape, weight=None, epsilon=None):
    if epsilon is None:
        import torch

        meta = b.meta[0] if isinstance(b.meta, list | tuple) else b.meta
        epsilon = torch.finfo(meta.dtype).eps
    b.only_first("the inverse deviation")
    affine = () if weight is None else (weight,)
    made = b.rms_norm(x, *affine, axis=x.type.rank - len(shape), epsilon=float(epsilon))
    return (made, None) if "_fused" in str(b.node.target) else made


@aten("group_norm")
def group_norm(b, x, groups, weight=None, bias=None, epsilon=1e-5, *rest):
    affine = _scale_and_bias(b, x, weight, bias)
    return b.group_norm(x, *affine, groups=groups, epsilon=float(epsilon))


def _scale_and_bias(b, x, weight, bias) -> tuple:
    """Return both or neither; a missing one becomes the identity."""
    if weight is None and bias is None:
        return ()
    return _or_constant(b, weight, 1, x), _or_constant(b, bias, 0, x)


@aten("native_group_norm")
def native_group_norm(b, x, weight, bias, batch, channels, rest, groups, epsilon):
    b.only_first("the mean or deviation")
    affine = _scale_and_bias(b, x, weight, bias)
    return b.group_norm(x, *affine, groups=groups, epsilon=float(epsilon)), None, None


@aten("instance_norm")
def instance_norm(b, x, weight, bias, mean, variance, use_input_stats, momentum, epsilon, *rest):
    if not use_input_stats:
        raise NotSupported("instance norm with running statistics")
    affine = _scale_and_bias(b, x, weight, bias)
    return b.instance_norm(x, *affine, epsilon=float(epsilon))


@aten("glu")
def glu(b, x, axis=-1):
    axis = axis_of(axis, x.type.rank)
    half = x.type.shape[axis] // 2
    rank, shape = x.type.rank, x.type.shape

    def part(start):
        return b.slice(
            x,
            starts=tuple(start if i == axis else 0 for i in range(rank)),
            limits=tuple(start + half if i == axis else d for i, d in enumerate(shape)),
            strides=(1,) * rank,
        )

    return b.to(b.mul(wide(b, part(0)), b.sigmoid(wide(b, part(half)))), x.type.dtype)


@aten("pixel_shuffle")
def pixel_shuffle(b, x, factor):
    *batch, channels, height, width = x.type.shape
    n, c = len(batch), channels // factor**2
    split = b.reshape(x, shape=(*batch, c, factor, factor, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return b.reshape(b.transpose(split, permutation=order), shape=b.shape)
