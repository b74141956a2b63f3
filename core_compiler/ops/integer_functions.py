"""Softmax and normalisation of integers: composites of exact arithmetic in i32.

In the manner of Kim et al., "I-BERT: Integer-only BERT quantization" (ICML 2021), with tables of
513 entries (core.table) in place of polynomials, and one division or table for a row in place of
iterations. No float is involved, so all targets and TOSA's integer profile share every bit.
"""

from __future__ import annotations

from math import floor, log2, prod

import numpy as np

from core_compiler.ir import Value, dtype
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.ops import typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.composite import others, size_of, spread
from core_compiler.ops.gradients.table import CONSTANT
from core_compiler.ops.quantised import (
    FRACTION,
    LEAST_SHIFT,
    MOST_SHIFT,
    MULTIPLIER_BITS,
    WIDE_TABLE,
    fixed_point,
)
from core_compiler.ops.rules import BOOL, I32, need, need_axis, need_dtype, need_static, show

I16 = dtype("i16")
#: Bits of the entries of a table, and of its interpolated results.
ENTRY_BITS = 15
WIDE_BITS = ENTRY_BITS + FRACTION

# -- softmax ---------------------------------------------------------------------------------------

#: The unit of exponents is 1 / 4096: an index of 16 bits reaches exp(-16), 2**-23.
EXPONENT_BITS = 12
#: The result of ``integer_softmax`` that stands for 1.
SHARE_BITS = 29
#: The longest row: the exponentials that are rounded to 0 would be missed in the sum of more.
LONGEST_SOFTMAX = 2048


def _need_table(name: str, found) -> None:
    need_dtype(name, found, (I16,))
    need(found.shape == (WIDE_TABLE,), f"{name} is {show(found.shape)}, expected ({WIDE_TABLE})")


def _softmax_rule(types, attributes):
    q, upper, lower, *visible = types
    _need_table("upper", upper)
    _need_table("lower", lower)
    need_dtype("q", q, (dtype("i8"), dtype("ui8"), I16))
    multiplier, shift = attributes["multiplier"], attributes["shift"]
    need(0 < multiplier < 1 << MULTIPLIER_BITS, f"multiplier is {multiplier}, expected 31 bits")
    need(
        LEAST_SHIFT <= shift <= MOST_SHIFT,
        f"shift is {shift}, expected {LEAST_SHIFT} to {MOST_SHIFT}",
    )
    need_axis(attributes["axis"], q.rank)
    size = need_static("the softmax's axis", q.shape[attributes["axis"]])
    need(size <= LONGEST_SOFTMAX, f"rows of {size} numbers, at most {LONGEST_SOFTMAX} can be added")
    for mask in visible:
        need_dtype("visible", mask, (BOOL,))
        need(mask.shape == q.shape, f"visible is {show(mask.shape)}, expected {show(q.shape)}")
    return (q.with_(dtype=I32),)


def exponentials() -> tuple[np.ndarray, np.ndarray]:
    """Return the upper and lower 15 bits of exp at the 513 positions of a table's entries."""
    index = np.arange(WIDE_TABLE, dtype=np.float64) * (1 << FRACTION) - 32768
    exponent = (index - 32767) / (1 << EXPONENT_BITS)
    largest = (1 << ENTRY_BITS) - 1
    whole = np.rint(np.exp(exponent - exponent[-1]) * largest * (1 << ENTRY_BITS)).astype(np.int64)
    return (whole >> ENTRY_BITS).astype(np.int16), (whole & largest).astype(np.int16)


def _shifted(b, x: Value, amount: Value) -> Value:
    """Return ``x / 2**amount``, halves up; ``amount`` may be 0."""
    one = b.scalar_like(1, x)
    return b.shr(b.add(x, b.shr(b.shl(one, amount), one)), amount)


def _less(b, x: Value, bits: int) -> Value:
    """Return ``x / 2**bits``, halves up."""
    return _shifted(b, x, b.scalar_like(bits, x)) if bits else x


def _normalised(b, x: Value, steps: tuple[int, ...]) -> tuple[Value, Value]:
    """Return positive ``x`` shifted left by a sum of ``steps`` so that bit 30 is near, and the sum.

    Compares and selects: TOSA's CLZ would do, but no processor of ours has it for vectors.
    """
    moved = b.scalar_like(0, x)
    for step in steps:
        small = b.lt(x, b.scalar_like(1 << (31 - step), x))
        amount = b.scalar_like(step, x)
        x = b.select(small, b.shl(x, amount), x)
        moved = b.select(small, b.add(moved, amount), moved)
    return x, moved


