"""Evaluation of tensor-level ops by their references, or their decomposition's references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.ir import Block, Op, TensorType, Type, Value, as_array
from core_compiler.ir.verifier import where_of
from core_compiler.ir.weights import WeightStore
from core_compiler.ops import typed
from core_compiler.ops.base import definition
from core_compiler.ops.builder import decomposed
from core_compiler.support.errors import InternalError


def constant_array(op: Op, weights: WeightStore | None) -> np.ndarray:
    """Return the array of a ``core.constant``, read-only."""
    return as_array(typed.Constant.of(op).value, weights)


def evaluate(
    op: Op,
    arrays: Sequence[np.ndarray],
    weights: WeightStore | None = None,
    outer: Mapping[Value, np.ndarray] | None = None,
) -> tuple[np.ndarray, ...]:
    """Return the results of one tensor-level op by its reference, or by its decomposition.

    ``arrays`` are NumPy arrays of the operands' dtypes and shapes; the result is a tuple of arrays.
    ``outer`` has the values of the enclosing blocks that its regions read.
    """
    declared = definition(op)
    if op.kind == "core.constant":
        return (constant_array(op, weights),)
    if declared.execute is not None:

        def run(block: Block, given: Sequence[np.ndarray]):
            return evaluate_block(block, given, weights, outer)

        return tuple(declared.execute(op, list(arrays), run))
    if declared.reference is not None:
        types = [v.type for v in op.results]
        try:
            results = tuple(declared.reference(list(arrays), declared.fill(op.attributes), types))
        except Exception as error:
            line = where_of(op)
            error.add_note(f"in the reference of {op.kind}{f' of {line}' if line else ''}")
            raise
        if all(map(_is_of, arrays, (v.type for v in op.operands))):
            _hold(op, results)
        return results
    return evaluate_block(decomposed(op), arrays, weights)


def _is_of(array: Any, type_: Type) -> bool:
    """Return whether an array has a type's dtype and shape, as far as they are fixed."""
    if not isinstance(array, np.ndarray) or not isinstance(type_, TensorType):
        return True
    return not type_.is_static or (array.shape, array.dtype) == (type_.shape, type_.dtype.numpy)


def _hold(op: Op, results: Sequence[np.ndarray]) -> None:
    """Raise InternalError if a reference's results do not have the op's result types."""
    for array, value in zip(results, op.results, strict=True):
        if not _is_of(array, value.type):
            shape = "x".join(map(str, array.shape))
            raise InternalError(
                f"the reference of {op.kind} returns {array.dtype} of shape "
                f"[{shape}] for {value.type}"
            )


def evaluate_block(
    block: Block,
    arrays: Sequence[np.ndarray],
    weights: WeightStore | None = None,
    outer: Mapping[Value, np.ndarray] | None = None,
) -> tuple[np.ndarray, ...]:
    """Return the outputs of a block of tensor-level ops, op by op through :func:`evaluate`.

    ``outer`` has the values of the enclosing blocks, for a block that reads them. A value is
    released after its last use.
    """
    last: dict[Value, Op | None] = {v: op for op in block.ops for v in op.uses()}
    last.update(dict.fromkeys(block.outputs))
    values = dict(outer or {})
    values.update(zip(block.arguments, arrays, strict=True))
    for op in block.ops:
        around = values if op.regions else None
        results = evaluate(op, [values[v] for v in op.operands], weights, around)
        values.update(zip(op.results, results, strict=True))
        for value in op.uses():
            if last[value] is op:
                values.pop(value, None)
    return tuple(values[v] for v in block.outputs)
