"""Integer products of bytes, four terms at a time.

Sums of integers wrap, so their terms may be added in any order with the same bits. Four adjacent
terms of each operand are put together in a 32-bit word, and ``kernel.dot4`` adds their four
products at once: one instruction on processors and GPUs that have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core_compiler.ir import DType, Function, Op, Value, dtype
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import Constant, For
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    depends_on,
    expect,
    expression,
    find_loop,
    need,
    producers,
    rebuild,
    requires,
)
from core_compiler.scheduling.transforms.single import size_of_axis

I32, I8, U8 = dtype("i32"), dtype("i8"), dtype("ui8")
#: Terms in a word.
TERMS = 4


def four_terms(function: Function, chunk: str, terms: Sequence[str]) -> Function:
    """Sum the products of bytes along the loops ``chunk`` and ``terms`` four at a time.

    The loops over the summed axis (the first, the last, and the blocks between) then run over words
    of four terms; loops over taps between them are as before. One factor has values of an unsigned
    byte, the other of a signed one. Terms beyond the axis are 0.
    """
    defs = producers(function)
    inner = find_loop(function, terms[-1])
    loops = [find_loop(function, chunk), inner]
    if len(terms) > 1:
        loops.insert(1, find_loop(function, terms[0]))
    axis = _Axis(loops, defs)
    acc, factors = _term(inner, defs)
    kinds = [_byte(v, defs) for v in factors]
    need({I8, U8} <= set(kinds[0]) | set(kinds[1]), "the factors are not an i8 and a ui8")
    unsigned = 0 if U8 in kinds[0] and I8 in kinds[1] else 1
    need(U8 in kinds[unsigned] and I8 in kinds[1 - unsigned], "the factors are both signed or not")
    ordered = (factors[unsigned], factors[1 - unsigned])
    region = inner.regions[0]
    stop = {region.arguments[0]}

    def word(copier: Copier, factor: Value, first: Value) -> Value:
        """Emit the word of ``factor`` whose first term is number ``first`` of the axis."""
        kb, total = copier.kb, None
        size = copier[axis.size]
        for number in range(TERMS):
            term = kb.add(first, number)
            # The first term of a word is in the axis, the others may be beyond its end.
            copier.env[region.arguments[0]] = kb.min(term, kb.sub(size, 1)) if number else first
            copier.ops(expression(factor, defs, stop))
            value = copier[factor]
            if number:
                value = kb.select(kb.lt(term, size), value, kb.number(0, I32))
            if number < TERMS - 1 and factor is ordered[1]:
                value = kb.and_(value, kb.number(255, I32))
            if number:
                value = kb.shl(value, kb.number(8 * number, I32))
            total = value if total is None else kb.or_(total, value)
        return expect(total, "a word has terms")

    def hook_of(level: int):
        def hook(copier: Copier, op: Op) -> None:
            kb, (body,) = copier.kb, op.regions
            init = [copier[v] for v in For.of(op).init]
            lower, upper, step = axis.bounds(copier, level)
            with kb.loop(For.of(op).name, lower, upper, step, init=init) as (here, *carried):
                axis.words[level] = here
                copier.env[body.arguments[0]] = kb.mul(here, TERMS)
                copier.env.update(zip(body.arguments[1:], carried, strict=True))
                if op is inner:
                    a, b = (word(copier, factor, kb.mul(here, TERMS)) for factor in ordered)
                    kb.carry(kb.op("dot4", a, b, copier[acc]))
                else:
                    kb.carry(*copier.block(body))
            copier.env.update(zip(op.results, kb.results, strict=True))

        return hook

    made = rebuild(function, {op: hook_of(level) for level, op in enumerate(loops)})
    return requires(made, *axis.notes)


def word_of(loop: Op, source: Value, defs: Mapping[Value, Op]) -> Value | None:
    """Return the word that ``loop`` makes of bytes of the buffer ``source``, or None."""
    loads = {o.result for o in loop.walk() if o.kind == "kernel.load" and access(o)[0] is source}
    for op in loop.walk():
        if op.kind == "kernel.dot4":
            for value in op.operands[:2]:
                if depends_on([value], loads, defs):
                    return value
    return None


@dataclass(frozen=True)
class Word:
    """A word of four terms, that a loop makes of the bytes of a buffer.

    ``first``: its first term, the byte (of ``dtype``, as an i32) number ``position`` of the axis;
    ``position`` is four times the index of the loop over words, ``size`` the length of the axis.
    """

    value: Value
    first: Value
    position: Value
    size: Value
    dtype: DType

    @staticmethod
    def of(inner: Op, source: Value, defs: Mapping[Value, Op]) -> Word | None:
        """Return the word that the loop over words ``inner`` makes of ``source``, or None."""
        value = word_of(inner, source, defs)
        if value is None:
            return None
        first = value
        while defs[first].kind == "kernel.or":
            first = defs[first].operands[0]
        if defs[first].kind == "kernel.and":  # the bits of a signed byte
            first = defs[first].operands[0]
        index = For.of(inner).index
        (position,) = (
            o.result
            for o in inner.regions[0].ops
            if o.kind == "kernel.mul" and index in o.operands and o.result.type is INDEX
        )
        size = next(
            o.operands[1]
            for o in expression(value, defs, {position})
            if o.kind == "kernel.lt" and _plus_one(o.operands[0], position, defs)
        )
        kinds = _byte(first, defs)
        return Word(value, first, position, size, U8 if U8 in kinds else I8)


def _plus_one(value: Value, position: Value, defs: Mapping[Value, Op]) -> bool:
    op = defs.get(value)
    if op is None or op.kind != "kernel.add" or position not in op.operands:
        return False
    return any(constant_of(v, defs) == 1 for v in op.operands)


class _Axis:
    """The loops over the summed axis: chunks, blocks of a chunk, and the elements of a block."""

    def __init__(self, loops: list[Op], defs: Mapping[Value, Op]):
        self.loops, self.defs = loops, defs
        self.size = size_of_axis(loops, defs)
        self.words: dict[int, Value] = {}
        self.notes: list[str] = []

    def bounds(self, copier: Copier, level: int) -> tuple:
        """Return lower and upper bound and step of a loop, in words."""
        kb = copier.kb
        count = kb.ceildiv(copier[self.size], TERMS)
        step = self.step(copier, level)
        if level == 0:
            return kb.index(0), count, step
        before = self.words[level - 1]
        return before, kb.min(kb.add(before, self.step(copier, level - 1)), count), step

    def step(self, copier: Copier, level: int) -> Value:
        op = self.loops[level]
        if op is self.loops[-1]:
            return copier.kb.index(1)
        step = op.operands[2]
        constant = constant_of(step, self.defs)
        if constant is None:
            note = f"the step of {For.of(op).name} is a multiple of {TERMS}"
            self.notes += [] if note in self.notes else [note]
            return copier.kb.floordiv(copier[step], TERMS)
        need(constant % TERMS == 0, f"{TERMS} does not divide the step of {For.of(op).name}")
        return copier.kb.index(constant // TERMS)


def _term(inner: Op, defs: Mapping[Value, Op]) -> tuple[Value, tuple[Value, Value]]:
    """Return the sum that the loop carries, and the two factors that each iteration adds to it."""
    (region,) = inner.regions
    need(len(region.arguments) == 2, f"{For.of(inner).name} carries more than a sum")
    acc, (total,) = region.arguments[1], region.outputs
    op = expect(defs.get(total), "no sum in i32")
    need(op.kind == "kernel.add" and total.type is I32, "no sum in i32")
    others = [v for v in op.operands if v is not acc]
    need(len(others) == 1, f"{For.of(inner).name} adds more than a term")
    product = expect(defs.get(others[0]), "the term is not a product")
    need(product.kind == "kernel.mul", "the term is not a product")
    first, second = product.operands
    return acc, (first, second)


def _byte(value: Value, defs: Mapping[Value, Op]) -> frozenset:
    """Return the dtypes of a byte (i8, ui8) that hold every value of an i32."""
    op = defs.get(value)
    if op is None or value not in op.results:
        return frozenset()
    if op.kind == "kernel.select":
        return _byte(op.operands[1], defs) & _byte(op.operands[2], defs)
    if op.kind == "kernel.constant":
        kept = ((d, scalars.integer_range(d)) for d in (I8, U8))
        return frozenset(d for d, (low, high) in kept if low <= Constant.of(op).value <= high)
    if op.kind == "kernel.cast" and op.operands[0].type is not INDEX:
        return frozenset({op.operands[0].type} & {I8, U8})
    return frozenset()
