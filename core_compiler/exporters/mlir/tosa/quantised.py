"""Rescaled integers, tables and limits in TOSA; exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import I8, I16, I32, Tosa, inverted, op
from core_compiler.exporters.mlir.tosa.contraction import UI8, signed, unsigned
from core_compiler.ir import DType, dtype, tensor
from core_compiler.ops import typed

#: The dtypes that TOSA rescales; unsigned bytes as signed ones.
_RESCALED = (I8, UI8, I16, I32)
#: Bits of a multiplier without its sign, the limits of shifts, and the greatest of those that are
#: never followed by a second rounding.
_BITS, _LEAST_SHIFT, _MOST_SHIFT, _MOST_SINGLE = 31, 2, 62, 31


#: The largest difference of adjacent entries of a table, which TOSA interpolates between.
_STEP = (1 << 15) - 1


# -- rescale ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Factors:
    """Factors ``multiplier / 2**shift``, one for each channel or one for all.

    TOSA multiplies values of ``-2**(shift - 1)..2**(shift - 1) - 1`` only: shifts are as large as
    the same factors allow.
    """

    multiplier: np.ndarray
    shift: np.ndarray
    double: bool

    @classmethod
    def of(cls, multiplier: np.ndarray, shift: np.ndarray, double: bool) -> _Factors:
        m, s = (np.atleast_1d(v).astype(np.int64) for v in (multiplier, shift))
        if (m == m[0]).all() and (s == s[0]).all():
            m, s = m[:1], s[:1]
        # A second rounding needs a shift above 31.
        double = double and bool((s > _MOST_SINGLE).any())
        most = np.where(s <= _MOST_SINGLE, _MOST_SINGLE, s) if double else _MOST_SHIFT
        bits = np.array([int(v).bit_length() for v in m])
        more = np.clip(np.minimum(_BITS - bits, most - s), 0, None)
        return cls(m << more, s + more, double)

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest value that TOSA multiplies."""
        end = np.int64(1) << (self.shift - 1)
        return -end, end - 1

    def saturates(self, low: int, high: int, made: range) -> bool:
        """Return whether values of ``low..high`` beyond the limits give an end of ``made``.

        ``made``: the results less their zero point.
        """
        least, most = self.limits
        half = np.int64(1) << (self.shift - 1)
        ends = [(v * self.multiplier + half) >> self.shift for v in (least, most)]
        below = (low >= least) | (ends[0] <= made.start)
        return bool((below & ((high <= most) | (ends[1] >= made.stop - 1))).all())

    def fit(self, low: int, high: int) -> bool:
        """Return whether TOSA multiplies all values of ``low..high``."""
        least, most = self.limits
        return bool((least <= low).all() and (high <= most).all())


def _values(kind: DType, zero: int) -> range:
    """Return the values of a dtype less a zero point."""
    limits = np.iinfo(kind.numpy)
    return range(int(limits.min) - zero, int(limits.max) - zero + 1)


def _values_of(b: Tosa, op: typed.Rescale) -> range:
    """Return the values that a rescale multiplies, as far as limits before it say."""
    every = _values(op.x.type.dtype, op.input_zero)
    low, high = every.start, every.stop - 1
    value = op.x
    while (maker := b.makers.get(value)) is not None:
        limits = typed.Max.match(maker) or typed.Min.match(maker)
        held = None if limits is None else b.number_of(maker.operands[1])
        if limits is None or held is None:
            break
        number = int(held) - op.input_zero
        if typed.Max.match(maker):
            low = max(low, number)
        else:
            high = min(high, number)
        value = maker.operands[0]
    return range(low, high + 1)


def _lacks_rescale(b: Tosa, op: typed.Rescale) -> str:
    """Return why TOSA does not have a rescale."""
    x, made = op.x.type.dtype, op.dtype
    if x not in _RESCALED or made not in _RESCALED:
        return f"rescales of {x} to {made}"
    for kind, zero in ((x, op.input_zero), (made, op.output_zero)):
        if zero and kind is I16:
            return f"zero points of {kind}"
    factors = _factors_of(b, op)
    if factors is None:
        return "factors that are not constants, negative or too large"
    given, wanted = _values_of(b, op), _values(made, op.output_zero)
    fits = factors.saturates(given.start, given.stop - 1, wanted)
    return "" if fits else f"factors whose results may exceed {made}"


def _factors_of(b: Tosa, op: typed.Rescale) -> _Factors | None:
    multiplier, shift = b.array_of(op.multiplier), b.array_of(op.shift)
    if multiplier is None or shift is None or multiplier.min() < 0:
        return None
    factors = _Factors.of(multiplier, shift, op.double_round)
    valid = shift.min() >= 0 and _LEAST_SHIFT <= factors.shift.min() <= factors.shift.max()
    return factors if valid and factors.shift.max() <= _MOST_SHIFT else None


