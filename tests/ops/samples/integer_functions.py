"""Softmax and normalisation of integers, row by row, in Python's whole numbers."""

from __future__ import annotations

from math import ceil, floor, log2

import numpy as np

from core_compiler.ops.integer_functions import exponentials, inverse_roots
from core_compiler.ops.quantised import fixed_point
from tests.ops.samples.base import Sample, generator, sample, values
from tests.ops.samples.quantised import tosa_scale


def interpolated(table: np.ndarray, x: int) -> int:
    """``TABLE`` of TOSA's specification, for 16 bits."""
    first, fraction = (x >> 7) + 256, x & 127
    low, high = int(table[first]), int(table[first + 1])
    return (low << 7) + (high - low) * fraction


def _half_up(x: int, bits: int) -> int:
    return (x + ((1 << bits) >> 1)) >> bits


def scaled(value: int, factor: float) -> int:
    """``value`` times the nearest fixed-point number of 31 bits."""
    multiplier, shift = fixed_point(factor)  # type: ignore[misc]
    return tosa_scale(value, multiplier, shift, False)


def softmax_row(row, multiplier, shift, upper, lower, visible) -> list[int]:
    """One row, as the numerics contract says it."""
    least = min(int(np.iinfo(row.dtype).min), 0)
    seen = [int(q) if v else least for q, v in zip(row, visible, strict=True)]
    top = max(seen)
    bits = min(22, 31 - len(row).bit_length())
    e = []
    for q, shown in zip(seen, visible, strict=True):
        below = tosa_scale(q - top, multiplier, shift, False)
        index = min(max(below, -65535), 0) + 32767
        made = interpolated(upper, index) + _half_up(interpolated(lower, index), 15)
        e.append(_half_up(made, 22 - bits) if shown else 0)
    total = max(sum(e), 1)
    moved = 31 - total.bit_length()
    leading = (total << moved) >> 15
    reciprocal = ((1 << 30) + (leading >> 1)) // leading
    right = max(31 - bits - moved, 0)
    return [_half_up(_half_up(each, bits - 15) * reciprocal, right) for each in e]


def _softmax(axis: int, multiplier: int, shift: int):
    def run(q, upper, lower, visible=None):
        rows = np.moveaxis(q, axis, -1)
        masks = np.ones_like(rows, bool) if visible is None else np.moveaxis(visible, axis, -1)
        made = np.empty(rows.shape, np.int32)
        for index in np.ndindex(rows.shape[:-1]):
            made[index] = softmax_row(rows[index], multiplier, shift, upper, lower, masks[index])
        return np.moveaxis(made, -1, axis)

    return run


def normalized_row(row, roots, zero: int, epsilon: int, centre: bool) -> list[int]:
    """One row, as the numerics contract says it."""
    x, count = [int(q) - zero for q in row], len(row)
    bits = floor(log2((1 << 30) // (255**2 * count)))
    rest = 0
    fine = [each << 7 for each in x]
    if centre:
        mean = scaled(sum(x), 1 / count)
        rest = sum(x) - count * mean
        x = [each - mean for each in x]
        off = scaled(rest, 128 / count)
        fine = [(each << 7) - off for each in x]
    power = sum(each * each for each in x) << bits
    power -= scaled(rest * rest, (1 << bits) / count) if centre else 0
    power = max(power + epsilon, 1)
    moved = (31 - power.bit_length()) // 2 * 2
    root = _half_up(interpolated(roots, (power << moved) >> 16), 7)
    unit = ((1 << bits) * count) ** 0.5 * 2**-6.5 / 32767
    below = 16 - ceil(log2(count) / 2)
    parts = (_half_up(each * root, 15 - moved // 2) for each in fine)
    return [scaled(part, unit * (1 << below)) for part in parts]


def _normalize(axis: int, zero_point: int, epsilon: int, centre: bool):
    def run(q, roots):
        rows = q.reshape(-1, int(np.prod(q.shape[axis:])))
        made = [normalized_row(row, roots, zero_point, epsilon, centre) for row in rows]
        return np.array(made, np.int32).reshape(q.shape)

    return run


def _samples() -> list[Sample]:
    made = []
    random = generator("integer functions")
    tables = exponentials()
    for kind, shape, axis in (("i8", (5, 33), 1), ("i16", (3, 4, 130), 2), ("ui8", (7, 3, 2), 0)):
        info = np.iinfo({"i8": np.int8, "i16": np.int16, "ui8": np.uint8}[kind])
        low, high = int(info.min), int(info.max)
        q = values(shape, kind, low, high)
        q.flat[:7] = low
        point = fixed_point((0.06 if kind != "i16" else 0.0004) * 4096)
        assert point is not None
        factor = {"multiplier": point[0], "shift": point[1]}
        mask = random.integers(0, 2, shape).astype(bool)
        mask[0] = False
        for visible in ((), (mask,)):
            made.append(
                sample(
                    "integer_softmax",
                    q,
                    *tables,
                    *visible,
                    oracle=_softmax(axis, **factor),
                    exact=True,
                    label=f"{kind}{'-masked' if visible else ''}",
                    axis=axis,
                    **factor,
                )
            )
    for kind, shape, axis in (("i8", (6, 33), 1), ("ui8", (2, 3, 4, 5), 2), ("i8", (9, 1), 1)):
        info = np.iinfo(np.int8 if kind == "i8" else np.uint8)
        q = values(shape, kind, int(info.min), int(info.max))
        q[0] = info.max
        q[1] = values(shape[1:], kind, 20, 22)
        for zero, epsilon, centre in ((0, 0, True), (9, 500, True), (9, 70000, False)):
            options = {"zero_point": zero, "epsilon": epsilon, "centre": centre}
            made.append(
                sample(
                    "integer_normalize",
                    q,
                    inverse_roots(),
                    oracle=_normalize(axis, **options),
                    exact=True,
                    label=f"{kind}-{len(shape)}-{epsilon}",
                    axis=axis,
                    **options,
                )
            )
    return made


SAMPLES = _samples()
