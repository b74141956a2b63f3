"""One form for a kernel's arguments, so that equal kernels are structurally equal."""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.scheduling.transforms.edit import Copier


def canonical_arguments(function: Function) -> tuple[Function, tuple[int, ...]]:
    """``function`` with arguments named and ordered by their use; answers with it, for each of its
    index arguments, the number of the old one that it takes the value of.

    Buffers are ``b0``, ``b1``, ...  What buffer ``b1``'s type names is ``b1_0``, ``b1_1``, ...,
    what the body uses is ``n0``, ``n1``, ... in the order of first use.  A number that both use is
    passed twice, one that nothing uses is dropped: kernels do not differ by what a caller happens
    to compute from one value.
    """
    old = [v for v in function.arguments if v.type is INDEX]
    place = {v.name: number for number, v in enumerate(old)}
    kb, taken = KernelBuilder(function.name), []
    copier = Copier(kb)
    named: list[str] = []
    buffers = [v for v in function.arguments if v.type is not INDEX]
    for number, value in enumerate(buffers):
        names: dict[str, str] = {}
        for entry in (*value.type.shape, *value.type.strides, value.type.offset):
            if isinstance(entry, str) and entry not in names:
                names[entry] = f"b{number}_{len(names)}"
                named.append(names[entry])
                taken.append(place[entry])
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
        taken.append(old.index(value))
    copier.block(function.body)
    made = kb.function()
    return function.with_(body=made.body), tuple(taken)
