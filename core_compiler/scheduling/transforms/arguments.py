"""Canonicalisation of a kernel's arguments, so that equal kernels are structurally equal."""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.scheduling.transforms.edit import Copier


def canonical_arguments(function: Function) -> tuple[Function, tuple[int, ...]]:
    """Return ``function`` with arguments named and ordered by use, and the source of each index.

    The source is, for each new index argument, the number of the old one with its value. Buffers
    are ``b0``, ``b1``, ... Sizes in buffer ``b1``'s type are ``b1_0``, ``b1_1``, ..., and those
    that the body uses are ``n0``, ``n1``, ... in the order of first use. A size that both use is
    passed twice, and an unused one is dropped: kernels do not differ by whether a caller computes
    two sizes from one value.
    """
    old = [v for v in function.arguments if v.type is INDEX]
    index_of = {v.name: number for number, v in enumerate(old)}
    kb, sources = KernelBuilder(function.name), []
    copier = Copier(kb)
    named: list[str] = []
    buffers = [v for v in function.arguments if v.type is not INDEX]
    for number, value in enumerate(buffers):
        names: dict[str, str] = {}
        for entry in (*value.type.shape, *value.type.strides, value.type.offset):
            if isinstance(entry, str) and entry not in names:
                names[entry] = f"b{number}_{len(names)}"
                named.append(names[entry])
                sources.append(index_of[entry])
        shape, strides, (offset,) = (
            tuple(names.get(e, e) for e in part)
            for part in (value.type.shape, value.type.strides, (value.type.offset,))
        )
        kind = value.type
        copier.env[value] = kb.buffer(f"b{number}", shape, kind.dtype, strides, offset, kind.space)
    for name in named:
        kb.size(name)
    used = dict.fromkeys(v for op in function.body.walk() for v in op.operands)
    for number, value in enumerate(v for v in used if v in old):
        copier.env[value] = kb.size(f"n{number}")
        sources.append(old.index(value))
    copier.block(function.body)
    made = kb.function()
    return function.with_(body=made.body), tuple(sources)
