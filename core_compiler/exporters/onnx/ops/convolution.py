"""Convolution and its transpose; ONNX uses the same layouts for data and weights."""

from __future__ import annotations

from math import prod

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.ops.contraction import BYTES, of_nothing
from core_compiler.exporters.onnx.ops.shape import padded
from core_compiler.exporters.onnx.table import F32, I64, Emitter, NotInOnnx, core
from core_compiler.ir import DType, dtype
from core_compiler.ops import typed

F64 = dtype("f64")


def _computing(g: Emitter, op: typed.Convolution) -> DType:
    """Return the float dtype in which a convolution runs.

    For integers it must represent every sum; raise NotInOnnx if none does.
    """
    kind, made = op.x.type.dtype, op.result.type.dtype
    if kind.is_float:
        return F32 if kind.bits < 16 or made.bits > kind.bits else kind
    terms = prod(op.w.type.shape[1:])
    if op.kind == "core.conv_transpose":
        terms *= op.w.type.shape[0]
    bits = 2 * kind.bits + terms.bit_length()
    for wide, mantissa in ((F32, 24), (F64, 53)):
        if bits <= mantissa:
            return wide
    raise NotInOnnx(f"no float type represents the sums of {kind.name} convolutions")


def _finished(g: Emitter, op: typed.Convolution, made: Tensor) -> Tensor:
    """Return the result in its dtype; sums of integers wrap to it."""
    wanted = op.result.type.dtype
    return g.cast(made if wanted.is_float else g.cast(made, I64), wanted)


def _window(op: typed.Convolution) -> dict:
    shape = op.w.type.shape[2:]
    groups = op.groups
    return {
        "kernel_shape": list(shape),
        "strides": list(op.strides),
        "dilations": list(op.dilations),
        "group": groups if groups > 1 else None,
    }


@core("conv")
def conv(g, op: typed.Conv, x, w):
    if op.w.type.shape[1] == 0:
        return of_nothing(g, op)
    pads = [*op.low, *op.high]
    if min(pads) < 0:  # a separate op crops, which may remove more than the operand has
        around = (0, 0, *op.low), (0, 0, *op.high)
        x = padded(g, x, op.x.type.shape, g.scalar(0, x.dtype), *around)
        pads = [0] * len(pads)
    if x.dtype in BYTES and g.has("ConvInteger"):
        return g.emit("ConvInteger", x, w, pads=pads, **_window(op))
    wide = _computing(g, op)
    made = g.emit("Conv", g.cast(x, wide), g.cast(w, wide), pads=pads, **_window(op))
    return _finished(g, op, made)


@core("conv_transpose")
def conv_transpose(g, op: typed.ConvTranspose, x, w):
    low, high, extra = list(op.low), list(op.high), list(op.output_padding)
    wide = _computing(g, op)
    strides = op.strides
    # Runtimes accept neither negative crops nor output padding beyond the stride.
    needs_crop = any(n < 0 for n in (*low, *high))
    needs_crop |= any(e and e >= s for e, s in zip(extra, strides, strict=True))
    pads = [0] * (2 * len(low)) if needs_crop else [*low, *high]
    made = g.emit(
        "ConvTranspose",
        g.cast(x, wide),
        g.cast(w, wide),
        pads=pads,
        output_padding=extra if any(extra) and not needs_crop else None,
        **_window(op),
    )
    if needs_crop:
        behind = [e - h for e, h in zip(extra, high, strict=True)]
        whole = [n + a - b for n, a, b in zip(op.result.type.shape[2:], low, behind, strict=True)]
        zero = g.scalar(0, wide)
        made = padded(
            g,
            made,
            (*op.result.type.shape[:2], *whole),
            zero,
            (0, 0, *(-n for n in low)),
            (0, 0, *behind),
        )
    return _finished(g, op, made)
