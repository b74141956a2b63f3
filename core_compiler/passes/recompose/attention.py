"""Attention: a product of queries and keys, its softmax over the keys, a product with values.

The pattern is two products around a softmax.  Views, a scale and a mask may occur anywhere between
them.  The batch, query, key and width axes are derived from the products, in any order (``bhqd``,
``bqhd``, batches and heads merged, keys shared by a group of heads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ops import typed
from core_compiler.passes.axes import (
    Axes,
    Axis,
    CompactValue,
    Digit,
    canonical_digits,
    compact,
    covers,
    flatten_axes,
    identity_axes,
    length,
    operand_axes,
    rearrange,
    refine_axes,
    view_chain,
)
from core_compiler.passes.recompose.spelling import OVERFLOWS, is_uniform
from core_compiler.passes.rules import (
    MOVES,
    Match,
    MatchFailure,
    Rule,
    View,
    all_of,
    fits,
    is_float,
    one_wide_float,
    op,
    views,
    wide,
)

_PRODUCTS = frozenset({"core.matmul", "core.contract"})
TOLERANCE = 1e-5

# -- products --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ProductOperand:
    """An operand of a product: its axes that are batch, summed, and free."""

    value: Value
    batch: tuple[int, ...]
    summed: tuple[int, ...]

    @property
    def free(self) -> tuple[int, ...]:
        taken = (*self.batch, *self.summed)
        return tuple(a for a in range(self.value.type.rank) if a not in taken)


def _product_operands(product: Op) -> tuple[_ProductOperand, _ProductOperand]:
    a, b = product.operands
    contract = typed.Contract.match(product)
    if contract is not None:
        return (
            _ProductOperand(a, contract.batch_a, contract.contract_a),
            _ProductOperand(b, contract.batch_b, contract.contract_b),
        )
    batch, rank = tuple(range(a.type.rank - 2)), a.type.rank
    return _ProductOperand(a, batch, (rank - 1,)), _ProductOperand(b, batch, (rank - 2,))


# -- from the softmax down to the scores -----------------------------------------------------------


@dataclass(frozen=True)
class _Mask:
    """A mask, its axes, and its effect.

    ``hidden`` None: it is added to the scores.  A number: the mask selects the visible keys
    (``inverted``: the hidden ones), and this is the score of the hidden keys.
    """

    compact: CompactValue
    hidden: float | None = None
    inverted: bool = False


@dataclass(frozen=True)
class _Scores:
    """The scores found below a softmax.

    The product that computes the scores, whose axes are ``axes``, their ``scale``, masks from the
    product up, and the ops between.
    """

    product: Op
    axes: Axes
    scale: float = 1.0
    masks: tuple[_Mask, ...] = ()
    path: tuple[Op, ...] = ()

    def masked(self, mask: _Mask) -> _Scores:
        return replace(self, masks=(*self.masks, mask))


#: Maximum number of ops between a product and its softmax.
_MAX_STEPS = 12


def _number(value: Value, view: View) -> float | None:
    """Return the value of a uniform constant, or None."""
    array = view.constant(value)
    return (
        float(array.flat[0])
        if array is not None and is_float(array) and is_uniform(array)
        else None
    )


def _factor(producer: Op, view: View) -> tuple[Value, float] | None:
    """Return the operand and the factor of a product with, or quotient by, a scalar, or None."""
    if producer.kind not in ("core.mul", "core.div"):
        return None
    x, y = producer.operands
    number = _number(y, view)
    if number is not None:
        return (x, number) if producer.kind == "core.mul" else (x, 1 / number)
    number = _number(x, view) if producer.kind == "core.mul" else None
    return None if number is None else (y, number)


def _find_scores(value: Value, axes: Axes, view: View, steps_left: int = _MAX_STEPS) -> _Scores:
    """Return the scores that ``value`` is computed from; Unfit names an op in between."""
    producer = view.producer(value)
    if producer is None or steps_left == 0:
        raise MatchFailure(
            "the scores are defined outside this block"
            if steps_left
            else "the scores are too many ops away"
        )
    if producer.kind in _PRODUCTS:
        return _Scores(producer, axes)
    for kinds, step in _STEPS:
        if producer.kind in kinds:
            found = step(producer, axes, view, steps_left - 1)
            return replace(found, path=(producer, *found.path))
    raise MatchFailure(f"{producer.kind} is between the product and its softmax")


def _through_view(producer: Op, axes: Axes, view: View, steps_left: int) -> _Scores:
    (x,) = producer.operands
    inner = operand_axes(producer, axes)
    if inner is None or x.type.elements != producer.result.type.elements:
        raise MatchFailure("the scores are broadcast")
    return _find_scores(x, inner, view, steps_left)


def _through_scale(producer: Op, axes: Axes, view: View, steps_left: int) -> _Scores:
    factor = _factor(producer, view)
    if factor is None:
        raise MatchFailure("the scores are scaled by more than one number")
    found = _find_scores(factor[0], axes, view, steps_left)
    if found.masks:
        raise MatchFailure("the mask is scaled with the scores")
    return replace(found, scale=found.scale * factor[1])


def _through_mask(producer: Op, axes: Axes, view: View, steps_left: int) -> _Scores:
    scores, mask = producer.operands
    try:
        return _find_scores(scores, axes, view, steps_left).masked(_Mask(compact(mask, axes, view)))
    except MatchFailure:
        return _find_scores(mask, axes, view, steps_left).masked(_Mask(compact(scores, axes, view)))


def _through_select(producer: Op, axes: Axes, view: View, steps_left: int) -> _Scores:
    condition, on_true, on_false = producer.operands
    for x, other in ((on_true, on_false), (on_false, on_true)):
        number = _number(other, view)
        if number is not None:
            mask = _Mask(compact(condition, axes, view), number, inverted=x is on_false)
            return _find_scores(x, axes, view, steps_left).masked(mask)
    raise MatchFailure("hidden keys have no single score")


#: Ops allowed between the product and its softmax, and how to continue below each.
_STEPS: tuple[tuple[frozenset[str], Callable[..., _Scores]], ...] = (
    (MOVES, _through_view),
    (frozenset({"core.mul", "core.div"}), _through_scale),
    (frozenset({"core.add"}), _through_mask),
    (frozenset({"core.select"}), _through_select),
)


# -- the whole -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Attention:
    """The operands with their axes relative to those of the softmax, and the axes of the op."""

    scores: _Scores
    queries: _Operand
    keys: _Operand
    values: _Operand
    batch: Axes
    query: Axis
    key: Axis
    width: Axis
    value: Axis
    result: Axes

    def masks(self) -> tuple[_Mask | None, bool, float]:
        """Return the mask operand, whether there is a causal mask, and the score of hidden keys."""
        masks = self.scores.masks
        causal = bool(masks) and self._is_causal(masks[-1])
        rest = masks[:-1] if causal else masks
        if len(rest) > 1:
            raise MatchFailure("the scores have two masks")
        scores = {m.hidden for m in masks if m.hidden is not None}
        if len(scores) > 1:
            raise MatchFailure("two masks hide keys with different scores")
        return (rest[0] if rest else None), causal, (scores.pop() if scores else -inf)

    def _is_causal(self, mask: _Mask) -> bool:
        """Return whether a constant mask shows query i the keys 0 to i."""
        array = mask.compact.array
        if mask.hidden is None or array is None:
            return False
        wanted, mask_axes = (
            (self.query, self.key),
            [flatten_axes([axis]) for axis in mask.compact.axes],
        )
        if mask_axes != [axis for axis in wanted if axis in mask_axes]:
            return False
        seen = array.reshape([length(axis) if axis in mask_axes else 1 for axis in wanted])
        causal = np.tri(length(self.query), length(self.key)) > 0
        return bool(np.array_equal(np.broadcast_to(seen, causal.shape) ^ mask.inverted, causal))


@dataclass(frozen=True)
class _Operand:
    """A value and its axes, the factor that it was multiplied by, and the ops that did that."""

    value: Value
    axes: Axes
    scale: float = 1.0
    path: tuple[Op, ...] = ()


def _strip_views(value: Value, axes: Axes, view: View, repeats: bool = True) -> _Operand:
    """Return an operand without its views and without a scalar factor."""
    found = _Operand(value, axes)
    while True:
        *passed, (value, axes) = view_chain(found.value, found.axes, view, repeats)
        viewed = tuple(o for v, _ in passed if (o := view.producer(v)) is not None)
        found = replace(found, value=value, axes=axes, path=found.path + viewed)
        producer = view.producer(value)
        factor = None if producer is None else _factor(producer, view)
        if producer is None or factor is None or producer in found.path:
            return found
        path = (*found.path, producer)
        found = _Operand(factor[0], axes, found.scale * factor[1], path)


def _axes_at(axes: Sequence[Axis], positions: Sequence[int]) -> Axes:
    return tuple(axes[position] for position in positions)


def _assemble_axes(side: _ProductOperand, batch: Axes, summed: Axes, free: Axes) -> Axes:
    """Return the axes of an operand, assembled from those of its three kinds."""
    at = dict(zip((*side.batch, *side.summed, *side.free), (*batch, *summed, *free), strict=True))
    return tuple(at[axis] for axis in range(side.value.type.rank))


def _read(m: Match, weights_at: int) -> _Attention:
    """Return the attention around the softmax that makes the root's operand ``weights_at``."""
    soft, view = m.named["soft"], m.view
    sides = _product_operands(m.root)
    weights, values = sides[weights_at], sides[1 - weights_at]
    axes = identity_axes(weights.value.type.shape)
    chain = view_chain(weights.value, axes, view, repeats=False)
    soft_axes = next((its for v, its in chain if v is soft.result), None)
    if soft_axes is None:
        raise MatchFailure("the softmax is broadcast")
    key = flatten_axes(_axes_at(axes, weights.summed))
    if flatten_axes([soft_axes[typed.Softmax.of(soft).axis]]) != key:
        raise MatchFailure("the softmax is not over the summed axis, the keys")
    scores = _find_scores(soft.operands[0], soft_axes, view)
    mixed = one_wide_float(m.root.result.type.dtype, (*scores.path, scores.product))
    if mixed is not None:
        raise MatchFailure(mixed)
    a, b = _product_operands(scores.product)
    batch, free = scores.axes[: len(a.batch)], scores.axes[len(a.batch) :]
    query_axes, key_axes = free[: len(a.free)], free[len(a.free) :]
    if flatten_axes(key_axes) != key:
        a, b, query_axes, key_axes = b, a, key_axes, query_axes
    if flatten_axes(key_axes) != key:
        raise MatchFailure("the axis of the softmax is not the axis of the keys")
    kept = _axes_at(axes, weights.batch)
    if canonical_digits(batch) != canonical_digits(kept):
        raise MatchFailure("queries, keys and values have different batch axes")
    widths = _labelled("width", [a.value.type.shape[axis] for axis in a.summed])
    value_axes = _labelled("value", [values.value.type.shape[axis] for axis in values.free])
    queries = _strip_views(
        a.value, _assemble_axes(a, batch, widths, query_axes), view, repeats=False
    )
    keys = _strip_views(b.value, _assemble_axes(b, batch, widths, key_axes), view)
    value_layout = _assemble_axes(values, kept, _axes_at(axes, weights.summed), value_axes)
    value_operand = _strip_views(values.value, value_layout, view)
    if value_operand.scale != 1.0:
        value_operand = _Operand(values.value, value_layout)
    rows = _axes_at(axes, weights.free)
    result = (*kept, *rows, *value_axes) if weights_at == 0 else (*kept, *value_axes, *rows)
    mask_axes = tuple(axis for mask in scores.masks for axis in mask.compact.axes)
    groups = _grouped(queries, keys, value_operand, scores.masks, canonical_digits(batch))
    if not covers([*groups[0], groups[1], key], mask_axes):
        raise MatchFailure("a mask varies along axes that the scores do not have")
    found = _Attention(
        scores,
        queries,
        keys,
        value_operand,
        *groups,
        key,
        flatten_axes(widths),
        flatten_axes(value_axes),
        result,
    )
    found.masks()
    return found


