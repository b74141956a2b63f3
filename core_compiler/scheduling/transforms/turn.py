"""Stores of a tile whose rows, not its columns, are adjacent in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core_compiler.ir import Function, Op, Value, VectorType
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.ops import INDEPENDENT, access, is_pure
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.division import advances_with
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    depends_on,
    expression,
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
    before.
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
    stored = store.operands[0].type
    need(isinstance(stored, VectorType), f"{columns} is not vectorised")
    assert isinstance(stored, VectorType)
    width, axis = stored.width, store.get("axis")
    need(len(store.operands) == 2 + target.type.rank, f"{columns} stores parts of vectors")
    need(axis is not None, f"the columns of {target.name} are adjacent")
    need(all(access(o)[0] is not target for o in others if o.kind == "kernel.load"), "in place")
    row, column = For.of(outer).index, For.of(inner).index
    need(not depends_on(For.of(inner).bounds, {row}, defs), f"the extent of {columns} varies")
    dense = _Dense.of(function, target, where, row, defs)
    need(axis < target.type.rank - dense.axes, f"the columns of {target.name} are its last axis")
    inside = {v for o in outer.walk() if o is not outer for v in o.results}
    stop = {v for v in defs if v not in inside} | {row, column}

    def at(copier: Copier, values, index: Value, lane: Value) -> list[Value]:
        saved = dict(copier.env)
        copier.env.update({row: index, column: lane})
        for value in values:
            copier.ops(expression(value, defs, stop))
        found = [copier[v] for v in values]
        copier.env.clear()
        copier.env.update(saved)
        return found

    def turned(copier: Copier) -> tuple:
        kb = copier.kb
        zero = kb.index(0)
        low, high, step = at(copier, For.of(inner).bounds, zero, zero)
        bound = copier[For.of(outer).upper]
        last = kb.sub(bound, 1)
        starts = [zero] * target.type.rank
        view = [copier[target], *starts]
        (flat,) = kb._append(
            "kernel.view", view, {"merged": dense.axes}, name=f"{target.name}_turned"
        )
        with kb.loop(f"{columns}_turned", low, high, step, loop="sequential") as first:
            for start in range(0, most, width):
                vectors: list[Value] = []
                for number in range(start, start + width):
                    if number < most:  # a row beyond the last one computes that one again
                        here = kb.min(number, last)
                        vectors += at(copier, [store.operands[0]], here, first)
                    else:
                        vectors.append(vectors[-1])
                count = kb.max(kb.min(width, kb.sub(bound, start)), 0)
                for lane, vector in enumerate(transposed(kb, vectors, width)):
                    place = at(copier, where, zero, first)
                    kept, merged = place[: -dense.axes], place[-dense.axes :]
                    kept[axis] = kb.add(kept[axis], lane)
                    pixel = kb.add(dense.flat(kb, copier, merged), start)
                    kb.store(vector, flat, *kept, pixel, count=count)
        return ()

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        zero, last = kb.index(0), kb.sub(copier[For.of(outer).upper], 1)
        images = [v for i, v in enumerate(where) if i in dense.images]
        ends = (at(copier, images, row, zero) for row in (zero, last))
        holds = [kb.eq(a, b) for a, b in zip(*ends, strict=True)]
        holds += [kb.eq(a, b) for a, b in dense.conditions(kb, copier)]
        if not holds:
            turned(copier)
            return
        whole = holds[0]
        for condition in holds[1:]:
            whole = kb.and_(whole, condition)

        def as_before() -> tuple:
            copier.copy(op)
            return ()

        kb.choose(whole, lambda: turned(copier), as_before)

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
        number, whole = where[-1], True
        for place in range(axes - 1, -1, -1):
            index, op = where[rank - axes + place], defs.get(where[rank - axes + place])
            need(whole, f"the rows of {target.name} are in another order")
            whole = op is not None and op.kind == "kernel.mod" and index in op.results
            if whole:
                assert op is not None
                index, size = op.operands
                need(_is(size, sizes[place], defs), f"the rows of {target.name} have other sizes")
            if place == axes - 1:
                number = index
                need(advances_with(number, row, defs), f"the rows of {target.name} are not counted")
            else:
                need(
                    _is_quotient(index, number, sizes[place + 1], defs),
                    f"the rows of {target.name} are in another order",
                )
                number = index
        return _Dense(axes, tuple(i for i in range(rank - axes) if varying[i]), sizes, strides)

    def conditions(self, kb: KernelBuilder, copier: Copier) -> list[tuple[Value, Value]]:
        """Return pairs of numbers that are equal if the axes are dense."""
        known = [[_number(kb, copier, v) for v in part] for part in (self.sizes, self.strides)]
        return [
            (stride, kb.mul(size, inner))
            for stride, size, inner in zip(known[1], known[0][1:], known[1][1:], strict=False)
        ]

    def flat(self, kb: KernelBuilder, copier: Copier, indices: Sequence[Value]) -> Value:
        """Return the number of an element among those of the merged axes."""
        number = indices[0]
        for index, size in zip(indices[1:], self.sizes[1:], strict=True):
            number = kb.add(kb.mul(number, _number(kb, copier, size)), index)
        return number


def _number(kb: KernelBuilder, copier: Copier, value: Value | int) -> Value:
    return kb.index(value) if isinstance(value, int) else copier[value]


def _is(value: Value, size: Value | int, defs: Mapping[Value, Op]) -> bool:
    return value is size or (isinstance(size, int) and constant_of(value, defs) == size)


def _is_quotient(value: Value, number: Value, size: Value | int, defs: Mapping[Value, Op]) -> bool:
    op = defs.get(value)
    if op is None or op.kind != "kernel.floordiv" or value not in op.results:
        return False
    return op.operands[0] is number and _is(op.operands[1], size, defs)
