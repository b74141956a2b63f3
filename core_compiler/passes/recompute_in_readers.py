"""Recompute in readers: a value is not stored if its readers compute it as cheaply as they read it.

An image minus its mean would be written once and read by the variance, the normalisation and two
gradients. All of them can read the image, which is in memory anyway, and subtract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Rewriter, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import (
    cached_join_refusal,
    family,
    flattened,
    is_copied,
    make_group,
    not_a_unit,
    not_claimed,
)

#: Bytes of values that stay in a cache: storing them costs nothing that is worth arithmetic.
SMALL = 1 << 17
#: An operand this many times smaller than the value is a few numbers a row or channel.
BESIDE = 16
#: Bytes moved in the time of one division, as a multiple of the bytes that it divides.
DIVISION = 3
#: Ops that a reader may have to add for one value.
MOST_OPS = 8


@dataclass(frozen=True)
class RecomputeInReaders(Pass):
    """Copy the arithmetic that computes a value into the kernels that read it.

    Only if no reader moves more bytes for it than the value itself costs: written once, into lines
    that are fetched first, and read by each. The copies are the same ops, so the bits are the same.
    """

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})
    refusal_arity = 1

    @override
    def run(self, module, context):
        def edit(rw):
            position = {op: i for i, op in enumerate(rw.ops)}
            for op in rw.ops:
                for value in op.results:
                    maker = rw.producer(value)
                    if maker is not None and value.type.bytes > SMALL:
                        _recompute(value, maker, rw, context.claims, position)

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        (op,) = ops
        position = {o: i for i, o in enumerate(context.rewriter.ops)}
        refused = None
        for value in op.results:
            found = plan(value, op, context.rewriter, context.claims, position)
            if not isinstance(found, Refusal):
                return None
            refused = refused or found
        return refused


def _recompute(
    value: Value, maker: Op, rw: Rewriter, claims: Callable[[Op], bool], position: dict[Op, int]
) -> None:
    found = plan(value, maker, rw, claims, position)
    if isinstance(found, Refusal):
        return
    for reader in rw.users(value):
        group = make_group([*found, reader], reader.results)
        (placed,) = rw.replace(reader, group, rule="compute what was read")
        position[placed] = position[reader]
    kept = [v for v in maker.results if v is not value]
    if kept:
        (placed,) = rw.replace(maker, make_group([maker], kept), rule="a result nobody reads")
        position[placed] = position[maker]
    else:
        rw.erase(maker, rule="a result nobody reads")


def plan(
    value: Value,
    maker: Op,
    rewriter: Rewriter,
    claims: Callable[[Op], bool],
    position: dict[Op, int],
) -> tuple[Op, ...] | Refusal:
    """Return the ops by which each reader of ``value`` computes it, or why it is stored."""
    readers = rewriter.users(value)
    if value.type.bytes <= SMALL:
        return refuse("large values", "{0:value} stays in a cache", maker)
    if rewriter.is_output(value) or not readers:
        return refuse("values between kernels", "{0:value} is a result of the program", maker)
    for unit in (maker, *readers):
        refused = not_a_unit(unit) or not_claimed(unit, claims)
        if refused is not None:
            return refused
    ops = arithmetic(value, maker)
    if isinstance(ops, Refusal):
        return ops
    made = {v for op in ops for v in op.results}
    leaves = [v for v in dict.fromkeys(v for op in ops for v in op.uses()) if v not in made]
    large = [v for v in leaves if _is_large(v, value)]
    refused = (
        _memory_refusal(value, maker, large, readers, rewriter, position)
        or _cost_refusal(value, maker, ops, large, readers)
        or _reader_refusal(value, maker, ops, readers)
    )
    return refused or ops


def _is_large(other: Value, value: Value) -> bool:
    return other.type.bytes * BESIDE > value.type.bytes


def arithmetic(value: Value, maker: Op) -> tuple[Op, ...] | Refusal:
    """Return the ops of a unit that compute ``value`` from what is outside or also stored."""
    ops = flattened(maker)
    made_by = {v: op for op in ops for v in op.results}
    stored = set(maker.results)
    chain: set[Op] = set()
    work = [value]
    while work:
        current = work.pop()
        op = made_by.get(current)
        if op is None or op in chain or (current in stored and current is not value):
            continue
        if not (is_copied(op) or has_trait(op, "elementwise")):
            return refuse("arithmetic", "{0:value} is computed by more than arithmetic", maker)
        if has_trait(op, "random", "several_roundings"):
            return refuse("cheap arithmetic", "{0:value} is computed by a long formula", maker)
        chain.add(op)
        work += op.uses()
    if len(chain) > MOST_OPS:
        return refuse("short arithmetic", "{0:value} is computed by {1} ops", maker, len(chain))
    return tuple(op for op in ops if op in chain)


def _memory_refusal(
    value: Value,
    maker: Op,
    large: Sequence[Value],
    readers: Sequence[Op],
    rewriter: Rewriter,
    position: dict[Op, int],
) -> Refusal | None:
    """Return a refusal if more bytes would wait in memory for the last reader."""
    last = max(position[op] for op in readers)
    bytes_held = 0
    for leaf in large:
        if rewriter.producer(leaf) is None:
            return refuse(
                "values between kernels",
                "{0:value} is computed from an argument, which may be overwritten",
                maker,
            )
        if all(position[op] < last for op in rewriter.users(leaf)):
            bytes_held += leaf.type.bytes
    if bytes_held <= value.type.bytes:
        return None
    return refuse(
        "no more memory",
        "{0:value} has {1:,} bytes, what it is computed from and would be kept has {2:,}",
        maker,
        value.type.bytes,
        bytes_held,
    )


def _cost_refusal(
    value: Value, maker: Op, ops: Sequence[Op], large: Sequence[Value], readers: Sequence[Op]
) -> Refusal | None:
    """Return a refusal if the readers would move more bytes, with divisions as bytes."""
    stored = value.type.bytes * (2 + len(readers))
    divisions = sum(has_trait(op, "division") and _is_large(op.result, value) for op in ops)
    is_kept = _is_needed_inside(value, maker)
    computed = divisions * DIVISION * value.type.bytes * (len(readers) - 1 + is_kept) + sum(
        leaf.type.bytes for reader in readers for leaf in large if leaf not in reader.operands
    )
    if computed < stored:
        return None
    return refuse(
        "fewer bytes",
        "storing {0:value} moves {1:,} bytes, computing it would cost as much as {2:,}",
        maker,
        stored,
        computed,
    )


def _is_needed_inside(value: Value, maker: Op) -> bool:
    return any(value in op.uses() for op in flattened(maker))


def _reader_refusal(
    value: Value, maker: Op, ops: Sequence[Op], readers: Sequence[Op]
) -> Refusal | None:
    """Return a refusal if a reader reads an element several times, or its kernel has no place."""
    for reader in readers:
        inside = flattened(reader)
        heavy = next(
            (op for op in inside if value in op.uses() and family(op) not in ("map", "reduction")),
            None,
        )
        if heavy is not None:
            text = "{1} reads elements of {0:value} several times"
            return refuse("elements read once", text, maker, reader)
        refused = cached_join_refusal(ops, inside, reader.results)
        if refused is not None:
            return refuse("one kernel", "{1} has no place for {0:value}", maker, reader)
    return None
