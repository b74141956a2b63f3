"""Sorts and top-k: keys whose unsigned order is that of the elements, sorted or selected by digit.

An element's key is an unsigned number (Knuth, "The Art of Computer Programming", volume 3, section
5.2.5): NaN is greatest and -0 equals +0, as in the contract; for a descending order its complement.
Rows are sorted by a stable radix sort of the keys, short ones by counting the elements before each.
Of a top-k only few elements are sorted: those at or before the k-th of the blocks' first ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core_compiler.ir import Value, dtype
from core_compiler.ir.types import INDEX
from core_compiler.ops import typed

if TYPE_CHECKING:
    from core_compiler.lowering.custom import Custom

#: Bits of a digit of a key, and the number of its values.
DIGIT = 8
BUCKETS = 1 << DIGIT
#: Rows up to this length are sorted by counting: some hundred comparisons in vectors.
SHORT = 64
#: Elements of a block, of which top-k keeps the first key.
BLOCK = 64


def sort(c: Custom, op: typed.Argsort | typed.Sort) -> None:
    kb, axis = c.kb, op.axis
    (x,), (y,) = c.inputs, c.outputs
    size = c.extents[x][axis]
    with c.rows(x, axis) as at:
        row = _Row(c, x, axis, op.descending)
        with c.row_loop("p", size) as p:
            row.put(0, p, row.key(p, at), p)
        side = row.sorted(size)
        with c.row_loop("k", size) as k:
            place = row.place(side, k)
            if op.kind.endswith("argsort"):
                kb.store(kb.cast(kb.cast(place, "i64"), y.type.dtype), y, *at(k))
            else:
                kb.store(kb.load(x, *at(place)), y, *at(k))


def topk(c: Custom, op: typed.Topk) -> None:
    kb, axis = c.kb, op.axis
    (x,), (values, positions) = c.inputs, c.outputs
    count = c.extents[values][axis]
    with c.rows(x, axis) as at:
        row = _Row(c, x, axis, op.largest)
        side = row.first(count, at)
        with c.row_loop("k", count) as k:
            place = row.place(side, k)
            kb.store(kb.load(x, *at(place)), values, *at(k))
            kb.store(kb.cast(place, "i64"), positions, *at(k))


class _Row:
    """A row of ``x`` along ``axis``: keys and positions in scratch, each twice (two sides)."""

    def __init__(self, c: Custom, x: Value, axis: int, descending: bool):
        self.c, self.kb, self.x = c, c.kb, x
        self.size, self.descending = c.extents[x][axis], descending
        lane = x.type.dtype
        self.bits = 64 if lane.bits == 64 else 32
        self.kind = dtype(f"ui{self.bits}")
        length = c.op.operands[0].type.shape[axis]
        number = "i32" if length < 1 << 31 else "i64"
        kb, name = self.kb, self.size.name
        self.keys = kb.alloc((2, name), self.kind, self.size, name="keys")
        self.places = kb.alloc((2, name), number, self.size, name="places")
        self.counts = kb.alloc((self.digits, BUCKETS), "i64", name="counts")

    @property
    def digits(self) -> int:
        return self.bits // DIGIT

    def number(self, value: int) -> Value:
        return self.kb.number(value, self.kind)

    # -- elements ----------------------------------------------------------------------------------

    def key(self, place: Value, at: Callable) -> Value:
        """Emit the key of the element at ``place``."""
        kb = self.kb
        value = self.c.widen(kb.load(self.x, *at(place)))
        kind, signed = value.type, dtype(f"i{self.bits}")
        lowest = kb.number(-(1 << (self.bits - 1)), signed)
        if kind.is_float:
            zero = kb.number(0.0, kind)
            raw = kb.bitcast(kb.select(kb.eq(value, zero), zero, value), dtype=signed)
            # The bits of negative numbers fall as the numbers rise.
            negative = kb.shr(raw, kb.number(self.bits - 1, signed))
            key = kb.bitcast(kb.xor(raw, kb.or_(negative, lowest)), dtype=self.kind)
            key = kb.select(kb.is_nan(value), self.number((1 << self.bits) - 1), key)
        elif kind.kind == "int":
            key = kb.bitcast(kb.xor(kb.cast(value, signed), lowest), dtype=self.kind)
        else:
            key = kb.cast(value, self.kind)
        return kb.bitnot(key) if self.descending else key

    def put(self, side, slot, key: Value, place: Value) -> None:
        self.kb.store(key, self.keys, side, slot)
        number = self.kb.cast(place, "i64") if place.type is INDEX else place
        self.kb.store(self.kb.cast(number, self.places.type.dtype), self.places, side, slot)

    def place(self, side, slot) -> Value:
        """Emit the position in the row of the element in a slot."""
        return self.kb.cast(self.kb.load(self.places, side, slot), INDEX)

    def digit(self, key: Value, shift: Value) -> Value:
        """Emit a digit of a key as an index."""
        kb = self.kb
        return kb.cast(kb.and_(kb.shr(key, shift), self.number(BUCKETS - 1)), INDEX)

    # -- sorting -----------------------------------------------------------------------------------

    def sorted(self, size: Value) -> Value:
        """Emit the sort of the first ``size`` elements of side 0; return the side of the result."""
        kb = self.kb

        def short() -> Value:
            self._count_before(size)
            return kb.index(1)

        return kb.choose(kb.le(size, kb.index(SHORT)), short, lambda: self._radix(size))[0]

    def _count_before(self, size: Value) -> None:
        """Put each element of side 0 at the number of elements before it, on side 1."""
        kb = self.kb
        with self.c.row_loop("element", size) as i:
            slot = self._before(lambda j: kb.load(self.keys, 0, j), i, size)
            kb.store(kb.load(self.places, 0, i), self.places, 1, slot)

    def _before(self, key_of: Callable[[Value], Value], i: Value, size: Value) -> Value:
        """Emit the number of keys before key ``i``: lower ones, and equal ones of lower number."""
        kb, one, none = self.kb, self.kb.number(1, "i64"), self.kb.number(0, "i64")
        key = key_of(i)
        with kb.loop("other", 0, size, init=[none]) as (j, before):
            other = key_of(j)
            equal = kb.and_(kb.eq(other, key), kb.lt(j, i))
            kb.carry(kb.add(before, kb.select(kb.or_(kb.lt(other, key), equal), one, none)))
        return kb.cast(kb.results[0], INDEX)

    def _radix(self, size: Value) -> Value:
        """Sort by one digit after the other, the lowest first; return the side of the result."""
        kb = self.kb
        self._clear_counts()
        with kb.loop("counted", 0, size) as i:
            key = kb.load(self.keys, 0, i)
            for number in range(self.digits):
                self._count(number, self.digit(key, self.number(DIGIT * number)))
        with kb.loop("digit", 0, self.digits, init=[kb.index(0)]) as (number, side):
            shift = kb.mul(kb.cast(kb.cast(number, "i64"), self.kind), self.number(DIGIT))
            first = self.digit(kb.load(self.keys, side, 0), shift)
            all_equal = kb.eq(kb.cast(kb.load(self.counts, number, first), INDEX), size)
            made = kb.choose(all_equal, lambda: side, lambda: self._pass(size, number, shift, side))
            kb.carry(*made)
        return kb.results[0]

    def _count(self, number, bucket: Value) -> None:
        """Add 1 to the count of a bucket of digit ``number``."""
        kb = self.kb
        more = kb.add(kb.load(self.counts, number, bucket), kb.number(1, "i64"))
        kb.store(more, self.counts, number, bucket)

    def _clear_counts(self) -> None:
        kb = self.kb
        with kb.loop("cleared", 0, self.digits) as number, kb.loop("bucket", 0, BUCKETS) as b:
            kb.store(kb.number(0, "i64"), self.counts, number, b)

    def _pass(self, size: Value, number: Value, shift: Value, side: Value) -> Value:
        """Sort by one digit into the other side; return that side."""
        kb = self.kb
        other = kb.sub(1, side)
        with kb.loop("start", 0, BUCKETS, init=[kb.number(0, "i64")]) as (b, total):
            here = kb.load(self.counts, number, b)
            kb.store(total, self.counts, number, b)
            kb.carry(kb.add(total, here))
        with kb.loop("moved", 0, size) as i:
            key = kb.load(self.keys, side, i)
            bucket = self.digit(key, shift)
            slot = kb.load(self.counts, number, bucket)
            kb.store(kb.add(slot, kb.number(1, "i64")), self.counts, number, bucket)
            self.put(other, kb.cast(slot, INDEX), key, kb.load(self.places, side, i))
        return other

    # -- selection ---------------------------------------------------------------------------------

    def first(self, count: Value, at: Callable) -> Value:
        """Emit the first ``count`` elements in order; return the side of the result.

        A block's first element is at or before the k-th of all blocks' first elements if one of its
        elements is among the first k: others are not looked at again.
        """
        kb, size = self.kb, self.size
        blocks = kb.ceildiv(size, BLOCK)
        raw = kb.alloc((size.name,), self.kind, size, name="raw")
        firsts = kb.alloc((size.name,), self.kind, size, name="firsts")
        with self.c.row_loop("p", size) as p:
            kb.store(self.key(p, at), raw, p)
        highest = self.number((1 << self.bits) - 1)
        with self.c.row_loop("block", blocks) as block:
            start = kb.mul(block, BLOCK)
            end = kb.min(kb.add(start, BLOCK), size)
            with kb.loop("inside", start, end, init=[highest]) as (i, least):
                kb.carry(kb.min(least, kb.load(raw, i)))
            kb.store(kb.results[0], firsts, block)

        def of_blocks() -> Value:
            return self._kth(lambda b: kb.load(firsts, b), blocks, count)

        (most,) = kb.choose(kb.ge(blocks, count), of_blocks, lambda: highest)
        with kb.loop("tried", 0, blocks, init=[kb.index(0)]) as (block, found):
            near = kb.le(kb.load(firsts, block), most)
            kb.carry(
                *kb.choose(near, lambda: self._candidates(raw, block, most, found), lambda: found)
            )
        found = kb.results[0]
        last = self._kth(lambda i: kb.load(self.keys, 1, i), found, count)
        self._take(found, last, count)
        return self.sorted(count)

    def _candidates(self, raw: Value, block: Value, most: Value, found: Value) -> Value:
        """Append the elements of a block at or before ``most`` to side 1; return their number."""
        kb = self.kb
        start = kb.mul(block, BLOCK)
        end = kb.min(kb.add(start, BLOCK), self.size)
        with kb.loop("candidate", start, end, init=[found]) as (i, slot):
            key = kb.load(raw, i)

            def keep() -> Value:
                self.put(1, slot, key, i)
                return kb.add(slot, 1)

            kb.carry(*kb.choose(kb.le(key, most), keep, lambda: slot))
        return kb.results[0]

    def _take(self, found: Value, last: Value, count: Value) -> None:
        """Copy the elements before ``last``, and the first of those equal to it, to side 0."""
        kb = self.kb
        with kb.loop("counted_before", 0, found, init=[kb.index(0)]) as (i, before):
            less = kb.lt(kb.load(self.keys, 1, i), last)
            kb.carry(kb.add(before, kb.select(less, kb.index(1), kb.index(0))))
        ties = kb.sub(count, kb.results[0])
        with kb.loop("taken", 0, found, init=[kb.index(0), kb.index(0)]) as (i, slot, equal):
            key = kb.load(self.keys, 1, i)
            tied = kb.eq(key, last)
            wanted = kb.or_(kb.lt(key, last), kb.and_(tied, kb.lt(equal, ties)))

            def keep() -> tuple[Value, ...]:
                self.put(0, slot, key, kb.load(self.places, 1, i))
                step = kb.select(tied, kb.index(1), kb.index(0))
                return kb.add(slot, 1), kb.add(equal, step)

            kb.carry(*kb.choose(wanted, keep, lambda: (slot, equal)))

    def _kth(self, key_of: Callable[[Value], Value], size: Value, count: Value) -> Value:
        """Emit the ``count``-th lowest of ``size`` keys."""
        kb = self.kb

        def short() -> Value:
            last = kb.sub(count, 1)
            with kb.loop("ranked", 0, size, init=[self.number(0)]) as (i, found):
                kb.carry(kb.select(kb.eq(self._before(key_of, i, size), last), key_of(i), found))
            return kb.results[0]

        def long() -> Value:
            return self._kth_by_digits(key_of, size, count)

        return kb.choose(kb.le(size, kb.index(SHORT)), short, long)[0]

    def _kth_by_digits(self, key_of: Callable[[Value], Value], size: Value, count: Value) -> Value:
        """Emit the ``count``-th lowest of ``size`` keys, digit by digit from the highest."""
        kb = self.kb
        bits = self.number(self.bits)
        start = [self.number(0), count]
        with kb.loop("selected", 0, self.digits, init=start) as (number, prefix, rank):
            used = kb.mul(kb.cast(kb.cast(kb.add(number, 1), "i64"), self.kind), self.number(DIGIT))
            shift = kb.sub(bits, used)
            above = kb.add(shift, self.number(DIGIT))
            with kb.loop("cleared", 0, BUCKETS) as b:
                kb.store(kb.number(0, "i64"), self.counts, 0, b)
            with kb.loop("compared", 0, size) as i:
                key = key_of(i)
                with kb.branch(kb.eq(kb.shr(key, above), kb.shr(prefix, above))):
                    self._count(0, self.digit(key, shift))
            init = [kb.index(0), rank, kb.number(False, "i1")]
            with kb.loop("bucket", 0, BUCKETS, init=init) as (b, chosen, left, done):
                here = kb.cast(kb.load(self.counts, 0, b), INDEX)
                hit = kb.and_(kb.not_(done), kb.le(left, here))
                passed = kb.or_(done, hit)
                kb.carry(
                    kb.select(hit, b, chosen),
                    kb.select(passed, left, kb.sub(left, here)),
                    passed,
                )
            chosen, left, _ = kb.results
            digit = kb.shl(kb.cast(kb.cast(chosen, "i64"), self.kind), shift)
            kb.carry(kb.or_(prefix, digit), left)
        return kb.results[0]
