"""Products and convolutions in TOSA.

Images are [N, spatial.., C] in TOSA and weights [O, spatial.., C], so each convolution is
surrounded by transposes, of which those that meet cancel each other. 8-bit unsigned operands are
read as signed, with their top bit flipped and their zero point 128 less. Products in i32 whose
operands are bytes minus a zero point are those of the bytes, with that zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import (
    BF16,
    F16,
    F32,
    FP8,
    I8,
    I32,
    Product,
    Tosa,
    op,
)
from core_compiler.exporters.mlir.tosa.numbers import to_float
from core_compiler.exporters.mlir.tosa.shape import joined
from core_compiler.ir import DType, dtype, tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import replaced

UI8 = dtype("ui8")
_BYTES = (I8, UI8)


def signed(b: Tosa, x: Ref, zero: int = 0) -> tuple[Ref, int]:
    """Return (operand, zero point), with unsigned bytes as the signed ones that are 128 less."""
    if x.type.dtype is not UI8:
        return x, zero
    return _flipped(b, x.read_as(x.type.with_(dtype=I8))), zero - 128


def unsigned(b: Tosa, x: Ref) -> Ref:
    """Return signed bytes as the unsigned ones that are 128 larger."""
    return _flipped(b, x).read_as(x.type.with_(dtype=UI8))


def _flipped(b: Tosa, x: Ref) -> Ref:
    """Flip the top bit of bytes; flipped twice they are themselves."""
    source, permutation = b.source(x)
    if source.number in b.flipped:
        return b.transposed(b.flipped[source.number], permutation)
    held = b.known.get(x.number)
    if held is not None:
        return b.constant((held.array.view(np.uint8) ^ 128).view(np.int8).reshape(held.shape))
    made = b.each("bitwise_xor", source, b.splat(-128, source))
    b.flipped[made.number] = source
    return b.transposed(made, permutation)


def _factors(b: Tosa, op: typed.Matmul | typed.Convolution) -> tuple[Ref, Ref, tuple[int, int]]:
    """Return the operands of a product and their zero points, as signed bytes where TOSA can."""
    found = b.bytes_in(op.op) or zip(op.operands, (0, 0), strict=True)
    (x, x_zero), (y, y_zero) = (signed(b, b.env[value], zero) for value, zero in found)
    return x, y, (x_zero, y_zero)


def _biased(b: Tosa, emit: Callable[[Ref], Ref], axis: int, size: int) -> Ref:
    """Emit a product in i32 without a bias; it is emitted again if a constant is added to it."""
    made = emit(b.zero_point(I32))
    b.products[made.number] = Product(emit, axis, size)
    return made


def with_bias(b: Tosa, x: Ref, y: Ref) -> Ref | None:
    """Return the sum of a product and a constant that is its bias, or None if it is not that."""
    for product, other in ((b.products.get(x.number), y), (b.products.get(y.number), x)):
        held = b.known.get(b.spread.get(other.number, other).number)
        if product is None or held is None:
            continue
        whole = held.array.reshape(held.shape)
        first = whole[tuple(slice(None if a == product.axis else 1) for a in range(whole.ndim))]
        if first.size == product.size and (whole == first).all():
            return product.emit(b.constant(first.reshape(-1)))
    return None


def _lacks(b: Tosa, op: typed.Matmul | typed.Convolution) -> str:
    kind = op.operands[0].type.dtype
    known = kind.is_float or kind in _BYTES or b.bytes_in(op.op)
    return "" if known else f"products of {kind}"


@op("matmul", lacks=_lacks)
def matmul(b: Tosa, op: typed.Matmul, x: Ref, y: Ref) -> Ref:
    x, y, zeros = _factors(b, op)
    made, kind = op.result.type, x.type.dtype
    if kind in FP8:  # TOSA sums these in f16
        x, y = to_float(b, x, F32), to_float(b, y, F32)
    if not kind.is_float and x.type.rank == 2 and y.number in b.known:
        return _biased(b, lambda bias: _fully_connected(b, x, y, zeros, bias), 1, made.shape[1])
    *batch, m, k = x.type.shape
    count = int(np.prod(batch, dtype=np.int64))
    x, y = b.reshaped(x, (count, m, k)), b.reshaped(y, (count, k, made.shape[-1]))
    total = tensor((count, m, made.shape[-1]), F32 if kind.is_float else I32)
    points = [b.zero_point(x.type.dtype, zero) for zero in zeros]
    product = b.reshaped(b.op("matmul", [x, y, *points], total), made.shape)
    return to_float(b, product, made.dtype) if kind.is_float else product


def _fully_connected(b: Tosa, x: Ref, w: Ref, zeros: tuple[int, int], bias: Ref) -> Ref:
    """Multiply bytes by constant weights: a 1x1 convolution of an image with a single column."""
    (m, k), n = x.type.shape, w.type.shape[1]
    image = b.reshaped(x, (1, m, 1, k))
    taps = b.reshaped(b.transposed(w, (1, 0)), (n, 1, 1, k))
    facts = {"pad": _array([0] * 4), "stride": _array([1, 1]), "dilation": _array([1, 1])}
    facts["acc_type"] = "i32"
    made = _convolved(b, "conv2d", image, taps, facts, zeros, bias, (1, m, 1, n))
    return b.reshaped(made, (m, n))


# -- convolutions ----------------------------------------------------------------------------------


def _lacks_conv(b: Tosa, op: typed.Conv) -> str:
    pads = border(op, op.w.type.shape[2:])
    return _lacks(b, op) or ("windows that cover only padding" if pads is None else "")


@op("conv", lacks=_lacks_conv)
def conv(b: Tosa, op: typed.Conv, x: Ref, w: Ref) -> Ref:
    x, w, zeros = _factors(b, op)
    x, w, kind = _operands(b, op, x, w)
    x, pads = settled(b, x, w.type.shape[2:], op)
    if x.type.rank == 3:  # an image with a single row
        x, w = (b.reshaped(v, (*v.type.shape[:2], 1, v.type.shape[2])) for v in (x, w))
    flat = op.result.type.rank == 3
    facts = _facts(op, [(0, 0)] * flat + pads, kind)
    image, outputs = _channels_last(b, x), w.type.shape[0]
    if op.groups > 1 and (w.type.shape[1] > 1 or x.type.rank > 4):
        return _finished(b, op, _in_groups(b, op, image, w, facts, zeros), kind)
    sizes = _sizes(op, outputs)
    if op.groups > 1:
        name = "depthwise_conv2d"
        channels = x.type.shape[1]
        w = b.reshaped(w, (channels, outputs // channels, *w.type.shape[2:]))
        taps = b.transposed(w, (2, 3, 0, 1))
    else:
        name, taps = _name(image), _channels_last(b, w)

    def emit(bias: Ref) -> Ref:
        made = _convolved(b, name, image, taps, facts, zeros, bias, sizes)
        return _finished(b, op, made, kind)

    return emit(b.zero_point(kind)) if kind.is_float else _biased(b, emit, 1, outputs)


def _name(image: Ref) -> str:
    return "conv2d" if image.type.rank == 4 else "conv3d"


def _in_groups(
    b: Tosa, op: typed.Conv, image: Ref, w: Ref, facts: dict[str, str], zeros: tuple[int, int]
) -> Ref:
    """Convolve each group of channels, and concatenate the results."""
    each, inner = w.type.shape[0] // op.groups, w.type.shape[1]
    parts, last = [], image.type.rank - 1
    for group in range(op.groups):
        taken = _part(b, image, last, group, inner)
        taps = _channels_last(b, _part(b, w, 0, group, each))
        bias = b.zero_point(_accumulated(image.type.dtype))
        made = _convolved(b, _name(image), taken, taps, facts, zeros, bias, _sizes(op, each))
        parts.append(made)
    return joined(b, parts, last)


def _lacks_transposed(b: Tosa, op: typed.ConvTranspose) -> str:
    window = op.w.type.shape[2:]
    crops = zip((*op.low, *_high(op)), (*window, *window), strict=True)
    fits = (
        op.groups == 1
        and len(window) == 2
        and set(op.dilations) == {1}
        and all(crop < size for crop, size in crops)
    )
    return _lacks(b, op) if fits else "this transposed convolution"


def _high(op: typed.ConvTranspose) -> list[int]:
    return [p - e for p, e in zip(op.high, op.output_padding, strict=True)]


@op("conv_transpose", lacks=_lacks_transposed)
def conv_transpose(b: Tosa, op: typed.ConvTranspose, x: Ref, w: Ref) -> Ref:
    """Emit ``tosa.transpose_conv2d``."""
    low, high = op.low, _high(op)
    x, w, zeros = _factors(b, op)
    x, w, kind = _operands(b, op, x, w)
    rows = [-p for pair in zip(low, high, strict=True) for p in pair]
    facts = {
        "out_pad": _array(rows),
        "stride": _array(op.strides),
        "acc_type": f"{_accumulator(kind)}",
    }
    outputs = op.result.type.shape[1]
    taps, image, sizes = b.transposed(w, (1, 2, 3, 0)), _channels_last(b, x), _sizes(op, outputs)

    def emit(bias: Ref) -> Ref:
        made = _convolved(b, "transpose_conv2d", image, taps, facts, zeros, bias, sizes)
        return _finished(b, op, made, kind)

    return emit(b.zero_point(kind)) if kind.is_float else _biased(b, emit, 1, outputs)


def _operands(b: Tosa, op: typed.Convolution, x: Ref, w: Ref) -> tuple[Ref, Ref, DType]:
    """Return the operands in a dtype that TOSA convolves, and that dtype."""
    kind, made = x.type.dtype, op.result.type.dtype
    if kind in FP8 or (kind in (F16, BF16) and made is F32):
        x, w, kind = to_float(b, x, F32), to_float(b, w, F32), F32
    return x, w, kind


def settled(
    b: Tosa, x: Ref, window: Sequence[int], op: typed.Conv | typed.Pool
) -> tuple[Ref, list[tuple[int, int]]]:
    """Return (x, padding of each spatial axis) in the form that TOSA requires.

    No padding is negative, and the last window ends at the border, because TOSA requires sizes that
    are divisible by the stride.
    """
    ends = _ends(op, window)
    starts = [0, 0, *(max(-low, 0) for low, _ in ends)]
    lost = [0, 0, *(max(-low, 0) + max(-high, 0) for low, high in ends)]
    sizes = [size - less for size, less in zip(x.type.shape, lost, strict=True)]
    return b.cut(x, starts, sizes), [(max(low, 0), max(high, 0)) for low, high in ends]


def _ends(op: typed.Conv | typed.Pool, window: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding of each spatial axis before and after, up to the last window."""
    made = []
    rows = zip(op.x.type.shape[2:], window, op.strides, op.dilations, op.low, op.high, strict=True)
    for size, taps, stride, dilation, low, high in rows:
        rest = (size + low + high - dilation * (taps - 1) - 1) % stride
        made.append((low, high - rest))
    return made


