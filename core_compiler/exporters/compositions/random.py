"""Random numbers by Philox4x32-10 in 64-bit integers that need only 63 bits.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype
from core_compiler.ops.rules import F32, I32, I64

_MULTIPLIERS, _INCREMENTS, _ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
_WORD = 0xFFFFFFFF
_TWO_PI = 6.2831853071795864


def random(b: Builder, op: typed.Random) -> Value:
    """Generate one word per element, in order, from counters of four words each.

    The words of a shard follow those of the shards before it and may start inside a counter.
    """
    made = op.result.type
    count = made.elements
    first = None
    if len(op.operands) > 2:
        shard = b.cast(op.operands[2], dtype=I64)
        first = b.mul(shard, b.constant(count, I64))
    words = _words(b, op, -(-count // 4) + (first is not None), first)
    if op.kind == "core.random_normal":
        words = _normal(b, words)
    drawn = b.concat(*(b.reshape(w, shape=(*w.type.shape, 1)) for w in words), axis=1)
    drawn = b.reshape(drawn, shape=(drawn.type.elements,))
    if first is None:
        drawn = b.cut(drawn, 0, 0, count)
    else:
        places = b.iota(shape=(count,), dtype=I64)
        inside = b.and_(first, b.constant(3, I64))
        drawn = b.take(drawn, b.add(places, b.expand(inside, (count,))), axis=0)
    drawn = b.reshape(drawn, shape=made.shape)
    if op.kind == "core.random_bits":
        return b.cast(drawn, dtype=made.dtype)
    drawn = drawn if op.kind == "core.random_normal" else _uniform(b, drawn)
    return as_dtype(b, drawn, made.dtype)


def _words(
    b: Builder,
    op: typed.Random,
    blocks: int,
    first: Value | None,
) -> tuple[Value, ...]:
    """Return the four words (i64, below 2**32) of each of ``blocks`` counters.

    The first counter is that of element ``first``.
    """
    seed, *rest = (b.cast(v, dtype=I64) for v in op.operands)
    counter = b.iota(shape=(blocks,), dtype=I64)
    if first is not None:
        start = b.shr(first, b.constant(2, I64))
        counter = b.add(counter, b.expand(start, (blocks,)))

    def whole(word: Value) -> Value:
        return b.expand(word, (blocks,))

    zero = b.scalar_like(0, counter)
    iteration, trip = (whole(_low(b, rest[i])) if len(rest) > i else zero for i in (0, 2))
    high = b.shr(seed, b.constant(32, I64))
    key = whole(_low(b, seed)), whole(_low(b, high))
    return _philox(b, (counter, b.scalar_like(op.stream, counter), iteration, trip), key)


def _low(b: Builder, x: Value) -> Value:
    """Return the low 32 bits."""
    return b.and_(x, b.scalar_like(_WORD, x))


def _philox(b: Builder, counter: Sequence[Value], key: Sequence[Value]) -> tuple[Value, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        (h0, l0), (h1, l1) = (
            _product(b, m, c) for m, c in zip(_MULTIPLIERS, (c0, c2), strict=True)
        )
        c0, c1 = b.xor(b.xor(h1, c1), k0), l1
        c2, c3 = b.xor(b.xor(h0, c3), k1), l0
        k0, k1 = (
            _low(b, b.add(k, b.scalar_like(i, k)))
            for k, i in zip((k0, k1), _INCREMENTS, strict=True)
        )
    return c0, c1, c2, c3


def _product(b: Builder, factor: int, x: Value) -> tuple[Value, Value]:
    """Return the high and low words of a product of words, computed from 16-bit products."""

    def n(number: int) -> Value:
        return b.scalar_like(number, x)

    low = b.mul(b.and_(x, n(0xFFFF)), n(factor))
    rest = b.add(b.mul(b.shr(x, n(16)), n(factor)), b.shr(low, n(16)))
    joined = b.or_(b.shl(b.and_(rest, n(0xFFFF)), n(16)), b.and_(low, n(0xFFFF)))
    return b.shr(rest, n(16)), joined


def _uniform(b: Builder, word: Value, shifted_by_one: bool = False) -> Value:
    """Return 24 bits of a word (plus 1) times 2**-24."""
    bits = b.cast(b.shr(word, b.scalar_like(8, word)), dtype=I32)
    if shifted_by_one:
        bits = b.add(bits, b.scalar_like(1, bits))
    value = b.cast(bits, dtype=F32)
    return b.mul(value, b.scalar_like(2.0**-24, value))


def _normal(b: Builder, words: Sequence[Value]) -> tuple[Value, ...]:
    """Apply the Box-Muller transform to the words (0, 1) and (2, 3)."""
    made: list[Value] = []
    for first, second in (words[:2], words[2:]):
        log = b.log(_uniform(b, first, True))
        radius = b.sqrt(b.mul(b.scalar_like(-2, log), log))
        turn = _uniform(b, second)
        angle = b.mul(b.scalar_like(_TWO_PI, turn), turn)
        made += [b.mul(radius, b.cos(angle)), b.mul(radius, b.sin(angle))]
    return tuple(made)
