"""Observe: the range of every float value on calibration data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Value
from core_compiler.passes.base import EXAMPLES, Pass
from core_compiler.passes.quantize.evaluation import values_of
from core_compiler.passes.quantize.histograms import (
    Histogram,
    entropy_range,
    mse_range,
    percentile_range,
    squared_error,
)
from core_compiler.passes.quantize.parameters import Range, need_choice
from core_compiler.support.errors import UserError, nearest

#: Facts of a compile: the calibration samples, and what this pass found on them.
CALIBRATION, OBSERVED = "calibration", "observed"
METHODS = ("minmax", "percentile", "mse", "entropy")
#: Samples, each with the arrays of all inputs in order.
Samples = Sequence[Sequence[np.ndarray]]


@dataclass(frozen=True)
class Observed:
    """The ``ranges`` of the values that are finite on all samples, for scales.

    ``module`` was evaluated on ``samples``, which later passes evaluate again.
    """

    ranges: Mapping[Value, Range]
    module: Module
    samples: Samples


@dataclass(frozen=True)
class Observe(Pass):
    """Evaluate the model on calibration data and note the range of every value.

    ``method``: ``minmax``; ``percentile``, which leaves ``100 - percentile`` percent of the numbers
    out, half of them at each end; ``mse``, the range of bytes with the least squared error;
    ``entropy``, that with the least Kullback-Leibler divergence. ``data``: a ``.npz`` file with an
    array for each input, by its name: of its shape, of several of these one after another along
    the first axis, or with one more axis in front for the samples. Without, the samples are those
    given to the compile, else its example inputs.
    """

    method: str = field(default="minmax", metadata={"choices": METHODS})
    percentile: float = 99.99
    data: str = ""

    @override
    def run(self, module: Module, context):
        self._check()
        samples = calibration_samples(module, context, self.data)
        full = _ranges(module, samples)
        ranges = full if self.method == "minmax" else self._narrowed(module, samples, full)
        context.facts[OBSERVED] = Observed(ranges, module, samples)
        context.note("note", f"{len(ranges)} values {self._observed(samples, full, ranges)}")
        return module

    def _check(self) -> None:
        need_choice("method", self.method, METHODS)
        if not 0 < self.percentile <= 100:
            raise UserError(
                f"expected a percentile above 0, up to 100, got {self.percentile}",
                "observe",
                "pass 99.99, for example",
            )

    def _observed(
        self, samples: Samples, full: Mapping[Value, Range], ranges: Mapping[Value, Range]
    ) -> str:
        """Return what was observed on which data, as text."""
        count, method = len(samples), self.method
        if method == "percentile":
            method = f"percentile {self.percentile:g}"
        text = f"observed on {count} sample{'' if count == 1 else 's'}, {method}"
        if self.data:
            text += f" of {self.data}"
        text += f", SHA-256 {digest(samples)[:16]}"
        narrowed = sum(ranges[v] != full[v] for v in ranges)
        return text if self.method == "minmax" else f"{text}; {narrowed} ranges narrowed"

    def _narrowed(
        self, module: Module, samples: Samples, full: Mapping[Value, Range]
    ) -> dict[Value, Range]:
        """Return ranges that leave out what the method says."""
        histograms = {value: Histogram(each.largest) for value, each in full.items()}
        for value, numbers in _numbers(module, samples, full):
            histograms[value].add(numbers)
        if self.method == "percentile":
            return {v: percentile_range(h, full[v], self.percentile) for v, h in histograms.items()}
        if self.method == "entropy":
            return {v: entropy_range(h, full[v]) for v, h in histograms.items()}
        found = {v: mse_range(h, full[v]) for v, h in histograms.items()}
        return _better(module, samples, found, full)


def _better(
    module: Module,
    samples: Samples,
    found: Mapping[Value, Range],
    full: Mapping[Value, Range],
) -> dict[Value, Range]:
    """Return the ranges of ``found``, but ``full`` where its squared error is not larger.

    The errors are those of the numbers themselves; their histograms are an approximation.
    """
    saved = dict.fromkeys(found, 0.0)
    for value, numbers in _numbers(module, samples, full):
        if found[value] != full[value]:
            saved[value] += squared_error(numbers, full[value])
            saved[value] -= squared_error(numbers, found[value])
    return {v: each if saved[v] > 0 else full[v] for v, each in found.items()}


def evaluated(module: Module, inputs: Sequence[np.ndarray]) -> Iterator[tuple[Value, np.ndarray]]:
    """Yield the float values of main on example inputs, in f32, as they are computed."""
    return values_of(module, inputs)


def _numbers(
    module: Module, samples: Samples, full: Mapping[Value, Range]
) -> Iterator[tuple[Value, np.ndarray]]:
    """Yield the numbers of the values that have a range, of one sample after another."""
    for number, sample in enumerate(samples):
        for value, array in values_of(module, sample, number):
            if value in full:
                yield value, array


def _ranges(module: Module, samples: Samples) -> dict[Value, Range]:
    """Return the range of each float value that is finite on all samples (a mask may not be)."""
    found: dict[Value, Range] = {}
    endless: set[Value] = set()
    for number, sample in enumerate(samples):
        for value, array in values_of(module, sample, number):
            if not array.size or not np.isfinite(array).all():
                endless.add(value)
                continue
            here = Range(float(array.min()), float(array.max()))
            found[value] = found[value].joined(here) if value in found else here
    return {value: each for value, each in found.items() if value not in endless}


# -- samples ---------------------------------------------------------------------------------------


def calibration_samples(module: Module, context, data: str = "") -> Samples:
    """Return the samples of the file ``data``, of the compile, or its example inputs.

    Raises UserError if there are none, or for a file that cannot be read.
    """
    examples: Sequence[np.ndarray] | None = context.facts.get(EXAMPLES)
    if data:
        return read_samples(Path(data), module.main.arguments, examples)
    samples = context.facts.get(CALIBRATION) or ([] if examples is None else [examples])
    if not samples:
        raise UserError(
            "quantisation needs data", "observe", "pass example inputs or calibration samples"
        )
    return samples


def digest(samples: Samples) -> str:
    """Return the SHA-256 of the samples' dtypes, shapes and bytes, in hexadecimal."""
    found = hashlib.sha256()
    for array in (np.asarray(a) for sample in samples for a in sample):
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


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
    if array.ndim == len(shape) > 0 and array.shape[1:] == shape[1:] and shape[0]:
        if array.shape[0] % shape[0]:
            raise UserError(
                f"{array.shape[0]} rows, no multiple of the input's {shape[0]}",
                where,
                "leave some out",
            )
        array = array.reshape(array.shape[0] // shape[0], *shape)
    if array.shape[1:] != shape:
        raise UserError(
            f"shape {array.shape}, expected {shape}, several of these one after another or "
            f"(samples, {', '.join(map(str, shape))})",
            where,
            "give it the shape of the input",
        )
    same_kind = (array.dtype.kind == "f") == kind.is_float
    if not same_kind and array.dtype != kind.numpy:
        raise UserError(f"{array.dtype}, expected {kind}", where, "cast it")
    return array.astype(kind.numpy)
