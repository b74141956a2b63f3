"""Correct biases: the mean error of quantised products is taken from their biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value, dtype
from core_compiler.numerics.reference.reduction import mean
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import evaluate
from core_compiler.passes.base import EXAMPLES, Pass
from core_compiler.passes.quantize.evaluation import by_op
from core_compiler.passes.quantize.insert_quantization import QUANTISED, Quantised
from core_compiler.passes.quantize.observe import OBSERVED, Observed
from core_compiler.passes.quantize.roles import (
    adds_constant,
    constant_of,
    is_constant,
    is_product,
    weights_of,
)
from core_compiler.support.errors import UserError

F32 = dtype("f32")
#: The rounding of both sums, relative to the largest.
ROUNDING = 2 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class CorrectBias(Pass):
    """Add the mean error of each product with quantised weights to its bias, for each channel.

    Nagel et al., "Data-free quantization through weight equalization and bias correction" (ICCV
    2019), section 4.2, with means on calibration data: of the result with weights in floats less
    that with quantised weights, both on the operands that the quantised model computes. A product
    without a bias gets one. It runs between ``insert_quantization`` and ``integerize``.
    """

    exact = False
    tolerance = "a bias changes by the mean error of its product on the calibration data"
    changes_semantics = True

    @override
    def run(self, module: Module, context):
        observed: Observed | None = context.facts.get(OBSERVED)
        known: Quantised | None = context.facts.get(QUANTISED)
        if observed is None or known is None:
            raise UserError(
                "no values were quantised", "correct_bias", "run insert_quantization before it"
            )
        rewriter = context.rewriter(module.main.body)
        floats = _float_weights(observed, _in_floats(rewriter, known))
        examples = context.facts.get(EXAMPLES)
        count = len(observed.samples)
        samples = [*observed.samples, *([examples] if examples else [])]
        made: list[_Corrected] = []
        changes: dict[Op, np.ndarray] = {}
        for op, operands, results in by_op(module, samples):
            if op.results[0] in floats:
                last = bias_of(op, rewriter) or op
                weights = floats[op.results[0]]
                changes[last] = _mean_error(op, weights, operands[:count], results, module)
            if op not in changes or not changes[op].any():
                continue
            total = Sum.of(op, rewriter, module)
            assert total is not None
            arrays = [each[0] for each in results]
            made.append(_Corrected(total, changes[op], _largest(arrays[count:] or arrays)))
            # The example inputs, the last, give the bound of a check: of sums before corrections.
            for each, given in zip(results[:count], operands, strict=False):
                product = each[0] if total.bias is None else given[op.operands.index(total.product)]
                each[0] = product + made[-1].bias
        for corrected in made:
            corrected.apply(rewriter, module)
        most = max((float(np.abs(c.change).max()) for c in made), default=0.0)
        context.note("note", f"{len(made)} biases corrected, by at most {most:.3g}")
        return module.with_main(rewriter.commit())


@dataclass(frozen=True)
class Sum:
    """A product with its bias: ``op`` adds it, or is the product itself, without one.

    ``axis`` is that of the channels. ``bias`` has the size 1 along axes on which it is the same.
    """

    op: Op
    product: Value
    axis: int
    bias: np.ndarray | None

    @staticmethod
    def of(op: Op, rewriter: Rewriter, module: Module) -> Sum | None:
        """Return an op that is the last of a product and its bias, or None."""
        if is_product(op):
            alone = bias_of(op, rewriter) is None
            return Sum(op, op.result, channels_of(op), None) if alone else None
        for product in op.operands:
            maker = rewriter.producer(product)
            if maker is None or not is_product(maker) or bias_of(maker, rewriter) is not op:
                continue
            (other,) = (v for v in op.operands if v is not product)
            bias = _compact(constant_of(other, rewriter, module))
            return Sum(op, product, channels_of(maker), bias)
        return None


@dataclass(frozen=True)
class _Corrected:
    """A change, in f32 for each channel; ``largest``: the magnitude of the old result."""

    sum: Sum
    change: np.ndarray
    largest: float

    @property
    def bias(self) -> np.ndarray:
        rank, axis = self.sum.op.result.type.rank, self.sum.axis
        change = self.change.reshape([-1 if a == axis else 1 for a in range(rank)])
        return change if self.sum.bias is None else self.sum.bias + change

    def apply(self, rewriter: Rewriter, module: Module) -> None:
        op = self.sum.op
        b = Builder(module.weights)
        product = self.sum.product
        if self.sum.bias is None:
            product = Value(product.type)
            b.ops.append(op.with_(results=(product,)))
        made = b.add(product, b.expand(b.constant(self.bias), op.result.type.shape))
        most = float(np.abs(self.change).max())
        tolerance = (most / self.largest if self.largest else 1.0) + ROUNDING
        rewriter.replace(
            op,
            b.ops,
            {op.result: made},
            rule="correct a bias",
            tolerance=tolerance,
            in_f64=tolerance,
        )


def bias_of(product: Op, rewriter: Rewriter) -> Op | None:
    """Return the op that adds a constant to a product, if it alone reads it."""
    users = rewriter.users(product.result)
    if len(users) != 1 or rewriter.is_output(product.result):
        return None
    return users[0] if adds_constant(users[0], product.result, rewriter) else None


def channels_of(product: Op) -> int:
    """Return the axis of the channels of a product's result."""
    is_image = typed.Conv.match(product) or typed.ConvTranspose.match(product)
    return 1 if is_image else product.result.type.rank - 1


