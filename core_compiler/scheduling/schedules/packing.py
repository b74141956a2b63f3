"""Kernels that pack a constant operand of products into panels, once, when a program is loaded."""

from __future__ import annotations

from contextlib import suppress

from core_compiler.ir import Function, Value
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.product import Product
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.product import contiguous_terms
from core_compiler.scheduling.transforms import Refused, mark, transpose_copy
from core_compiler.scheduling.transforms.arguments import canonical_arguments
from core_compiler.scheduling.transforms.bytes import word_of
from core_compiler.scheduling.transforms.collapse import Numbering
from core_compiler.scheduling.transforms.edit import (
    Copier,
    buffer_argument,
    expression,
    find_loop,
    producers,
    without_dead,
)
from core_compiler.scheduling.transforms.outline import digest
from core_compiler.scheduling.transforms.stage import widened_element

#: The most lanes of a square that is transposed in registers.
MOST_LANES = 16


def pack_plan(
    kernel: Function, product: Product, columns: int, packed: bool, widened: bool = False
) -> dict:
    """Return the fields ``pack`` and ``taken`` of a plan whose ``b`` is (not) ``packed``."""
    if not packed:
        return {"pack": {}, "taken": {}}
    position = [v.name for v in buffer_arguments(kernel)].index(product.b)
    function, taken = canonical_arguments(pack_kernel(kernel, product, columns, widened))
    name = f"pack_{columns}_{digest(function)}"
    return {"pack": {position: function.with_(name=name)}, "taken": {position: taken}}


def pack_kernel(
    kernel: Function, product: Product, columns: int, widened: bool = False
) -> Function:
    """Return the kernel that packs the constant operand ``b`` into panels ``[panel][term][lane]``.

    Its index arguments are those of ``kernel``, then the panels' sizes.  Terms that are adjacent in
    memory (the weights of a linear layer) are transposed in squares of registers.  ``widened``:
    each element is packed as what the kernel widens it to.
    """
    if contiguous_terms(buffer_argument(kernel, product.b), product):
        with suppress(Refused):
            copying = _packing(kernel, product, columns, widened, is_copy=True)
            term, square = product.terms[-1], min(columns & -columns, MOST_LANES)
            made = transpose_copy(copying, term, "lane", square, columns)
            return mark(mark(made, term, "sequential"), "lane", "sequential")
    return _packing(kernel, product, columns, widened, is_copy=False)


def _packing(
    kernel: Function, product: Product, columns: int, widened: bool, is_copy: bool
) -> Function:
    """Return the packing kernel in loops; ``is_copy``: its loops are those of a plain copy.

    The lanes beyond the last column are then not written.
    """
    defs = producers(kernel)
    b, chunk = buffer_argument(kernel, product.b), find_loop(kernel, product.chunk)
    terms, column = [find_loop(kernel, t) for t in product.terms], product.columns[-1]
    loads = [o for o in terms[-1].walk() if o.kind == "kernel.load" and access(o)[0] is b]
    wide = widened_element(chunk, b) if widened else word_of(chunk, b, defs)
    element = wide or loads[0].result
    dtype = element.type
    j = find_loop(kernel, column)
    kb = KernelBuilder(f"pack_{columns}")
    copier = Copier(kb)
    raw = Value(b.type, "raw")
    kb.arguments.append(raw)
    packed = kb.buffer("packed", ("b_panels", "b_terms", columns), dtype, ("b_panel", columns, 1))
    kb.arguments.extend(index_arguments(kernel))
    panels, _, _ = (kb.size(n) for n in ("b_panels", "b_terms", "b_panel"))
    copier.env[b] = raw
    copier.env[For.of(chunk).index] = kb.index(0)
    copier.ops(expression(chunk.operands[1], defs, set()))
    copier.env[terms[0].operands[1]] = copier[For.of(chunk).upper]
    numbering = Numbering(kernel, product.terms)
    ivs = {For.of(op).index for op in terms}
    stop = {*ivs, For.of(j).index, terms[0].operands[1], For.of(chunk).index}

    inner = "vector" if is_copy else "sequential"

    def nest(depth: int, panel: Value) -> None:
        if depth < len(terms):
            op = terms[depth]
            for bound in For.of(op).bounds:
                copier.ops(expression(bound, defs, stop))
            bounds = [copier[v] for v in For.of(op).bounds]
            with kb.loop(For.of(op).name, *bounds, loop=inner) as iv:
                copier.env[For.of(op).index] = iv
                nest(depth + 1, panel)
            return
        first = kb.mul(panel, columns)
        lanes = kb.min(columns, kb.sub(copier[For.of(j).upper], first)) if is_copy else columns
        with kb.loop("lane", 0, lanes, loop=inner) as lane:
            position = kb.add(first, lane)
            copier.env[For.of(j).index] = position

            def value() -> Value:
                copier.ops(expression(element, defs, stop))
                return copier[element]

            if is_copy:
                chosen = value()
            else:
                inside, zero = kb.lt(position, copier[For.of(j).upper]), kb.number(0, dtype)
                (chosen,) = kb.choose(inside, value, lambda: zero)
            kb.store(chosen, packed, panel, numbering.number(copier), lane)

    with kb.loop("panel", 0, panels, loop="parallel") as panel:
        nest(0, panel)
    made_kernel = kb.function(family="pack")
    return made_kernel.with_(body=without_dead(made_kernel.body))
