"""Products and convolutions in TOSA.

Images are [N, spatial.., C] in TOSA and weights [O, spatial.., C], so each convolution is
surrounded by transposes (MLIR's ``tosa-reduce-transposes`` removes adjacent ones). 8-bit unsigned
operands are read as signed, with their top bit flipped and a zero point of -128.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import BF16, F16, F32, FP8, I8, I32, Tosa, op
from core_compiler.exporters.mlir.tosa.numbers import to_float
from core_compiler.exporters.mlir.tosa.shape import joined
from core_compiler.ir import DType, dtype, tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import replaced

UI8 = dtype("ui8")
_BYTES = (I8, UI8)


def _signed(b: Tosa, x: Ref) -> tuple[Ref, Ref]:
    """Return (operand, zero point), with unsigned bytes read as signed ones."""
    kind = x.type.dtype
    if kind is not UI8:
        return x, b.zero_point(kind)
    bits = x.read_as(x.type.with_(dtype=I8))
    return b.each("bitwise_xor", bits, b.splat(-128, bits)), b.zero_point(I8, -128)


def _lacks(op: typed.Matmul | typed.Convolution) -> str:
    kind = op.operands[0].type.dtype
    return "" if kind.is_float or kind in _BYTES else f"products of {kind}"


@op("matmul", lacks=_lacks)
def matmul(b: Tosa, op: typed.Matmul, x: Ref, y: Ref) -> Ref:
    made, kind = op.result.type, x.type.dtype
    if kind in FP8:  # TOSA sums these in f16
        x, y = to_float(b, x, F32), to_float(b, y, F32)
    *batch, m, k = x.type.shape
    count = int(np.prod(batch, dtype=np.int64))
    x, y = b.reshaped(x, (count, m, k)), b.reshaped(y, (count, k, made.shape[-1]))
    (x, zero_x), (y, zero_y) = _signed(b, x), _signed(b, y)
    total = tensor((count, m, made.shape[-1]), F32 if kind.is_float else I32)
    product = b.reshaped(b.op("matmul", [x, y, zero_x, zero_y], total), made.shape)
    return to_float(b, product, made.dtype) if kind.is_float else product


# -- convolutions ----------------------------------------------------------------------------------


def _lacks_conv(op: typed.Conv) -> str:
    pads = border(op, op.w.type.shape[2:])
    return _lacks(op) or ("windows that cover only padding" if pads is None else "")


@op("conv", lacks=_lacks_conv)
def conv(b: Tosa, op: typed.Conv, x: Ref, w: Ref) -> Ref:
    x, w, kind = _operands(b, op, x, w)
    (n, channels, *_), (outputs, inner, *_) = x.type.shape, w.type.shape
    x, pads = settled(b, x, w.type.shape[2:], op)
    if x.type.rank == 3:  # an image with a single row
        x, w = (b.reshaped(v, (*v.type.shape[:2], 1, v.type.shape[2])) for v in (x, w))
    flat = op.result.type.rank == 3
    facts = _facts(op, [(0, 0)] * flat + pads, kind)
    groups, image = op.groups, _channels_last(b, x)
    if groups > 1 and inner == 1 and x.type.rank == 4:
        w = b.reshaped(w, (channels, outputs // channels, *w.type.shape[2:]))
        made = _convolved(
            b,
            "depthwise_conv2d",
            image,
            b.transposed(w, (2, 3, 0, 1)),
            facts,
            kind,
            _sizes(op, n, outputs),
        )
    else:
        name = "conv2d" if x.type.rank == 4 else "conv3d"
        parts = []
        for group in range(groups):
            taken = _part(b, image, image.type.rank - 1, group, inner)
            taps = _channels_last(b, _part(b, w, 0, group, outputs // groups))
            sizes = _sizes(op, n, outputs // groups)
            parts.append(_convolved(b, name, taken, taps, facts, kind, sizes))
        made = joined(b, parts, image.type.rank - 1)
    return _finished(b, op, made, kind)


def _lacks_transposed(op: typed.ConvTranspose) -> str:
    window = op.w.type.shape[2:]
    crops = zip((*op.low, *_high(op)), (*window, *window), strict=True)
    fits = (
        op.groups == 1
        and len(window) == 2
        and set(op.dilations) == {1}
        and all(crop < size for crop, size in crops)
    )
    return _lacks(op) if fits else "this transposed convolution"


def _high(op: typed.ConvTranspose) -> list[int]:
    return [p - e for p, e in zip(op.high, op.output_padding, strict=True)]


@op("conv_transpose", lacks=_lacks_transposed)
def conv_transpose(b: Tosa, op: typed.ConvTranspose, x: Ref, w: Ref) -> Ref:
    """Emit ``tosa.transpose_conv2d``."""
    low, high = op.low, _high(op)
    x, w, kind = _operands(b, op, x, w)
    made = op.result.type
    rows = [-p for pair in zip(low, high, strict=True) for p in pair]
    facts = {
        "out_pad": _array(rows),
        "stride": _array(op.strides),
        "acc_type": f"{_accumulator(kind)}",
    }
    n, outputs = made.shape[:2]
    taps = b.transposed(w, (1, 2, 3, 0))
    result = _convolved(
        b, "transpose_conv2d", _channels_last(b, x), taps, facts, kind, _sizes(op, n, outputs)
    )
    return _finished(b, op, result, kind)


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


def _sizes(op: typed.Convolution, n: int, outputs: int) -> tuple[int, ...]:
    """Return the result's shape, channels last; rank 1 becomes an image with a single row."""
    spatial = op.result.type.shape[2:]
    return (n, *([1] if len(spatial) == 1 else []), *spatial, outputs)


def _convolved(
    b: Tosa, name: str, x: Ref, w: Ref, facts: dict[str, str], kind: DType, sizes: Sequence[int]
) -> Ref:
    made = kind if kind.is_float else I32
    (x, zero_x), (w, zero_w) = _signed(b, x), _signed(b, w)
    return b.op(name, [x, w, b.zero_point(made), zero_x, zero_w], tensor(sizes, made), facts)


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
