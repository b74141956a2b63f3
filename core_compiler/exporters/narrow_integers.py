"""Integers of 64 bits as those of 32, for formats that have no others.

Positions, lengths and token numbers are of 64 bits in PyTorch and ONNX. Arguments and results of
64 bits become ones of 32; a sum that does not fit 32 bits wraps, as all integers do.
"""

from __future__ import annotations

import numpy as np

from core_compiler.ir import Block, Module, Op, Value, as_array, dtype
from core_compiler.ir.verifier import where_of
from core_compiler.ops import typed
from core_compiler.support.errors import UserError

I32, I64 = dtype("i32"), dtype("i64")


def with_narrow_integers(module: Module) -> Module:
    """Return the module with i32 for i64 in main. Raises UserError for constants beyond i32."""
    body = module.main.body
    renamed: dict[Value, Value] = {}

    def narrow(value: Value) -> Value:
        if value.type.dtype is not I64:
            return value
        if value not in renamed:
            renamed[value] = Value(value.type.with_(dtype=I32), value.name)
        return renamed[value]

    arguments = tuple(map(narrow, body.arguments))
    ops = []
    for op in body.ops:
        results = tuple(map(narrow, op.results))
        if op.regions or (results == op.results and not any(v in renamed for v in op.operands)):
            ops.append(op)
            continue
        attributes = dict(op.attributes)
        if typed.Constant.match(op):
            attributes["value"] = module.weights.add(_narrowed(op, module))
        attributes |= {k: I32 for k, v in attributes.items() if v is I64}
        ops.append(
            op.with_(
                operands=tuple(map(narrow, op.operands)), results=results, attributes=attributes
            )
        )
    return module.with_main(Block(arguments, tuple(ops), tuple(map(narrow, body.outputs))))


def _narrowed(op: Op, module: Module) -> np.ndarray:
    array = as_array(typed.Constant.of(op).value, module.weights)
    made = array.astype(np.int32)
    if not np.array_equal(made, array):
        raise UserError(
            f"{array.flat[np.argmax(made != array)]} is a constant of i64 that i32 does not have",
            where_of(op) or "export in integers",
            "export floats and integers of 64 bits (leave --integer-only out)",
        )
    return made
