"""Adversarial values: NaN, infinities, zeros of both signs, equal values, denormals...

Example inputs are harmless: they do not show errors on such values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.ir import TensorType

#: Classes of values, in the order in which they are tried, with their names for the user.
CLASSES: Mapping[str, str] = {
    "mixed": "special values",
    "zeros": "zeros of both signs",
    "ties": "equal values",
    "nan": "NaN",
    "infinities": "infinities",
    "denormals": "denormal values",
    "largest": "the largest finite values",
    "spread": "a large mean with a small spread",
    "positions": "positions out of range",
    "bounds": "values at and beside constants",
    "negative": "negative values",
    "open": "NaN and infinities",
    "full": "almost only infinities",
}
#: Classes for single nodes of a framework, which has its own results for overflows and denormals.
OF_NODES = frozenset({"bounds", "negative", "open", "full"})
#: Classes whose values are finite and of a size for which a tolerance is meaningful.
FINITE = frozenset({"zeros", "ties", "spread"})
#: Numbers halfway between two neighbours of a narrower format, with an even and an odd one below.
_HALFWAY = tuple(1 + odd * 2.0 ** -(bits + 1) for bits in range(1, 13) for odd in (1, 3))
#: Larger arrays repeat a block of this many values (a prime, so that it aligns with no axis).
BLOCK = 65_537


def array(
    class_: str,
    kind: TensorType,
    random: np.random.Generator,
    constants: Sequence[Any],
    elementwise: bool,
) -> np.ndarray:
    """Return an array of a class for a value of type ``kind``."""
    shape: Any = kind.shape
    dtype = kind.dtype.numpy
    if kind.dtype.is_float:
        return floats(class_, shape, dtype, random, constants)
    if dtype == np.bool_:
        return random.integers(0, 2, shape).astype(bool)
    if not elementwise and class_ != "positions":  # these may be positions
        return random.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    pool = (
        [0, 1, 2, 3]
        if limits is None
        else [
            0,
            1,
            2,
            3,
            int(limits.max),
            int(limits.max) - 1,
            int(limits.min),
            int(limits.min) + 1,
            int(limits.max) // 2,
            *([-1, -2] if dtype.kind == "i" else []),
        ]
    )
    return random.choice(np.array(pool, dtype), shape)


def floats(
    class_: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    random: np.random.Generator,
    constants: Sequence[Any] = (),
) -> np.ndarray:
    """Return floats of a class; ``constants`` are values to hit exactly and from both sides."""
    count = math.prod(shape)
    if count > BLOCK:
        return np.resize(floats(class_, (BLOCK,), dtype, random, constants), shape)
    normal = random.standard_normal(shape)
    if class_ == "positions":
        return normal.astype(dtype)
    largest, tiny, least = limits_of(dtype)
    if class_ == "zeros":
        return (random.choice([0.0, -0.0, 1.0, -1.0], shape)).astype(dtype)
    if class_ == "ties":
        return (random.choice([1.0, 2.0], shape)).astype(dtype)
    if class_ == "spread":
        mean = 100.0 if largest > 1e5 else 8.0  # a sum of products stays finite
        return (mean + normal / 16).astype(dtype)
    if class_ == "negative":
        return (-0.5 - np.abs(normal)).astype(dtype)
    if class_ == "denormals":
        return (least * random.integers(-40, 41, shape)).astype(dtype)
    is_special = random.random(shape) < 0.1
    if class_ == "full":  # windows and rows without a finite number, of either sign
        half = np.arange(count).reshape(shape) < count // 2
        return np.where(is_special, normal, np.where(half, -np.inf, np.inf)).astype(dtype)
    if class_ == "nan":
        return np.where(is_special, random.choice([np.nan, -np.nan], shape), normal).astype(dtype)
    if class_ == "infinities":
        return np.where(is_special, random.choice([np.inf, -np.inf], shape), normal).astype(dtype)
    if class_ == "largest":
        return np.where(is_special, random.choice([largest, -largest], shape), normal).astype(dtype)
    near_constants = []
    for constant in constants:
        if np.dtype(type(constant)).kind == "f" and np.isfinite(constant):
            with np.errstate(over="ignore"):
                rounded = np.asarray(constant, dtype if dtype.kind == "f" else np.float32)
                up, down = (
                    np.nextafter(rounded, np.array(e, rounded.dtype)) for e in (np.inf, -np.inf)
                )
            near_constants += [float(rounded), float(up), float(down), -float(rounded)]
    if class_ in OF_NODES:
        near_constants = [v for v in near_constants if not 0 < abs(v) < tiny]
    common = [0.0, -0.0, 1.0, -1.0, 0.5]
    pool = [
        *common,
        np.inf,
        -np.inf,
        np.nan,
        least,
        -least,
        tiny,
        -tiny,
        largest,
        -largest,
        2.0,
        -2.0,
        3.7,
        *near_constants,
    ]
    if class_ == "bounds":
        pool = [*common, -0.5, 1.5, -1.5, 2.5, -2.5, 3.7, -3.7, *_HALFWAY, *near_constants]
    elif class_ == "open":
        pool = [*common, np.inf, -np.inf, np.nan, *near_constants]
    with np.errstate(over="ignore", invalid="ignore"):
        return random.choice(np.array(pool, np.float64), shape).astype(dtype)


def limits_of(dtype: np.dtype) -> tuple[float, float, float]:
    """Return the largest finite, smallest normal and smallest denormal value of a float dtype."""
    import ml_dtypes

    found = ml_dtypes.finfo(dtype)  # supports NumPy's own dtypes too
    return float(found.max), float(found.tiny), float(found.smallest_subnormal)
