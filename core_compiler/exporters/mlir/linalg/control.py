"""Control flow in scf, and random numbers as one generic op."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from core_compiler.exporters.mlir.context import plain
from core_compiler.exporters.mlir.linalg import scalars
from core_compiler.exporters.mlir.linalg.context import F32, I64, Linalg, op
from core_compiler.exporters.mlir.linalg.shape import from_places
from core_compiler.exporters.mlir.literals import type_text
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ir import dtype, tensor
from core_compiler.ir.types import row_major
from core_compiler.ops import typed

UI32 = dtype("ui32")


@op("if")
def if_(b: Linalg, op: typed.If, condition: Ref, *captures: Ref) -> tuple[Ref, ...]:
    types = [plain(v.type) for v in op.results]
    regions = []
    for block in op.regions:
        with b.writer.region(header=False) as region:
            _yield(b, b.block(block, captures))
        regions.append(region)
    then, other = regions
    text = f"scf.if {b.number(condition)}{_arrow(types)} {then} else {other}"
    return b.writer.lines(text, types, [v.name for v in op.results], regions)


@op("while")
def while_(b: Linalg, op: typed.While, *carried: Ref) -> tuple[Ref, ...]:
    types = [v.type for v in carried]
    condition, body = op.regions
    names = [v.name or "" for v in condition.arguments]
    with b.writer.region(types, names, header=False) as before:
        (condition_value,) = b.block(condition, before.arguments)
        values = ", ".join(f"{v}" for v in before.arguments)
        b.writer.end(f"scf.condition({b.number(condition_value)}) {values} : {_listed(types)}")
    with b.writer.region(types, names) as after:
        _yield(b, b.block(body, after.arguments))
    starts = ", ".join(f"{v} = {c}" for v, c in zip(before.arguments, carried, strict=True))
    text = f"scf.while ({starts}) : ({_listed(types)}) -> ({_listed(types)}) {before} do {after}"
    return b.writer.lines(text, types, [v.name for v in op.results], (before, after))


def _yield(b: Linalg, values: Sequence[Ref]) -> None:
    names = ", ".join(f"{v}" for v in values)
    b.writer.end(
        f"scf.yield {names} : {_listed([v.type for v in values])}" if values else "scf.yield"
    )


def _arrow(types: Sequence) -> str:
    return f" -> ({_listed(types)})" if types else ""


def _listed(types: Sequence) -> str:
    return ", ".join(map(type_text, types))


# -- random numbers --------------------------------------------------------------------------------

#: Philox4x32-10's multipliers and key increments (Salmon et al., SC 2011).
_MULTIPLIERS, _INCREMENTS, _ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
_TWO_PI = 6.2831853071795864


def _random(
    b: Linalg,
    op: typed.Random,
    seed: Ref,
    *rest: Ref,
) -> Ref:
    """Generate Philox words at (element // 4, stream, iteration, trip), with the seed as the key.

    The conversions are those of the numerics contract.  The elements of a shard follow those of the
    shards before it.
    """
    iteration, shard, trip = (*rest, None, None, None)[:3]
    made = tensor(op.result.type.shape, op.dtype)
    key = _halves(b, b.number(seed))
    counts = [
        _halves(b, b.number(n))[0] if n is not None else b.scalar(0, UI32)
        for n in (iteration, trip)
    ]
    first = None if shard is None else scalars.convert(b, b.number(shard), I64)

    def body(_: Ref) -> Ref:
        element = b.scalar(0, I64)
        for axis, stride in enumerate(row_major(made.shape)):
            place = b.converted("arith.index_cast", b.loop_index(axis), I64)
            step = b.same("arith.muli", place, b.scalar(stride, I64))
            element = b.same("arith.addi", element, step)
        if first is not None:
            before = b.same("arith.muli", first, b.scalar(prod(made.shape), I64))
            element = b.same("arith.addi", element, before)
        block = b.same("arith.shrui", element, b.scalar(2, I64))
        counter = b.converted("arith.trunci", block, UI32)
        words = _philox(b, (counter, b.scalar(op.stream, UI32), *counts), key)
        word = b.same("arith.andi", element, b.scalar(3, I64))
        if op.kind == "core.random_normal":
            return scalars.convert(b, _normal(b, words, word), made.dtype)
        drawn = words[3]
        for number in (2, 1, 0):
            drawn = b.chosen(b.compared("eq", word, b.scalar(number, I64)), words[number], drawn)
        if op.kind == "core.random_bits":
            return drawn
        return scalars.convert(b, _uniform(b, drawn), made.dtype)

    return from_places(b, made, body)


op("random_bits", "random_uniform", "random_normal")(_random)


def _halves(b: Linalg, number: Ref) -> tuple[Ref, Ref]:
    """Return the low and high 32 bits of an integer, with sign extension."""
    wide = scalars.convert(b, number, I64)
    high = b.same("arith.shrui", wide, b.scalar(32, I64))
    return b.converted("arith.trunci", wide, UI32), b.converted("arith.trunci", high, UI32)


def _philox(b: Linalg, counter: Sequence[Ref], key: tuple[Ref, Ref]) -> tuple[Ref, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1 = (b.scalar(m, UI32) for m in _MULTIPLIERS)
    for _ in range(_ROUNDS):
        l0, h0 = b.writer.lines(f"arith.mului_extended {m0}, {c0} : i32", (UI32, UI32))
        l1, h1 = b.writer.lines(f"arith.mului_extended {m1}, {c2} : i32", (UI32, UI32))
        c0, c1 = b.same("arith.xori", b.same("arith.xori", h1, c1), k0), l1
        c2, c3 = b.same("arith.xori", b.same("arith.xori", h0, c3), k1), l0
        k0, k1 = (
            b.same("arith.addi", k, b.scalar(i, UI32))
            for k, i in zip((k0, k1), _INCREMENTS, strict=True)
        )
    return c0, c1, c2, c3


def _uniform(b: Linalg, word: Ref, shifted_by_one: bool = False) -> Ref:
    """Return 24 bits of a word (plus 1) times 2**-24."""
    bits = b.same("arith.shrui", word, b.scalar(8, UI32))
    if shifted_by_one:
        bits = b.same("arith.addi", bits, b.scalar(1, UI32))
    value = b.converted("arith.uitofp", bits, F32)
    return b.same("arith.mulf", value, b.scalar(2.0**-24, F32))


def _normal(b: Linalg, words: Sequence[Ref], word: Ref) -> Ref:
    """Apply Box-Muller: words 0 and 1 produce elements 0 and 1, words 2 and 3 the others."""
    late = b.compared("ge", word, b.scalar(2, I64))
    first, second = b.chosen(late, words[2], words[0]), b.chosen(late, words[3], words[1])
    log = b.same("math.log", _uniform(b, first, True))
    radius = b.same("math.sqrt", b.same("arith.mulf", b.scalar(-2, F32), log))
    angle = b.same("arith.mulf", b.scalar(_TWO_PI, F32), _uniform(b, second))
    odd = b.compared("ne", b.same("arith.andi", word, b.scalar(1, I64)), b.scalar(0, I64))
    turn = b.chosen(odd, b.same("math.sin", angle), b.same("math.cos", angle))
    return b.same("arith.mulf", radius, turn)
