"""Constants, shapes and data movement."""

from __future__ import annotations

from core_compiler.frontends.base import MAX_CREATED_ELEMENTS
from core_compiler.frontends.stablehlo.reading import array_of
from core_compiler.frontends.stablehlo.table import NotSupported, op


@op("constant", "chlo.constant")
def constant(b):
    (wanted,) = b.results
    held = array_of(b.operation.attributes["value"])
    if held.size > MAX_CREATED_ELEMENTS and not any(
        held.strides
    ):  # a splat with a large declared size
        return b.expand(b.constant(held.reshape(-1)[0]), wanted.shape)
    return b.constant(held)


@op("chlo.constant_like")
def constant_like(b, x):
    return b.scalar_like(b.attr("value"), x)


@op("iota")
def iota(b):
    (wanted,) = b.results
    return b.iota(shape=wanted.shape, dtype=wanted.dtype, axis=int(b.attr("iota_dimension")))


@op("broadcast_in_dim")
def broadcast_in_dim(b, x):
    (wanted,) = b.results
    dims = b.integers("broadcast_dimensions", x.type.rank, 0)
    if dims == tuple(sorted(dims)):
        return b.broadcast(x, shape=wanted.shape, dims=dims)
    order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    return b.broadcast(
        b.transpose(x, permutation=order), shape=wanted.shape, dims=tuple(sorted(dims))
    )


@op("broadcast")
def broadcast(b, x):
    (wanted,) = b.results
    lead = wanted.rank - x.type.rank
    return b.broadcast(x, shape=wanted.shape, dims=tuple(range(lead, wanted.rank)))


@op("reshape", "dynamic_reshape")
def reshape(b, x, *_sizes):
    (wanted,) = b.results
    return b.reshape(x, shape=wanted.shape)


@op("transpose")
def transpose(b, x):
    return b.transpose(x, permutation=b.integers("permutation", x.type.rank, 0))


@op("slice")
def slice_(b, x):
    rank = x.type.rank
    return b.slice(
        x,
        starts=b.integers("start_indices", rank, 0),
        limits=b.integers("limit_indices", rank, 0),
        strides=b.integers("strides", rank, 1),
    )


@op("pad")
def pad(b, x, value):
    rank = x.type.rank
    return b.pad(
        x,
        value,
        low=b.integers("edge_padding_low", rank, 0),
        high=b.integers("edge_padding_high", rank, 0),
        interior=b.integers("interior_padding", rank, 0),
    )


@op("concatenate")
def concatenate(b, *xs):
    return b.concat(*xs, axis=int(b.attr("dimension")))


@op("reverse")
def reverse(b, x):
    axes = tuple(sorted(map(int, b.attr("dimensions"))))
    return b.reverse(x, axes=axes) if axes else x


@op("dynamic_slice")
def dynamic_slice(b, x, *starts):
    return b.dynamic_slice(x, *starts, sizes=b.integers("slice_sizes", x.type.rank, 1))


@op("dynamic_update_slice")
def dynamic_update_slice(b, x, update, *starts):
    return b.dynamic_update_slice(x, update, *starts)


@op("get_dimension_size")
def get_dimension_size(b, x):
    (wanted,) = b.results
    return b.constant(x.type.shape[int(b.attr("dimension"))], wanted.dtype)


@op("set_dimension_size")
def set_dimension_size(b, x, size):
    """Return the operand if the size equals a bound that is known here."""
    known = b.constant_of(size)
    if known is None or int(known) != x.type.shape[int(b.attr("dimension"))]:
        raise NotSupported("a size that depends on data")
    return x


@op("optimization_barrier", "mhlo.copy")  # TensorFlow's bridge leaves such copies
def optimization_barrier(b, *xs):
    return xs
