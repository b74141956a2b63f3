"""Sizes that are only known at run time, of tensors whose largest size is known.

For example, the number of elements that a mask keeps depends on data.  Such a tensor has the
largest possible size; a scalar (i64) with it holds the number of valid elements along an axis.  The
elements after these are undefined, so every op that would mix them in excludes them: sums treat
them as 0, a softmax gives them no weight.  Ops without such a form are rejected.  All shapes remain
static, so only the frontends are aware of this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf, prod
from typing import Any

from typing_extensions import override

from core_compiler.ir import Value, dtype
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.positions import Access

I64 = dtype("i64")
#: Axis -> the number of valid elements along it.
Counts = Mapping[int, Value]


class UnsupportedRunTimeSize(ValueError):
    """An op does not support a size that is only known at run time."""


class RunTimeSizes:
    """The tensors of one import whose sizes depend on data."""

    def __init__(self) -> None:
        self._counts: dict[Value, Counts] = {}
        #: The sizes themselves, which must not be evaluated on example inputs.
        self.scalars: set[Value] = set()

    def of(self, value: Value) -> Counts:
        return self._counts.get(value, {})

    def axes(self) -> dict[Value, Collection[int]]:
        """Return the axes with run-time sizes of each such tensor."""
        return {value: tuple(counts) for value, counts in self._counts.items()}

    def mark(self, value: Value, counts: Counts) -> None:
        if counts:
            self._counts[value] = dict(counts)
            self.scalars.update(counts.values())


class RunTimeNumber(int):
    """A size that an exporter passes to an op.

    The number is the largest possible one; ``count`` is the one at run time, None if this size is
    computed from such a size.
    """

    count: Value | None

    def __new__(cls, largest: int, count: Value | None) -> RunTimeNumber:
        made = super().__new__(cls, largest)
        made.count = count
        return made


def with_counts(
    names: Sequence[str], results: Sequence[Value], sizes: RunTimeSizes
) -> tuple[list[str], list[Value], dict[str, list[list[int]]]]:
    """Return a model's results followed by their run-time sizes.

    Also return, for each result with such sizes, its axes and the index of the result that holds
    the size (``facts["run_time_sizes"]``).
    """
    names, results = list(names), list(results)
    places: dict[str, list[list[int]]] = {}
    for name, value in zip(tuple(names), tuple(results), strict=True):
        for axis, count in sizes.of(value).items():
            places.setdefault(name, []).append([axis, len(results)])
            results.append(count)
            names.append(f"{name}.size[{axis}]")
    return names, results, places


class SizedBuilder(Builder):
    """A builder whose ops only use valid elements."""

    sizes: RunTimeSizes

    def __init__(self, weights, origin):
        super().__init__(weights, origin)
        self.accesses: list[Access] = []

    def in_range(self, made: Value, *positions: tuple[Value, int]) -> Value:
        """Record that ``made`` needs positions in range, to check the model's inputs; return it.

        ``positions`` are the values, with their limits, that the op's positions were assembled
        from.
        """
        self.accesses.append(Access(made, positions))
        return made

    @override
    def op(self, kind, operands, names=(), regions=(), **attributes):
        found = [self.sizes.of(v) for v in operands]
        if not any(found):
            return super().op(kind, operands, names, regions, **attributes)
        settled = definition(kind).fill(attributes)
        rule = _rule(kind)
        if rule is None or regions:
            raise UnsupportedRunTimeSize(f"{kind} of a tensor whose size depends on data")
        made, counts = rule(self, kind, tuple(operands), found, settled)
        for value, of in zip(made if isinstance(made, tuple) else (made,), counts, strict=True):
            self.sizes.mark(value, of)
        return made

    def plain(self, kind: str, operands: Sequence[Value], attributes: Mapping[str, Any]):
        """Emit the op itself."""
        given = {name: value for name, value in attributes.items() if value is not None}
        return super().op(kind, operands, **given)

    def valid_mask(self, x: Value, axis: int) -> Value:
        """Return a mask of the valid elements of ``x`` along ``axis``, with the shape of ``x``."""
        count = self.sizes.of(x)[axis]
        place = self.iota(shape=x.type.shape, axis=axis, dtype=I64)
        return self.lt(place, self.expand(count, x.type.shape))

    def mask_invalid(self, x: Value, axes: Sequence[int], number) -> Value:
        """Return ``x`` with ``number`` for elements that are invalid along one of ``axes``."""
        for axis in axes:
            if axis in self.sizes.of(x):
                x = self.select(self.valid_mask(x, axis), x, self.scalar_like(number, x))
        return x

    def compact(self, mask: Value, *arrays: Value) -> tuple[Value, ...]:
        """Move the elements of ``arrays`` (n, ...) with a true ``mask`` (n,) to the front.

        Their order is kept, and each result is marked with their number.
        """
        size = mask.type.shape[0]
        if self.sizes.of(mask):
            mask = self.plain("core.and", (mask, self.valid_mask(mask, 0)), {})
        flags = self.cast(mask, dtype=I64)
        place = self.sub(self.cumsum(flags, axis=0), self.scalar_like(1, flags))
        # Beyond the end, where they are dropped.
        target = self.select(mask, place, self.scalar_like(size, place))
        row = self.iota(shape=(size,), axis=0, dtype=I64)
        order = self.scatter_along(self.scalar_like(0, row), target, row, axis=0, mode="set")
        count = self.reduce_sum(flags, axes=(0,))
        made = []
        for array in arrays:
            taken = self.plain("core.take", (array, order), {"axis": 0})
            self.sizes.mark(taken, {**self.sizes.of(array), 0: count})
            made.append(taken)
        return tuple(made)


Rule = Callable[[SizedBuilder, str, tuple[Value, ...], list[Counts], Mapping[str, Any]], tuple]
_RULES: dict[str, Rule] = {}


def _rule(kind: str) -> Rule | None:
    if "elementwise" in definition(kind).traits:
        return _elementwise
    return _RULES.get(kind)


def _register(*kinds: str):
    def enter(rule: Rule) -> Rule:
        for kind in kinds:
            _RULES[f"core.{kind}"] = rule
        return rule

    return enter


def _merge_counts(kind: str, found: Sequence[Counts], except_axis: int | None = None) -> Counts:
    """Return the counts of operands that share all axes but ``except_axis``; reject others."""
    counts: dict[int, Value] = {}
    for of in found:
        for axis, count in of.items():
            if axis != except_axis and counts.setdefault(axis, count) is not count:
                raise _refuse(kind, f"joins two tensors along axis {axis}")
    return counts


def _remove_axes(counts: Counts, axes: Sequence[int]) -> Counts:
    """Return the counts by axis after ``axes`` are removed."""
    return {a - sum(gone < a for gone in axes): c for a, c in counts.items() if a not in axes}


def _refuse(kind: str, why: str) -> UnsupportedRunTimeSize:
    return UnsupportedRunTimeSize(f"{kind} {why}, whose size depends on data")


def _elementwise(b, kind, operands, found, attributes):
    return b.plain(kind, operands, attributes), [_merge_counts(kind, found)]


@_register("broadcast")
def _broadcast(b, kind, operands, found, attributes):
    counts = {}
    for axis, count in found[0].items():
        to = attributes["dims"][axis]
        if attributes["shape"][to] != operands[0].type.shape[axis]:
            raise _refuse(kind, f"broadcasts axis {axis}")
        counts[to] = count
    return b.plain(kind, operands, attributes), [counts]


@_register("transpose")
def _transpose(b, kind, operands, found, attributes):
    order = attributes["permutation"]
    return b.plain(kind, operands, attributes), [{order.index(a): c for a, c in found[0].items()}]


@_register("reshape")
def _reshape(b, kind, operands, found, attributes):
    """Require that an axis that depends on data remains one axis."""
    before, after = operands[0].type.shape, attributes["shape"]
    counts = {}
    for axis, count in found[0].items():
        leading = prod(before[:axis])
        kept = [
            i for i, size in enumerate(after) if size == before[axis] and prod(after[:i]) == leading
        ]
        if len(kept) != 1:
            raise _refuse(kind, f"joins or splits axis {axis}")
        counts[kept[0]] = count
    return b.plain(kind, operands, attributes), [counts]


@_register("slice")
def _slice(b, kind, operands, found, attributes):
    counts = {}
    for axis, count in found[0].items():
        size, limit = operands[0].type.shape[axis], attributes["limits"][axis]
        if attributes["starts"][axis] or attributes["strides"][axis] != 1:
            raise _refuse(kind, f"slices axis {axis}")
        counts[axis] = count if limit == size else b.min(count, b.constant(limit, I64))
    return b.plain(kind, operands, attributes), [counts]


@_register("take")
def _take(b, kind, operands, found, attributes):
    axis, rank = attributes["axis"], operands[1].type.rank
    if axis in found[0]:
        raise _refuse(kind, f"indexes axis {axis}")
    counts = {a + (rank - 1 if a > axis else 0): c for a, c in found[0].items()}
    counts |= {axis + a: c for a, c in found[1].items()}
    return b.plain(kind, operands, attributes), [counts]


@_register("gather_nd")
def _gather_nd(b, kind, operands, found, attributes):
    last = operands[1].type.rank - 1
    if found[0] or last in found[1]:
        raise _refuse(kind, "indexes a tensor, or by positions,")
    return b.plain(kind, operands, attributes), [found[1]]


_EMPTY = {"sum": 0, "prod": 1, "or": 0, "and": -1}


def _ignored_extreme(kind: str, x: Value):
    """Return a value that ``kind`` never selects if there is another one."""
    low = kind.endswith(("max", "sort", "softmax", "logsumexp"))
    if x.type.dtype.is_float:
        return -inf if low else inf
    bits, signed = x.type.dtype.bits, x.type.dtype.kind == "int"
    if low:
        return -(1 << (bits - 1)) if signed else 0
    return (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1


@_register(*(f"reduce_{name}" for name in ("sum", "prod", "or", "and", "max", "min")))
def _reduce(b, kind, operands, found, attributes):
    name, x = kind.rsplit("_", 1)[1], operands[0]
    number = _EMPTY[name] if name in _EMPTY else _ignored_extreme(kind, x)
    x = b.mask_invalid(x, attributes["axes"], number)
    return b.plain(kind, (x,), attributes), [_remove_axes(found[0], attributes["axes"])]


@_register("mean")
def _mean(b, kind, operands, found, attributes):
    x, axes = operands[0], attributes["axes"]
    total = b.reduce_sum(x, axes=axes)
    size = b.constant(prod(x.type.shape[a] for a in axes if a not in found[0]), I64)
    for axis in axes:
        if axis in found[0]:
            size = b.mul(size, found[0][axis])
    size = b.expand(b.cast(size, dtype=total.type.dtype), total.type.shape)
    return b.plain("core.div", (total, size), {}), [b.sizes.of(total)]


@_register("argmax", "argmin")
def _arg(b, kind, operands, found, attributes):
    x = b.mask_invalid(operands[0], (attributes["axis"],), _ignored_extreme(kind, operands[0]))
    return b.plain(kind, (x,), attributes), [_remove_axes(found[0], (attributes["axis"],))]


@_register("softmax", "log_softmax")
def _softmax(b, kind, operands, found, attributes):
    x = b.mask_invalid(operands[0], (attributes["axis"],), -inf)
    return b.plain(kind, (x,), attributes), [found[0]]


@_register("cumsum", "cumprod", "cummax", "cummin")
def _scan(b, kind, operands, found, attributes):
    if attributes.get("reverse") and attributes["axis"] in found[0]:
        raise _refuse(kind, "scans in reverse along an axis")
    return b.plain(kind, operands, attributes), [found[0]]


@_register("sort", "argsort")
def _sort(b, kind, operands, found, attributes):
    """Sort invalid elements to the end."""
    x, axis = operands[0], attributes["axis"]
    number = _ignored_extreme("sort" if attributes["descending"] else "min", x)
    return b.plain(kind, (b.mask_invalid(x, (axis,), number),), attributes), [found[0]]


@_register("topk")
def _topk(b, kind, operands, found, attributes):
    x, axis, k = operands[0], attributes["axis"], attributes["k"]
    number = _ignored_extreme("sort" if attributes["largest"] else "min", x)
    counts = dict(found[0])
    if axis in counts:
        counts[axis] = b.min(counts[axis], b.constant(k, I64))
    return b.plain(kind, (b.mask_invalid(x, (axis,), number),), attributes), [counts, counts]


@_register("concat")
def _concat(b, kind, operands, found, attributes):
    """Concatenate along a data-dependent axis: each operand starts where the previous one ends."""
    axis = attributes["axis"]
    counts = _merge_counts(kind, found, except_axis=axis)
    if not any(axis in of for of in found):
        return b.plain(kind, operands, attributes), [counts]
    zero = b.constant(0, I64)
    made = b.plain(kind, operands, attributes)  # of the maximum size
    start = zero
    for x, of in zip(operands, found, strict=True):
        starts = [start if a == axis else zero for a in range(x.type.rank)]
        made = b.plain("core.dynamic_update_slice", (made, x, *starts), {})
        own = of.get(axis)
        own = b.constant(x.type.shape[axis], I64) if own is None else own
        start = b.add(start, own)
    return made, [{**counts, axis: start}]


@_register("matmul")
def _matmul(b, kind, operands, found, attributes):
    x, y = operands
    inner = x.type.rank - 1, y.type.rank - 2
    x, y = b.mask_invalid(x, inner[:1], 0), b.mask_invalid(y, inner[1:], 0)
    outer = [{a: c for a, c in of.items() if a != i} for of, i in zip(found, inner, strict=True)]
    return b.plain(kind, (x, y), attributes), [_merge_counts(kind, outer)]


@_register("linear")
def _linear(b, kind, operands, found, attributes):
    last = operands[0].type.rank - 1
    if last in found[0] or any(found[1:]):
        raise _refuse(kind, "multiplies by, or sums over, a tensor")
    return b.plain(kind, operands, attributes), [found[0]]


@_register("layer_norm", "rms_norm")
def _norm(b, kind, operands, found, attributes):
    if any(found[1:]) or any(axis >= attributes["axis"] for axis in found[0]):
        raise _refuse(kind, "normalises over an axis")
    return b.plain(kind, operands, attributes), [found[0]]


@_register(
    "conv",
    "max_pool",
    "max_pool_positions",
    "avg_pool",
    "batch_norm",
    "group_norm",
    "instance_norm",
)
def _image(b, kind, operands, found, attributes):
    """Require whole images: only the number of images may depend on data."""
    if any(found[1:]) or set(found[0]) - {0}:
        raise _refuse(kind, "works along an axis")
    return b.plain(kind, operands, attributes), [found[0]]
