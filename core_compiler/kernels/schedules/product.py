"""What is common to matrix products and convolutions: reading the kernel, naming its loops."""
from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Function, Op, Value
from core_compiler.kernels.ops import access
from core_compiler.kernels.schedules.steps import Scheduled
from core_compiler.kernels.transforms import (
    Refused, interchange, mark, merge, rename, rename_buffers,
)  # fmt: skip
from core_compiler.kernels.transforms.edit import depends_on, need, producers


@dataclass(frozen=True)
class Product:
    """Which loops and buffers of an unscheduled kernel make the product ``sum of a * b``.

    ``batch``: parallel loops that neither or both operands vary with; ``rows``: only ``a``;
    ``columns``: only ``b``; ``chunk``: the loop that carries the total; ``terms``: the loops inside
    it, outermost first; ``a`` and ``b``: the buffers; ``axis``: the index of ``b`` that is the
    (last) column loop's.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    chunk: str
    terms: tuple[str, ...]
    a: str
    b: str
    axis: int | None


def read_product(function: Function) -> Product:
    """Find the product of a lowered kernel; :class:`Refused` where there is none."""
    made = producers(function)
    path = _path_to_sum(function.body.ops, ())
    need(path is not None, f"{function.name} has no product")
    *loops, fma = path
    parallel = [op for op in loops if op.get("loop") == "parallel"]
    sums = [op for op in loops if op.get("loop") != "parallel"]
    need(len(sums) >= 2, f"{function.name} has no chunks")
    a, b = _factors(fma, made)

    def varies(value: Value, op: Op) -> bool:
        return depends_on([value], {op.regions[0].arguments[0]}, made)

    groups: dict[tuple[bool, bool], list[str]] = {}
    for op in parallel:
        groups.setdefault((varies(a, op), varies(b, op)), []).append(op["name"])
    columns = groups.get((False, True), [])
    source_a, source_b = _source(a, made), _source(b, made)
    axis = None
    if columns:
        last = next(op for op in parallel if op["name"] == columns[-1])
        iv = last.regions[0].arguments[0]
        where = access(source_b)[1]
        axis = next((i for i, v in enumerate(where) if v is iv), None)
    return Product(
        batch=tuple(groups.get((True, True), []) + groups.get((False, False), [])),
        rows=tuple(groups.get((True, False), [])),
        columns=tuple(columns),
        chunk=sums[0]["name"],
        terms=tuple(op["name"] for op in sums[1:]),
        a=access(source_a)[0].name,
        b=access(source_b)[0].name,
        axis=axis,
    )


def _path_to_sum(ops, path: tuple[Op, ...]) -> tuple[Op, ...] | None:
    """The loops around the innermost sum, and the op that adds a term."""
    for op in ops:
        if op.kind == "kernel.for":
            found = _path_to_sum(op.regions[0].ops, (*path, op))
            if found is not None:
                return found
        if op.kind == "kernel.fma" and path and path[-1].operands[3:]:
            return (*path, op)
    return None


def _factors(fma: Op, made) -> tuple[Value, Value]:
    return fma.operands[0], fma.operands[1]


def _source(value: Value, made) -> Op:
    """The load behind a factor (through the choice that pads it)."""
    op = made[value]
    if op.kind == "kernel.select":
        loads = [made[v] for v in op.operands[1:] if made[v].kind == "kernel.load"]
        need(len(loads) == 1, "a factor is chosen from several loads")
        return loads[0]
    need(op.kind == "kernel.load", f"a factor is computed by {op.kind}: store it first")
    return op


def canonical(kernel: Function, product: Product) -> Scheduled:
    """The kernel with its parallel loops in the order batch, ``i`` (rows merged), ``j`` (columns),
    its chunk loop called ``c`` and its operands ``a`` and ``b``."""
    s = Scheduled.of(kernel)
    if not product.rows or not product.columns:
        raise Refused("a product of a vector has no tile")
    j = product.columns[-1]
    order = [*product.batch, *product.columns[:-1], *product.rows, j]
    s = reorder(s, order)
    i = product.rows[0]
    for number, other in enumerate(product.rows[1:]):
        s = s.apply(merge, i, other, f"rows{number}")
        i = f"rows{number}"
    names = {i: "i", j: "j", product.chunk: "c"}
    s = s.apply(rename, **{old: new for old, new in names.items() if old != new})
    buffers = {product.a: "a", product.b: "b"}
    return s.apply(rename_buffers, **{old: new for old, new in buffers.items() if old != new})


def reorder(s: Scheduled, order: list[str]) -> Scheduled:
    """Bring perfectly nested parallel loops into an order, one exchange of neighbours at a time."""
    current = [
        op["name"] for op in s.function.body.walk()
        if op.kind == "kernel.for" and op["name"] in order
    ]  # fmt: skip
    for place, name in enumerate(order):
        at = current.index(name)
        while at > place:
            s = s.apply(interchange, current[at - 1], name)
            current[at - 1], current[at] = current[at], current[at - 1]
            at -= 1
    return s


def settle(s: Scheduled) -> Scheduled:
    """Loops that were left independent inside a work item run in order."""
    for op in list(s.function.body.walk()):
        if op.kind == "kernel.for" and op.get("loop") == "vector":
            s = s.apply(mark, op["name"], "sequential")
    return s
