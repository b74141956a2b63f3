"""Pooling in TOSA: two spatial axes, no dilation, padding narrower than the window."""

from __future__ import annotations

from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import BF16, F16, F32, I8, I16, Tosa, op
from core_compiler.exporters.mlir.tosa.contraction import UI8, border, settled, signed, unsigned
from core_compiler.ir import Value, tensor
from core_compiler.ops import typed


def _lacks(b: Tosa, op: typed.Pool) -> str:
    window = op.window
    if op.kind == "core.max_pool" and op.x.type.dtype not in (I8, UI8, I16, F16, BF16, F32):
        return f"pooling of {op.x.type.dtype}"
    if len(window) > 2 or set(op.dilations) != {1}:
        return "windows with three axes or dilation"
    pads = border(op, window)
    if pads is None or any(max(p) >= size for p, size in zip(pads, window, strict=True)):
        return "windows that cover only padding"
    return ""


@op("max_pool", lacks=_lacks)
def max_pool(b: Tosa, op: typed.MaxPool, x: Ref) -> Ref:
    """Emit a maximum of windows; the order of unsigned bytes is that of signed ones 128 less."""
    made = _pooled(b, op, signed(b, x)[0], "max_pool2d")
    return unsigned(b, made) if x.type.dtype is UI8 else made


@op("avg_pool", lacks=lambda b, op: _lacks(b, _without_padding(op)))
def avg_pool(b: Tosa, op: typed.AvgPool, x: Ref) -> Ref:
    """Emit an average pooling.

    TOSA divides by the number of positions inside the image.  If the core op counts padding, zeros
    are padded into the image first.
    """
    if op.count_padding:
        low, high = (0, 0, *op.low), (0, 0, *op.high)
        x = b.padded(x, b.zero_point(x.type.dtype), low, high)
    return _pooled(b, _without_padding(op), x, "avg_pool2d")


def _without_padding(op: typed.AvgPool) -> typed.AvgPool:
    """Return a mean that counts padding as one of an image that has it."""
    if not op.count_padding:
        return op
    none = (0,) * len(op.low)
    low, high = (0, 0, *op.low), (0, 0, *op.high)
    sizes = [sum(parts) for parts in zip(op.x.type.shape, low, high, strict=True)]
    image = Value(tensor(sizes, op.x.type.dtype))
    return op.with_(operands=(image,)).changed(low=none, high=none)


def _pooled(b: Tosa, op: typed.Pool, x: Ref, name: str) -> Ref:
    window, strides, made = op.window, op.strides, op.result.type
    x, pads = settled(b, x, window, op)
    n, channels, *spatial = x.type.shape
    lead = [1] * (2 - len(window))
    x = b.transposed(b.reshaped(x, (n, channels, *lead, *spatial)), (0, 2, 3, 1))
    rows = [(0, 0)] * len(lead) + pads
    facts = {
        name: f"array<i64: {', '.join(map(str, numbers))}>"
        for name, numbers in (
            ("kernel", (*lead, *window)),
            ("stride", (*lead, *strides)),
            ("pad", [p for pair in rows for p in pair]),
        )
    }
    operands = [x]
    if name == "avg_pool2d":
        zero = b.zero_point(x.type.dtype)
        operands, facts = [x, zero, zero], {**facts, "acc_type": "f32"}
    sizes = (n, *lead, *made.shape[2:], channels)
    result = b.op(name, operands, tensor(sizes, x.type.dtype), facts)
    return b.reshaped(b.transposed(result, (0, 3, 1, 2)), made.shape)
