"""Rebuilding a kernel with some of its ops replaced: the basis of every transformation.

A :class:`Copier` visits a function and emits an equivalent one through a :class:`KernelBuilder`,
which folds index arithmetic and shares equal pure ops. A transformation passes *hooks*, which emit
the replacement of an op of the old function. Transformations are functions ``Function ->
Function``; an illegal one raises :class:`Refused` with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from core_compiler.ir import Block, BufferType, Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.ops import is_pure
from core_compiler.kernel_ir.views import Constant, For, loop_kind
from core_compiler.support.errors import InternalError

T = TypeVar("T")


class Refused(InternalError):
    """Raised for an illegal transformation; the message is the reason."""


Hook = Callable[["Copier", Op], None]


class Copier:
    """Emits copies of ops into ``kb``; ``env`` maps values of the old function to new ones."""

    def __init__(self, kb: KernelBuilder, hooks: Mapping[Op, Hook] | None = None):
        self.kb, self.hooks = kb, dict(hooks or {})
        self.env: dict[Value, Value] = {}
        self.truths: dict[Value, bool] = {}  # conditions known at this point

    def truth(self, condition: Value) -> bool | None:
        """Return the known value of a condition of the old function at this point."""
        return self.truths.get(condition)

    def __getitem__(self, value: Value) -> Value:
        return self.env.get(value, value)

    def ops(self, ops) -> None:
        for op in ops:
            hook = self.hooks.get(op)
            if hook is None:
                self.copy(op)
            else:
                hook(self, op)

    def at(
        self,
        values: Sequence[Value],
        indices: Mapping[Value, Value],
        defs: Mapping[Value, Op],
        stop: set[Value],
    ) -> list[Value]:
        """Emit ``values`` where indices of loops have other values, computed up to ``stop``."""
        saved = dict(self.env)
        self.env.update(indices)
        for value in values:
            self.ops(expression(value, defs, stop))
        found = [self[v] for v in values]
        self.env.clear()
        self.env.update(saved)
        return found

    def block(self, block: Block) -> tuple[Value, ...]:
        """Copy the ops and return the new outputs of the block."""
        self.ops(block.ops)
        return tuple(self[v] for v in block.outputs)

    def copy(self, op: Op) -> None:
        """Emit a copy of ``op`` (hooks apply inside its regions)."""
        self.kb.origin = op.origin
        if op.kind == "kernel.for":
            self.loop(op)
        elif op.kind == "kernel.if":
            self._if(op)
        elif op.kind == "kernel.select" and self.truth(op.operands[0]) is not None:
            self.env[op.result] = self[op.operands[1 if self.truth(op.operands[0]) else 2]]
        elif op.kind == "kernel.constant":
            self.env[op.result] = self.kb._constant(Constant.of(op).value, op.result.type)
        elif len(op.results) == 1 and all(v.type is INDEX for v in (*op.operands, op.result)):
            name = op.kind.removeprefix("kernel.")
            self.env[op.result] = self.kb.op(name, *(self[v] for v in op.operands))
        else:
            operands = [self[v] for v in op.operands]
            types = [v.type for v in op.results]
            called = op.results[0].name if op.results else None
            results = self.kb._append(op.kind, operands, op.attributes, types, name=called)
            self.env.update(zip(op.results, results, strict=True))

    def loop(
        self,
        op: Op,
        *,
        loop: str | None = None,
        name: str | None = None,
        lower=None,
        upper=None,
        body: Callable[[], None] | None = None,
    ) -> None:
        """Emit the loop ``op`` with parts of its header, or its body's contents, replaced."""
        (region,) = op.regions
        low = self[op.operands[0]] if lower is None else lower
        high = self[op.operands[1]] if upper is None else upper
        init = [self[v] for v in For.of(op).init]
        kind, name = loop or loop_kind(op), name or For.of(op).name
        with self.kb.loop(name, low, high, self[op.operands[2]], loop=kind, init=init) as got:
            got = got if init else (got,)
            self.env.update(zip(region.arguments, got, strict=True))
            outputs = self.block(region) if body is None else (body() or ())
            if init:
                self.kb.carry(*outputs)
        self.env.update(zip(op.results, self.kb.results, strict=True))

    def _if(self, op: Op) -> None:
        then, otherwise = op.regions
        condition = self[op.operands[0]]
        if op.results:
            results = self.kb.choose(
                condition, lambda: self.block(then), lambda: self.block(otherwise)
            )
            self.env.update(zip(op.results, results, strict=True))
        elif otherwise.ops:
            self.kb.choose(condition, lambda: self.block(then), lambda: self.block(otherwise))
        else:
            with self.kb.branch(condition):
                self.block(then)


