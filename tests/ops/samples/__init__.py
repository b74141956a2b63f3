"""At least one sample for every declared op: operands, attributes, and an oracle."""

from tests.ops.samples import (
    arithmetic,
    composites,
    effects,
    elementwise,
    gradients,
    integer_functions,
    linear_algebra,
    movement,
    quantised,
)
from tests.ops.samples.base import TOLERANCE, Sample

SAMPLES: list[Sample] = [
    *elementwise.SAMPLES,
    *movement.SAMPLES,
    *arithmetic.SAMPLES,
    *effects.SAMPLES,
    *composites.SAMPLES,
    *gradients.SAMPLES,
    *linear_algebra.SAMPLES,
    *quantised.SAMPLES,
    *integer_functions.SAMPLES,
]

__all__ = ["SAMPLES", "TOLERANCE", "Sample"]
