"""Measure sensitivity: the loss when one product alone is quantised; the worst stay in floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value, dtype
from core_compiler.ops.evaluation import evaluate
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.evaluation import decibels
from core_compiler.passes.quantize.insert_quantization import (
    KEPT,
    constant_of,
    is_constant,
    parts_of,
    role,
    weights_of,
)
from core_compiler.passes.quantize.observe import OBSERVED, Observed
from core_compiler.passes.quantize.parameters import affine
from core_compiler.passes.quantize.weights import quantised_weights
from core_compiler.support.errors import UserError

#: The fact with the products' sensitivities, most sensitive first.
SENSITIVITY = "sensitivity"


@dataclass(frozen=True)
class Sensitive:
    """A product and the signal-to-noise ratio of the results if it alone is quantised."""

    product: Op
    parts: tuple[Op, ...]
    sqnr_db: float

    @property
    def result(self) -> Value:
        """The value that is quantised: the product with its bias and limits."""
        return (self.product, *self.parts)[-1].result


@dataclass(frozen=True)
class MeasureSensitivity(Pass):
    """Quantise each product alone, note the loss of the results, and keep the worst in floats.

    Operands, weights and result of a product (after its bias and limits) are quantised, all else
    is in floats: the ratio of the results' power to that of their error, over all samples.
    ``keep``: that many products, those with the lowest ratios, stay in floats. It runs between
    ``observe`` and ``insert_quantization`` and evaluates what follows each product once for each
    sample: for n products about n / 2 evaluations of the model a sample.
    """

    keep: int = 1

    @override
    def run(self, module: Module, context):
        observed: Observed | None = context.facts.get(OBSERVED)
        if observed is None:
            raise UserError(
                "no ranges were observed", "measure_sensitivity", "run observe before it"
            )
        if self.keep < 0:
            raise UserError(
                f"expected 0 or more products, got {self.keep}", "measure_sensitivity", "pass 1"
            )
        rows = _sensitivities(module, observed)
        rows.sort(key=lambda row: row.sqnr_db)  # stable: the first of equal ones
        context.facts[SENSITIVITY] = tuple(rows)
        kept: dict[Value, str] = dict(context.facts.get(KEPT, {}))
        for row in rows[: self.keep]:
            reason = f"kept: {row.sqnr_db:.1f} dB if it alone is quantised"
            kept |= {op.result: reason for op in (row.product, *row.parts)}
            context.note("note", f"{row.product.kind} {reason}", row.product)
        context.facts[KEPT] = kept
        return module


def _sensitivities(module: Module, observed: Observed) -> list[Sensitive]:
    rewriter = Rewriter(module.main.body)
    weighted = {
        op: _weights(op, rewriter, module)
        for op in module.main.body.ops
        if role(op, rewriter) == "product"
    }
    noise = dict.fromkeys(weighted, 0.0)
    signal = 0.0
    outputs = [v for v in module.main.outputs if v.type.dtype.is_float]
    for sample in observed.samples:
        exact = dict(zip(module.main.arguments, sample, strict=True))
        for op in module.main.body.ops:
            made = evaluate(op, [exact[v] for v in op.operands], module.weights)
            exact.update(zip(op.results, made, strict=True))
        signal += sum(_power(exact[v]) for v in outputs)
        for op, weights in weighted.items():
            changed = _one_quantised(op, weights, exact, observed, rewriter, module)
            noise[op] += sum(
                _power(changed[v].astype(np.float64) - exact[v]) for v in outputs if v in changed
            )
    return [Sensitive(op, parts_of(op, rewriter), decibels(signal, noise[op])) for op in weighted]


def _one_quantised(
    op: Op,
    weights: np.ndarray | None,
    exact: Mapping[Value, np.ndarray],
    observed: Observed,
    rewriter: Rewriter,
    module: Module,
) -> dict[Value, np.ndarray]:
    """Return the values that change if ``op`` alone is quantised."""
    last = (op, *parts_of(op, rewriter))[-1].result
    changed: dict[Value, np.ndarray] = {}
    started = False
    for each in module.main.body.ops:
        if each is op:
            operands = [_rounded(v, exact[v], observed) for v in op.operands]
            if weights is not None:
                operands[1] = weights
            started = True
        elif started and any(v in changed for v in each.operands):
            operands = [changed.get(v, exact[v]) for v in each.operands]
        else:
            continue
        changed.update(zip(each.results, evaluate(each, operands, module.weights), strict=True))
        if last in each.results:
            changed[last] = _rounded(last, changed[last], observed)
    return changed


def _rounded(value: Value, array: np.ndarray, observed: Observed) -> np.ndarray:
    """Return an array of a value as quantised to bytes and back."""
    if value not in observed.ranges:
        return array
    made = affine(observed.ranges[value], dtype("i8")).rounded(array.astype(np.float64))
    return made.astype(array.dtype)


def _weights(op: Op, rewriter: Rewriter, module: Module) -> np.ndarray | None:
    """Return constant weights as quantised and back; None for others."""
    index, axis, _ = weights_of(op)
    if not is_constant(op.operands[index], rewriter):
        return None
    array = constant_of(op.operands[index], rewriter, module)
    found = quantised_weights(array, axis)
    steps = found.scales.reshape([-1 if a == axis else 1 for a in range(array.ndim)])
    return (found.integers * steps).astype(array.dtype)


def _power(array: np.ndarray) -> float:
    return float(np.cumsum(array.astype(np.float64).ravel() ** 2)[-1])
