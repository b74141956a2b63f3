"""Products: MatMul if the operands have its layout, else Einsum.

Integers narrower than 32 bits are summed in i32 and floats narrower than 16 in f32, as in the IR;
the runtime chooses the precision in which it sums 16-bit floats.
"""

from __future__ import annotations

from string import ascii_letters

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import F32, Emitter, NotInOnnx, core
from core_compiler.ir import DType, dtype
from core_compiler.ops import typed

#: 8-bit integers, whose products ONNX sums in i32.
BYTES = tuple(map(dtype, ("i8", "ui8")))


def _ready(
    g: Emitter, op: typed.Contract | typed.Linear | typed.Matmul, *operands: Tensor
) -> tuple[Tensor, ...]:
    """Return the operands in the dtype that the product uses."""
    kind, made = operands[0].dtype, op.result.type.dtype
    wide = kind
    if kind.is_float and (kind.bits < 16 or made.bits > kind.bits):
        wide = F32
    elif kind.is_integer:
        wide = made
    return tuple(g.cast(x, wide) for x in operands)


def of_nothing(g: Emitter, op: typed.Contract | typed.Conv | typed.Matmul) -> Tensor:
    kind = op.result.type.dtype
    return g.expand(g.constant(np.zeros((), kind.numpy)), op.result.type.shape)


def _product(
    g: Emitter, op: typed.Contract | typed.Linear | typed.Matmul, a: Tensor, b: Tensor
) -> Tensor:
    """Emit MatMul, or MatMulInteger for bytes."""
    if a.dtype in BYTES:
        return g.emit("MatMulInteger", a, b)
    return g.cast(g.emit("MatMul", *_ready(g, op, a, b)), op.result.type.dtype)


@core("matmul")
def matmul(g, op: typed.Matmul, a, b):
    if op.a.type.shape[-1] == 0:
        return of_nothing(g, op)
    return _product(g, op, a, b)


@core("linear", when=lambda g, op: op.x.type.shape[-1] != 0)
def linear(g, op: typed.Linear, x, w, *bias):
    kind: DType = op.result.type.dtype
    if bias and op.result.type.rank == 2 and kind.is_float and g.takes("Gemm", kind):
        return g.emit("Gemm", x, w, *bias)
    made = _product(g, op, x, w)
    return g.emit("Add", made, *bias) if bias else made


@core("contract")
def contract(g, op: typed.Contract, a, b):
    shapes = [v.type.shape for v in op.operands]
    batch = op.batch_a, op.batch_b
    summed = op.contract_a, op.contract_b
    if any(shapes[0][i] == 0 for i in summed[0]):
        return of_nothing(g, op)
    if _is_matmul(shapes, batch, summed):
        return _product(g, op, a, b)
    return g.cast(
        g.emit("Einsum", *_ready(g, op, a, b), equation=_equation(shapes, batch, summed)),
        op.result.type.dtype,
    )


def _is_matmul(shapes, batch, summed) -> bool:
    """Return whether the product is [batch.., M, K] x [batch.., K, N]."""
    lead = len(batch[0])
    leading = tuple(range(lead))
    return (
        all(len(shape) == lead + 2 for shape in shapes)
        and batch == (leading, leading)
        and summed == ((lead + 1,), (lead,))
    )


def _equation(shapes, batch, summed) -> str:
    if sum(map(len, shapes)) > len(ascii_letters):
        raise NotInOnnx(f"Einsum over {sum(map(len, shapes))} axes")
    left = list(ascii_letters[: len(shapes[0])])
    right = list(ascii_letters[len(left) : len(left) + len(shapes[1])])
    for mine, other in zip((*batch[0], *summed[0]), (*batch[1], *summed[1]), strict=True):
        right[other] = left[mine]
    kept = [left[i] for i in batch[0]]
    kept += [c for i, c in enumerate(left) if i not in batch[0] + summed[0]]
    kept += [c for i, c in enumerate(right) if i not in batch[1] + summed[1]]
    return f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
