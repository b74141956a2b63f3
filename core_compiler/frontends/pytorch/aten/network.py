"""Layers of ATen: convolutions, pooling, normalisation, losses."""

from __future__ import annotations

import math

from core_compiler.frontends.pytorch.aten.table import NotSupported, aten, axis_of, per_axis


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
    made = b.bias(made, bias, 1)
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
        x, w, strides=per_axis(stride, spatial), low=pads, high=pads, groups=groups,
        dilations=per_axis(dilation, spatial), output_padding=per_axis(output_padding, spatial),
    )  # fmt: skip
    made = b.bias(made, bias, 1)
    return b.reshape(made, shape=made.type.shape[1:]) if lifted else made


def _overhang(size, window, stride, pad, dilation, ceil_mode) -> int:
    """Extra padding at the end so that floor division yields torch's output size.

    With ``ceil_mode`` a last window may overhang, if it starts inside the image or its left
    padding.
    """
    reach = dilation * (window - 1) + 1
    span = size + 2 * pad - reach
    if not ceil_mode:
        return 0
    count = math.ceil(span / stride) + 1
    if (count - 1) * stride >= size + pad:
        count -= 1
    return max(0, (count - 1) * stride - span)


def _pool_shape(x, window, stride, padding, dilation, ceil_mode):
    spatial = len(window) if not isinstance(window, int) else x.type.rank - 2
    window = per_axis(window, spatial)
    strides = per_axis(stride, spatial) if stride not in (None, [], ()) else window
    pads, dilations = per_axis(padding, spatial), per_axis(dilation, spatial)
    extra = tuple(
        _overhang(
            x.type.shape[-spatial + i], window[i], strides[i], pads[i], dilations[i], ceil_mode
        )
        for i in range(spatial)
    )
    high = tuple(p + e for p, e in zip(pads, extra, strict=True))
    return {"window": window, "strides": strides, "low": pads, "high": high,
            "dilations": dilations}, extra  # fmt: skip


def _batched(b, x, spatial):
    """``x`` with a batch axis (torch allows images without one), and how to drop it again."""
    if x.type.rank == spatial + 1:
        return b.reshape(x, shape=(1, *x.type.shape)), lambda y: b.reshape(
            y, shape=y.type.shape[1:]
        )
    return x, lambda y: y


@aten("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(b, x, window, stride=(), padding=0, dilation=1, ceil_mode=False):
    spatial = (
        len(window) if not isinstance(window, int) else int(str(b.node.target).split("pool")[1][0])
    )
    x, drop = _batched(b, x, spatial)
    attributes, _ = _pool_shape(x, per_axis(window, spatial), stride, padding, dilation, ceil_mode)
    return drop(b.max_pool(x, **attributes))


@aten("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(b, x, window, stride=(), padding=0, dilation=1, ceil_mode=False):
    """The values; the indices serve only the backward pass and must have no user."""
    b.only_first("the positions of max pooling")
    spatial = 2 if "2d" in str(b.node.target) else 3
    x, drop = _batched(b, x, spatial)
    attributes, _ = _pool_shape(x, per_axis(window, spatial), stride, padding, dilation, ceil_mode)
    return (drop(b.max_pool(x, **attributes)),)


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    b, x, window, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None
):
    spatial = int(str(b.node.target).split("pool")[1][0])
    if divisor is not None:
        raise NotSupported("divisor_override")
    x, drop = _batched(b, x, spatial)
    attributes, extra = _pool_shape(x, per_axis(window, spatial), stride, padding, 1, ceil_mode)
    if any(extra) and count_include_pad and any(attributes["low"]):
        raise NotSupported("ceil_mode with counted padding")
    count = count_include_pad and any(attributes["low"])
    return drop(b.avg_pool(x, **attributes, count_padding=bool(count)))


@aten(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool3d",
)
def adaptive_avg_pool(b, x, size):
    spatial = int(str(b.node.target).split("pool")[1][0])
    size = per_axis(size, spatial)
    shape = x.type.shape
    axes = tuple(range(x.type.rank - spatial, x.type.rank))
    if all(s == 1 for s in size):
        return b.reshape(b.mean(x, axes=axes), shape=b.shape)
    window = _even_windows(shape, size, spatial)
    x, drop = _batched(b, x, spatial)
    zero, one = (0,) * spatial, (1,) * spatial
    return drop(b.avg_pool(x, window=window, strides=window, low=zero, high=zero, dilations=one))


@aten("adaptive_max_pool2d", "adaptive_max_pool1d", "adaptive_max_pool3d")
def adaptive_max_pool(b, x, size):
    spatial = int(str(b.node.target).split("pool")[1][0])
    b.only_first("the positions of max pooling")
    window = _even_windows(x.type.shape, per_axis(size, spatial), spatial)
    x, drop = _batched(b, x, spatial)
    zero, one = (0,) * spatial, (1,) * spatial
    return (drop(b.max_pool(x, window=window, strides=window, low=zero, high=zero, dilations=one)),)


def _even_windows(shape, size, spatial):
    if any(d % s for d, s in zip(shape[-spatial:], size, strict=True)):
        raise NotSupported(
            f"adaptive pooling of {shape[-spatial:]} to {size}: windows of unequal size"
        )
    return tuple(d // s for d, s in zip(shape[-spatial:], size, strict=True))


def _affine_or(b, value, number, like):
    """A per-channel vector, or ``number`` for each channel where the model has none."""
    if value is not None:
        return value
    return b.expand(b.constant(number, like.type.dtype), (like.type.shape[1],))


@aten("batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "native_batch_norm")
def batch_norm(b, x, weight, bias, mean, variance, *rest):
    name = str(b.node.target).split(".")[1]
    training = rest[0] if name in ("batch_norm", "native_batch_norm") else False
    epsilon = rest[2] if name in ("batch_norm", "native_batch_norm") else rest[1]
    if training:
        raise NotSupported("batch normalisation in training mode; call model.eval()")
    b.only_first("the saved statistics")
    made = b.batch_norm(x, _affine_or(b, weight, 1, x), _affine_or(b, bias, 0, x), mean, variance,
                        epsilon=float(epsilon))  # fmt: skip
    return made if name == "batch_norm" else (made, None, None)


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
    if (weight is None) != (bias is None):
        raise NotSupported("group norm with a weight or a bias alone")
    affine = () if weight is None else (weight, bias)
    return b.group_norm(x, *affine, groups=groups, epsilon=float(epsilon))


@aten("instance_norm")
def instance_norm(b, x, weight, bias, mean, variance, use_input_stats, momentum, epsilon, *rest):
    if not use_input_stats:
        raise NotSupported("instance norm with running statistics")
    affine = () if weight is None else (weight, bias)
    return b.instance_norm(x, *affine, epsilon=float(epsilon))


@aten("glu")
def glu(b, x, axis=-1):
    axis = axis_of(axis, x.type.rank)
    half = x.type.shape[axis] // 2
    rank, shape = x.type.rank, x.type.shape

    def part(start):
        return b.slice(
            x, starts=tuple(start if i == axis else 0 for i in range(rank)),
            limits=tuple(start + half if i == axis else d for i, d in enumerate(shape)),
            strides=(1,) * rank,
        )  # fmt: skip

    return b.mul(part(0), b.sigmoid(part(half)))


@aten("pixel_shuffle")
def pixel_shuffle(b, x, factor):
    *batch, channels, height, width = x.type.shape
    n, c = len(batch), channels // factor**2
    split = b.reshape(x, shape=(*batch, c, factor, factor, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return b.reshape(b.transpose(split, permutation=order), shape=b.shape)