def border(op: typed.Conv | typed.Pool, window: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the padding of each spatial axis, or None if nothing of the image is left."""
    ends = _ends(op, window)
    pairs = zip(op.x.type.shape[2:], ends, strict=True)
    if any(size - max(-low, 0) - max(-high, 0) < 1 for size, (low, high) in pairs):
        return None
    return [(max(low, 0), max(high, 0)) for low, high in ends]


def _facts(op: typed.Conv, pads: Sequence[tuple[int, int]], kind: DType) -> dict[str, str]:
    rank = len(pads)
    lead = [1] * (rank - len(op.strides))
    return {
        "pad": _array([p for pair in pads for p in pair]),
        "stride": _array([*lead, *op.strides]),
        "dilation": _array([*lead, *op.dilations]),
        "acc_type": f"{_accumulator(kind)}",
    }


def _accumulator(kind: DType) -> DType:
    return F32 if kind.is_float else I32


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>"


def _sizes(op: typed.Convolution, outputs: int) -> tuple[int, ...]:
    """Return the result's shape, channels last; rank 1 becomes an image with a single row."""
    n, _, *spatial = op.result.type.shape
    return (n, *([1] if len(spatial) == 1 else []), *spatial, outputs)


def _accumulated(kind: DType) -> DType:
    """Return the dtype of a convolution's result."""
    return kind if kind.is_float else I32


def _convolved(
    b: Tosa,
    name: str,
    x: Ref,
    w: Ref,
    facts: dict[str, str],
    zeros: tuple[int, int],
    bias: Ref,
    sizes: Sequence[int],
) -> Ref:
    kind = x.type.dtype
    points = [b.zero_point(kind, zero) for zero in zeros]
    return b.op(name, [x, w, bias, *points], tensor(sizes, _accumulated(kind)), facts)


def _channels_last(b: Tosa, x: Ref) -> Ref:
    return b.transposed(x, (0, *range(2, x.type.rank), 1))


def _part(b: Tosa, x: Ref, axis: int, number: int, size: int) -> Ref:
    """Return the ``number``-th run of ``size`` elements of an axis."""
    start = [0] * x.type.rank
    start[axis] = number * size
    return b.cut(x, start, replaced(x.type.shape, axis, size))


def _finished(b: Tosa, op: typed.Convolution, made: Ref, kind: DType) -> Ref:
    """Return the result with its channels second, in its dtype."""
    rank = made.type.rank
    made = b.reshaped(b.transposed(made, (0, rank - 1, *range(1, rank - 1))), op.result.type.shape)
    return to_float(b, made, op.result.type.dtype) if kind.is_float else made