@op("rescale", lacks=_lacks_rescale)
def rescale(b: Tosa, op: typed.Rescale, x: Ref, multiplier: Ref, shift: Ref) -> Ref:
    """Emit ``tosa.rescale``, whose channels are the last axis.

    Values that it does not multiply are limited first: their results are the limits of the dtype.
    Unsigned bytes are signed ones with another zero point.
    """
    factors = _factors_of(b, op)
    assert factors is not None
    values, zero = _values_of(b, op), op.input_zero
    fit = factors.fit(values.start, values.stop - 1)

    def emit(x: Ref) -> Ref:
        given = (x, zero) if fit else (_limited(b, widened(b, x, zero), factors), 0)
        return _emitted(b, *given, factors, op.dtype, op.output_zero)

    if factors.multiplier.size == 1:
        return b.before_transposes(emit, x)
    assert op.axis is not None
    order = (*(a for a in range(x.type.rank) if a != op.axis), op.axis)
    return b.transposed(emit(b.transposed(x, order)), inverted(order))


def widened(b: Tosa, x: Ref, zero: int = 0) -> Ref:
    """Return integers less their zero point in i32, by a rescale with the factor 1."""
    if x.type.dtype is I32:
        return x
    one = _Factors.of(np.array(1), np.array(0), False)
    return b.before_transposes(lambda x: _emitted(b, x, zero, one, I32, 0), x)


def _limited(b: Tosa, x: Ref, factors: _Factors) -> Ref:
    """Limit integers of i32 to what TOSA multiplies."""
    ends = np.iinfo(np.int32)
    shape = (*(1,) * (x.type.rank - 1), -1) if x.type.rank else ()
    low, high = (
        b.constant(v.clip(ends.min, ends.max).astype(np.int32).reshape(shape))
        for v in factors.limits
    )
    return b.each("minimum", b.each("maximum", x, low), high)


def _emitted(b: Tosa, x: Ref, zero: int, factors: _Factors, kind: DType, made_zero: int) -> Ref:
    if kind is UI8:
        return unsigned(b, _emitted(b, x, zero, factors, I8, made_zero - 128))
    rounding = "DOUBLE_ROUND" if factors.double else "SINGLE_ROUND"
    facts = {
        "scale32": "true",
        "rounding_mode": f"#tosa.rounding_mode<{rounding}>",
        "per_channel": "true" if factors.multiplier.size > 1 else "false",
        "input_unsigned": "false",
        "output_unsigned": "false",
    }
    multiplier = b.constant(factors.multiplier.astype(np.int32))
    shift = b.constant(factors.shift.astype(np.int8))
    x, zero = signed(b, x, zero)
    points = [b.zero_point(x.type.dtype, zero), b.zero_point(kind, made_zero)]
    return b.op("rescale", [x, multiplier, shift, *points], tensor(x.type.shape, kind), facts)


# -- tables and limits -----------------------------------------------------------------------------


def _lacks_table(b: Tosa, op: typed.Table) -> str:
    """Return why TOSA does not have a table."""
    entries = b.array_of(op.table)
    if entries is None:
        return "a table that is not constant"
    if op.x.type.dtype is I16:
        steps = np.abs(np.diff(entries.astype(np.int32)))
        return "a table whose entries differ by more than i16" if steps.max() > _STEP else ""
    return "" if op.table.type.dtype.bits == 8 else f"a table of {op.table.type.dtype}"


@op("table", lacks=_lacks_table)
def table(b: Tosa, op: typed.Table, x: Ref, entries: Ref) -> Ref:
    """Emit ``tosa.table``; unsigned bytes are read as signed ones."""
    kind = op.result.type.dtype
    x, _ = signed(b, x)
    entries = entries.read_as(tensor(entries.type.shape, dtype(f"i{entries.type.dtype.bits}")))

    def emit(x: Ref) -> Ref:
        made = tensor(x.type.shape, dtype(f"i{kind.bits}"))
        return b.op("table", [x, entries], made)

    made = b.before_transposes(emit, x)
    return made.read_as(made.type.with_(dtype=kind))


def _lacks_clamp(b: Tosa, op: typed.Clamp) -> str:
    if op.x.type.dtype not in (I8, I16):
        return f"limits of {op.x.type.dtype}"
    low, high = _bounds(op)
    return "" if low <= high else "limits that cross"


def _bounds(op: typed.Clamp) -> tuple[int, int]:
    limits = np.iinfo(op.x.type.dtype.numpy)
    low = limits.min if op.low is None else max(int(op.low), int(limits.min))
    high = limits.max if op.high is None else min(int(op.high), int(limits.max))
    return int(low), int(high)


@op("clamp", lacks=_lacks_clamp)
def clamp(b: Tosa, op: typed.Clamp, x: Ref) -> Ref:
    low, high = _bounds(op)
    kind = x.type.dtype
    facts = {"min_val": f"{low} : {kind}", "max_val": f"{high} : {kind}"}
    return b.before_transposes(lambda x: b.op("clamp", [x], x.type, facts), x)
