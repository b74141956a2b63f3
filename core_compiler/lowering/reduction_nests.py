"""The loops of reductions, products, convolutions and windows, in the contract's order.

Chunks of 256 for products and sequences, 32 lanes and chunks of 4096 for the last axis, channel
blocks of 32 for convolutions, windows row-major. Schedules may not change any of it. Only sums of
bytes, which wrap, have chunks and blocks of other sizes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from core_compiler.ir import DType, Value
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.lowering.element_expressions import CHUNK, LANE_CHUNK, Node
from core_compiler.lowering.planning import Phase, Plan
from core_compiler.ops.affine import Axis

LANES = 32


class EmitterInterface(Protocol):
    """The emitter's interface for these loops, implemented by :class:`emission.Emitter`."""

    kb: KernelBuilder
    plan: Plan
    sum_loops: list[str]

    def argument(self, letter: str, number: int) -> Value: ...
    def unique(self, name: str) -> str: ...
    def extent(self, axis: Axis) -> Value: ...
    def number(self, value: int, role: Any) -> Value: ...
    def bind(self, axes: dict[Axis, Value]) -> AbstractContextManager[None]: ...
    def keep(self, phase: Phase) -> None: ...
    def emit(self, node: Node) -> Value: ...
    def condition(self, conditions: Any) -> Value: ...
    def _allocate(self, phase: Phase) -> None: ...


