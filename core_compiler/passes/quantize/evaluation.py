"""Evaluation of a model on samples: one after another, or all of them op by op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, log10

import numpy as np

from core_compiler.ir import Block, Module, Op, Value
from core_compiler.ops import typed
from core_compiler.ops.evaluation import evaluate
from core_compiler.ops.traits import has_trait
from core_compiler.support.errors import UserError

#: For each sample, the arrays of an op's operands or results.
Arrays = list[list[np.ndarray]]


def values_of(
    module: Module, sample: Sequence[np.ndarray], number: int = 0
) -> Iterator[tuple[Value, np.ndarray]]:
    """Yield the float values of main on one sample, in f32, as they are computed.

    Arrays are dropped after their last reader. Raises UserError for numbers that are not finite.
    """
    block = module.main.body
    for value, array in zip(block.arguments, sample, strict=True):
        numbers = _numbers(value, array)
        if numbers is None:
            continue
        if not np.isfinite(numbers).all():
            name = value.name or str(value.type)
            raise UserError(
                f"sample {number}: input {name} has numbers that are not finite",
                "calibration",
                "leave the sample out, or mend the data",
            )
        yield value, numbers
    for op, _, results in by_op(module, [sample]):
        for value, array in zip(op.results, results[0], strict=True):
            numbers = _numbers(value, array)
            if numbers is not None:
                yield value, numbers


def decibels(signal: float, noise: float) -> float:
    """Return the ratio of two powers in decibels."""
    if not noise:
        return inf
    # Squares of masks have no quotient in f64.
    return 10 * (log10(signal) - log10(noise)) if signal and noise < inf else -inf


def by_op(
    module: Module, samples: Sequence[Sequence[np.ndarray]]
) -> Iterator[tuple[Op, Arrays, Arrays]]:
    """Evaluate main op by op, each on all samples; yield each op, its operands and its results.

    The caller may replace results: later ops read what it leaves. Constants are evaluated once and
    not yielded. Arrays are dropped after their last reader.
    """
    block: Block = module.main.body
    last = {v: i for i, op in enumerate(block.ops) for v in op.uses()}
    kept = set(block.outputs)
    constants: dict[Value, np.ndarray] = {}
    held = [dict(zip(block.arguments, sample, strict=True)) for sample in samples]
    for position, op in enumerate(block.ops):
        if op.kind == "core.constant" or (
            _keeps_numbers(op) and all(v in constants for v in op.operands)
        ):
            made = evaluate(op, [constants[v] for v in op.operands], module.weights)
            constants.update(zip(op.results, made, strict=True))
        else:
            operands = [
                [constants[v] if v in constants else arrays[v] for v in op.operands]
                for arrays in held
            ]
            results = [
                list(evaluate(op, o, module.weights, _read(op, constants, arrays)))
                for o, arrays in zip(operands, held, strict=True)
            ]
            yield op, operands, results
            for arrays, each in zip(held, results, strict=True):
                arrays.update(zip(op.results, each, strict=True))
        for value in {*op.uses(), *op.results}:
            if last.get(value, -1) <= position and value not in kept:
                for arrays in (constants, *held):
                    arrays.pop(value, None)


def _read(op: Op, *known: Mapping[Value, np.ndarray]) -> Mapping[Value, np.ndarray] | None:
    """Return what the regions of an op read from outside of it; None if it has none."""
    return {v: held[v] for held in known for v in op.uses() if v in held} if op.regions else None


def _keeps_numbers(op: Op) -> bool:
    """Return whether an op moves, repeats or dequantises its operand: of constants, a constant."""
    return has_trait(op, "view") or any(t.match(op) for t in (typed.Broadcast, typed.Dequantize))


def _numbers(value: Value, array: np.ndarray) -> np.ndarray | None:
    """Return the array of a float value in f32; None for other dtypes and empty arrays."""
    if not value.type.dtype.is_float or not array.size:
        return None
    return np.asarray(array, np.float32)
