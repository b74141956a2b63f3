"""Outlining: a part of a kernel becomes a separate kernel, compiled once and shared.

The part is called with ``kernel.invoke``. Its arguments are named canonically, so that equal parts
of different kernels are structurally equal functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.ir import BufferType, Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.ops import access, is_pure
from core_compiler.kernel_ir.views import Invoke
from core_compiler.scheduling.transforms.arguments import canonical_arguments
from core_compiler.scheduling.transforms.edit import (
    Copier,
    find_loop,
    need,
    producers,
    rebuild,
    without_dead,
    without_origins,
)


def outline(
    function: Function, loop: str, name: str, first: str | None = None, streams: Sequence[str] = ()
) -> tuple:
    """Move a loop into a separate kernel; return (the caller, the new kernel).

    The new kernel is called ``name`` and some digits of its structure.

    With ``first``, everything from loop ``first`` to ``loop`` moves, both in one block. Index
    arithmetic is repeated on both sides rather than passed, except for outer values that the part's
    loops depend on; only buffers and index values are passed. The part gets a view of a buffer
    without the axes along which it does not move. ``streams`` names buffers that the part only
    reads: it takes them from ordinary memory of any extent, starting at its first element, so that
    the part is the same whether its caller packed them or received them packed.
    """
    defs = producers(function)
    last = find_loop(function, loop)
    block = _block_of(function, last)
    start = block.ops.index(find_loop(function, first)) if first else block.ops.index(last)
    stop = block.ops.index(last) + 1
    part = list(block.ops[start:stop])
    results = {v for o in part for v in o.results if not is_pure(o)}
    later = [v for o in block.ops[stop:] for v in o.uses()] + list(block.outputs)
    need(not any(v in results for v in later), f"a result of {loop} is used after it")
    allocations = _local_allocations(function, part)
    part = [*allocations, *part]
    inside = {v for o in part for q in o.walk() for v in q.results}
    free = [v for v in dict.fromkeys(v for o in part for v in o.uses()) if v not in inside]
    constants = [v for v in free if v in defs and defs[v].kind == "kernel.constant"]
    free = [v for v in free if v not in constants]
    buffers = [v for v in free if isinstance(v.type, BufferType)]
    numbers = [v for v in free if v.type is INDEX]
    need(len(buffers) + len(numbers) == len(free), f"{loop} uses an element computed outside it")
    # A size that is also compared is passed a second time for that, so that a kernel does not
    # depend on whether its caller computes both from one value.
    tested = [v for v in numbers if _is_compared(part, v)]
    numbers = [v for v in numbers if _is_used_otherwise(part, v)]
    views = [_View.of(v, part, defs, v.name in streams) for v in buffers]
    core, entries = _kernel(name, part, views, numbers, tested, constants, defs)
    core, taken = canonical_arguments(core)
    # A core serves every kernel with an equal part, so it refers to no op of the model.
    core = without_origins(core)
    core = core.with_(name=f"{name}_{digest(core)}")

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        sizes = [_size(copier, function, defs, b, s) for b, s in entries]
        given = [*sizes, *(copier[v] for v in (*numbers, *tested))]
        operands = [*(view.emit_in_caller(copier) for view in views), *(given[i] for i in taken)]
        kb._append("kernel.invoke", operands, {"callee": core.name})

    def drop(copier: Copier, op: Op) -> None:
        if is_pure(op):
            copier.copy(op)

    hooks = dict.fromkeys(part, drop)
    hooks[last] = hook
    return rebuild(function, hooks), core


@dataclass(frozen=True)
class _View:
    """The view of a buffer in an outlined part.

    ``starts``: for each axis the start of the view (None: at 0); ``dropped``: the axes along which
    the part does not move; ``stream``: it only reads, from memory of any extent.
    """

    memory: Value
    starts: tuple[Value | None, ...]
    dropped: tuple[int, ...]
    stream: bool

    @staticmethod
    def of(memory: Value, part: Sequence[Op], defs, stream: bool) -> _View:
        ops = [q for o in part for q in o.walk() if memory in q.operands]
        rank = memory.type.rank
        if any(o.kind not in ("kernel.load", "kernel.store") for o in ops):
            need(not stream, f"{memory.name} is not only read")
            return _View(memory, (None,) * rank, (), False)
        need(not stream or all(o.kind == "kernel.load" for o in ops), f"{memory.name} is stored to")
        inside = {v for o in part for q in o.walk() for v in q.results}
        inside |= {v for o in part for q in o.walk() for r in q.regions for v in r.arguments}
        rows = list(zip(*(access(o)[1] for o in ops), strict=True))
        starts: list[Value | None] = [None] * rank
        dropped = []
        for axis, indices in enumerate(rows[:-1]):
            if len(set(indices)) == 1 and _is_invariant(indices[0], inside, defs):
                starts[axis] = indices[0]
                dropped.append(axis)
        lead = next(axis for axis in range(rank) if axis not in dropped)
        if stream:
            parts = {_offset(v, inside, defs) for v in rows[lead]}
            starts[lead] = parts.pop() if len(parts) == 1 else None
        return _View(memory, tuple(starts), tuple(dropped), stream)

    @property
    def kept(self) -> list[int]:
        return [axis for axis in range(self.memory.type.rank) if axis not in self.dropped]

    def emit_in_caller(self, copier: Copier) -> Value:
        """Return the view in the caller: the buffer itself if it is passed whole."""
        if not any(s is not None for s in self.starts):
            return copier[self.memory]
        kb = copier.kb
        starts = [kb.index(0) if s is None else copier[s] for s in self.starts]
        operands = [copier[self.memory], *starts]
        (view,) = kb._append(
            "kernel.view", operands, {"dropped": self.dropped}, name=self.memory.name
        )
        return view

    def argument(self, kb: KernelBuilder, number: int) -> tuple[Value, list[tuple]]:
        """Return the part's own buffer argument, and the values of the names in its type."""
        kind, entries = self.memory.type, []
        names: dict[Any, str] = {}

        def entered(entry) -> str:
            if entry not in names:
                names[entry] = f"b{number}_{len(names)}"
                entries.append((self.memory, entry))
            return names[entry]

        kept = self.kept
        shape = [kind.shape[a] for a in kept]
        shape = [
            entered(d) if isinstance(d, str) or (self.stream and a == kept[0]) else d
            for a, d in zip(kept, shape, strict=True)
        ]
        strides = [kind.strides[a] for a in kept]
        strides = [entered(s) if isinstance(s, str) else s for s in strides]
        space = "dram" if self.stream else kind.space
        argument = kb.buffer(f"b{number}", shape, kind.dtype, strides, 0, space)
        return argument, entries

    def access(self, defs):
        """Return the hook that copies an access of the buffer as one of the view."""

        def hook(copier: Copier, op: Op) -> None:
            at = op.operands.index(self.memory)
            indices, kept = access(op)[1], self.kept
            rest = op.operands[at + 1 + len(indices) :]
            shifted = [
                indices[a] if start is None else _rest_after(indices[a], start, defs)
                for a, start in enumerate(self.starts)
                if a in kept
            ]
            operands = [copier[v] for v in (*op.operands[: at + 1], *shifted, *rest)]
            attributes = dict(op.attributes)
            if "axis" in attributes:
                attributes["axis"] = kept.index(attributes["axis"] % len(indices))
            types = [v.type for v in op.results]
            copier.kb.origin = op.origin
            got = copier.kb._append(op.kind, operands, attributes, types, name=_name(op))
            copier.env.update(zip(op.results, got, strict=True))

        return hook


