"""Equalise layers: channels between two products are scaled so that their weights are as large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.channels import (
    EXCEPT_FOR,
    channel_axis,
    input_axis,
    input_maxima,
    power_of_two,
    scaled,
    weights_in_floats,
)
from core_compiler.passes.quantize.roles import (
    adds_constant,
    constant_of,
    is_constant,
)


@dataclass(frozen=True)
class EqualiseLayers(Pass):
    """Scale the channels between two products by powers of two: their weights become as large.

    Nagel et al., "Data-free quantization through weight equalization and bias correction" (ICCV
    2019), section 4.1: for products of the same kind with at most a bias and a relu between. A
    clamp (relu6) is not scaled. Powers of two keep the bits of every result.
    """

    @override
    def run(self, module: Module, context):
        def edit(rewriter: Rewriter) -> None:
            for op in rewriter.ops:
                now = rewriter.now(op)
                pair = None if now is None else _pair(now, rewriter)
                if pair is not None:
                    _equalise(pair, rewriter, module)

        return context.rewrite(module, edit)


@dataclass(frozen=True)
class _Pair:
    """Two products and the ops between, of which each reads the one before alone."""

    first: Op
    between: tuple[Op, ...]
    second: Op


def _pair(first: Op, rewriter: Rewriter) -> _Pair | None:
    """Return the pair that begins with ``first``, or None."""
    if weights_in_floats(first, rewriter) is None:
        return None
    between: list[Op] = []
    op = first
    while rewriter.has_one_use(op.result):
        (user,) = rewriter.users(op.result)
        if user.kind == first.kind and weights_in_floats(user, rewriter) is not None:
            return _Pair(first, tuple(between), user) if user.operands[0] is op.result else None
        is_bias = not between and adds_constant(user, op.result, rewriter)
        if not is_bias and typed.Relu.match(user) is None:
            return None
        between.append(user)
        op = user
    return None


def _equalise(pair: _Pair, rewriter: Rewriter, module: Module) -> None:
    first, second = (
        constant_of(op.operands[1], rewriter, module) for op in (pair.first, pair.second)
    )
    axis = 0 if pair.first.kind == "core.conv" else 1
    ours = np.abs(first).max(axis=tuple(a for a in range(first.ndim) if a != axis))
    theirs = input_maxima(pair.second, second)
    if theirs is None or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return
    exponents = np.array(
        [
            power_of_two(float(np.sqrt(float(a) * float(b)) / b)) if a and b else 0
            for a, b in zip(ours, theirs, strict=True)
        ]
    )
    if not exponents.any():
        return
    b = Builder(module.weights)
    weights = scaled(b, first, axis, -exponents)
    value = _again(b, pair.first, {pair.first.operands[1]: weights})
    known = {pair.first.result: value}
    for op in pair.between:
        for operand in op.operands:
            if is_constant(operand, rewriter):
                array = constant_of(operand, rewriter, module)
                known[operand] = scaled(b, array, channel_axis(pair.first), -exponents)
        value = _again(b, op, known)
        known[op.result] = value
    known[pair.second.operands[1]] = scaled(b, second, input_axis(pair.second), exponents)
    b.ops.append(pair.second.substitute(known).with_(origin=None))
    rewriter.replace(
        (pair.first, *pair.between, pair.second),
        b.ops,
        rule="product(relu(product(x, w) + c), v) => product(relu(product(x, w / s) + c / s), v s)",
        except_for=EXCEPT_FOR,
    )


def _again(b: Builder, op: Op, known: dict[Value, Value]) -> Value:
    """Emit an op again on other operands; return its result."""
    made = op.substitute(known).with_(results=(Value(op.result.type, op.result.name),), origin=None)
    b.ops.append(made)
    return made.result
