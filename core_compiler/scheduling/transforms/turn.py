"""Stores of a tile whose rows, not its columns, are adjacent in memory."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core_compiler.ir import Function, Op, Value, VectorType
from core_compiler.kernel_ir.ops import INDEPENDENT, access, is_pure
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.division import advances_with
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    depends_on,
    expect,
    find_loop,
    need,
    producers,
    rebuild,
)
from core_compiler.scheduling.transforms.transpose import transposed


def turn_stores(function: Function, rows: str, columns: str, most: int) -> Function:
    """Turn tiles in registers whose columns (loop ``columns``, vectorised) are apart in memory.

    Of each vector of columns, the vectors of all rows (loop ``rows``, at most ``most`` iterations)
    are computed, transposed by shuffles, and stored along the rows: pixels of an image with
    channels first. The rows must count the elements of the buffer's last axes in memory's order;
    where at run time these axes are not dense, or the rows are of two images, the loops run as
    before. Requires at least one row.
    """
    defs = producers(function)
    outer, inner = find_loop(function, rows), find_loop(function, columns)
    body = [o for o in outer.regions[0].ops if o is not inner]
    need(inner in outer.regions[0].ops, f"{columns} is not directly in {rows}")
    need(all(is_pure(o) for o in body), f"{rows} does more than {columns}")
    for loop in (outer, inner):
        need(not For.of(loop).init, f"{For.of(loop).name} carries values")
        need(loop_kind(loop) in INDEPENDENT, f"iterations of {For.of(loop).name} are sequential")
    need(constant_of(For.of(outer).step, defs) == 1, f"{rows} does not step by 1")
    need(constant_of(For.of(outer).lower, defs) == 0, f"{rows} does not start at 0")
    *others, store = inner.regions[0].ops
    need(store.kind == "kernel.store", f"{columns} does not end with a store")
    need(all(is_pure(o) or o.kind == "kernel.load" for o in others), f"{columns} has more effects")
    target, where = access(store)
    kind, axis = store.operands[0].type, store.get("axis")
    width = expect(
        kind.width if isinstance(kind, VectorType) else None, f"{columns} is not vectorised"
    )
    need(len(store.operands) == 2 + target.type.rank, f"{columns} stores parts of vectors")
    need(axis is not None, f"the columns of {target.name} are adjacent")
    need(all(access(o)[0] is not target for o in others if o.kind == "kernel.load"), "in place")
    row, column = For.of(outer).index, For.of(inner).index
    need(not depends_on(For.of(inner).bounds, {row}, defs), f"the extent of {columns} varies")
    dense = _Dense.of(function, target, where, row, defs)
    need(axis < target.type.rank - dense.axes, f"the columns of {target.name} are its last axis")
    inside = {v for o in outer.walk() if o is not outer for v in o.results}
    stop = {v for v in defs if v not in inside} | {row, column}

    def at(copier: Copier, values: Sequence[Value], index: Value, lane: Value) -> list[Value]:
        return copier.at(values, {row: index, column: lane}, defs, stop)

    def turned(copier: Copier) -> tuple:
        kb = copier.kb
        zero, bound = kb.index(0), copier[For.of(outer).upper]
        last = kb.sub(bound, 1)
        low, high, step = at(copier, For.of(inner).bounds, zero, zero)
        whole = [copier[target], *[zero] * target.type.rank]
        (flat,) = kb._append("kernel.view", whole, {"merged": dense.axes}, name=target.name)
        with kb.loop(f"{columns}_turned", low, high, step, loop="sequential") as first:
            *kept, pixel = dense.flat(copier, at(copier, where, zero, first))
            for start in range(0, most, width):
                count = kb.max(kb.min(width, kb.sub(bound, start)), 0)
                # Rows beyond the last one, up to a whole square, compute that one again.
                numbers = [min(number, most - 1) for number in range(start, start + width)]
                values = [at(copier, store.operands[:1], kb.min(n, last), first) for n in numbers]
                for lane, vector in enumerate(transposed(kb, [v for (v,) in values], width)):
                    place = list(kept)
                    place[axis] = kb.add(kept[axis], lane)
                    kb.store(vector, flat, *place, kb.add(pixel, start), count=count)
        return ()

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        zero, last = kb.index(0), kb.sub(copier[For.of(outer).upper], 1)
        images = [where[i] for i in dense.images]
        first, final = (at(copier, images, row, zero) for row in (zero, last))
        equal = [*zip(first, final, strict=True), *dense.strides_and_sizes(copier)]

        def as_before() -> tuple:
            copier.copy(op)
            return ()

        if equal:
            condition = functools.reduce(kb.and_, (kb.eq(a, b) for a, b in equal))
            kb.choose(condition, lambda: turned(copier), as_before)
        else:
            turned(copier)

    return rebuild(function, {outer: hook})


@dataclass(frozen=True)
class _Dense:
    """The last ``axes`` axes of a buffer, whose elements the rows count, and their sizes.

    ``strides``: of these axes. ``images``: the other axes that change with the rows.
    """

    axes: int
    images: tuple[int, ...]
    sizes: tuple[Value | int, ...]
    strides: tuple[Value | int, ...]

    @staticmethod
    def of(
        function: Function, target: Value, where, row: Value, defs: Mapping[Value, Op]
    ) -> _Dense:
        """Return those of a store at ``where``, whose last indices are digits of the row's number.

        The last one is its remainder by the last size, the one before that of the quotient.
        """
        varying, rank = [depends_on([v], {row}, defs) for v in where], len(where)
        axes = next((n for n in range(rank) if not varying[rank - 1 - n]), rank)
        need(axes > 0 and target.type.strides[-1] == 1, f"the rows of {target.name} are apart")
        named = {v.name: v for v in function.arguments}
        sizes, strides = (
            tuple(d if isinstance(d, int) else named[d] for d in part[rank - axes :])
            for part in (target.type.shape, target.type.strides)
        )
        number: Value | None = None
        for place in reversed(range(axes)):
            index = where[rank - axes + place]
            divided = _dividend("kernel.mod", index, sizes[place], defs)
            is_ordered = divided is not None or place == 0  # only the first digit is not divided
            digits = index if divided is None else divided
            if number is None:
                is_ordered &= advances_with(digits, row, defs)
            else:
                quotient = _dividend("kernel.floordiv", digits, sizes[place + 1], defs)
                is_ordered &= quotient is number
            need(is_ordered, f"the rows of {target.name} are in another order")
            number = digits
        return _Dense(axes, tuple(i for i in range(rank - axes) if varying[i]), sizes, strides)

    def strides_and_sizes(self, copier: Copier) -> list[tuple[Value, Value]]:
        """Return pairs that are equal if the axes are dense: a stride, the elements inside."""
        kb, (sizes, strides) = copier.kb, self._numbers(copier)
        inside = zip(sizes[1:], strides[1:], strict=True)
        return [(stride, kb.mul(*s)) for stride, s in zip(strides[:-1], inside, strict=True)]

    def flat(self, copier: Copier, indices: Sequence[Value]) -> list[Value]:
        """Return the indices of an element in the buffer whose last ``axes`` axes are one."""
        kb, (sizes, _) = copier.kb, self._numbers(copier)
        kept, (number, *others) = indices[: -self.axes], indices[-self.axes :]
        for index, size in zip(others, sizes[1:], strict=True):
            number = kb.add(kb.mul(number, size), index)
        return [*kept, number]

    def _numbers(self, copier: Copier) -> list[list[Value]]:
        kb = copier.kb
        return [
            [kb.index(v) if isinstance(v, int) else copier[v] for v in part]
            for part in (self.sizes, self.strides)
        ]


def _dividend(kind: str, value: Value, size: Value | int, defs: Mapping[Value, Op]) -> Value | None:
    """Return what ``value`` is the quotient or the remainder of by ``size``, or None."""
    op = defs.get(value)
    if op is None or op.kind != kind:
        return None
    number, divisor = op.operands
    return number if size in (divisor, constant_of(divisor, defs)) else None
