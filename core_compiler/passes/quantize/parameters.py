"""Scales and zero points of ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core_compiler.ir import DType, Rounding
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.support.errors import UserError, nearest

#: The least scale: smaller ones are subnormal, and their reciprocal is not finite.
LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Range:
    """The least and the greatest number of a tensor."""

    low: float
    high: float

    def joined(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    @property
    def largest(self) -> float:
        """The greatest magnitude."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Affine:
    """Parameters of a tensor: ``(q - zero) * scale`` for q of ``dtype`` in ``low..high``."""

    scale: float
    zero: int
    dtype: DType
    low: int
    high: int

    def rounded(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers of f64 as they are after quantisation and back."""
        whole = np.rint(numbers / self.scale) + self.zero
        return (whole.clip(self.low, self.high) - self.zero) * self.scale

    def rounding(self) -> Rounding:
        """Return what quantising and back does to numbers."""
        low, high = ((q - self.zero) * self.scale for q in (self.low, self.high))
        return Rounding(self.scale, low, high)


def need_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """Raise UserError for the value of an option that is not one of its choices."""
    if value not in choices:
        fix = nearest(value, choices, f"choose one of {', '.join(choices)}")
        raise UserError(f"unknown {option} {value!r}", "quantisation", fix)


def affine(of: Range, kind: DType, symmetric: bool = False) -> Affine:
    """Return the parameters with which ``kind`` covers a range and 0.

    Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-
    only inference" (CVPR 2018). ``symmetric``: the zero point is 0 and the least value unused. A
    range of 0 alone has the scale 1.
    """
    least, most = integer_range(kind)
    low, high = min(of.low, 0.0), max(of.high, 0.0)
    if low == high:
        return Affine(1.0, 0, kind, -most if symmetric else least, most)
    if symmetric:
        scale = _f32(max(-low, high) / most)
        return Affine(scale, 0, kind, -most, most)
    scale = _f32((high - low) / (most - least))
    zero = round(least - low / scale)
    return Affine(scale, min(max(zero, least), most), kind, least, most)


def _f32(scale: float) -> float:
    return float(np.float32(max(scale, LEAST_SCALE)))
