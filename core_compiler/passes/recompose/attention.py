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
    Digit,
    Small,
    behind,
    below,
    covers,
    flat,
    length,
    rearrange,
    refined,
    small,
    spread_over,
    whole,
)
from core_compiler.passes.recompose.spelling import OVERFLOWS, one
from core_compiler.passes.rules import (
    MOVES,
    Match,
    Rule,
    Unfit,
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
class _Side:
    """An operand of a product: its axes that are batch, summed, and free."""

    value: Value
    batch: tuple[int, ...]
    summed: tuple[int, ...]

    @property
    def own(self) -> tuple[int, ...]:
        taken = (*self.batch, *self.summed)
        return tuple(a for a in range(self.value.type.rank) if a not in taken)


def _sides(product: Op) -> tuple[_Side, _Side]:
    a, b = product.operands
    contract = typed.Contract.match(product)
    if contract is not None:
        return (
            _Side(a, contract.batch_a, contract.contract_a),
            _Side(b, contract.batch_b, contract.contract_b),
        )
    batch, rank = tuple(range(a.type.rank - 2)), a.type.rank
    return _Side(a, batch, (rank - 1,)), _Side(b, batch, (rank - 2,))


# -- from the softmax down to the scores -----------------------------------------------------------


@dataclass(frozen=True)
class _Mask:
    """A mask, its axes, and its effect.

    ``hidden`` None: it is added to the scores.  A number: the mask selects the visible keys
    (``inverted``: the hidden ones), and this is the score of the hidden keys.
    """

    small: Small
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
    met: tuple[Op, ...] = ()

    def masked(self, mask: _Mask) -> _Scores:
        return replace(self, masks=(*self.masks, mask))


#: Maximum number of ops between a product and its softmax.
_FAR = 12


def _number(value: Value, view: View) -> float | None:
    """Return the value of a uniform constant, or None."""
    array = view.constant(value)
    return float(array.flat[0]) if array is not None and is_float(array) and one(array) else None


def _factor(maker: Op, view: View) -> tuple[Value, float] | None:
    """Return the operand and the factor of a product with, or quotient by, a scalar, or None."""
    if maker.kind not in ("core.mul", "core.div"):
        return None
    x, y = maker.operands
    number = _number(y, view)
    if number is not None:
        return (x, number) if maker.kind == "core.mul" else (x, 1 / number)
    number = _number(x, view) if maker.kind == "core.mul" else None
    return None if number is None else (y, number)


def _down(value: Value, axes: Axes, view: View, left: int = _FAR) -> _Scores:
    """Return the scores that ``value`` is computed from; Unfit names an op in between."""
    maker = view.producer(value)
    if maker is None or left == 0:
        raise Unfit(
            "the scores are defined outside this block"
            if left
            else "the scores are too many ops away"
        )
    if maker.kind in _PRODUCTS:
        return _Scores(maker, axes)
    for kinds, step in _STEPS:
        if maker.kind in kinds:
            found = step(maker, axes, view, left - 1)
            return replace(found, met=(maker, *found.met))
    raise Unfit(f"{maker.kind} is between the product and its softmax")


def _viewed(maker: Op, axes: Axes, view: View, left: int) -> _Scores:
    (x,) = maker.operands
    inner = below(maker, axes)
    if inner is None or x.type.elements != maker.result.type.elements:
        raise Unfit("the scores are broadcast")
    return _down(x, inner, view, left)


def _scaled(maker: Op, axes: Axes, view: View, left: int) -> _Scores:
    factor = _factor(maker, view)
    if factor is None:
        raise Unfit("the scores are scaled by more than one number")
    found = _down(factor[0], axes, view, left)
    if found.masks:
        raise Unfit("the mask is scaled with the scores")
    return replace(found, scale=found.scale * factor[1])


def _biased(maker: Op, axes: Axes, view: View, left: int) -> _Scores:
    scores, mask = maker.operands
    try:
        return _down(scores, axes, view, left).masked(_Mask(small(mask, axes, view)))
    except Unfit:
        return _down(mask, axes, view, left).masked(_Mask(small(scores, axes, view)))


def _chosen(maker: Op, axes: Axes, view: View, left: int) -> _Scores:
    seen, above, under = maker.operands
    for x, other in ((above, under), (under, above)):
        number = _number(other, view)
        if number is not None:
            mask = _Mask(small(seen, axes, view), number, inverted=x is under)
            return _down(x, axes, view, left).masked(mask)
    raise Unfit("hidden keys have no single score")


#: Ops allowed between the product and its softmax, and how to continue below each.
_STEPS: tuple[tuple[frozenset[str], Callable[..., _Scores]], ...] = (
    (MOVES, _viewed),
    (frozenset({"core.mul", "core.div"}), _scaled),
    (frozenset({"core.add"}), _biased),
    (frozenset({"core.select"}), _chosen),
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
            raise Unfit("the scores have two masks")
        scores = {m.hidden for m in masks if m.hidden is not None}
        if len(scores) > 1:
            raise Unfit("two masks hide keys with different scores")
        return (rest[0] if rest else None), causal, (scores.pop() if scores else -inf)

    def _is_causal(self, mask: _Mask) -> bool:
        """Return whether a constant mask shows query i the keys 0 to i."""
        array = mask.small.array
        if mask.hidden is None or array is None:
            return False
        wanted, told = (self.query, self.key), [flat([axis]) for axis in mask.small.axes]
        if told != [axis for axis in wanted if axis in told]:
            return False
        seen = array.reshape([length(axis) if axis in told else 1 for axis in wanted])
        below = np.tri(length(self.query), length(self.key)) > 0
        return bool(np.array_equal(np.broadcast_to(seen, below.shape) ^ mask.inverted, below))


@dataclass(frozen=True)
class _Operand:
    """A value and its axes, the factor that it was multiplied by, and the ops that did that."""

    value: Value
    axes: Axes
    scale: float = 1.0
    met: tuple[Op, ...] = ()


def _plain(value: Value, axes: Axes, view: View, repeats: bool = True) -> _Operand:
    """Return an operand without its views and without a scalar factor."""
    found = _Operand(value, axes)
    while True:
        *passed, (value, axes) = behind(found.value, found.axes, view, repeats)
        viewed = tuple(o for v, _ in passed if (o := view.producer(v)) is not None)
        found = replace(found, value=value, axes=axes, met=found.met + viewed)
        maker = view.producer(value)
        factor = None if maker is None else _factor(maker, view)
        if maker is None or factor is None or maker in found.met:
            return found
        met = (*found.met, maker)
        found = _Operand(factor[0], axes, found.scale * factor[1], met)


def _pick(axes: Sequence[Axis], places: Sequence[int]) -> Axes:
    return tuple(axes[place] for place in places)


def _dealt(side: _Side, batch: Axes, summed: Axes, own: Axes) -> Axes:
    """Return the axes of an operand, assembled from those of its three kinds."""
    at = dict(zip((*side.batch, *side.summed, *side.own), (*batch, *summed, *own), strict=True))
    return tuple(at[axis] for axis in range(side.value.type.rank))


def _read(m: Match, shares_at: int) -> _Attention:
    """Return the attention around the softmax that operand ``shares_at`` of the root comes from."""
    soft, view = m.named["soft"], m.view
    sides = _sides(m.root)
    shares, values = sides[shares_at], sides[1 - shares_at]
    axes = whole(shares.value.type.shape)
    chain = behind(shares.value, axes, view, repeats=False)
    soft_axes = next((its for v, its in chain if v is soft.result), None)
    if soft_axes is None:
        raise Unfit("the softmax is broadcast")
    key = flat(_pick(axes, shares.summed))
    if flat([soft_axes[typed.Softmax.of(soft).axis]]) != key:
        raise Unfit("the softmax is not over the summed axis, the keys")
    scores = _down(soft.operands[0], soft_axes, view)
    mixed = one_wide_float(m.root.result.type.dtype, (*scores.met, scores.product))
    if mixed is not None:
        raise Unfit(mixed)
    a, b = _sides(scores.product)
    batch, own = scores.axes[: len(a.batch)], scores.axes[len(a.batch) :]
    mine, others = own[: len(a.own)], own[len(a.own) :]
    if flat(others) != key:
        a, b, mine, others = b, a, others, mine
    if flat(others) != key:
        raise Unfit("the axis of the softmax is not the axis of the keys")
    kept = _pick(axes, shares.batch)
    if spread_over(batch) != spread_over(kept):
        raise Unfit("queries, keys and values have different batch axes")
    widths = _labelled("width", [a.value.type.shape[axis] for axis in a.summed])
    ends = _labelled("value", [values.value.type.shape[axis] for axis in values.own])
    queries = _plain(a.value, _dealt(a, batch, widths, mine), view, repeats=False)
    keys = _plain(b.value, _dealt(b, batch, widths, others), view)
    along = _dealt(values, kept, _pick(axes, shares.summed), ends)
    met = _plain(values.value, along, view)
    met = met if met.scale == 1.0 else _Operand(values.value, along)
    rows = _pick(axes, shares.own)
    result = (*kept, *rows, *ends) if shares_at == 0 else (*kept, *ends, *rows)
    told = tuple(axis for mask in scores.masks for axis in mask.small.axes)
    groups = _grouped(queries, keys, met, scores.masks, spread_over(batch))
    if not covers([*groups[0], groups[1], key], told):
        raise Unfit("a mask varies along axes that the scores do not have")
    found = _Attention(scores, queries, keys, met, *groups, key, flat(widths), flat(ends), result)
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
    told = masks[-1].small.axes if masks else ()
    cut = refined(queries.axes, keys.axes, values.axes, told, [batch])
    if cut is None:
        raise Unfit("the operands split axes at different positions")
    own = [[d for d in axis if not isinstance(d[0], tuple)] for axis in cut[0]]  # not the width
    by_keys, by_values, by_mask, batched = ({d for axis in axes for d in axis} for axes in cut[1:])
    rows = {d for axis in own for d in axis} - batched
    grouped = batched - by_keys - by_values
    apart = len(masks) > 1 or by_mask & (rows | grouped)
    rows = rows & by_mask or rows if apart else rows | grouped
    runs: list[Axis] = []
    for axis in own:
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
    query = tuple(d for axis in own for d in axis if d in rows)
    return tuple(flat([run]) for run in runs if run), flat([query])


def _raise(shares_at: int):
    def rewrite(b, m: Match):
        found = _read(m, shares_at)
        mask, causal, hidden = found.masks()
        parts = found.queries, found.keys, found.values
        ends = ((found.query, found.width), (found.key, found.width), (found.key, found.value))
        operands = [
            rearrange(b, part.value, part.axes, (*found.batch, *end))
            for part, end in zip(parts, ends, strict=True)
        ]
        if mask is not None:
            operands.append(_built(b, mask, (*found.batch, found.query, found.key)))
        made = b.attention(
            *operands,
            causal=causal,
            hidden=hidden,
            empty_rows=m.named["soft"]["empty_rows"],
            scale=found.scores.scale * found.queries.scale * found.keys.scale,
        )
        m.ops += [*found.scores.met, found.scores.product, *(o for part in parts for o in part.met)]
        return rearrange(b, made, (*found.batch, found.query, found.value), found.result)

    return rewrite


def _built(b, mask: _Mask, axes: Axes) -> Value:
    """Return the mask over axes of the scores, with size 1 where it is uniform."""
    value = mask.small.build(b)
    value = b.not_(value) if mask.inverted else value
    told = [axis if _overlap(axis, mask.small.axes) else () for axis in axes]
    return rearrange(b, value, mask.small.axes, told)


def _overlap(axis: Axis, axes: Axes) -> bool:
    cut = refined([axis], axes)
    return cut is not None and bool(set(cut[0][0]) & {d for a in cut[1] for d in a})


def _rows() -> Iterator[Rule]:
    shares = op("softmax", "scores", name="soft", once=True, through=views)
    for kind in ("matmul", "contract"):
        for at, operands in ((0, (shares, "v")), (1, ("v", shares))):
            check = all_of(wide, fits(partial(_read, shares_at=at)))
            yield Rule(
                "softmax(q k^T scale + mask) v => attention",
                op(kind, *operands),
                _raise(at),
                check,
                TOLERANCE,
                except_for=OVERFLOWS,
            )


RULES = tuple(_rows())