def _softmax(b, op: typed.IntegerSoftmax):
    q, upper, lower, *visible = op.operands
    axis, rank = op.axis, q.type.rank
    if 0 in q.type.shape:
        return b.cast(q, dtype=I32)
    kept = others(rank, (axis,))
    wide = b.cast(q, dtype=I32)
    seen = wide
    if visible:
        seen = b.select(visible[0], wide, b.scalar_like(integer_range(q.type.dtype)[0], wide))
    top = spread(b, b.reduce_max(seen, axes=(axis,)), wide, kept)
    # Differences that exp makes 0 are cut off first, so that the rescaled ones fit i32.
    most = ((1 << 16) << op.shift) // op.multiplier + 1
    below = b.clamp(b.sub(seen, top), low=max(-most, -(1 << 31)), high=0)
    below = b.clamp(_times(b, below, op.multiplier, op.shift), low=-65535, high=0)
    index = b.cast(b.add(below, b.scalar_like(32767, below)), dtype=I16)
    e = b.add(b.table(index, upper), _less(b, b.table(index, lower), ENTRY_BITS))
    # A row's sum fits 31 bits.
    bits = min(WIDE_BITS, 31 - (size_of(q, (axis,))).bit_length())
    e = _less(b, e, WIDE_BITS - bits)
    if visible:
        e = b.select(visible[0], e, b.scalar_like(0, e))
    total = b.reduce_sum(e, axes=(axis,))
    total, moved = _normalised(b, b.max(total, b.scalar_like(1, total)), (16, 8, 4, 2, 1))
    leading = b.shr(total, b.scalar_like(31 - (ENTRY_BITS + 1), total))
    half = b.shr(leading, b.scalar_like(1, leading))
    reciprocal = b.div(b.add(b.scalar_like(1 << 30, leading), half), leading)
    share = b.mul(_less(b, e, bits - ENTRY_BITS), spread(b, reciprocal, e, kept))
    # 2**30 / leading * e / 2**(bits - 15), in units of 2**-29.
    right = b.max(b.sub(b.scalar_like(31 - bits, moved), moved), b.scalar_like(0, moved))
    return _shifted(b, share, spread(b, right, e, kept))


declare(
    OpDef(
        "core.integer_softmax",
        "softmax of q * multiplier / 2**shift / 4096 where visible, 0 elsewhere, in units of "
        "2**-29: exponentials by two tables (the upper and lower 15 bits), their sum in i32, one "
        "division a row",
        ("q", "upper", "lower", "visible?"),
        _softmax_rule,
        attributes={
            "axis": Attr(int, doc="the axis that sums to 1"),
            "multiplier": Attr(int, doc="of the factor of q, of 31 bits"),
            "shift": Attr(int, doc="of the factor of q"),
        },
        decompose=_softmax,
        gradient=CONSTANT,
    )
)

# -- normalisation ---------------------------------------------------------------------------------

#: The square of the greatest magnitude of a byte less its zero point, or a row's mean.
SQUARE = 255**2
#: The most numbers that are normalised together: their squares add to less than 2**30.
LONGEST_NORMALIZE = (1 << 30) // SQUARE