def _labelled(name: str, sizes: Sequence[int]) -> Axes:
    return tuple((((name, i), 1, size),) if size != 1 else () for i, size in enumerate(sizes))


def _grouped(
    queries: _Operand, keys: _Operand, values: _Operand, masks: Sequence[_Mask], batch: Axis
) -> tuple[Axes, Axis]:
    """Return the batch axes and the query axis, in the order of the queries' axes.

    Queries of a group of heads that share keys and values are treated as more queries, unless a
    mask distinguishes them (of two masks the last, which may be causal): then they are batch axes.
    """
    mask_axes = masks[-1].compact.axes if masks else ()
    cut = refine_axes(queries.axes, keys.axes, values.axes, mask_axes, [batch])
    if cut is None:
        raise MatchFailure("the operands split axes at different positions")
    query_digits = [
        [d for d in axis if not isinstance(d[0], tuple)] for axis in cut[0]
    ]  # not the width
    by_keys, by_values, by_mask, batched = ({d for axis in axes for d in axis} for axes in cut[1:])
    rows = {d for axis in query_digits for d in axis} - batched
    grouped = batched - by_keys - by_values
    mask_differs = len(masks) > 1 or by_mask & (rows | grouped)
    rows = rows & by_mask or rows if mask_differs else rows | grouped
    runs: list[Axis] = []
    for axis in query_digits:
        run: list[Digit] = []
        for digit in axis:
            if run and (digit in by_keys, digit in by_values) != (
                run[-1] in by_keys,
                run[-1] in by_values,
            ):
                runs.append(tuple(run))
                run = []
            if digit not in rows:
                run.append(digit)
        runs.append(tuple(run))
    query = tuple(d for axis in query_digits for d in axis if d in rows)
    return tuple(flatten_axes([run]) for run in runs if run), flatten_axes([query])