class ReductionNests(EmitterInterface):
    """The part of :class:`emission.Emitter` that emits reduction nests."""

    def nest(self, node: Node) -> Value:
        self.kb.origin = node.op.origin if node.op is not None else self.kb.origin
        return getattr(self, f"_{node.nest.form}")(node)

    def element(self, node: Node, k: Value, term: int = 0) -> Value:
        """Return the reduction nest's term at ``k`` (in a scope that the caller opened)."""
        return self.emit(node.nest.terms[term])

    def _phase_of(self, node: Node) -> Phase:
        for phase in self.plan.phases:
            if phase.nest is node:
                return phase
        return Phase(node)

    def _lanes(self, node: Node) -> Value:
        nest, axis = node.nest, node.nest.axes[0]
        phase = self._phase_of(node)
        self._allocate(phase)

        def body(k: Value) -> Value:
            with self.bind({axis: k}):
                made = self.emit(nest.terms[0])
                self.keep(phase)
                return made

        return self._lane_levels(nest, axis.size, self.extent(axis), body)

    def _lane_levels(self, nest, size: int, count: Value, element) -> Value:
        """Sum ``element`` over [0, count) in lanes.

        There are 32 lanes up to 4096 terms, else chunks of 4096 whose sums are added by the same
        rule. ``size`` is the value of ``count`` at compile time, which determines the number of
        levels.
        """
        kb = self.kb
        if size <= LANE_CHUNK:
            return self._lane_sum(nest, kb.index(0), count, element)
        size = -(-size // LANE_CHUNK)
        chunks = self.argument("chunks", size)
        sums = kb.alloc((chunks.name,), nest.dtype, chunks, name=self.unique("sums"))
        with kb.loop(self.unique("chunk"), 0, chunks) as c:
            start = kb.mul(c, LANE_CHUNK)
            end = kb.min(kb.add(start, LANE_CHUNK), count)
            kb.store(self._lane_sum(nest, start, end, element), sums, c)
        return self._lane_levels(nest, size, chunks, lambda k: kb.load(sums, k))

    def _lane_sum(self, nest, lower, upper, element) -> Value:
        kb, op = self.kb, COMBINE[nest.kind]
        lanes = kb.alloc((LANES,), nest.dtype, space="register", name=self.unique("lanes"))
        with kb.loop(self.unique("start"), 0, LANES, loop="vector") as lane:
            kb.store(identity(kb, nest.kind, nest.dtype), lanes, lane)
        with kb.loop(self.unique("k"), lower, upper, LANES) as k:
            width = kb.min(kb.sub(upper, k), LANES)
            with kb.loop(self.unique("lane"), 0, width, loop="vector") as lane:
                term = element(kb.add(k, lane))
                kb.store(kb.op(op, kb.load(lanes, lane), term), lanes, lane)
        for half in (16, 8, 4, 2, 1):
            with kb.loop(self.unique("tree"), 0, half, loop="vector") as lane:
                pair = kb.load(lanes, lane), kb.load(lanes, kb.add(lane, half))
                kb.store(kb.op(op, *pair), lanes, lane)
        return kb.load(lanes, 0)

    def _sequence(self, node: Node) -> Value:
        kb, nest, (axis,) = self.kb, node.nest, node.nest.axes
        phase, op = self._phase_of(node), COMBINE[node.nest.kind]
        self._allocate(phase)
        start, size = identity(kb, nest.kind, nest.dtype), self.extent(axis)
        with kb.loop(self.unique("chunk"), 0, size, CHUNK, init=[start]) as (chunk, total):
            end = kb.min(kb.add(chunk, CHUNK), size)
            with (
                kb.loop(self.unique("k"), chunk, end, init=[start]) as (k, acc),
                self.bind({axis: k}),
            ):
                kb.carry(kb.op(op, acc, self.emit(nest.terms[0])))
                self.keep(phase)
            kb.carry(kb.op(op, total, kb.results[0]))
        return kb.results[0]

    def _arg(self, node: Node) -> Value:
        kb, nest, (axis,) = self.kb, node.nest, node.nest.axes
        term = nest.terms[0]
        kind = "max" if nest.kind == "argmax" else "min"
        init = [identity(kb, kind, term.dtype), kb.number(0, nest.dtype)]
        with kb.loop(self.unique("k"), 0, self.extent(axis), init=init) as (k, best, position):  # noqa: SIM117
            with self.bind({axis: k}):
                x = self.emit(term)
                here = kb.cast(kb.cast(k, "i64"), nest.dtype)
                # The first of equals (including zeros of both signs) wins, and the first NaN before
                # all others.
                better = kb.op("gt" if kind == "max" else "lt", x, best)
                if term.dtype.is_float:
                    better = kb.or_(better, kb.and_(kb.ne(x, x), kb.eq(best, best)))
                kb.carry(kb.select(better, x, best), kb.select(better, here, position))
        return kb.results[1]

    def _contraction(self, node: Node) -> Value:
        (axis,) = node.nest.axes
        return self._chunks_along(node, axis)

    def _chunks_along(self, node: Node, axis) -> Value:
        """Sum along one axis in chunks."""
        kb, nest = self.kb, node.nest
        zero, size, step = kb.number(0, nest.dtype), self.extent(axis), nest.facts["chunk"]
        self.sum_loops = [self.unique("chunk"), self.unique("k")]
        with kb.loop(self.sum_loops[0], 0, size, step, init=[zero]) as (chunk, total):
            end = kb.min(kb.add(chunk, step), size)
            with (
                kb.loop(self.sum_loops[1], chunk, end, init=[zero]) as (k, acc),
                self.bind({axis: k}),
            ):
                a, b = (self.emit(t) for t in nest.terms)
                kb.carry(multiply_add(kb, a, b, acc))
            kb.carry(add_chunk(kb, chunk, total, kb.results[0]))
        return kb.results[0]

    def _convolution(self, node: Node) -> Value:
        """Emit channel blocks, then taps row-major, then the channel in its block.

        A chunk is ``blocks`` channel blocks.
        """
        kb, nest = self.kb, node.nest
        channel, taps = nest.axes[0], nest.axes[1:]
        width, count = nest.facts["block"], nest.facts["blocks"]
        one = all(tap.size == 1 for tap in taps) and width * count == nest.facts["chunk"]
        if one and not nest.conditions:
            # With one tap, a chunk's blocks of channels in order are a product's chunk.
            with self.bind({tap: kb.index(0) for tap in taps}):
                return self._chunks_along(node, channel)
        zero, size = kb.number(0, nest.dtype), self.extent(channel)
        step = self.number(width * count, "chunk")
        self.sum_loops = [self.unique("chunk"), self.unique("block")]
        with kb.loop(self.sum_loops[0], 0, size, step, init=[zero]) as (chunk, total):
            end = kb.min(kb.add(chunk, step), size)
            with kb.loop(self.sum_loops[1], chunk, end, width, init=[zero]) as (block, acc):
                stop = kb.min(kb.add(block, width), size)
                kb.carry(self._taps(node, taps, block, stop, acc))
            kb.carry(add_chunk(kb, chunk, total, kb.results[0]))
        return kb.results[0]

    def _taps(self, node: Node, taps, block, stop, acc) -> Value:
        kb, nest = self.kb, node.nest
        if taps:
            self.sum_loops.append(self.unique("tap"))
            with kb.loop(self.sum_loops[-1], 0, self.extent(taps[0]), init=[acc]) as (tap, inner):  # noqa: SIM117
                with self.bind({taps[0]: tap}):
                    kb.carry(self._taps(node, taps[1:], block, stop, inner))
            return kb.results[0]
        hit = self.condition(nest.conditions) if nest.conditions else None
        self.sum_loops.append(self.unique("c"))
        with (
            kb.loop(self.sum_loops[-1], block, stop, init=[acc]) as (c, inner),
            self.bind({nest.axes[0]: c}),
        ):
            a, b = (self.emit(t) for t in nest.terms)
            made = multiply_add(kb, a, b, inner)
            kb.carry(made if hit is None else kb.select(hit, made, inner))
        return kb.results[0]

    def _window(self, node: Node) -> Value:
        """Emit positions row-major; the kind determines how each updates the carried values."""
        kb, nest = self.kb, node.nest
        zero = kb.number(0, nest.dtype)
        if nest.kind == "positions":
            init = [identity(kb, "max", nest.terms[0].dtype), kb.number(-1, nest.dtype)]
            return self._positions(node, nest.axes, init, self._position_of_largest)[1]
        if nest.kind != "gradient":
            kind = "sum" if nest.kind == "add" else nest.kind
            start = identity(kb, kind, nest.dtype)
            return self._positions(node, nest.axes, [start], self._combine_term)[0]
        if not nest.facts["chunked"]:
            body = self._where_hit(self._add_contribution)
            return self._positions(node, nest.axes, [zero], body)[0]
        none, body = kb.number(0, "i64"), self._where_hit(self._add_in_chunks)
        acc, total, seen = self._positions(node, nest.axes, [zero, zero, none], body)
        return kb.select(kb.le(seen, kb.number(CHUNK, "i64")), acc, kb.add(total, acc))

    def _positions(self, node: Node, taps, carried: list[Value], body) -> list[Value]:
        """Emit the loops over ``taps``; ``body(node, carried)`` returns the next carried values."""
        kb = self.kb
        if not taps:
            return body(node, carried)
        with kb.loop(self.unique("tap"), 0, self.extent(taps[0]), init=carried) as (tap, *inner):  # noqa: SIM117
            with self.bind({taps[0]: tap}):
                kb.carry(*self._positions(node, taps[1:], inner, body))
        return list(kb.results)

    def _where_hit(self, body):
        """Return ``body`` behind a branch, if all lanes meet the same windows: most are missed."""

        def branch(node: Node, carried: list[Value]):
            conditions, lanes = node.nest.conditions, self.plan.rows[-1:]
            if not conditions or any(a in e.axes for e, _, _ in conditions for a in lanes):
                return body(node, carried)

            def hit():
                with self.bind({}):
                    return body(replace(node, nest=replace(node.nest, conditions=())), carried)

            return list(self.kb.choose(self.condition(conditions), hit, lambda: carried))

        return branch

    def _select_carried(self, node: Node, hit: Value | None, new: list[Value], old: list[Value]):
        """Return the new carried values if the position counts, else the old ones."""
        if node.nest.conditions:
            inside = self.condition(node.nest.conditions)
            hit = inside if hit is None else self.kb.and_(inside, hit)
        if hit is None:
            return new
        return [self.kb.select(hit, a, b) for a, b in zip(new, old, strict=True)]

    def _combine_term(self, node: Node, carried: list[Value]) -> list[Value]:
        made = self.kb.op(node.nest.kind, carried[0], self.emit(node.nest.terms[0]))
        return self._select_carried(node, None, [made], carried)

    def _position_of_largest(self, node: Node, carried: list[Value]) -> list[Value]:
        """Update the position of the largest element.

        The first position always counts, and so does a NaN (the last one stays).
        """
        kb, (best, position) = self.kb, carried
        x, here = (self.emit(t) for t in node.nest.terms)
        better = kb.or_(kb.gt(x, best), kb.lt(position, kb.number(0, position.type)))
        if x.type.is_float:
            better = kb.or_(better, kb.ne(x, x))
        return self._select_carried(node, better, [x, here], carried)

    def _add_contribution(self, node: Node, carried: list[Value]) -> list[Value]:
        """Add a term, starting from +0; ``terms`` has the element and whether it counts."""
        value, *belongs = (self.emit(t) for t in node.nest.terms)
        made = self.kb.add(carried[0], value)
        return self._select_carried(node, belongs[0] if belongs else None, [made], carried)

    def _add_in_chunks(self, node: Node, carried: list[Value]) -> list[Value]:
        """Add a term in chunks: 256 terms end a chunk, whose sum is added to the total."""
        kb, (acc, total, seen) = self.kb, carried
        value, *belongs = (self.emit(t) for t in node.nest.terms)
        none, chunk = kb.number(0, "i64"), kb.number(CHUNK, "i64")
        full = kb.and_(kb.gt(seen, none), kb.eq(kb.rem(seen, chunk), none))
        joined = kb.select(kb.eq(seen, chunk), acc, kb.add(total, acc))
        begun = kb.select(full, kb.number(0, node.nest.dtype), acc)
        new = [
            kb.add(begun, value),
            kb.select(full, joined, total),
            kb.add(seen, kb.number(1, "i64")),
        ]
        return self._select_carried(node, belongs[0] if belongs else None, new, carried)


COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}


