"""Separate zero points: products of bytes sum the bytes themselves, and are corrected afterwards.

``sum (x - xz) * (w - wz)`` is ``sum x * w - xz * sum w - wz * sum x + K * xz * wz``.  Sums of
integers wrap, so both have the same bits.  The first sum reads bytes, of which processors add four
products at once if those of one operand are unsigned and those of the other signed; the sums of
constant weights are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from typing_extensions import override

from core_compiler.ir import Op, Value, WeightStore
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.kernel_ir import scalars
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.rules import I32
from core_compiler.ops.zero_points import Bytes, bytes_of
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import reuse_results


@dataclass(frozen=True)
class SeparateZeroPoints(Pass):
    """Multiply bytes as they are, and subtract the parts of their zero points from the sum.

    For products and convolutions in i32 whose operands are bytes minus a zero point that is the
    same along the sum.  If both operands are signed or both unsigned, one is shifted by 128.
    Padding of a convolution becomes padding with the zero point; weights may have a zero point for
    each channel of the result.  Sums of integers wrap: exact.
    """

    half = "implementation"
    refusal_arity = 1
    requires = frozenset({"tensor_ops"})

    @override
    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                found = _product(op, rw.producer, module.weights)
                if isinstance(found, Refusal) or context.claims(op):
                    continue
                builder = Builder(module.weights)
                new, values = reuse_results(op, (found.separated(builder),), builder.ops)
                rw.replace(op, new, values, rule="sum (x - z) * w => sum x * w - z * sum w")

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        found = _product(ops[0], context.rewriter.producer, context.module.weights)
        return found if isinstance(found, Refusal) else None


@dataclass(frozen=True)
class _Product:
    op: Op
    x: Bytes
    w: Bytes

    def separated(self, b: Builder) -> Value:
        """Emit the product of the bytes, and what its zero points take from it."""
        x, w = self.x, self.w
        if x.bytes_.type.dtype is w.bytes_.type.dtype:
            x, w = x.shifted(b, "ui8"), w.shifted(b, "i8")
        if self.op.kind == "core.conv":
            return _convolution(b, self.op, x, w)
        return _matmul(b, self.op, x, w)


def _matmul(b: Builder, op: Op, x: Bytes, w: Bytes) -> Value:
    shape, rank = op.result.type.shape, op.result.type.rank
    wide_x, wide_w = (b.cast(v.bytes_, dtype=I32) for v in (x, w))
    total = b.matmul(wide_x, wide_w)
    batch = tuple(range(rank - 2))
    if x.zero is not None:
        sums = b.reduce_sum(wide_w, axes=(rank - 2,))
        spread = b.broadcast(sums, shape=shape, dims=(*batch, rank - 1))
        total = b.sub(total, b.mul(x.zeros(b, shape), spread))
    if w.zero is not None:
        sums = b.reduce_sum(wide_x, axes=(rank - 1,))
        spread = b.broadcast(sums, shape=shape, dims=(*batch, rank - 2))
        total = b.sub(total, b.mul(w.zeros(b, shape), spread))
    if x.zero is not None and w.zero is not None:
        terms = b.expand(b.constant(wide_x.type.shape[-1], I32), shape)
        total = b.add(total, b.mul(b.mul(x.zeros(b, shape), w.zeros(b, shape)), terms))
    return total


def _convolution(b: Builder, op: Op, x: Bytes, w: Bytes) -> Value:
    conv = typed.Conv.of(op)
    shape, spatial = op.result.type.shape, len(conv.low)
    low, high = tuple(conv.low), tuple(conv.high)
    image, none = x.bytes_, (0,) * spatial
    if x.zero is not None and _is_padded(op):
        border = b.cast(b.reshape(x.zero, shape=()), dtype=image.type.dtype)
        image = b.pad(image, border, low=(0, 0, *low), high=(0, 0, *high), interior=(0, 0, *none))
        low = high = none
    wide_w = b.cast(w.bytes_, dtype=I32)
    total = b.conv(
        b.cast(image, dtype=I32),
        wide_w,
        strides=conv.strides,
        low=low,
        high=high,
        dilations=conv.dilations,
        groups=conv.groups,
    )
    zero = None if x.zero is None else b.expand(b.reshape(x.zero, shape=()), shape)
    if zero is not None:
        sums = b.reduce_sum(wide_w, axes=tuple(range(1, spatial + 2)))
        total = b.sub(total, b.mul(zero, b.broadcast(sums, shape=shape, dims=(1,))))
    if w.zero is not None:
        of_images = _window_sums(b, conv, image, (low, high), wide_w.type.shape, shape)
        if zero is not None:
            terms = b.constant(prod(wide_w.type.shape[1:]), I32)
            of_images = b.sub(of_images, b.mul(zero, b.expand(terms, shape)))
        of_weights = b.broadcast(w.zero, shape=shape, dims=(1,) * len(w.dims))
        total = b.sub(total, b.mul(of_weights, of_images))
    return total


def _window_sums(b: Builder, conv: typed.Conv, image: Value, pads, weights, shape) -> Value:
    """Emit the sum of the image's bytes under each element of a convolution's result.

    Channels of a group are added first; ``weights`` and ``shape``: of the weights, the result.
    """
    (count, _, *area), groups = image.type.shape, conv.groups
    rows = b.reshape(image, shape=(count, groups, weights[1], *area))
    rows = b.reduce_sum(b.cast(rows, dtype=I32), axes=(2,))
    ones = b.expand(b.constant(1, I32), (groups, 1, *weights[2:]))
    low, high = pads
    sums = b.conv(
        rows,
        ones,
        strides=conv.strides,
        low=low,
        high=high,
        dilations=conv.dilations,
        groups=groups,
    )
    each = (count, groups, shape[1] // groups, *shape[2:])
    spread = b.broadcast(sums, shape=each, dims=(0, 1, *range(3, len(each))))
    return b.reshape(spread, shape=shape)


def _product(
    op: Op, producer: Callable[[Value], Op | None], weights: WeightStore
) -> _Product | Refusal:
    """Return the product of bytes that an op is, or why it is none that is rewritten."""
    if op.kind not in ("core.matmul", "core.conv") or op.result.type.dtype is not I32:
        return refuse("products in i32", "{0} is not a product or convolution in i32", op)
    if op.result.type.elements == 0:
        return refuse("elements", "{0} has no elements", op)
    x, w = (bytes_of(v, producer, lambda op: constant_array(op, weights)) for v in op.operands)
    if x is None or w is None:
        missing = op.operands[0 if x is None else 1]
        return refuse("bytes", "{0} reads {1}, which is not bytes minus a zero point", op, missing)
    plain = all(typed.Cast.match(producer(v)) is not None for v in op.operands)
    if plain and x.bytes_.type.dtype is not w.bytes_.type.dtype:
        return refuse("zero points", "{0} multiplies bytes without zero points", op)
    if op.kind == "core.conv":
        refused = _convolution_refusal(op, x, w)
        if refused is None and _is_padded(op) and not _is_byte(x, producer, weights):
            return refuse("a byte to pad with", "the zero point of {0} may be no byte", op)
        return refused or _Product(op, x, w)
    rank = op.result.type.rank
    for found, summed in ((x, rank - 1), (w, rank - 2)):
        if found.bytes_.type.rank != rank or summed in found.dims:
            return refuse(
                "zero points along the rows", "the zero point of {0} varies along the sum", op
            )
    return _Product(op, x, w)


def _is_padded(op: Op) -> bool:
    conv = typed.Conv.of(op)
    return any((*conv.low, *conv.high))


def _is_byte(x: Bytes, producer, weights: WeightStore) -> bool:
    """Return whether the zero point is a value of the bytes' dtype."""
    value, kind = x.zero, x.bytes_.type.dtype
    while value is not None:
        op = producer(value)
        if op is None:
            return False
        if op.kind == "core.constant":
            low, high = scalars.integer_range(kind)
            held = constant_array(op, weights)
            return bool(((low <= held) & (held <= high)).all())
        cast = typed.Cast.match(op)
        if cast is not None:
            return cast.x.type.dtype is kind
        if op.kind not in ("core.reshape", "core.broadcast"):
            return False
        value = op.operands[0]
    return True


def _convolution_refusal(op: Op, x: Bytes, w: Bytes) -> Refusal | None:
    if x.dims or (x.zero is not None and x.zero.type.elements != 1):
        return refuse("one zero point", "the images of {0} have several zero points", op)
    if w.dims not in ((), (0,)) or (w.zero is not None and w.zero.type.rank != len(w.dims)):
        return refuse("a zero point a channel", "the weights of {0} have others", op)
    return None