def _rewrite_to_attention(weights_at: int):
    def rewrite(b, m: Match):
        found = _read(m, weights_at)
        mask, causal, hidden = found.masks()
        parts = found.queries, found.keys, found.values
        trailing = ((found.query, found.width), (found.key, found.width), (found.key, found.value))
        operands = [
            rearrange(b, part.value, part.axes, (*found.batch, *end))
            for part, end in zip(parts, trailing, strict=True)
        ]
        if mask is not None:
            operands.append(_build_mask(b, mask, (*found.batch, found.query, found.key)))
        made = b.attention(
            *operands,
            causal=causal,
            hidden=hidden,
            empty_rows=m.named["soft"]["empty_rows"],
            scale=found.scores.scale * found.queries.scale * found.keys.scale,
        )
        m.ops += [
            *found.scores.path,
            found.scores.product,
            *(o for part in parts for o in part.path),
        ]
        return rearrange(b, made, (*found.batch, found.query, found.value), found.result)

    return rewrite


def _build_mask(b, mask: _Mask, axes: Axes) -> Value:
    """Return the mask over axes of the scores, with size 1 where it is uniform."""
    value = mask.compact.build(b)
    value = b.not_(value) if mask.inverted else value
    target = [axis if _overlap(axis, mask.compact.axes) else () for axis in axes]
    return rearrange(b, value, mask.compact.axes, target)


def _overlap(axis: Axis, axes: Axes) -> bool:
    cut = refine_axes([axis], axes)
    return cut is not None and bool(set(cut[0][0]) & {d for a in cut[1] for d in a})


def _rows() -> Iterator[Rule]:
    weights = op("softmax", "scores", name="soft", one_use=True, through=views)
    for kind in ("matmul", "contract"):
        for at, operands in ((0, (weights, "v")), (1, ("v", weights))):
            check = all_of(wide, fits(partial(_read, weights_at=at)))
            yield Rule(
                "softmax(q k^T scale + mask) v => attention",
                op(kind, *operands),
                _rewrite_to_attention(at),
                check,
                TOLERANCE,
                except_for=OVERFLOWS,
            )


RULES = tuple(_rows())
