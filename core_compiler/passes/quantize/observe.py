"""Observe: the range of every float value on calibration data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Block, Module, Value
from core_compiler.ops.base import definition
from core_compiler.ops.evaluation import evaluate
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.parameters import Range
from core_compiler.support.errors import UserError

#: Facts of a compile: the calibration samples, and what this pass found on them.
CALIBRATION, OBSERVED = "calibration", "observed"
#: The example inputs of a compile.
EXAMPLES = "examples"
#: Bins of the histogram of a value's magnitudes.
BINS = 2048
METHODS = ("minmax", "percentile")


@dataclass(frozen=True)
class Observed:
    """What was seen: ``ranges`` for the scales, ``examples`` of the compile's example inputs."""

    ranges: Mapping[Value, Range]
    examples: Mapping[Value, Range]
    samples: int


@dataclass(frozen=True)
class Observe(Pass):
    """Evaluate the model on calibration data and note the range of every value.

    ``method``: ``minmax``, or ``percentile`` of the magnitudes (McKinstry et al., 2018), which
    leaves ``100 - percentile`` percent of them out. The samples are those of the compile, else its
    example inputs.
    """

    method: str = "minmax"
    percentile: float = 99.99

    @override
    def run(self, module: Module, context):
        if self.method not in METHODS:
            raise UserError(
                f"unknown method {self.method!r}", "observe", f"choose one of {', '.join(METHODS)}"
            )
        if not 0 < self.percentile <= 100:
            raise UserError(
                f"expected a percentile above 0, up to 100, got {self.percentile}",
                "observe",
                "pass 99.99, for example",
            )
        examples: Sequence[np.ndarray] | None = context.facts.get(EXAMPLES)
        samples = context.facts.get(CALIBRATION) or ([] if examples is None else [examples])
        if not samples:
            raise UserError(
                "quantisation needs data", "observe", "pass example inputs or calibration samples"
            )
        ranges = _ranges(module, samples)
        if self.method == "percentile":
            ranges = self._percentiles(module, samples, ranges)
        seen = ranges if examples is None else _ranges(module, [examples])
        context.facts[OBSERVED] = Observed(ranges, seen, len(samples))
        count = len(samples)
        context.note(
            "note",
            f"{len(ranges)} values observed on {count} sample{'' if count == 1 else 's'}, "
            f"{self.method}",
        )
        return module

    def _percentiles(
        self, module: Module, samples: Sequence, ranges: Mapping[Value, Range]
    ) -> dict[Value, Range]:
        """Return ranges without the largest magnitudes."""
        counts = {value: np.zeros(BINS, np.int64) for value in ranges}
        for number, sample in enumerate(samples):
            for value, array in _values(module, sample, number):
                bins = (np.abs(array) * (BINS / (ranges[value].largest or 1.0))).astype(np.int64)
                counts[value] += np.bincount(np.minimum(bins.ravel(), BINS - 1), minlength=BINS)
        made = {}
        for value, full in ranges.items():
            total = np.cumsum(counts[value])
            wanted = total[-1] * self.percentile / 100
            limit = full.largest * (int(np.searchsorted(total, wanted)) + 1) / BINS
            made[value] = Range(max(full.low, -limit), min(full.high, limit))
        return made


def _ranges(module: Module, samples: Sequence[Sequence[np.ndarray]]) -> dict[Value, Range]:
    found: dict[Value, Range] = {}
    for number, sample in enumerate(samples):
        for value, array in _values(module, sample, number):
            here = Range(float(array.min()), float(array.max()))
            found[value] = found[value].joined(here) if value in found else here
    return found


def _values(
    module: Module, sample: Sequence[np.ndarray], number: int
) -> Iterator[tuple[Value, np.ndarray]]:
    """Yield the float values of main on one sample, as they are computed.

    Arrays are dropped after their last reader. Raises UserError for numbers that are not finite.
    """
    block: Block = module.main.body
    last = {v: i for i, op in enumerate(block.ops) for v in op.uses()}
    kept = set(block.outputs)
    arrays = dict(zip(block.arguments, sample, strict=True))

    for value in block.arguments:
        numbers = _numbers(value, arrays[value])
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
    for position, op in enumerate(block.ops):
        if definition(op).regions:
            raise UserError(
                f"{op.kind.split('.')[1]} cannot be quantised", "observe", "compile it in floats"
            )
        made = evaluate(op, [arrays[v] for v in op.operands], module.weights)
        for value, array in zip(op.results, made, strict=True):
            arrays[value] = array
            numbers = None if op.kind == "core.constant" else _numbers(value, array)
            if numbers is not None:  # a mask of attention has infinities
                finite = numbers[np.isfinite(numbers)]
                if finite.size:
                    yield value, finite
        for value in {*op.uses(), *op.results}:
            if last.get(value, -1) <= position and value not in kept:
                arrays.pop(value, None)


def _numbers(value: Value, array: np.ndarray) -> np.ndarray | None:
    """Return the array of a float value in f32; None for other dtypes and empty arrays."""
    if not value.type.dtype.is_float or not array.size:
        return None
    return np.asarray(array, np.float32)
