"""Products as named ops, which widen floats below 32 bits and integers themselves."""

from __future__ import annotations

from core_compiler.exporters.mlir.linalg import scalars
from core_compiler.exporters.mlir.linalg.context import PARALLEL, Linalg, op
from core_compiler.exporters.mlir.linalg.reduction import rounded
from core_compiler.exporters.mlir.linalg.shape import reshaped
from core_compiler.exporters.mlir.literals import type_text
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ir import DType, TensorType, tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import accumulator


def zeros(b: Linalg, shape, kind: DType) -> Ref:
    """Return the zero accumulator of a sum of products."""
    return b.filled(b.scalar(0, kind), tensor(shape, kind))


def named(b: Linalg, name: str, x: Ref, y: Ref, made: TensorType, facts: str = "") -> Ref:
    """Emit a named product of ``x`` and ``y``, summed in ``made``'s dtype from 0."""
    start = zeros(b, made.shape, made.dtype)
    return b.writer.line(
        f"linalg.{name}{facts} ins({x}, {y} : {type_text(x.type)}, {type_text(y.type)}) "
        f"outs({start} : {type_text(made)}) -> {type_text(made)}",
        made,
    )


def added_product(b: Linalg, x: Ref, y: Ref, sum_: Ref) -> Ref:
    """Return the sum plus one more product, for a body; operands are widened to the sum's dtype."""
    kind = sum_.type
    x, y = (scalars.convert(b, v, kind) for v in (x, y))
    return scalars.scalar("add", kind)(b, sum_, scalars.scalar("mul", kind)(b, x, y))


def unsigned(x: Ref) -> str:
    """Return the attribute that makes a named op widen its operands as unsigned."""
    return " {cast = #linalg.type_fn<cast_unsigned>}" if x.type.dtype.kind == "uint" else ""


@op("matmul")
def matmul(b: Linalg, op: typed.Matmul, x: Ref, y: Ref) -> Ref:
    *batch, m, k = x.type.shape
    n = y.type.shape[-1]
    made, wide = op.result.type, accumulator(x.type.dtype)
    if made.elements == 0 or k == 0:
        return zeros(b, made.shape, made.dtype)
    if not batch:
        product = named(b, "matmul", x, y, tensor((m, n), wide), unsigned(x))
        return rounded(b, product, made.dtype)
    count = made.elements // (m * n)
    x, y = reshaped(b, x, (count, m, k)), reshaped(b, y, (count, k, n))
    product = named(b, "batch_matmul", x, y, tensor((count, m, n), wide), unsigned(x))
    return rounded(b, reshaped(b, product, made.shape), made.dtype)


@op("contract")
def contract(b: Linalg, op: typed.Contract, x: Ref, y: Ref) -> Ref:
    """Emit ``linalg.contract``; its loops are the result's axes, then the contracted ones."""
    made, wide = op.result.type, accumulator(x.type.dtype)
    if made.elements == 0 or 0 in x.type.shape:
        return zeros(b, made.shape, made.dtype)
    loops = [f"d{i}" for i in range(made.rank + len(op.contract_a))]
    free = iter(loops[len(op.batch_a) : made.rank])
    maps = []
    sides = ((op.batch_a, op.contract_a, x), (op.batch_b, op.contract_b, y))
    for batch, contracted, operand in sides:
        known = dict(zip(batch, loops, strict=False))
        known |= zip(contracted, loops[made.rank :], strict=True)
        maps.append([known.get(axis) or next(free) for axis in range(operand.type.rank)])
    maps.append(loops[: made.rank])
    if not op.contract_a:  # linalg.contract rejects outer products
        start = (zeros(b, made.shape, wide), maps[2])
        outer = b.generic(
            [(x, maps[0]), (y, maps[1])],
            [start],
            [PARALLEL] * made.rank,
            lambda p, q, sum_: added_product(b, p, q, sum_),
        )[0]
        return rounded(b, outer, made.dtype)
    names = [b.affine(len(loops), m) for m in maps]
    facts = f" indexing_maps = [{', '.join(names)}]{unsigned(x)}"
    return rounded(b, named(b, "contract", x, y, tensor(made.shape, wide), facts), made.dtype)
