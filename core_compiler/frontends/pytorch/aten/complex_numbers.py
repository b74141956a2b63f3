"""Complex numbers as pairs of real tensors, each of which a program may use.

They only occur between a program's inputs and its results (rotary embeddings, Fourier transforms),
which are real.  Ops that move, add or scale treat both parts alike; products and functions are
defined here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.frontends import spectra
from core_compiler.frontends.pytorch.aten.table import (
    TABLE,
    Context,
    NotSupported,
    axis_of,
    leaves,
)
from core_compiler.ir import DType, Value, dtype


@dataclass(frozen=True)
class Complex:
    """A complex tensor: two values of the same type."""

    real: Value
    imag: Value


#: ``packet`` or ``packet.overload`` -> handler(context, *arguments) for a complex argument.
COMPLEX: dict[str, Callable] = {}

#: Ops that treat the real and the imaginary part alike.
_PARTWISE = (
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "expand", "permute", "transpose",
    "t", "slice", "select", "index", "index_select", "gather", "cat", "stack", "clone",
    "contiguous", "flip", "roll", "split", "split_with_sizes", "chunk", "unbind", "narrow",
    "repeat", "tile", "flatten", "unflatten", "alias", "detach", "constant_pad_nd", "movedim",
    "swapaxes", "sum", "mean", "neg", "where", "tril", "triu", "diagonal", "cumsum", "numpy_T",
    "mT", "copy", "lift_fresh_copy",
)  # fmt: skip
#: The arguments that hold elements, if not just the first; others are positions and conditions.
_ELEMENTS = {"where": (1, 2), "constant_pad_nd": (0, 2), "copy": (0, 1)}
#: The maximum number of elements in the matrix of a transform.
_LARGEST = 1 << 24
_F64 = dtype("f64")


def lookup_complex(target: str, arguments: Any, meta: Any) -> Callable | None:
    """Return the translation of an op (``aten.mul.Tensor``) on complex numbers; None for others.

    This includes ops with complex results (``meta``: torch's description of the result).
    """
    first = meta[0] if isinstance(meta, list | tuple) and meta else meta
    makes = hasattr(first, "dtype") and first.dtype.is_complex
    if not makes and not any(isinstance(x, Complex) for x in leaves(arguments)):
        return None
    packet, _, overload = target.removeprefix("aten.").partition(".")
    packet = packet if packet.startswith("_") else packet.rstrip("_")
    names = f"{packet}.{overload}", packet
    found = next((COMPLEX[name] for name in names if name in COMPLEX), None)
    if found is None and packet in _PARTWISE:
        found = next((_both(TABLE[name], packet) for name in names if name in TABLE), None)
    if found is None:
        raise NotSupported("not implemented for complex numbers")
    return found


def _complex(*names: str):
    def enter(handler):
        COMPLEX.update(dict.fromkeys(names, handler))
        return handler

    return enter


# -- ops that treat both parts alike ---------------------------------------------------------------


def _part(b: Context, held: Any, imaginary: bool) -> Any:
    """Return the real (or imaginary) part of all complex values in ``held``.

    The imaginary part of real values and of numbers is 0.  Parts have the dtype of the result.
    """
    if isinstance(held, list | tuple):
        return type(held)(_part(b, x, imaginary) for x in held)
    if isinstance(held, Complex):
        return held.imag if imaginary else held.real
    if isinstance(held, Value):
        zero = b.constant(np.zeros((), b.dtype.numpy))
        return b.expand(zero, held.type.shape) if imaginary else b.to(held, b.dtype)
    whole = complex(held)
    return whole.imag if imaginary else whole.real


def _both(real_handler: Callable, packet: str):
    elements = _ELEMENTS.get(packet, (0,))

    def handler(b: Context, *arguments: Any, **keywords: Any):
        def given(imaginary: bool):
            placed = enumerate(arguments)
            return [_part(b, x, imaginary) if i in elements else x for i, x in placed], {
                name: _part(b, x, imaginary) if name in ("value", "other") else x
                for name, x in keywords.items()
            }

        (real_arguments, real_keywords), (imag_arguments, imag_keywords) = given(False), given(True)
        real, imag = (
            real_handler(b, *real_arguments, **real_keywords),
            real_handler(b, *imag_arguments, **imag_keywords),
        )
        if isinstance(real, tuple | list):
            return tuple(map(Complex, real, imag))
        return Complex(real, imag)

    return handler


@_complex("to", "_to_copy")
def _to(b: Context, x: Value | Complex, *_: Any, **__: Any):
    if not b.meta.dtype.is_complex:
        raise NotSupported("it drops the imaginary part; use .real or .imag")
    return _whole(b, x, b.dtype)


# -- conversions -----------------------------------------------------------------------------------


@_complex("polar")
def _polar(b: Context, length: Value, angle: Value):
    real = b.op("core.mul", b.pair(length, b.cos(angle), b.dtype))
    return Complex(real, b.op("core.mul", b.pair(length, b.sin(angle), b.dtype)))


@_complex("complex")
def _of_parts(b: Context, real: Value, imag: Value):
    return Complex(*b.pair(real, imag, b.dtype))


@_complex("view_as_complex")
def _view_as_complex(b: Context, x: Value):
    return _from_pairs(b, x)


def _from_pairs(b: Context, x: Value) -> Complex:
    """Return a complex value from parts along a last axis of two."""
    *shape, _ = x.type.shape
    start, ones = (0,) * len(shape), (1,) * (len(shape) + 1)
    parts = (
        b.slice(x, starts=(*start, part), limits=(*shape, part + 1), strides=ones)
        for part in (0, 1)
    )
    return Complex(*(b.reshape(part, shape=tuple(shape)) for part in parts))


@_complex("view_as_real")
def _view_as_real(b: Context, x: Complex):
    return _pairs(b, x)


def _pairs(b: Context, x: Complex) -> Value:
    """Stack the parts along a last axis of two."""
    shape = (*x.real.type.shape, 1)
    parts = [b.reshape(part, shape=shape) for part in (x.real, x.imag)]
    return b.concat(*parts, axis=len(shape) - 1)


@_complex("real")
def _real(b: Context, x: Complex):
    return x.real


@_complex("imag")
def _imag(b: Context, x: Complex):
    return x.imag


@_complex("resolve_conj", "resolve_neg")
def _same(b: Context, x: Complex):
    return x


@_complex("conj", "_conj", "conj_physical", "_conj_physical")
def _conj(b: Context, x: Complex):
    return Complex(x.real, b.neg(x.imag))


@_complex("abs", "absolute")
def _abs(b: Context, x: Complex):
    """Compute the longer part times sqrt(1 + (shorter / longer)^2), as squares could overflow."""
    first, second = b.abs(x.real), b.abs(x.imag)
    long, short = b.max(first, second), b.min(first, second)
    zero, one = (b.value(n, long.type.dtype) for n in (0.0, 1.0))
    is_zero = b.eq(*b.broadcast_together(long, zero))
    ratio = b.div(short, b.select(is_zero, *b.broadcast_together(one, long)))
    return b.mul(long, b.sqrt(b.add(*b.broadcast_together(b.mul(ratio, ratio), one))))


@_complex("angle")
def _angle(b: Context, x: Complex):
    return b.atan2(x.imag, x.real)


# -- arithmetic ------------------------------------------------------------------------------------


def _whole(b: Context, x: Any, kind: DType) -> Complex:
    """Convert a complex value, a real one or a Python number to a complex value."""
    if isinstance(x, Complex):
        return Complex(b.to(x.real, kind), b.to(x.imag, kind))
    if isinstance(x, Value):
        zero = b.constant(np.zeros((), kind.numpy))
        return Complex(b.to(x, kind), b.expand(zero, x.type.shape))
    return Complex(b.value(complex(x).real, kind), b.value(complex(x).imag, kind))


def _times(b: Context, x: Value, y: Value) -> Value:
    return b.mul(*b.broadcast_together(x, y))


def _added(sign: int):
    def handler(b: Context, x: Any, y: Any, alpha: Any = 1):
        one, other = _whole(b, x, b.dtype), _whole(b, y, b.dtype)
        if alpha != 1:
            scale = b.value(alpha, b.dtype)
            other = Complex(_times(b, other.real, scale), _times(b, other.imag, scale))
        join = b.add if sign > 0 else b.sub
        return Complex(
            join(*b.broadcast_together(one.real, other.real)),
            join(*b.broadcast_together(one.imag, other.imag)),
        )

    return handler


_sub = _added(-1)
COMPLEX.update({"add": _added(1), "sub": _sub})


@_complex("rsub")
def _rsub(b: Context, x: Any, y: Any, alpha: Any = 1):
    if alpha != 1:
        raise NotSupported("rsub with alpha")
    return _sub(b, y, x)


@_complex("mul", "multiply")
def _mul(b: Context, x: Any, y: Any):
    # A real factor has an imaginary part of 0, as in torch: its product with an infinity is NaN.
    p, q = _whole(b, x, b.dtype), _whole(b, y, b.dtype)
    return Complex(
        b.sub(_times(b, p.real, q.real), _times(b, p.imag, q.imag)),
        b.add(_times(b, p.real, q.imag), _times(b, p.imag, q.real)),
    )


@_complex("div.Tensor", "div.Scalar", "true_divide")
def _div(b: Context, x: Any, y: Any):
    p, q = _whole(b, x, b.dtype), _whole(b, y, b.dtype)
    # Scale by the longer part of the divisor, as torch does, so that no square overflows or
    # underflows (Smith, "Algorithm 116", CACM 5, 1962).  With a divisor of 0 each part is divided
    # by 0.
    pr, pi, qr, qi = b.broadcast_together(p.real, p.imag, q.real, q.imag)
    zero, one = b.scalar_like(0, qr), b.scalar_like(1, qr)
    real_is_larger = b.ge(b.abs(qr), b.abs(qi))
    long, short = b.select(real_is_larger, qr, qi), b.select(real_is_larger, qi, qr)
    by_zero = b.op("core.and", (real_is_larger, b.eq(long, zero)))
    ratio = b.div(short, b.select(by_zero, one, long))
    scale = b.div(one, b.add(long, b.mul(short, ratio)))
    first, second = b.select(real_is_larger, pr, pi), b.select(real_is_larger, pi, pr)
    real = b.mul(b.add(first, b.mul(second, ratio)), scale)
    crossed = b.mul(first, ratio)
    across = b.sub(b.select(real_is_larger, pi, crossed), b.select(real_is_larger, crossed, pr))
    imag = b.mul(across, scale)
    made = zip((pr, pi), (real, imag), strict=True)
    return Complex(*(b.select(by_zero, b.div(part, b.abs(long)), ours) for part, ours in made))


@_complex("exp")
def _exp(b: Context, x: Complex):
    length = b.exp(x.real)
    return Complex(b.mul(length, b.cos(x.imag)), b.mul(length, b.sin(x.imag)))


@_complex("mm", "bmm", "matmul")
def _matmul(b: Context, x: Any, y: Any):
    p, q = (_whole(b, each, b.dtype) for each in (x, y))
    product = TABLE["matmul"]
    real = b.sub(product(b, p.real, q.real), product(b, p.imag, q.imag))
    imag = b.add(product(b, p.real, q.imag), product(b, p.imag, q.real))
    return Complex(real, imag)


# -- Fourier transforms ----------------------------------------------------------------------------


def _scale(count: int, normalization: int) -> float:
    """Return the factor of a transform (torch's fft_norm_mode: none, by the root, by the count)."""
    return (1.0, 1 / math.sqrt(count), 1 / count)[normalization]


def _along(
    b: Context, x: Value | Complex, axis: int, count: int, inverse: bool, onesided: bool
) -> Any:
    """Transform along one axis, summed in f64 and rounded once.

    From a one-sided spectrum, the result is a real signal.
    """
    first = x.real if isinstance(x, Complex) else x
    rank, kind = first.type.rank, first.type.dtype
    axis = axis_of(axis, rank)
    pairs = _pairs(b, x) if isinstance(x, Complex) else b.reshape(x, shape=(*x.type.shape, 1))
    size, parts = first.type.shape[axis], pairs.type.shape[-1]
    table = spectra.matrix(size, parts, count, inverse, onesided, _LARGEST)
    order = [*(i for i in range(rank) if i != axis), axis]
    lead = [first.type.shape[i] for i in order[:-1]]
    rows = b.reshape(
        b.transpose(pairs, permutation=(*order, rank)), shape=(math.prod(lead), size * parts)
    )
    made = b.to(b.matmul(b.to(rows, _F64), b.constant(table)), kind)
    back = tuple(order.index(i) for i in range(rank))
    if inverse and onesided:
        return b.transpose(b.reshape(made, shape=(*lead, count)), permutation=back)
    whole = b.transpose(
        b.reshape(made, shape=(*lead, table.shape[1] // 2, 2)), permutation=(*back, rank)
    )
    return _from_pairs(b, whole)


def _scaled(b: Context, x: Any, factor: float) -> Any:
    """Multiply a real or complex value by a number."""
    if factor == 1.0:
        return x
    if isinstance(x, Complex):
        return Complex(_scaled(b, x.real, factor), _scaled(b, x.imag, factor))
    return _times(b, x, b.value(factor, x.type.dtype))


def _sizes(x: Value | Complex) -> tuple[int, ...]:
    return (x.real if isinstance(x, Complex) else x).type.shape


@_complex("_fft_c2c")
def _fft_c2c(b: Context, x: Complex, dim: Any, normalization: int, forward: bool):
    made: Any = x
    count = 1
    for axis in dim:
        size = _sizes(x)[axis]
        made, count = _along(b, made, axis, size, not forward, False), count * size
    return _scaled(b, made, _scale(count, normalization))


@_complex("_fft_r2c")
def _fft_r2c(b: Context, x: Value, dim: Any, normalization: int, onesided: bool):
    *others, last = dim
    count = math.prod(_sizes(x)[axis] for axis in dim)
    made = _along(b, x, last, _sizes(x)[last], False, onesided)
    for axis in others:
        made = _along(b, made, axis, _sizes(x)[axis], False, False)
    return _scaled(b, made, _scale(count, normalization))


@_complex("_fft_c2r")
def _fft_c2r(b: Context, x: Complex, dim: Any, normalization: int, last_dim_size: int):
    *others, last = dim
    count = math.prod(_sizes(x)[axis] for axis in others) * last_dim_size
    made: Any = x
    for axis in others:
        made = _along(b, made, axis, _sizes(x)[axis], True, False)
    return _scaled(
        b, _along(b, made, last, last_dim_size, True, True), _scale(count, normalization)
    )


@_complex("stft")
def _stft(
    b: Context,
    x: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
):
    """Transform windows of ``n_fft`` samples every ``hop_length`` along the last axis."""
    *lead, size = x.type.shape
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    places = np.arange(1 + (size - n_fft) // hop)[:, None] * hop + np.arange(n_fft)
    frames: Value = b.take(x, b.constant(places.astype(np.int64)), axis=len(lead))
    if window is None:
        window = b.constant(np.ones(width, x.type.dtype.numpy))
    before = (n_fft - width) // 2
    zero = b.constant(np.zeros((), x.type.dtype.numpy))
    window = b.pad(window, zero, low=(before,), high=(n_fft - width - before,), interior=(0,))
    frames = b.mul(frames, b.broadcast(window, shape=frames.type.shape, dims=(len(lead) + 1,)))
    one_side = True if onesided is None else onesided
    made = _along(b, frames, -1, n_fft, False, one_side)
    made = _scaled(b, made, 1 / math.sqrt(n_fft) if normalized else 1.0)
    order = (*range(len(lead)), len(lead) + 1, len(lead))
    return Complex(*(b.transpose(part, permutation=order) for part in (made.real, made.imag)))