def rebuild(
    function: Function,
    hooks: Mapping[Op, Hook],
    prologue: Callable[[Copier], None] | None = None,
    sizes: tuple[str, ...] = (),
) -> Function:
    """Return ``function`` with ``hooks`` applied and dead ops removed.

    ``prologue`` emits ops at the top (allocations); ``sizes`` are new index arguments.
    """
    kb = KernelBuilder(function.name)
    copier = Copier(kb, hooks)
    kb.arguments.extend(function.arguments)
    known = {v.name for v in function.arguments}
    for name in sizes:
        if name not in known:
            kb.size(name)
    if prologue is not None:
        prologue(copier)
    copier.block(function.body)
    rebuilt = kb.function()
    return function.with_(body=without_dead(rebuilt.body))


def without_origins(function: Function) -> Function:
    """Return the function without the origins of its ops."""

    def strip(block: Block) -> Block:
        ops = (o.with_(origin=None, regions=tuple(map(strip, o.regions))) for o in block.ops)
        return block.with_(ops=tuple(ops))

    return function.with_(body=strip(function.body))


def without_dead(block: Block) -> Block:
    """Return the block without unused pure ops, loads, allocations and empty regions."""

    def clean(block: Block, needed: set[Value]) -> Block:
        needed.update(block.outputs)
        kept: list[Op] = []
        changed = False
        for old in reversed(block.ops):
            op, used = old, old.kind in _EFFECTS
            if old.regions:
                regions = [clean(r, needed) for r in old.regions]
                if any(a is not b for a, b in zip(regions, old.regions, strict=True)):
                    op, changed = old.with_(regions=regions), True
                used = any(r.ops for r in regions)
            if used or not needed.isdisjoint(op.results):
                needed.update(op.operands)
                kept.append(op)
            else:
                changed = True
        return block.with_(ops=tuple(reversed(kept))) if changed else block

    return clean(block, set())


_EFFECTS = frozenset({"kernel.store", "kernel.prefetch", "kernel.invoke"})


def replaced(block: Block, old: Op, new: Op) -> Block:
    """Return ``block`` with the op ``old``, at any depth, replaced by ``new`` and its results."""
    for place, op in enumerate(block.ops):
        placed = new if op is old else op
        if op is not old and op.regions:
            regions = tuple(replaced(r, old, new) for r in op.regions)
            if any(a is not b for a, b in zip(regions, op.regions, strict=True)):
                placed = op.with_(regions=regions)
        if placed is not op:
            return block.with_(ops=(*block.ops[:place], placed, *block.ops[place + 1 :]))
    return block


# -- questions ------------------------------------------------------------------------------------


def loops(function: Function) -> Iterator[Op]:
    return (op for op in function.body.walk() if op.kind == "kernel.for")


def find_loop(function: Function, name: str) -> Op:
    """Return the only loop of this name; raise :class:`Refused` if there is none or several."""
    found = [op for op in loops(function) if For.of(op).name == name]
    if len(found) != 1:
        known = ", ".join(For.of(op).name for op in loops(function))
        raise Refused(f"{function.name} has {len(found)} loops named {name!r} (loops: {known})")
    return found[0]


def has_loop(function: Function, name: str) -> bool:
    return any(For.of(op).name == name for op in loops(function))


def producers(function: Function) -> dict[Value, Op]:
    """Return the op of the whole function that defines each value (region arguments: its op)."""
    table: dict[Value, Op] = {}
    for op in function.body.walk():
        for value in op.results:
            table[value] = op
        for region in op.regions:
            for value in region.arguments:
                table[value] = op
    return table


def constant_of(value: Value, defs: Mapping[Value, Op]) -> int | None:
    """Return the constant of an index value, or None if it is computed."""
    op = defs.get(value)
    return Constant.of(op).index if op is not None and op.kind == "kernel.constant" else None


def buffer_argument(function: Function, name: str) -> Value:
    for value in function.arguments:
        if isinstance(value.type, BufferType) and value.name == name:
            return value
    raise Refused(f"{function.name} has no buffer argument {name!r}")


def private_buffer(function: Function, name: str) -> Op:
    """Return the only allocation of a private buffer; raise :class:`Refused` otherwise."""
    found = [
        op for op in function.body.walk() if op.kind == "kernel.alloc" and op.result.name == name
    ]
    need(len(found) == 1, f"{function.name} has {len(found)} private buffers named {name!r}")
    return found[0]


