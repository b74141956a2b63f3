"""Products in integers: sums of products in i32, a bias in their steps, one rescale."""

from __future__ import annotations

from math import prod

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops import typed
from core_compiler.ops.evaluation import constant_array
from core_compiler.passes.quantize.forms.base import CENTRED, I32, Form
from core_compiler.passes.quantize.roles import weights_of


def product(form: Form, maker: Op, factor: float, bias: np.ndarray | None) -> Value | Refusal:
    """Return (x @ w) * factor + bias for quantised x and w; w may have a scale a channel."""
    b, (left, right) = form.b, maker.operands
    x = form.stored(left)
    if isinstance(x, Refusal):
        return x
    weights = _weights(form, maker, right)
    if isinstance(weights, Refusal):
        return weights
    wide, scales, axis = weights
    room = form.room(_terms(maker), CENTRED**2, maker)
    if isinstance(room, Refusal):
        return room
    total = maker.with_(
        attributes={k: v for k, v in maker.attributes.items() if k != "accumulate"},
        operands=(x.centred(b), wide),
        results=(Value(maker.result.type.with_(dtype=I32)),),
        origin=None,
    )
    b.ops.append(total)
    made = total.result
    unit = x.scale * scales * factor
    if bias is not None:
        added = _bias(form, bias, unit, made, axis, room)
        if isinstance(added, Refusal):
            return added
        made = b.add(made, added)
    return form.rescaled(made, unit / form.result.scale, axis)


def _terms(maker: Op) -> int:
    """Return the most products that are added for an element of the result."""
    shape = maker.operands[1].type.shape
    if typed.Conv.match(maker):
        return prod(shape[1:])
    transposed = typed.ConvTranspose.match(maker)
    if transposed is not None:
        return prod((shape[0], *shape[2:])) // transposed.groups
    contract = typed.Contract.match(maker)
    if contract is not None:
        return prod(contract.a.type.shape[i] for i in contract.contract_a)
    return maker.operands[0].type.shape[-1]


def _weights(form: Form, maker: Op, value: Value) -> tuple[Value, np.ndarray, int | None] | Refusal:
    """Return the second operand in i32, its scales, and the axis of the result they lie on."""
    op = form.rewriter.producer(value)
    found = typed.Dequantize.match(op)
    if op is None or found is None:
        return refuse("quantised operands", "{0} is not quantised", op or maker)
    if found.q.type.dtype.bits != 8:
        return refuse("bytes", "the weights of {0} are of {1}", maker, found.q.type.dtype)
    if found.axis is None:
        stored = form.stored(value)
        if isinstance(stored, Refusal):
            return stored
        return stored.centred(form.b), np.array(stored.scale), None
    _, expected, axis = weights_of(maker)
    if len(op.operands) > 2:
        zero = form.rewriter.producer(op.operands[2])
        if (
            zero is None
            or zero.kind != "core.constant"
            or constant_array(zero, form.module.weights).any()
        ):
            return refuse(
                "symmetric weights",
                "the weights of {0} have zero points: quantise them with symmetric scales",
                maker,
            )
    scale = form.rewriter.producer(op.operands[1])
    if found.axis != expected or scale is None or scale.kind != "core.constant":
        text = "the scales of {0} are along axis {1} of its weights, expected {2}"
        return refuse("a scale a channel", text, maker, found.axis, expected)
    scales = constant_array(scale, form.module.weights).astype(np.float64)
    if not (scales > 0).all():
        text = "a channel of the weights of {0} has the scale {1}: quantise it with a positive one"
        return refuse("positive scales", text, maker, float(scales.min()))
    return form.b.cast(found.q, dtype=I32), scales, axis


def _bias(
    form: Form, bias: np.ndarray, scale: np.ndarray, like: Value, axis: int | None, room: int
) -> Value | Refusal:
    """Return the bias in steps of the sum: ``scale``, one or one for each position of ``axis``."""
    part = np.broadcast_to(bias, like.type.shape)
    for each in range(part.ndim):  # what is the same along an axis is held once
        first = part.take([0], each)
        part = first if (part == first).all() else part
    spread = scale.reshape([-1 if a == axis else 1 for a in range(part.ndim)])
    steps = np.rint(part.astype(np.float64) / spread)
    if not (np.abs(steps) <= room).all():
        return refuse("a bias of 32 bits", "the bias of {0} is larger than its sum can be", form.op)
    held = form.b.constant(steps.astype(np.int32))
    return form.b.expand(held, like.type.shape)


def pair(form: Form, maker: Op) -> Value | Refusal:
    """Return the product of two activations, element by element."""
    both = form.both(maker)
    if isinstance(both, Refusal):
        return both
    x, y = both
    made = form.b.mul(x.centred(form.b), y.centred(form.b))
    return form.rescaled(made, np.array(x.scale * y.scale / form.result.scale))