def identity(kb: KernelBuilder, kind: str, t: DType) -> Value:
    """Return the result of a reduction without terms."""
    if kind in ("sum", "or"):
        return kb.number(0, t)
    if kind == "prod":
        return kb.number(1, t)
    if kind == "and":
        return kb.number(t.kind == "bool" or (-1 if t.kind == "int" else 2**t.bits - 1), t)
    if t.is_float:
        return kb.number(float("-inf") if kind == "max" else float("inf"), t)
    if t.kind == "bool":
        return kb.number(kind == "min", t)
    low, high = (
        (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1) if t.kind == "int" else (0, 2**t.bits - 1)
    )
    return kb.number(low if kind == "max" else high, t)


def multiply_add(kb: KernelBuilder, a: Value, b: Value, acc: Value) -> Value:
    """Add a term of a product: fma on floats, multiply and add (wrapping) on integers."""
    if a.type.is_float:
        return kb.fma(a, b, acc)
    return kb.add(kb.mul(a, b), acc)


def add_chunk(kb: KernelBuilder, chunk: Value, total: Value, part: Value) -> Value:
    """Return ``total`` plus the next chunk's sum; chunk 0's sum is used directly (it may be -0)."""
    if not part.type.is_float:
        return kb.add(total, part)
    return kb.select(kb.eq(chunk, 0), part, kb.add(total, part))