def need(condition: bool, reason: str) -> None:
    """Raise :class:`Refused` with ``reason`` unless ``condition``."""
    if not condition:
        raise Refused(reason)


def expect(found: T | None, reason: str) -> T:
    """Return ``found``; raise :class:`Refused` with ``reason`` if it is None."""
    if found is None:
        raise Refused(reason)
    return found


def depends_on(values, sources: set[Value], defs: Mapping[Value, Op]) -> bool:
    """Return whether any of ``values`` is computed from one of ``sources``."""
    seen: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in sources:
            return True
        if value in seen:
            continue
        seen.add(value)
        op = defs.get(value)
        if op is not None and value in op.results:
            stack.extend(op.uses())
            stack.extend(v for r in op.regions for v in r.outputs)
    return False


def nest(function: Function, names) -> list[Op]:
    """Return the loops ``names``, each checked to be the only effect of the one before it.

    Only pure ops are allowed between two levels, and no loop may carry values.
    """
    chain = [find_loop(function, name) for name in names]
    for op in chain:
        need(not For.of(op).init, f"loop {For.of(op).name} carries values")
    for outer, inner in itertools.pairwise(chain):
        others = [o for o in outer.regions[0].ops if o is not inner]
        need(
            inner in outer.regions[0].ops,
            f"{For.of(inner).name} is not directly in {For.of(outer).name}",
        )
        need(
            all(is_pure(o) for o in others),
            f"{For.of(outer).name} does more than its loop {For.of(inner).name}",
        )
    return chain


def expression(value: Value, defs: Mapping[Value, Op], stop: set[Value]) -> list[Op]:
    """Return the ops that compute ``value`` from ``stop`` or arguments, operands first."""
    order: list[Op] = []
    seen: set[Op] = set()

    def visit(v: Value) -> None:
        op = defs.get(v)
        if v in stop or op is None or op in seen or v not in op.results:
            return
        seen.add(op)
        for operand in op.uses():
            visit(operand)
        order.append(op)

    visit(value)
    return order


def bound_at_top(kb: KernelBuilder, value: Value, defs: Mapping[Value, Op]) -> Value:
    """Emit an upper bound of an index expression from arguments and constants only.

    Loop indices count as their largest value. ``min(a, b)`` uses the operands that can be bounded,
    so the extent of a ragged tile is bounded by the tile's size.
    """
    made_by = defs.get(value)
    if made_by is None:
        return value
    if value not in made_by.results:  # a loop's index
        return kb.sub(bound_at_top(kb, made_by.operands[1], defs), 1)
    name = made_by.kind.removeprefix("kernel.")
    if name == "constant":
        return kb.index(Constant.of(made_by).index)
    if name == "min":
        sides = list(made_by.operands)
        constants = [v for v in sides if constant_of(v, defs) is not None]
        direct = [v for v in sides if defs.get(v) is None]
        pick = (constants or direct or sides)[0]
        return bound_at_top(kb, pick, defs)
    if name == "sub":  # the subtrahend is not negative
        upper, lower = made_by.operands
        length = span(upper, lower, defs)
        return bound_at_top(kb, upper, defs) if length is None else kb.index(length)
    if name in ("add", "mul", "max"):
        return kb.op(name, *(bound_at_top(kb, v, defs) for v in made_by.operands))
    if name in ("ceildiv", "floordiv"):
        divisor = made_by.operands[1]
        if constant_of(divisor, defs) is not None or defs.get(divisor) is None:
            top = divisor if defs.get(divisor) is None else kb.index(constant_of(divisor, defs))
            return kb.op(name, bound_at_top(kb, made_by.operands[0], defs), top)
    raise Refused(f"{made_by} has no bound that depends on arguments only")


def requires(function: Function, *notes: str) -> Function:
    """Return ``function`` with ``notes`` added to its preconditions (attribute ``requires``)."""
    held = tuple(function.attributes.get("requires", ()))
    added = tuple(n for n in dict.fromkeys(notes) if n not in held)
    if not added:
        return function
    return function.with_(attributes={**function.attributes, "requires": (*held, *added)})


def span(upper: Value, lower: Value, defs: Mapping[Value, Op]) -> int | None:
    """Return c if ``upper`` is ``min(lower + c, ...)``: the length of a block of at most c."""
    top = defs.get(upper)
    if top is None or top.kind != "kernel.min":
        return None
    for side in top.operands:
        end = defs.get(side)
        if end is not None and end.kind == "kernel.add" and lower in end.operands:
            (other,) = [v for v in end.operands if v is not lower] or (None,)
            if other is not None and constant_of(other, defs) is not None:
                return constant_of(other, defs)
    return None
