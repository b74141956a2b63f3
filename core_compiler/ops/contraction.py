"""Contractions: matmul, the general contract, and linear (a composite).

Accumulation (numerics contract): K in chunks of 256, fma from +0 in a chunk, chunk totals added in
order. Floats narrower than f32 are widened exactly and accumulated in f32; integers wrap, in i32
or, if they have 64 bits, in their own dtype; one rounding to the result's dtype at the end.
"""

from __future__ import annotations

from core_compiler.ir import DType, tensor
from core_compiler.ir.types import DTYPES
from core_compiler.ops import dims, hooks, typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import RULES
from core_compiler.ops.precision import Narrow
from core_compiler.ops.rules import (
    BOOL,
    accumulator,
    need,
    need_axis,
    need_dtype,
    need_length,
    need_rank,
    need_same_dtype,
    show,
    without,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

contraction = lazy_module.module("core_compiler.numerics.reference.contraction")

ARITHMETIC = tuple(d for d in DTYPES.values() if d is not BOOL)
ACCUMULATE = Attr(
    DType,
    None,
    "the result's dtype if it is the accumulator's (f32 for bf16 operands: the sum is not "
    "rounded); absent: the operands' dtype, or the accumulator's for integers",
)


def result_dtype(operand: DType, accumulate: DType | None) -> DType:
    """Return the dtype of a contraction; TypeRuleError if ``accumulate`` does not fit."""
    wide = accumulator(operand)
    if accumulate is None:
        return operand if operand.is_float else wide
    need(
        accumulate in (wide, operand) and (operand.is_float or accumulate is wide),
        f"accumulate = {accumulate.name}, but {operand.name} accumulates in {wide.name}",
    )
    return accumulate


def _need_arithmetic(types) -> None:
    need_same_dtype(("a", "b"), types)
    need_dtype("a", types[0], ARITHMETIC)


def _matmul_rule(types, attributes):
    a, b = types
    _need_arithmetic(types)
    need(a.rank >= 2 and b.rank >= 2, f"ranks {a.rank} and {b.rank}, expected at least 2")
    need(
        a.shape[:-2] == b.shape[:-2],
        f"batch axes of a are {show(a.shape[:-2])} but of b {show(b.shape[:-2])}"
        " (broadcast is explicit)",
    )
    need(a.shape[-1] == b.shape[-2], f"K of a is {a.shape[-1]} but of b is {b.shape[-2]}")
    shape = (*a.shape[:-1], b.shape[-1])
    return (tensor(shape, result_dtype(a.dtype, attributes["accumulate"])),)


def _matmul_flops(op: typed.Matmul) -> int:
    return 2 * op.result.type.elements * op.a.type.shape[-1]


def _matmul(arrays, attributes, types):
    return (contraction.matmul(*arrays, types[0].dtype.numpy),)


declare(
    OpDef(
        "core.matmul",
        "Matrix product [batch.., M, K] x [batch.., K, N]; +0 for K = 0",
        ("a", "b"),
        _matmul_rule,
        _matmul,
        attributes={"accumulate": ACCUMULATE},
        flops=_matmul_flops,
        traits=traits("contraction", "multilinear"),
        precision=Narrow(2),
        lower=hooks.Contraction(),
        gradient=RULES["matmul"],
    )
)


def _contract_rule(types, attributes):
    a, b = types
    _need_arithmetic(types)
    parts = []
    for kind, word in (("batch", "batch"), ("contract", "contracted")):
        left, right = attributes[f"{kind}_a"], attributes[f"{kind}_b"]
        need_length(f"{kind}_b", right, len(left))
        for i, j in zip(left, right, strict=True):
            need_axis(i, a.rank, f"{kind}_a: axis")
            need_axis(j, b.rank, f"{kind}_b: axis")
            need(
                a.shape[i] == b.shape[j],
                f"{word} axis {i} of a is {a.shape[i]} but axis {j} of b is {b.shape[j]}",
            )
        parts.append((left, right))
    (batch_a, batch_b), (contract_a, contract_b) = parts
    for name, axes in (("a", batch_a + contract_a), ("b", batch_b + contract_b)):
        need(len(set(axes)) == len(axes), f"axes {show(axes)} of {name} repeat")
    shape = (
        *(a.shape[i] for i in batch_a),
        *without(a.shape, batch_a + contract_a),
        *without(b.shape, batch_b + contract_b),
    )
    return (tensor(shape, result_dtype(a.dtype, attributes["accumulate"])),)


def _contract_flops(op: typed.Contract) -> int:
    a = op.a.type.shape
    return 2 * op.result.type.elements * dims.product(a[i] for i in op.contract_a)


def _contract(arrays, attributes, types):
    batch, summed = (
        (attributes[f"{kind}_a"], attributes[f"{kind}_b"]) for kind in ("batch", "contract")
    )
    return (contraction.contract(*arrays, batch, summed, types[0].dtype.numpy),)


declare(
    OpDef(
        "core.contract",
        "Sum of products over paired axes: (batch, free axes of a, free axes of b); K runs over "
        "the contracted axes in the order listed, the last fastest",
        ("a", "b"),
        _contract_rule,
        _contract,
        attributes={
            "batch_a": Attr(tuple, (), "axes of a that pair with batch_b and are kept"),
            "batch_b": Attr(tuple, (), "axes of b that pair with batch_a"),
            "contract_a": Attr(tuple, doc="axes of a that are summed, in K order"),
            "contract_b": Attr(tuple, doc="axes of b that pair with contract_a"),
            "accumulate": ACCUMULATE,
        },
        flops=_contract_flops,
        traits=traits("contraction", "multilinear"),
        precision=Narrow(2),
        lower=hooks.Contraction(),
        gradient=RULES["contract"],
    )
)


def _linear_rule(types, attributes):
    x, w = types[:2]
    _need_arithmetic((x, w))
    need(x.rank >= 1, "x has rank 0")
    need_rank("w", w, 2)
    need(x.shape[-1] == w.shape[0], f"K of x is {x.shape[-1]} but of w ([K, N]) is {w.shape[0]}")
    made = tensor((*x.shape[:-1], w.shape[1]), result_dtype(x.dtype, None))
    if len(types) == 3:
        need(
            types[2].shape == (w.shape[1],) and types[2].dtype is made.dtype,
            f"bias is {types[2]}, expected {tensor((w.shape[1],), made.dtype)}",
        )
    return (made,)


def _linear(b, op):
    x, w, *bias = op.operands
    rows = dims.product(x.type.shape[:-1])
    flat = b.matmul(x if x.type.rank == 2 else b.reshape(x, shape=(rows, x.type.shape[-1])), w)
    shape = op.result.type.shape
    if bias:
        flat = b.add(flat, b.expand(bias[0], flat.type.shape))
    return flat if flat.type.shape == shape else b.reshape(flat, shape=shape)


declare(
    OpDef(
        "core.linear",
        "x @ w + bias with w [K, N]; the bias is added to the rounded product",
        ("x", "w", "bias?"),
        _linear_rule,
        decompose=_linear,
        traits=traits("contraction"),
        precision=Narrow(3),
    )
)
