"""Observe: the range of every float value on calibration data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from typing_extensions import override

from core_compiler.ir import Block, Module, Value
from core_compiler.ops.base import definition
from core_compiler.ops.evaluation import evaluate
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.parameters import Range
from core_compiler.support.errors import UserError, nearest

#: Facts of a compile: the calibration samples, and what this pass found on them.
CALIBRATION, OBSERVED = "calibration", "observed"
#: The example inputs of a compile.
EXAMPLES = "examples"
#: Bins of the histogram of a value's magnitudes.
BINS = 2048
METHODS = ("minmax", "percentile")


@dataclass(frozen=True)
class Observed:
    """The ranges of the values: ``ranges`` for scales, ``examples`` on the example inputs."""

    ranges: Mapping[Value, Range]
    examples: Mapping[Value, Range]
    samples: int


@dataclass(frozen=True)
class Observe(Pass):
    """Evaluate the model on calibration data and note the range of every value.

    ``method``: ``minmax``, or ``percentile`` of the magnitudes (McKinstry et al., 2018), which
    leaves ``100 - percentile`` percent of them out. ``data``: a ``.npz`` file with an array for
    each input, by its name, of its shape or with one more axis in front for the samples. Without,
    the samples are those given to the compile, else its example inputs.
    """

    method: str = field(default="minmax", metadata={"choices": METHODS})
    percentile: float = 99.99
    data: str = ""

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
        if self.data:
            samples = read_samples(Path(self.data), module.main.arguments, examples)
        else:
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
            f"{self.method}" + (f" of {self.data}" if self.data else ""),
        )
        return module

    def _percentiles(
        self, module: Module, samples: Sequence, ranges: Mapping[Value, Range]
    ) -> dict[Value, Range]:
        """Return ranges without the largest magnitudes."""
        counts = {value: np.zeros(BINS, np.int64) for value in ranges}
        for number, sample in enumerate(samples):
            for value, array in _values(module, sample, number):
                if value not in ranges:
                    continue
                array = array[np.isfinite(array)]
                bins = (np.abs(array) * (BINS / (ranges[value].largest or 1.0))).astype(np.int64)
                counts[value] += np.bincount(np.minimum(bins.ravel(), BINS - 1), minlength=BINS)
        made = {}
        for value, full in ranges.items():
            total = np.cumsum(counts[value])
            wanted = total[-1] * self.percentile / 100
            limit = full.largest * (int(np.searchsorted(total, wanted)) + 1) / BINS
            made[value] = Range(max(full.low, -limit), min(full.high, limit))
        return made


def evaluated(module: Module, inputs: Sequence[np.ndarray]) -> Iterator[tuple[Value, np.ndarray]]:
    """Yield the float values of main on example inputs, in f32, as they are computed."""
    return _values(module, inputs, 0)


def _ranges(module: Module, samples: Sequence[Sequence[np.ndarray]]) -> dict[Value, Range]:
    found: dict[Value, Range] = {}
    for number, sample in enumerate(samples):
        for value, array in _values(module, sample, number):
            finite = array[np.isfinite(array)]  # a mask of attention has infinities
            if not finite.size:
                continue
            here = Range(float(finite.min()), float(finite.max()))
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
            if numbers is not None:
                yield value, numbers
        for value in {*op.uses(), *op.results}:
            if last.get(value, -1) <= position and value not in kept:
                arrays.pop(value, None)


def _numbers(value: Value, array: np.ndarray) -> np.ndarray | None:
    """Return the array of a float value in f32; None for other dtypes and empty arrays."""
    if not value.type.dtype.is_float or not array.size:
        return None
    return np.asarray(array, np.float32)


def read_samples(
    path: Path, arguments: Sequence[Value], examples: Sequence[np.ndarray] | None
) -> list[list[np.ndarray]]:
    """Return the samples of a ``.npz`` file: for each the arrays of all arguments, in order.

    Arguments that are not in the file have the value of the example. Raises UserError for a file
    that cannot be read, names that are no arguments, and other shapes or kinds of numbers.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror or error}", str(path), "pass a .npz file"
        ) from None
    except (ValueError, AttributeError):
        raise UserError("no .npz file of arrays", str(path), "write it with numpy.savez") from None
    names = [v.name or f"input{i}" for i, v in enumerate(arguments)]
    for name in held:
        if name not in names:
            fix = nearest(name, names, f"name the arrays {', '.join(names[:8])}")
            raise UserError(f"unknown input {name!r}", str(path), fix)
    columns: list[np.ndarray] = []
    for position, (name, value) in enumerate(zip(names, arguments, strict=True)):
        if name in held:
            columns.append(_samples_of(held[name], value, f"{name} in {path}"))
        elif examples is not None:
            columns.append(np.asarray(examples[position])[np.newaxis])
        else:
            raise UserError(f"no array {name!r}", str(path), "add one for each input")
    count = max(len(c) for c in columns)
    for name, column in zip(names, columns, strict=True):
        if len(column) not in (1, count):
            raise UserError(
                f"{name} has {len(column)} samples, another input {count}",
                str(path),
                "give each input as many samples",
            )
    if not count:
        raise UserError("no samples", str(path), "add at least one")
    return [[c[min(i, len(c) - 1)] for c in columns] for i in range(count)]


def _samples_of(array: np.ndarray, value: Value, where: str) -> np.ndarray:
    """Return an array of a file with an axis of samples in front, in the argument's dtype."""
    shape, kind = tuple(value.type.shape), value.type.dtype
    if array.shape == shape:
        array = array[np.newaxis]
    if array.shape[1:] != shape:
        raise UserError(
            f"shape {array.shape}, expected {shape} or (samples, {', '.join(map(str, shape))})",
            where,
            "give it the shape of the input",
        )
    same_kind = (array.dtype.kind == "f") == kind.is_float
    if not same_kind and array.dtype != kind.numpy:
        raise UserError(f"{array.dtype}, expected {kind}", where, "cast it")
    return array.astype(kind.numpy)
