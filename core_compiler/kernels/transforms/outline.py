"""Outlining: a part of a kernel becomes a kernel of its own, compiled once and shared.

The part is called with ``kernel.invoke``.  Its arguments are named canonically, so that equal parts
of different kernels are structurally equal functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import BufferType, Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernels.builder import KernelBuilder
from core_compiler.kernels.ops import is_pure
from core_compiler.kernels.transforms.edit import (
    Copier,
    find_loop,
    need,
    producers,
    rebuild,
    without_dead,
)  # fmt: skip


def outline(function: Function, loop: str, name: str, first: str | None = None) -> tuple:
    """Move a loop into a kernel of its own; answers (the caller, the new kernel).

    The new kernel is called ``name`` and some digits of its structure.

    With ``first`` everything from loop ``first`` to ``loop`` goes, both in one block.  Index
    arithmetic is repeated on both sides rather than passed, except what the part's loops are made
    of outside; what is passed are buffers and index values.
    """
    made = producers(function)
    last = find_loop(function, loop)
    block = _block_of(function, last)
    start = block.ops.index(find_loop(function, first)) if first else block.ops.index(last)
    stop = block.ops.index(last) + 1
    part = [o for o in block.ops[start:stop]]
    results = {v for o in part for v in o.results if not is_pure(o)}
    later = [v for o in block.ops[stop:] for v in o.uses()] + list(block.outputs)
    need(not any(v in results for v in later), f"a result of {loop} is used after it")
    allocations = _only_here(function, part)
    part = [*allocations, *part]
    inside = {v for o in part for q in o.walk() for v in q.results}
    free = [v for v in dict.fromkeys(v for o in part for v in o.uses()) if v not in inside]
    constants = [v for v in free if v in made and made[v].kind == "kernel.constant"]
    free = [v for v in free if v not in constants]
    buffers = [v for v in free if isinstance(v.type, BufferType)]
    numbers = [v for v in free if v.type is INDEX]
    need(len(buffers) + len(numbers) == len(free), f"{loop} uses an element computed outside it")
    # A number that is also compared is passed a second time for that, so that a kernel does not
    # depend on whether its caller computes the two from one value.
    tested = [v for v in numbers if _is_compared(part, v)]
    numbers = [v for v in numbers if _is_counted(part, v)]
    core, passed = _kernel(name, part, buffers, numbers, tested, constants, made)

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        sizes = [_size(copier, function, made, b, s) for b, s in passed]
        rest = [copier[v] for v in (*numbers, *tested)]
        operands = [*(copier[v] for v in buffers), *sizes, *rest]
        kb._append("kernel.invoke", operands, {"callee": core.name})

    def gone(copier: Copier, op: Op) -> None:
        if is_pure(op):
            copier.copy(op)

    hooks = dict.fromkeys(part, gone)
    hooks[last] = hook
    return rebuild(function, hooks), core


def _only_here(function: Function, part: Sequence[Op]) -> list[Op]:
    """Allocations of fixed size that only ``part`` uses: they go with it."""
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
        value in inner.operands
        for op in part for inner in op.walk() if inner.kind in _COMPARISONS
    )  # fmt: skip


def _is_counted(part: Sequence[Op], value: Value) -> bool:
    return any(
        value in inner.operands
        for op in part for inner in op.walk() if inner.kind not in _COMPARISONS
    )  # fmt: skip


def _kernel(name, part: Sequence[Op], buffers, numbers, tested, constants, made):
    """The new kernel and the run-time sizes that its buffer types need, as (buffer, string)."""
    kb = KernelBuilder(name)
    copier = Copier(kb)
    passed: list[tuple[Value, str]] = []
    for number, value in enumerate(buffers):
        names: dict[str, str] = {}

        def renamed(entries, number=number, names=names, value=value):
            for entry in entries:
                if isinstance(entry, str) and entry not in names:
                    names[entry] = f"b{number}_{len(names)}"
                    passed.append((value, entry))
            return tuple(names.get(e, e) for e in entries)

        kind = value.type
        shape, strides = renamed(kind.shape), renamed(kind.strides)
        (offset,) = renamed((kind.offset,))
        copier.env[value] = kb.buffer(f"b{number}", shape, kind.dtype, strides, offset, kind.space)
    for value, entry in passed:
        number = buffers.index(value)
        order = [e for b, e in passed if b is value]
        kb.size(f"b{number}_{order.index(entry)}")
    for number, value in enumerate(numbers):
        copier.env[value] = kb.size(f"n{number}")
    compared = {v: kb.size(f"n{len(numbers) + i}") for i, v in enumerate(tested)}
    for op in part:
        for inner in op.walk():
            if inner.kind in _COMPARISONS and not compared.keys().isdisjoint(inner.operands):
                copier.hooks[inner] = _comparing(compared)
    copier.ops(made[v] for v in constants)
    copier.ops(part)
    core = kb.function()
    core = core.with_(body=without_dead(core.body))
    return core.with_(name=f"{name}_{digest(core)}"), passed


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
    """Six digits of what the kernel is: equal kernels get equal names, others do not."""
    from core_compiler.ir.core import Module, structure_key

    return structure_key(Module({"kernel": core.with_(name="kernel")}))[:6]


def _size(copier: Copier, function: Function, made, memory: Value, entry: str) -> Value:
    """The value of a run-time size in a buffer's type: an index argument, or an allocation's size."""
    for value in function.arguments:
        if value.type is INDEX and value.name == entry:
            return copier[value]
    op = made[memory]
    names = [d for d in memory.type.shape if isinstance(d, str)]
    need(entry in names, f"{memory.name} has a run-time stride")
    return copier[op.operands[names.index(entry)]]


def dispatch(
    function: Function, callee: str, size: int, variants: Sequence[tuple[int, str]]
) -> Function:
    """Call the smallest of ``variants`` that is large enough instead of ``callee``.

    ``size`` is the position of the index argument that says how many rows are real; ``variants``
    are (rows, kernel), largest first, each right for any number of rows up to its own.
    """
    calls = [o for o in function.body.walk() if o.kind == "kernel.invoke" and o["callee"] == callee]
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
