"""Smooth activations: large channels after a norm become smaller, and their weights larger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value
from core_compiler.numerics.reference.elementwise import apply
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.channels import (
    EXCEPT_FOR,
    Reader,
    power_of_two,
    readers,
    scaled,
)
from core_compiler.passes.quantize.evaluation import by_op
from core_compiler.passes.quantize.observe import calibration_samples
from core_compiler.passes.quantize.roles import constant_of, is_constant
from core_compiler.support.errors import UserError


@dataclass(frozen=True)
class SmoothActivations(Pass):
    """Divide the channels after a norm by powers of two, and multiply the weights that read them.

    Xiao et al., "SmoothQuant: accurate and efficient post-training quantization for large language
    models" (ICML 2023): a channel is divided by the power of two nearest to ``a^strength /
    w^(1 - strength)``, for the largest magnitudes a of the channel on the calibration data and w
    of its weights. Norms that anything but products with constant weights reads stay as they are.
    Powers of two keep the bits of every result. ``data``: as of ``observe``.
    """

    strength: float = 0.5
    data: str = ""

    @override
    def run(self, module: Module, context):
        if not 0 <= self.strength <= 1:
            raise UserError(
                f"expected a strength from 0 to 1, got {self.strength}",
                "smooth_activations",
                "pass 0.5, for example",
            )
        reader = Rewriter(module.main.body)
        norms = {op: found for op in reader.ops if (found := _readers(op, reader)) is not None}
        samples = calibration_samples(module, context, self.data) if norms else ()
        rewriter = context.rewriter(module.main.body)
        maxima = {}
        for op, _, results in by_op(module, samples) if norms else ():
            if op in norms:
                arrays = [np.abs(each[0]).reshape(-1, each[0].shape[-1]) for each in results]
                maxima[op] = np.concatenate(arrays).max(axis=0)
        for op, largest in maxima.items():
            now = rewriter.now(op)
            found = None if now is None else _readers(now, rewriter)
            if now is not None and found is not None:
                exponents = self._exponents(largest, found, rewriter, module)
                if exponents.any():
                    _smooth(now, found, exponents, rewriter, module)
        return module.with_main(rewriter.commit())

    def _exponents(
        self, largest: np.ndarray, found: Sequence[Reader], rewriter: Rewriter, module: Module
    ) -> np.ndarray:
        """Return for each channel the exponent of the power of two that divides it."""
        arrays = [np.abs(constant_of(r.weights, rewriter, module)) for r in found]
        weights = np.concatenate(arrays, axis=1).max(axis=1)
        a, w = (apply("log2", np.maximum(m, 1e-30).astype(np.float64)) for m in (largest, weights))
        powers = apply("exp2", self.strength * a - (1 - self.strength) * w)
        # The smallest channels give the tensor nothing: only relative sizes matter.
        powers = powers / np.median(powers)
        used = (largest > 0) & (weights > 0) & np.isfinite(powers)
        return np.array(
            [power_of_two(float(p)) if u else 0 for p, u in zip(powers, used, strict=True)]
        )


def _readers(op: Op, rewriter: Rewriter) -> Sequence[Reader] | None:
    """Return the products that read a norm whose scale and shift are constants, or None."""
    norm = typed.LayerNorm.match(op) or typed.RmsNorm.match(op)
    if norm is None or norm.axis % op.result.type.rank != op.result.type.rank - 1:
        return None
    if len(op.operands) < 2 or not all(is_constant(v, rewriter) for v in op.operands[1:]):
        return None
    return readers(op.result, rewriter)


def _smooth(
    op: Op, found: Sequence[Reader], exponents: np.ndarray, rewriter: Rewriter, module: Module
) -> None:
    b = Builder(module.weights)
    known = {v: scaled(b, constant_of(v, rewriter, module), 0, -exponents) for v in op.operands[1:]}
    old, values = [op], {}
    b.ops.append(_copy(op, known))
    known[op.result] = b.ops[-1].result
    for reader in found:
        for each in reader.path:
            if each not in old:
                old.append(each)
                b.ops.append(_copy(each, known))
                known[each.result] = b.ops[-1].result
        array = constant_of(reader.weights, rewriter, module)
        weights = {reader.weights: scaled(b, array, 0, exponents)}
        b.ops.append(_copy(reader.product, {**known, **weights}))
        old.append(reader.product)
        values[reader.product.result] = b.ops[-1].result
    rewriter.replace(
        old,
        b.ops,
        values,
        rule="product(norm(x, g, c), w) => product(norm(x, g / s, c / s), w s)",
        except_for=EXCEPT_FOR,
    )


def _copy(op: Op, known: dict[Value, Value]) -> Op:
    """Return an op on other operands, with a result of its own."""
    return op.substitute(known).with_(results=(Value(op.result.type, op.result.name),), origin=None)