def _name(op: Op) -> str | None:
    return op.results[0].name if op.results else None


def _is_invariant(value: Value, inside: set[Value], defs) -> bool:
    """Return whether an index is constant throughout a part."""
    return value not in inside or (value in defs and defs[value].kind == "kernel.constant")


def _offset(value: Value, inside: set[Value], defs) -> Value | None:
    """Return x if an index has the form ``x + y`` and x is constant throughout the part."""
    op = defs.get(value)
    if op is not None and op.kind == "kernel.add" and value in op.results and value in inside:
        invariant = [v for v in op.operands if v not in inside]
        return invariant[0] if len(invariant) == 1 else None
    return None


def _rest_after(value: Value, start: Value, defs) -> Value:
    """Return y if ``value`` has the form ``start + y``."""
    (rest,) = [v for v in defs[value].operands if v is not start]
    return rest


def _local_allocations(function: Function, part: Sequence[Op]) -> list[Op]:
    """Return the allocations of fixed size that only ``part`` uses, which move with it."""
    own = {q for o in part for q in o.walk()}
    found = []
    for op in function.body.ops:
        if op.kind == "kernel.alloc" and not op.operands:
            users = [q for q in function.body.walk() if op.result in q.operands]
            if all(q in own for q in users):
                found.append(op)
    return found