def variance_bits(count: int) -> int:
    """Return the bits below the point of a sum of ``count`` squares."""
    return floor(log2((1 << 30) // (SQUARE * count)))


def normalized_bits(count: int) -> int:
    """Return the bits below the point of ``count`` numbers normalised, of at most sqrt(count)."""
    return 16 - ((count - 1).bit_length() + 1) // 2


def _normalize_rule(types, attributes):
    q, roots = types
    _need_table("roots", roots)
    need_dtype("q", q, (dtype("i8"), dtype("ui8")))
    need_axis(attributes["axis"], q.rank)
    sizes = [need_static("a normalised axis", s) for s in q.shape[attributes["axis"] :]]
    count = prod(sizes)
    need(
        0 < count <= LONGEST_NORMALIZE,
        f"{count} numbers to normalise, expected 1 to {LONGEST_NORMALIZE}",
    )
    epsilon = attributes["epsilon"]
    need(0 <= epsilon < 1 << 30, f"epsilon is {epsilon}, expected 0 to {(1 << 30) - 1}")
    low, high = integer_range(q.dtype)
    need(low <= attributes["zero_point"] <= high, f"zero_point is not of {q.dtype.name}")
    return (q.with_(dtype=I32),)


def inverse_roots() -> np.ndarray:
    """Return 32767 * sqrt(2**13 / u) for u of [2**13, 2**15) at the 513 positions of a table."""
    index = np.arange(WIDE_TABLE, dtype=np.float64) * (1 << FRACTION) - 32768
    # u is cut off: it stands for numbers half a unit larger on average.
    numbers = np.maximum(index, 1 << 13) + 0.5
    return np.rint(((1 << ENTRY_BITS) - 1) * np.sqrt((1 << 13) / numbers)).astype(np.int16)


def _scaled(b, x: Value, factor: float, largest: int = (1 << 31) - 1) -> Value:
    """Return ``x * factor`` of integers that are within ``largest``, which is said by limits."""
    found = fixed_point(factor)
    assert found is not None
    if factor > 0.5:  # TOSA must know that the values fit the bits of its multiplier
        x = b.clamp(x, low=-largest, high=largest)
    return _times(b, x, *found)


def _times(b, x: Value, multiplier: int, shift: int) -> Value:
    """Return ``x * multiplier / 2**shift``, halves up."""
    held = b.constant(multiplier, I32), b.constant(shift, dtype("i8"))
    return b.rescale(x, *held, dtype=I32)


def _normalize(b, op: typed.IntegerNormalize):
    q, roots = op.operands
    axes = tuple(range(op.axis, q.type.rank))
    kept, count = tuple(range(op.axis)), size_of(q, axes)
    bits = variance_bits(count)
    wide = b.cast(q, dtype=I32)
    x = b.sub(wide, b.scalar_like(op.zero_point, wide)) if op.zero_point else wide
    fraction = b.scalar_like(FRACTION, x)
    fine = b.shl(x, fraction)
    rest = None
    if op.centre:
        total = b.reduce_sum(x, axes=axes)
        mean = _scaled(b, total, 1 / count)
        rest = b.sub(total, b.mul(mean, b.scalar_like(count, mean)))
        x = b.sub(x, spread(b, mean, x, kept))
        fine = b.shl(x, fraction)
        fine = b.sub(fine, spread(b, _scaled(b, rest, (1 << FRACTION) / count, count), fine, kept))
    squares = b.reduce_sum(b.mul(x, x), axes=axes)
    power = b.shl(squares, b.scalar_like(bits, squares))
    if rest is not None:
        power = b.sub(power, _scaled(b, b.mul(rest, rest), (1 << bits) / count, count**2))
    power = b.add(power, b.scalar_like(op.epsilon, power))
    power, moved = _normalised(b, b.max(power, b.scalar_like(1, power)), (16, 8, 4, 2))
    leading = b.cast(b.shr(power, b.scalar_like(16, power)), dtype=I16)
    root = _less(b, b.table(leading, roots), FRACTION)
    one = b.scalar_like(1, moved)
    right = b.sub(b.scalar_like(ENTRY_BITS, moved), b.shr(moved, one))
    made = b.mul(fine, spread(b, root, fine, kept))
    made = _shifted(b, made, spread(b, right, fine, kept))
    # sqrt(count * 2**bits / (leading * 2**16)), as root and shift have it.
    unit = ((1 << bits) * count) ** 0.5 * 2**-6.5 / ((1 << ENTRY_BITS) - 1)
    factor = unit * (1 << normalized_bits(count))
    return _scaled(b, made, factor, floor((1 << 17) / factor))


declare(
    OpDef(
        "core.integer_normalize",
        "(x - mean) / sqrt(variance), of x = q - zero_point over the axes from ``axis`` on, in i32 "
        "with 16 - ceil(log2(n) / 2) bits below the point for n numbers: exact sums, and a table "
        "of inverse square roots",
        ("q", "roots"),
        _normalize_rule,
        attributes={
            "axis": Attr(int, doc="the first axis of what is normalised; all after it belong too"),
            "zero_point": Attr(int, 0, "zero point of q"),
            "epsilon": Attr(
                int,
                0,
                "added to n * variance, in units of 2**-f, f = floor(log2(2**30 / 255**2 n))",
            ),
            "centre": Attr(bool, True, "subtract the mean; else root of the mean square"),
        },
        decompose=_normalize,
        gradient=CONSTANT,
    )
)
