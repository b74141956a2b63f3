"""Functions of one value as tables, and ops that move elements."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import Op, TensorType, Value
from core_compiler.ir.refusal import Refusal
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.ops.evaluation import evaluate
from core_compiler.ops.traits import has_trait
from core_compiler.passes.quantize.forms.base import Form, Stored
from core_compiler.passes.quantize.roles import constant_of, is_constant, is_scalar


def table(form: Form, value: Value) -> Value | None:
    """Return a table of the function of one quantised value, or None if it is none."""
    chain: list[Op] = []
    leaf = value
    while True:
        op = form.rewriter.producer(leaf)
        if op is None or op.kind == "core.dequantize":
            break
        if not has_trait(op, "elementwise") or has_trait(op, "random") or len(op.results) != 1:
            return None
        varied = list(dict.fromkeys(v for v in op.operands if not is_constant(v, form.rewriter)))
        rest = [v for v in op.operands if v not in varied]
        if len(varied) != 1 or not all(is_scalar(v, form.rewriter) for v in rest):
            return None
        chain.insert(0, op)
        (leaf,) = varied
    x = form.stored(leaf)
    if not chain or isinstance(x, Refusal) or form.op.result.type.dtype.bits != 8:
        return None
    low, high = integer_range(x.q.type.dtype)
    every = np.arange(low, high + 1)
    known = {leaf: ((every - x.zero) * np.float32(x.scale)).astype(np.float32)}
    for op in chain:
        known[op.result] = _on_all(form, op, known)
    form.ops += reversed(chain)
    entries = _entries(form, known[value])
    return form.b.table(x.q, form.b.constant(entries))


def _on_all(form: Form, op: Op, known: dict[Value, np.ndarray]) -> np.ndarray:
    """Return an elementwise op of the 256 numbers that a byte stands for."""
    arrays = [known[v] if v in known else _repeated(form, v) for v in op.operands]
    small = op.with_(
        operands=tuple(Value(TensorType((256,), v.type.dtype)) for v in op.operands),
        results=(Value(TensorType((256,), op.result.type.dtype)),),
        origin=None,
    )
    return evaluate(small, arrays, form.module.weights)[0]


def _repeated(form: Form, value: Value) -> np.ndarray:
    array = constant_of(value, form.rewriter, form.module)
    return np.full(256, array.flat[0], array.dtype)


def _entries(form: Form, numbers: np.ndarray) -> np.ndarray:
    scaled = np.rint(numbers / np.float32(form.result.scale)) + form.result.zero
    entries = np.nan_to_num(scaled, nan=0.0).clip(*form.limits())
    return entries.astype(form.op.result.type.dtype.numpy)


def moved(form: Form, maker: Op) -> Value | Refusal:
    """Return the op on integers of the result's parameters: others are rescaled to them first."""
    kind = form.op.result.type.dtype
    operands: list[Value] = []
    for value in maker.operands:
        if not value.type.dtype.is_float:
            operands.append(value)
        elif is_constant(value, form.rewriter) and not _is_stored(form, value):
            array = constant_of(value, form.rewriter, form.module)
            operands.append(form.b.constant(form.quantised(array)))
        else:
            found = form.stored(value)
            if isinstance(found, Refusal):
                return found
            own = _of_the_result(form, found)
            if isinstance(own, Refusal):
                return own
            operands.append(own)
    made = maker.with_(
        operands=tuple(operands),
        results=(Value(maker.result.type.with_(dtype=kind)),),
        origin=None,
    )
    form.b.ops.append(made)
    return made.result


def _of_the_result(form: Form, x: Stored) -> Value | Refusal:
    """Return integers in the result's dtype, with its scale, zero point and limits."""
    kind, result = form.op.result.type.dtype, form.result
    if (x.scale, x.zero, x.q.type.dtype) == (result.scale, result.zero, kind):
        return x.q
    made = form.scaled(x.q, np.array(x.scale / result.scale), None, kind, x.zero, result.zero)
    low, high = form.limits()
    if isinstance(made, Refusal) or (low, high) == integer_range(kind):
        return made
    return form.b.clamp(made, low=low, high=high)


def _is_stored(form: Form, value: Value) -> bool:
    return not isinstance(form.stored(value), Refusal)
