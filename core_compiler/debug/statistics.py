"""Statistics of a network's values on the inputs of a check, to find where values blow up.

Checking evaluates these values anyway, so scanning them costs little.  Only the gradients of a
training step's parameters are evaluated for the statistics alone, in the stage where they are new:
a later pass may update a parameter in the kernel that computes its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from core_compiler.ir import Module, TensorType, Value
from core_compiler.ir.events import TensorStats

#: Maximum number of values of a stage, and of their elements in total, that are scanned.
MOST_VALUES, MOST_ELEMENTS = 5_000, 1 << 28
#: Bins of a histogram, and about how many evenly spaced elements it counts at most.
BINS, SAMPLE = 24, 1 << 14


def network_values(module: Module) -> list[Value]:
    """Return the tensors of ``main`` that depend on its inputs, and these, in program order."""
    reached = dict.fromkeys(v for v in module.main.arguments if isinstance(v.type, TensorType))
    for op in module.main.body.ops:
        if any(v in reached for v in op.uses()):
            reached.update(dict.fromkeys(v for v in op.results if isinstance(v.type, TensorType)))
    return list(reached)


def stage_statistics(
    module: Module, known: Mapping[Value, np.ndarray], stage: int
) -> tuple[list[TensorStats], int]:
    """Return the statistics of the network's values in ``module``, and the number left out.

    ``known`` holds their tensors; the order is program order.  Values are left out if there are too
    many.
    """
    wanted = [v for v in network_values(module) if v in known]
    made, left = [], MOST_ELEMENTS
    for value in wanted[:MOST_VALUES]:
        if known[value].size > left:  # those after it may be small
            continue
        left -= known[value].size
        made.append(statistics(value, known[value], stage))
    return made, len(wanted) - len(made)


def statistics(value: Value, array: np.ndarray, stage: int = 0) -> TensorStats:
    """Return minimum, maximum, mean and NaN/Inf counts of all elements, and a sample's histogram.

    Minimum, maximum and mean are of the finite elements (NaN if there are none).  The histogram has
    ``BINS`` bins of equal width from minimum to maximum; tensors of more than ``SAMPLE`` elements
    are sampled with an odd stride, which visits all channels of the usual power-of-two layouts.
    """
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind == "b":
        flat = flat.view(np.uint8)
    elif flat.dtype.kind not in "iuf" or (flat.dtype.kind == "f" and flat.dtype.itemsize < 4):
        flat = flat.astype(np.float32)  # half precision, on which NumPy is slow
    nan = inf = 0
    if flat.size and flat.dtype.kind == "f" and not np.isfinite([flat.min(), flat.max()]).all():
        finite = np.isfinite(flat)
        nan = int(np.count_nonzero(np.isnan(flat)))
        inf = flat.size - int(np.count_nonzero(finite)) - nan
        flat = flat[finite]
    if not flat.size:
        undefined = float("nan")
        return TensorStats(value, undefined, undefined, undefined, nan, inf, ((), ()), stage)
    low, high = float(flat.min()), float(flat.max())
    with np.errstate(over="ignore"):
        mean = float(flat.mean(dtype=np.float64))
    return TensorStats(value, low, high, mean, nan, inf, _histogram(flat, low, high), stage)


def _histogram(flat: np.ndarray, low: float, high: float) -> tuple[list[float], list[int]]:
    sample = flat[:: (flat.size // SAMPLE) | 1].astype(np.float64)
    width = high - low
    if width == 0.0:
        return [low, high], [sample.size]
    if not math.isfinite(width):
        return [], []
    bin_numbers = np.minimum(((sample - low) / width * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bin_numbers, minlength=BINS)
    edges = [float(f"{edge:.6g}") for edge in np.linspace(low, high, BINS + 1)]
    return edges, counts.tolist()
