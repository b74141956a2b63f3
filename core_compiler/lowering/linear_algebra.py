"""Factorisations and triangular systems: parallel loops over the matrices, one at a time inside.

The contract only orders the terms of each element, so a kernel takes ``BLOCK`` of them at a time:
for a block of finished rows, every later row subtracts their multiples while its own elements stay
in registers. A matrix is read and written once a block instead of once a row (Golub and Van Loan,
"Matrix Computations", section 3.2.11). Loops along a row are ``parallel``: vectors on a CPU, the
threads of a block on a GPU. Matrices are in scratch memory, where those threads see each other's
results.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core_compiler.ir import Value
from core_compiler.ir.types import INDEX
from core_compiler.ops import typed

if TYPE_CHECKING:
    from core_compiler.kernel_ir.builder import KernelBuilder
    from core_compiler.lowering.custom import Custom

#: Rows that are subtracted from later ones at a time.
BLOCK = 32


@contextmanager
def matrices(c: Custom, buffer: Value, inner: int = 2):
    """Emit parallel loops over a batch; yield a function to the full index of an element.

    A single matrix is a batch of one, because its own loops are not work items. ``inner`` is the
    number of axes of one matrix.
    """
    c.family = "matrices"
    kb, axes = c.kb, range(buffer.type.rank - inner)
    if axes:
        with c.loops(buffer, axes, "matrix") as ivs:
            yield lambda *index: (*(ivs[a] for a in axes), *index)
    else:
        with kb.loop("matrix", 0, c.argument("one", 1), loop="parallel") as number:
            yield lambda i, *rest: (kb.add(number, i), *rest)


@contextmanager
def row_loop(c: Custom, name: str, start: Value | int, end: Value):
    """Emit a loop along a row, over [start, end), whose iterations may run in any order."""
    kb = c.kb
    count = end if kb.known(start) == 0 else kb.max(kb.sub(end, start), 0)
    with kb.loop(name, 0, count, loop="parallel") as j:
        yield kb.add(start, j)


def matrix_memory(c: Custom, name: str, kind, rows: Value, columns: Value) -> Value:
    """Allocate scratch memory for a matrix."""
    memory = c.kb.alloc((rows.name, columns.name), kind, rows, columns, name=name)
    c.extents[memory] = [rows, columns]
    return memory


def copied(c: Custom, buffer: Value, at: Callable, name: str) -> Value:
    """Emit a copy of a matrix of ``buffer`` to scratch memory."""
    kb, (rows, columns) = c.kb, c.extents[buffer][-2:]
    memory = matrix_memory(c, name, buffer.type.dtype, rows, columns)
    with kb.loop(f"{name}_row", 0, rows) as i, row_loop(c, f"{name}_column", 0, columns) as j:
        kb.store(kb.load(buffer, *at(i, j)), memory, i, j)
    return memory


def write(c: Custom, memory: Value, buffer: Value, at: Callable) -> None:
    """Emit a copy of scratch memory to a matrix of a result."""
    kb, (rows, columns) = c.kb, c.extents[buffer][-2:]
    with kb.loop("written_row", 0, rows) as i, row_loop(c, "written", 0, columns) as j:
        kb.store(kb.load(memory, i, j), buffer, *at(i, j))


@contextmanager
def _blocks(kb: KernelBuilder, count: Value):
    """Emit a loop over blocks of rows; yield the first row of one and its end."""
    with kb.loop("block", 0, count, BLOCK) as block:
        yield block, kb.min(kb.add(block, BLOCK), count)


def _subtract(
    kb: KernelBuilder,
    target: Value,
    at: tuple[Value, Value],
    terms: tuple[Value, Value],
    factor: Callable[[Value], Value],
    row: Callable[[Value], Value] = lambda k: k,
) -> None:
    """Emit target[i, j] -= sum of factor(k) target[row(k), j] over ``terms``, ascending."""
    with kb.loop("k", *terms, init=[kb.load(target, *at)]) as (k, left):
        kb.carry(kb.fma(kb.neg(factor(k)), kb.load(target, row(k), at[1]), left))
    kb.store(kb.results[0], target, *at)


# -- triangular factors ----------------------------------------------------------------------------


def cholesky(c: Custom, op: typed.Cholesky) -> None:
    """Emit the factor's transpose, whose rows are contiguous, and write it transposed."""
    kb, (x,), (y,) = c.kb, c.inputs, c.outputs
    n, kind = c.extents[x][-1], x.type.dtype
    zero, nan = kb.number(0.0, kind), kb.number(float("nan"), kind)
    with matrices(c, x) as at:
        u = matrix_memory(c, "upper", kind, n, n)
        with kb.loop("read_row", 0, n) as i, row_loop(c, "read", i, n) as j:
            kb.store(kb.load(x, *at(j, i)), u, i, j)
        with _blocks(kb, n) as (block, end), kb.loop("i", block, n) as i:
            known = block, kb.min(i, end)
            with row_loop(c, "j", i, n) as j:
                _subtract(kb, u, (i, j), known, lambda k: kb.load(u, k, i))
            with kb.branch(kb.lt(i, end)):
                pivot = kb.load(u, i, i)
                root = kb.select(kb.gt(pivot, zero), kb.sqrt(pivot), nan)
                kb.store(root, u, i, i)
                with row_loop(c, "divided", kb.add(i, 1), n) as j:
                    kb.store(kb.div(kb.load(u, i, j), root), u, i, j)
        with kb.loop("written_row", 0, n) as i:
            with row_loop(c, "written", 0, kb.add(i, 1)) as j:
                kb.store(kb.load(u, j, i), y, *at(i, j))
            with row_loop(c, "above", kb.add(i, 1), n) as j:
                kb.store(zero, y, *at(i, j))


