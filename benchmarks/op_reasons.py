"""Why a case of ``benchmarks/ops.py`` is far from its limit, where it is.

The limit of a case is the time of its floating-point operations, one for each function of an
element, at the measured peak, or of its compulsory bytes at the measured bandwidth of memory of
that size, whichever is longer: what no execution can beat, not what one should reach. ``REASONS``
are in order; the first whose pattern fits ``family / case dtype`` counts.
"""

from __future__ import annotations

from fnmatch import fnmatch

#: A call costs this much, so that work of a few times as long is far from any limit.
CALL_US = 7.0
#: Below this, the call and the waking of the second thread are the reason.
SHORT_US = 60.0

_FUNCTION = "its function is 12 to 60 operations an element; the limit counts one"
_NARROW = (
    "narrow floats are widened, and rounded after every operation of the model, in vectors of 16: "
    "ten operations an element where the limit counts one; half the bytes do not make it faster"
)
_ROWS = (
    "a row is read two or three times (its largest element or mean, its sum, its results), from "
    "the first caches but by separate instructions; the limit counts one reading"
)
_DECODE = (
    "each element of the keys and values is used once: keys are turned in registers, as sums "
    "over the head run element by element in the contract's order"
)
REASONS: tuple[tuple[str, str], ...] = (
    ("products / matrix times vector*", _DECODE.replace("keys and values", "matrix")),
    (
        "products / linear 1x4096x4096*",
        (
            "each weight is used once: two loads, and two additions that wait for those of the "
            "step before"
        ),
    ),
    (
        "products / linear 16x2048x5632*",
        ("each weight is used by two register tiles only, which both load and widen it"),
    ),
    (
        "products / *i32",
        "a product of integers and its addition are two operations, where the limit counts one",
    ),
    (
        "products / matmul 256*",
        "both operands are computed and copied into panels, for a work of 70 us on one thread",
    ),
    (
        "products / batched*",
        "the operands of each of 12 products of 128 rows and 64 terms are copied into panels",
    ),
    ("attention / *1 of 1024*", _DECODE),
    (
        "attention / *",
        (
            "the exponentials are polynomials of some 20 operations, where the limit counts one; "
            "each block of rows copies all keys and values into panels"
        ),
    ),
    (
        "convolutions / depthwise*",
        (
            "each element of the image is loaded for each tap and used once; "
            "loads, two in a cycle, bound it, and the limit counts one load of each"
        ),
    ),
    (
        "convolutions / grouped*",
        "a group has 8 channels: a register tile of 32 columns is a quarter full",
    ),
    ("convolutions / transposed*", "four convolutions, whose results are interleaved in a copy"),
    (
        "convolutions / 7x7*",
        (
            "147 terms of 3 channels: the image is copied with its padding first, "
            "and a row of the sum is copied in 14 pieces"
        ),
    ),
    ("convolutions / 1-d depthwise*", "31 taps of one channel: see depthwise"),
    ("convolutions / 3-d*", "16 channels a tap: half of a vector of the copied rows"),
    (
        "convolutions / *",
        (
            "results are turned to torch's order (channels first) while they are "
            "stored, an element at a time"
        ),
    ),
    ("elementwise / pow*", _FUNCTION),
    ("elementwise / sin*", _FUNCTION),
    ("elementwise / erf*", _FUNCTION),
    ("elementwise / gelu*", _FUNCTION),
    ("elementwise / silu*", _FUNCTION),
    ("elementwise / tanh*", _FUNCTION),
    ("elementwise / sigmoid*", _FUNCTION),
    ("elementwise / exp*", _FUNCTION),
    ("elementwise / log*", _FUNCTION),
    ("elementwise / * bf16", _NARROW),
    ("elementwise / * f16", _NARROW),
    (
        "elementwise / *",
        (
            "a call reads and writes its 1 to 8 MB once, where the measured rate is of repeated "
            "copies; the rest is not understood"
        ),
    ),
    ("normalisations / *softmax*", f"{_ROWS}; {_FUNCTION}"),
    ("normalisations / cross entropy*", f"{_ROWS}; {_FUNCTION}"),
    ("normalisations / *", _ROWS),
    ("reductions / log-sum-exp*", f"{_ROWS}; {_FUNCTION}"),
    ("reductions / variance*", "two readings of a row: the mean, then the squared differences"),
    (
        "reductions / *max*",
        (
            "a value and its position for each lane: four operations an element, "
            "where the limit counts one"
        ),
    ),
    (
        "reductions / arg*",
        (
            "a value and its position for each lane: four operations an element, "
            "where the limit counts one"
        ),
    ),
    (
        "reductions / *",
        "sums run in the contract's 32 lanes: chains of additions, each waiting for the one before",
    ),
    (
        "windows / max pool*",
        (
            "each window of the result reads its elements again, nine times for one "
            "that the limit counts, with a selection for each"
        ),
    ),
    (
        "windows / average pool*",
        (
            "each window of the result reads its elements again, nine times for "
            "one that the limit counts"
        ),
    ),
    ("windows / adaptive*", "windows of unequal places are gathered element by element"),
    ("windows / grid sample*", "four elements for each result are gathered at computed places"),
    ("windows / global*", "rows of 49 elements: a vector and a half, then a tree of 32 lanes"),
    (
        "windows / *upsampling*",
        (
            "four (nearest: one; bicubic: sixteen) elements for each result at "
            "computed places, with weights of their own"
        ),
    ),
    (
        "sorting and scans / *sort*",
        (
            "a stable radix sort passes over keys and positions four to "
            "eight times; the limit counts one reading"
        ),
    ),
    (
        "sorting and scans / top*",
        "keys are counted by digits, twice or more; the limit counts one reading",
    ),
    ("sorting and scans / bins*", "counts are added one by one: each element's place is computed"),
    (
        "sorting and scans / cumul*",
        (
            "a chain of additions along the axis in the contract's order; "
            "rows run side by side, turned in registers"
        ),
    ),
    (
        "sorting and scans / distances*",
        (
            "differences, squares and a sum in the contract's order for "
            "each pair, not a product of matrices"
        ),
    ),
    (
        "data movement / scatter*",
        "places are data: each element is checked and added alone, in ascending order",
    ),
    ("data movement / gather*", "places are data: elements are gathered one by one"),
    ("data movement / fold*", "each result adds the nine windows that contain it"),
    ("data movement / unfold*", "each element is written nine times; runs are shorter than lines"),
    (
        "data movement / *",
        (
            "runs of a few lines with places of their own: index arithmetic for each "
            "run, where the limit counts bytes"
        ),
    ),
    ("recurrent / *", "64 steps after one another, each a product of 8 rows and five functions"),
)


def reason(family: str, case: str, dtype: str, least_us: float) -> str | None:
    """Return why the case is far from its limit, or None if no reason is written."""
    if least_us < SHORT_US:
        return f"a call costs {CALL_US:.0f} us, and waking the second thread some more"
    name = f"{family} / {case} {dtype}"
    return next((text for pattern, text in REASONS if fnmatch(name, pattern)), None)
