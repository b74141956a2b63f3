"""Roles of float ops in a quantised model: what computes, what belongs to it, what is constant."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import Module, Op, Rewriter, Value, dtype
from core_compiler.ops import typed
from core_compiler.ops.evaluation import evaluate
from core_compiler.ops.traits import has_trait

F32 = dtype("f32")
PRODUCTS = (typed.Conv, typed.ConvTranspose, typed.Matmul, typed.Contract)
NORMALIZATIONS = (typed.LayerNorm, typed.RmsNorm, typed.GroupNorm, typed.InstanceNorm)
MEANS = (typed.Mean, typed.AvgPool)


def role(op: Op, rewriter: Rewriter) -> str | None:
    """Return how an op of f32 is quantised, or None if it is left in floats.

    ``product``, ``sum`` (of two activations, also their product), ``constant`` (a sum, or product,
    with a tensor of constants), ``mean``, ``moves`` (elements keep their values), ``softmax``,
    ``normalization``, or ``function`` (of one value, elementwise).
    """
    if len(op.results) != 1 or not _is_f32(op):
        return None
    if is_product(op):
        return "product"
    if any(t.match(op) for t in MEANS):
        return "mean"
    if moves_elements(op) or _chooses(op, rewriter):
        return "moves"
    if typed.Softmax.match(op):
        return "softmax"
    if any(t.match(op) for t in NORMALIZATIONS):
        return "normalization"
    if not has_trait(op, "elementwise") or has_trait(op, "random"):
        return None
    return _elementwise_role(op, rewriter)


def _is_f32(op: Op) -> bool:
    """Return whether the result and all operands but positions and conditions are of f32."""
    floats = [v for v in (*op.operands, op.result) if v.type.dtype.is_float]
    return op.result in floats and all(v.type.dtype is F32 for v in floats)


def _elementwise_role(op: Op, rewriter: Rewriter) -> str | None:
    if any(not v.type.dtype.is_float for v in op.operands):
        return None
    varied = [v for v in dict.fromkeys(op.operands) if not is_constant(v, rewriter)]
    arithmetic = any(t.match(op) for t in (typed.Add, typed.Sub, typed.Mul))
    if len(varied) == 2:
        return "sum" if arithmetic else None
    if len(varied) != 1:
        return None
    tensors = [v for v in op.operands if v is not varied[0] and not is_scalar(v, rewriter)]
    if not tensors:
        return "function"
    divides = typed.Div.match(op) is not None and varied[0] is op.operands[0]
    return "constant" if arithmetic or divides else None


def parts_of(op: Op, rewriter: Rewriter) -> tuple[Op, ...]:
    """Return the ops that belong to a product or sum: a factor, a bias, and limits."""
    kind = role(op, rewriter)
    if kind not in ("product", "sum"):
        return ()
    parts: tuple[Op, ...] = ()
    wanted = (scales, adds_constant) if kind == "product" else ()
    for belongs in (*wanted, _limits):
        last = (op, *parts)[-1].result
        user = _only_user(last, rewriter)
        if user is not None and belongs(user, last, rewriter):
            parts = (*parts, user)
    return parts


def is_product(op: Op) -> bool:
    """Return whether an op multiplies by weights, and adds."""
    return any(t.match(op) for t in PRODUCTS)


def moves_elements(op: Op) -> bool:
    """Return whether the elements of the result are elements of the operands."""
    return has_trait(op, "view", "selects")


def _chooses(op: Op, rewriter: Rewriter) -> bool:
    """Return whether an op selects between values, but not the scores of a softmax to be shown."""
    if typed.Select.match(op) is None:
        return False
    softmaxes = (u for u in rewriter.users(op.result) if typed.Softmax.match(u))
    return not any(hidden_by(u, rewriter)[1] is op for u in softmaxes)


def is_limit(op: Op) -> bool:
    """Return whether an op is a limit of the integers."""
    return any(t.match(op) for t in (typed.Relu, typed.Clamp))


def _limits(op: Op, value: Value, rewriter: Rewriter) -> bool:
    return is_limit(op)


def _only_user(value: Value, rewriter: Rewriter) -> Op | None:
    users = rewriter.users(value)
    return users[0] if len(users) == 1 and not rewriter.is_output(value) else None


def scales(op: Op, value: Value, rewriter: Rewriter) -> bool:
    """Return whether ``op`` multiplies ``value`` by one constant number, or divides it."""
    if typed.Div.match(op) is not None and op.operands[0] is not value:
        return False
    if typed.Mul.match(op) is None and typed.Div.match(op) is None:
        return False
    rest = [v for v in op.operands if v is not value]
    return len(rest) == 1 and is_scalar(rest[0], rewriter)


def adds_constant(op: Op, value: Value, rewriter: Rewriter) -> bool:
    """Return whether ``op`` adds a constant to ``value``."""
    if op.kind != "core.add":
        return False
    rest = [v for v in op.operands if v is not value]
    return len(rest) == 1 and is_constant(rest[0], rewriter)


def weights_of(op: Op) -> tuple[int, int | None, int | None]:
    """Return the number of a product's second operand, and the axes of its channels.

    The axis of the operand, and that of the result; None where there is one scale for all.
    """
    if typed.Conv.match(op):
        return 1, 0, 1
    transposed = typed.ConvTranspose.match(op)
    if transposed is not None:
        return (1, 1, 1) if transposed.groups == 1 else (1, None, None)
    contract = typed.Contract.match(op)
    if contract is not None:
        paired = (*contract.batch_b, *contract.contract_b)
        free = [i for i in range(contract.b.type.rank) if i not in paired]
        channels = len(free) == 1 and not contract.batch_b
        return (1, free[0], op.result.type.rank - 1) if channels else (1, None, None)
    second = typed.Matmul.of(op).b
    return (1, 1, op.result.type.rank - 1) if second.type.rank == 2 else (1, None, None)


def hidden_by(op: Op, rewriter: Rewriter) -> tuple[Value, Op | None]:
    """Return what a softmax reads before some scores are hidden, and the op that hides them."""
    value = op.operands[0]
    maker = rewriter.producer(value)
    found = typed.Select.match(maker)
    if maker is None or found is None or not is_scalar(maker.operands[2], rewriter):
        return value, None
    return maker.operands[1], maker


# -- constants -------------------------------------------------------------------------------------


def is_constant(value: Value, rewriter: Rewriter) -> bool:
    """Return whether a value is a constant, or constants moved or broadcast."""
    maker = rewriter.producer(value)
    if maker is None:
        return False
    if maker.kind == "core.constant":
        return True
    spread = any(t.match(maker) for t in (typed.Broadcast, typed.Dequantize))
    moved = spread or has_trait(maker, "view")
    return moved and all(is_constant(v, rewriter) for v in maker.operands)


def is_scalar(value: Value, rewriter: Rewriter) -> bool:
    """Return whether a value is one constant number, perhaps broadcast."""
    maker = rewriter.producer(value)
    if maker is None:
        return False
    if maker.kind == "core.constant":
        return value.type.elements == 1
    return has_trait(maker, "view") and is_scalar(maker.operands[0], rewriter)


def constant_of(value: Value, rewriter: Rewriter, module: Module) -> np.ndarray:
    """Return the array of a value for which :func:`is_constant` holds."""
    maker = rewriter.producer(value)
    assert maker is not None
    arrays = [constant_of(v, rewriter, module) for v in maker.operands]
    return evaluate(maker, arrays, module.weights)[0]