def lu(c: Custom, op: typed.Lu) -> None:
    kb, (x,), (y, order, swaps) = c.kb, c.inputs, c.outputs
    rows, columns = c.extents[x][-2:]
    steps = c.extents[swaps][-1]
    with matrices(c, x) as at:
        a = copied(c, x, at, "a")
        places = _numbered(c, rows)
        with _blocks(kb, steps) as (block, end):
            with kb.loop("step", block, end) as step:
                chosen = _pivot(kb, a, step, rows)
                kb.store(kb.cast(kb.cast(chosen, "i64"), "i32"), swaps, *at(step))
                with kb.branch(kb.ne(chosen, step)):
                    with row_loop(c, "exchanged", 0, columns) as j:
                        _exchange(kb, a, (step, j), (chosen, j))
                    _exchange(kb, places, (step,), (chosen,))
                _eliminate(c, a, step, rows, end)
            with kb.loop("i", kb.add(block, 1), rows) as i, row_loop(c, "j", end, columns) as j:
                known = block, kb.min(i, end)
                _subtract(kb, a, (i, j), known, lambda k: kb.load(a, i, k))
        write(c, a, y, at)
        with row_loop(c, "ordered", 0, rows) as i:
            kb.store(kb.load(places, i), order, *at(i))


def _numbered(c: Custom, rows: Value) -> Value:
    """Emit memory with the numbers of the rows."""
    kb = c.kb
    places = kb.alloc((rows.name,), "i32", rows, name="places")
    with row_loop(c, "numbered", 0, rows) as i:
        kb.store(kb.cast(kb.cast(i, "i64"), "i32"), places, i)
    return places


def _pivot(kb: KernelBuilder, a: Value, step: Value, rows: Value) -> Value:
    """Emit the row of the first largest magnitude of a column, on or below the diagonal."""
    start = [kb.abs(kb.load(a, step, step)), step]
    with kb.loop("candidate", kb.add(step, 1), rows, init=start) as (i, largest, chosen):
        size = kb.abs(kb.load(a, i, step))
        larger = kb.gt(size, largest)
        kb.carry(kb.select(larger, size, largest), kb.select(larger, i, chosen))
    return kb.results[1]


def _exchange(kb: KernelBuilder, memory: Value, one: tuple, other: tuple) -> None:
    first, second = kb.load(memory, *one), kb.load(memory, *other)
    kb.store(second, memory, *one)
    kb.store(first, memory, *other)


def _eliminate(c: Custom, a: Value, step: Value, rows: Value, end: Value) -> None:
    """Emit the factors of the rows below, and their elements in the columns of this block."""
    kb = c.kb
    pivot = kb.load(a, step, step)
    nothing = kb.eq(pivot, kb.number(0.0, a.type.dtype))
    with kb.loop("below", kb.add(step, 1), rows) as i:
        raw = kb.load(a, i, step)
        factor = kb.select(nothing, raw, kb.div(raw, pivot))
        kb.store(factor, a, i, step)
        with row_loop(c, "panel", kb.add(step, 1), end) as j:
            kb.store(kb.fma(kb.neg(factor), kb.load(a, step, j), kb.load(a, i, j)), a, i, j)


def row_order(c: Custom, op: typed.RowOrder) -> None:
    kb, (swaps,), (y,) = c.kb, c.inputs, c.outputs
    rows, steps = c.extents[y][-1], c.extents[swaps][-1]
    with matrices(c, y, inner=1) as at:
        places = _numbered(c, rows)
        with kb.loop("step", 0, steps) as step:
            given = kb.cast(kb.load(swaps, *at(step)), INDEX)
            _exchange(kb, places, (step,), (kb.max(kb.min(given, kb.sub(rows, 1)), 0),))
        with row_loop(c, "ordered", 0, rows) as i:
            kb.store(kb.load(places, i), y, *at(i))


# -- triangular systems ----------------------------------------------------------------------------


def triangular_solve(c: Custom, op: typed.TriangularSolve) -> None:
    """Emit the rows of the solution in their order, which is the reverse for an upper triangle."""
    kb, (a, given), (y,) = c.kb, c.inputs, c.outputs
    n, columns = c.extents[given][-2:]
    forward = op.lower != op.transposed
    with matrices(c, given) as at:
        x = copied(c, given, at, "x")

        def row(step: Value) -> Value:
            return step if forward else kb.sub(kb.sub(n, 1), step)

        def element(i: Value, k: Value) -> Value:
            place = (row(k), row(i)) if op.transposed else (row(i), row(k))
            return kb.load(a, *at(*place))

        with _blocks(kb, n) as (block, end), kb.loop("i", block, n) as i:
            known = block, kb.min(i, end)
            with row_loop(c, "j", 0, columns) as j:
                _subtract(kb, x, (row(i), j), known, lambda k: element(i, k), row)
            if not op.unit_diagonal:
                with kb.branch(kb.lt(i, end)), row_loop(c, "divided", 0, columns) as j:
                    kb.store(kb.div(kb.load(x, row(i), j), element(i, i)), x, row(i), j)
        write(c, x, y, at)
