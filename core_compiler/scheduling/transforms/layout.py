"""Layouts of private buffers: split and permuted dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Function, Op, Value
from core_compiler.kernel_ir.ops import access
from core_compiler.scheduling.transforms.edit import (
    Copier,
    need,
    private_buffer,
    producers,
    rebuild,
)
from core_compiler.scheduling.transforms.stage import quotient_and_remainder


def split_dimension(function: Function, buffer: str, axis: int, size: int) -> Function:
    """Split dimension ``axis`` of a private buffer in two, the second of extent ``size``.

    Every access must use an index along it with a known quotient and remainder: ``x * size + y``
    with y below ``size``.
    """
    defs, alloc = producers(function), private_buffer(function, buffer)
    kind = alloc.result.type
    need(kind.shape[axis] % size == 0, f"{size} does not divide dimension {axis} of {buffer}")
    shape = (*kind.shape[:axis], kind.shape[axis] // size, size, *kind.shape[axis + 1 :])

    def moved(copier: Copier, op: Op) -> list[Value]:
        where = access(op)[1]
        both = quotient_and_remainder(copier, where[axis], size, defs)
        before, after = where[:axis], where[axis + 1 :]
        return [*(copier[v] for v in before), *both, *(copier[v] for v in after)]

    return _laid_out(function, alloc, shape, moved)


def permute_dimensions(function: Function, buffer: str, order: Sequence[int]) -> Function:
    """Permute the dimensions of a private buffer, the slowest first."""
    alloc = _static(function, buffer)
    kind = alloc.result.type
    need(sorted(order) == list(range(kind.rank)), f"{buffer} has {kind.rank} dimensions")

    def moved(copier: Copier, op: Op) -> list[Value]:
        where = access(op)[1]
        return [copier[where[axis]] for axis in order]

    return _laid_out(function, alloc, tuple(kind.shape[axis] for axis in order), moved)


def _static(function: Function, buffer: str) -> Op:
    alloc = private_buffer(function, buffer)
    need(not alloc.operands, f"the size of {buffer} is known only at run time")
    return alloc


def _laid_out(function: Function, alloc: Op, shape, moved) -> Function:
    """Return ``alloc`` with another shape, and every access at the indices from ``moved``."""
    old = alloc.result

    def allocate(copier: Copier, op: Op) -> None:
        kind = old.type
        copier.env[old] = copier.kb.alloc(shape, kind.dtype, space=kind.space, name=old.name)

    def load(copier: Copier, op: Op) -> None:
        loaded = copier.kb.load(copier[old], *moved(copier, op), name=op.result.name)
        copier.env[op.result] = loaded

    def store(copier: Copier, op: Op) -> None:
        copier.kb.store(copier[op.operands[0]], copier[old], *moved(copier, op))

    hooks: dict = {alloc: allocate}
    for op in function.body.walk():
        if op.kind in ("kernel.load", "kernel.store") and access(op)[0] is old:
            scalar = (op.result if op.kind == "kernel.load" else op.operands[0]).type
            need(scalar is old.type.dtype, f"{old.name} is accessed in vectors")
            hooks[op] = load if op.kind == "kernel.load" else store
    return rebuild(function, hooks)