def _float_weights(observed: Observed, floats: Mapping[Value, Value]) -> dict[Value, np.ndarray]:
    """Return the weights, before quantisation, of each product, by its result.

    ``floats``: the values of the observed model, by those of the quantised one where they differ.
    """
    rewriter = Rewriter(observed.module.main.body)
    found = {}
    for op in rewriter.ops:
        index = weights_of(op)[0] if is_product(op) else None
        if index is None or op.result.type.dtype is not F32:
            continue
        value = op.operands[index]
        made_by = rewriter.producer(value)
        if is_constant(value, rewriter) and typed.Dequantize.match(made_by) is None:
            found[op.result] = constant_of(value, rewriter, observed.module)
    return {**found, **{q: found[v] for q, v in floats.items() if v in found}}


def _in_floats(rewriter: Rewriter, known: Quantised) -> Mapping[Value, Value]:
    """Return for each value that is quantised the value of the model in floats."""
    found = {}
    for made, before in known.values.items():
        back = rewriter.producer(made)
        stored = rewriter.producer(back.operands[0]) if back is not None else None
        if stored is not None and stored.kind == "core.quantize":
            found[stored.operands[0]] = before
    return found


def _mean_error(
    op: Op,
    weights: np.ndarray,
    operands: Sequence[Sequence[np.ndarray]],
    results: Sequence[Sequence[np.ndarray]],
    module: Module,
) -> np.ndarray:
    """Return what quantised weights take from a product, in f32: the mean for each channel.

    The operands, on each sample, are those of the quantised model.
    """
    axes = [a for a in range(op.result.type.rank) if a != channels_of(op)]
    means = []
    for (x, _), (made,) in zip(operands, results, strict=False):
        exact = evaluate(op, [x, weights], module.weights)[0]
        means.append(mean(exact.astype(np.float64) - made, axes))
    return (np.cumsum(means, axis=0)[-1] / len(means)).astype(np.float32)


def _largest(arrays: Sequence[np.ndarray]) -> float:
    return max(float(np.abs(a).max(initial=0.0)) for a in arrays)


def _compact(array: np.ndarray) -> np.ndarray:
    """Return an array with the size 1 along axes on which it is the same."""
    for axis in range(array.ndim):
        first = array.take([0], axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    return array
