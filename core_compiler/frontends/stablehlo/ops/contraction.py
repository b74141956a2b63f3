"""Products: dot_general, and convolution in any layout."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.frontends.stablehlo.table import Context, NotSupported, op
from core_compiler.ir import Value


@op("dot_general")
def dot_general(b, x, y):
    from jaxlib.mlir.dialects import stablehlo

    (wanted,) = b.results
    dims = stablehlo.DotDimensionNumbers(b.operation.attributes["dot_dimension_numbers"])
    return contracted(
        b,
        x,
        y,
        wanted.dtype,
        tuple(dims.lhs_batching_dimensions),
        tuple(dims.rhs_batching_dimensions),
        tuple(dims.lhs_contracting_dimensions),
        tuple(dims.rhs_contracting_dimensions),
    )


@op("dot")
def dot(b, x, y):
    (wanted,) = b.results
    return contracted(b, x, y, wanted.dtype, (), (), (x.type.rank - 1,), (0,))


def contracted(b: Context, x: Value, y: Value, wanted, batch_a, batch_b, sum_a, sum_b) -> Value:
    """Emit ``core.contract`` with a result of dtype ``wanted``."""
    kinds = x.type.dtype, y.type.dtype
    common = wanted if wanted.bits >= max(kind.bits for kind in kinds) else kinds[0]
    if kinds[0] is not kinds[1]:
        x, y = b.to(x, common), b.to(y, common)
    if x.type.dtype.kind == "bool":
        raise NotSupported("a product of booleans")
    narrow = x.type.dtype
    # Floats of 16 bits and fewer are summed in f32 without a cast; others are widened first.
    wide = narrow.is_float and narrow.bits < wanted.bits == 32
    if not wide and (wanted.bits > narrow.bits or wanted.is_float > narrow.is_float):
        x, y = b.to(x, wanted), b.to(y, wanted)
    made = b.contract(
        x,
        y,
        batch_a=batch_a,
        batch_b=batch_b,
        contract_a=sum_a,
        contract_b=sum_b,
        **({"accumulate": wanted} if wide else {}),
    )
    return b.to(made, wanted)


# -- convolution -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The batch, channel and spatial axes of the input, the weights and the result."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    out: tuple[int, ...]


def _layout(b: Context) -> Layout:
    from jaxlib.mlir.dialects import stablehlo

    d = stablehlo.ConvDimensionNumbers(b.operation.attributes["dimension_numbers"])
    return Layout(
        (d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions),
        (
            d.kernel_output_feature_dimension,
            d.kernel_input_feature_dimension,
            *d.kernel_spatial_dimensions,
        ),
        (d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions),
    )


@op("convolution")
def convolution(b, x, w):
    (wanted,) = b.results
    if 0 in (*wanted.shape, *x.type.shape, *w.type.shape):
        return b.broadcast(b.constant(0, wanted.dtype), shape=wanted.shape, dims=())
    layout = _layout(b)
    spatial = x.type.rank - 2
    x, w = b.transpose(x, permutation=layout.x), b.transpose(w, permutation=layout.w)
    common = wanted.dtype if wanted.dtype.bits > x.type.dtype.bits else x.type.dtype
    x, w = b.to(x, common), b.to(w, common)
    padding = b.attr("padding")
    pads = [(0, 0)] * spatial if padding is None else [tuple(map(int, row)) for row in padding]
    x = _dilate(b, x, b.integers("lhs_dilation", spatial, 1))
    flipped = tuple(2 + i for i, v in enumerate(b.attr("window_reversal") or ()) if v)
    w = b.reverse(w, axes=flipped) if flipped else w
    groups = int(b.attr("feature_group_count", 1))
    batches = int(b.attr("batch_group_count", 1))
    if batches > 1:
        x, groups = _batches_as_channels(b, x, batches), batches
    made = _cross_correlation(
        b,
        x,
        w,
        pads,
        b.integers("window_strides", spatial, 1),
        b.integers("rhs_dilation", spatial, 1),
        groups,
    )
    back = [0] * (spatial + 2)
    for place, axis in enumerate(layout.out):
        back[axis] = place
    return b.to(b.transpose(made, permutation=tuple(back)), wanted.dtype)


def _dilate(b: Context, x: Value, dilation: tuple[int, ...]) -> Value:
    """Insert zeros between the elements of the spatial axes."""
    if all(d == 1 for d in dilation):
        return x
    rank = x.type.rank
    zero = b.constant(0, x.type.dtype)
    return b.pad(
        x, zero, low=(0,) * rank, high=(0,) * rank, interior=(0, 0, *(d - 1 for d in dilation))
    )


def _batches_as_channels(b: Context, x: Value, count: int) -> Value:
    """Reshape [count * N, C, ..] to [N, count * C, ..]: each batch group has its own weights."""
    batch, channels, *rest = x.type.shape
    split = b.reshape(x, shape=(count, batch // count, channels, *rest))
    moved = b.transpose(split, permutation=(1, 0, 2, *range(3, 3 + len(rest))))
    return b.reshape(moved, shape=(batch // count, count * channels, *rest))


def _cross_correlation(b: Context, x, w, pads, strides, dilations, groups: int) -> Value:
    """Emit ``core.conv`` over up to three spatial axes; without any, over one of size 1."""
    spatial = x.type.rank - 2
    if spatial > 3:
        raise NotSupported(f"a convolution over {spatial} spatial axes")
    shape = None
    if spatial == 0:
        x, w = (b.reshape(v, shape=(*v.type.shape, 1)) for v in (x, w))
        pads, strides, dilations = [(0, 0)], (1,), (1,)
    low, high = zip(*pads, strict=True)
    made = b.conv(x, w, strides=strides, low=low, high=high, dilations=dilations, groups=groups)
    if spatial == 0:
        shape = made.type.shape[:2]
        return b.reshape(made, shape=shape)
    return made