def _block_of(function: Function, op: Op):
    blocks = [function.body] + [r for o in function.body.walk() for r in o.regions]
    return next(b for b in blocks if op in b.ops)


def _is_compared(part: Sequence[Op], value: Value) -> bool:
    return any(
        value in inner.operands for op in part for inner in op.walk() if inner.kind in _COMPARISONS
    )


def _is_used_otherwise(part: Sequence[Op], value: Value) -> bool:
    return any(
        value in inner.operands
        for op in part
        for inner in op.walk()
        if inner.kind not in _COMPARISONS
    )


def _kernel(name, part: Sequence[Op], views: Sequence[_View], numbers, tested, constants, defs):
    """Return the new kernel and the run-time sizes of its buffer types, as (buffer, entry)."""
    kb = KernelBuilder(name)
    copier = Copier(kb)
    size_entries: list[tuple[Value, str | int]] = []
    sizes: list[str] = []
    for number, view in enumerate(views):
        copier.env[view.memory], entries = view.argument(kb, number)
        size_entries += entries
        sizes += [f"b{number}_{i}" for i in range(len(entries))]
    for size in sizes:
        kb.size(size)
    for number, value in enumerate(numbers):
        copier.env[value] = kb.size(f"n{number}")
    compared = {v: kb.size(f"n{len(numbers) + i}") for i, v in enumerate(tested)}
    seen = {view.memory: view for view in views if view.dropped or view.stream}
    for op in part:
        for inner in op.walk():
            if inner.kind in _COMPARISONS and not compared.keys().isdisjoint(inner.operands):
                copier.hooks[inner] = _comparing(compared)
            if inner.kind in ("kernel.load", "kernel.store") and access(inner)[0] in seen:
                copier.hooks[inner] = seen[access(inner)[0]].access(defs)
    copier.ops(defs[v] for v in constants)
    copier.ops(part)
    core = kb.function()
    return core.with_(body=without_dead(core.body)), size_entries


_COMPARISONS = tuple(f"kernel.{n}" for n in ("eq", "ne", "lt", "le", "gt", "ge"))


def _comparing(compared):
    def hook(copier: Copier, op: Op) -> None:
        saved = {v: copier.env[v] for v in compared if v in copier.env}
        copier.env.update(compared)
        copier.copy(op)
        for value in compared:
            copier.env.pop(value)
        copier.env.update(saved)

    return hook


def digest(core: Function) -> str:
    """Return six digits that equal kernels, and only they, have in common."""
    from core_compiler.ir.core import Module, structure_key

    return structure_key(Module({"kernel": core.with_(name="kernel")}))[:6]


def _size(copier: Copier, function: Function, defs, memory: Value, entry: str | int) -> Value:
    """Return a size in a buffer's type: a constant, an argument, or an allocation's size."""
    if isinstance(entry, int):
        return copier.kb.index(entry)
    for value in function.arguments:
        if value.type is INDEX and value.name == entry:
            return copier[value]
    op = defs[memory]
    names = [d for d in memory.type.shape if isinstance(d, str)]
    need(entry in names, f"{memory.name} has a run-time stride")
    return copier[op.operands[names.index(entry)]]


def dispatch(
    function: Function, callee: str, size: int, variants: Sequence[tuple[int, str]]
) -> Function:
    """Call the smallest sufficient kernel of ``variants`` instead of ``callee``.

    ``size`` is the position of the index argument that is the number of valid rows. ``variants``
    are (rows, kernel), largest first, each correct for any number of rows up to its own.
    """
    calls = [
        o
        for o in function.body.walk()
        if o.kind == "kernel.invoke" and Invoke.of(o).callee == callee
    ]
    need(len(calls) == 1, f"{callee} is called {len(calls)} times")
    rows = [r for r, _ in variants]
    need(rows == sorted(rows, reverse=True), "variants are listed largest first")

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        operands = [copier[v] for v in op.operands]

        def call(which: int) -> tuple:
            if which + 1 < len(variants):
                large = kb.gt(operands[size], kb.index(rows[which + 1]))
                kb.choose(large, lambda: call_one(which), lambda: call(which + 1))
            else:
                call_one(which)
            return ()

        def call_one(which: int) -> tuple:
            kb._append("kernel.invoke", operands, {"callee": variants[which][1]})
            return ()

        call(0)

    return rebuild(function, {calls[0]: hook})
