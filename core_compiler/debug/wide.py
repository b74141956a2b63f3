"""Evaluation of a stage with every float in f64, to decide whether a change is only rounding.

A rewrite that is algebraically right has the same results in f64 up to f64's rounding, whatever it
does to the rounding of f32; a wrong one does not.  Floats of all sizes are held in f64 and
conversions among them are the identity; integers and booleans keep their types.  Stored constants
are exact in f64, and random ops return the values of the narrow evaluation, so that two stages of
one compile read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.metric import epsilon
from core_compiler.ir import Block, DType, Module, Op, TensorType, Value, dtype
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ops.base import TypeRuleError, definition, infer
from core_compiler.ops.builder import decomposed
from core_compiler.passes.base import CONTROL_FLOW
from core_compiler.support.arrays import widened
from core_compiler.support.errors import InternalError

F64 = dtype("f64")
#: Bytes of cached results of one node's import.
_KEPT = 1 << 26
#: Ops defined by the bits of their own dtype: evaluated narrow, then widened.
_BITS = frozenset({"core.bitcast"})


def nudged(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return an f64 array with every element moved by up to an ulp; others unchanged."""
    if array.dtype != np.float64:
        return array
    return array * (1 + 2.0**-52 * random.integers(-1, 2, array.shape))


def moved_by_an_ulp(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return an array in f64, with every float moved by up to an ulp of its own dtype."""
    wide = widened(array)
    if wide.dtype != np.float64:
        return wide
    return wide * (1 + epsilon(array.dtype) * random.integers(-1, 2, array.shape))


def rerounded(array: np.ndarray, random: np.random.Generator, seed: int) -> np.ndarray:
    """Return a constant in f64; a scalar (1/n, sqrt(2), an epsilon) moves by an ulp of its dtype.

    Equivalent formulas round such scalars differently.  The first two seeds move all of them up and
    all down, so that their combined effect does not cancel.
    """
    wide = widened(array)
    if wide.dtype != np.float64 or not wide.size or not np.all(wide == wide.flat[0]):
        return wide
    way = random.choice([-1, 1]) if seed > 1 else 1 - 2 * seed
    return wide * (1 + epsilon(array.dtype) * way)


def _narrowed(array: np.ndarray, kind: Any) -> np.ndarray:
    if not isinstance(kind, TensorType) or array.dtype == kind.dtype.numpy:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(kind.dtype.numpy)


class F64Evaluator:
    """An evaluator of ops in f64.

    ``narrow`` evaluates what f64 says nothing about: constants, random numbers, bit casts.
    ``narrow_tensor_of`` has the narrow tensors of values whose types have no dtype, as at a
    frontend's level before type inference.
    """

    def __init__(
        self, narrow: Evaluator, narrow_tensor_of: Callable[[Value], Any] = lambda value: None
    ):
        self.narrow, self.narrow_tensor_of = narrow, narrow_tensor_of

    def op(
        self, op: Op, arrays: Sequence[np.ndarray], outer: Mapping[Value, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return the results of one op on f64 arrays (integers keep their types)."""
        if op.kind in MEANING_IN_REGION:
            return self.block(op.regions[0], arrays)
        if op.kind.startswith("onnx."):
            return self._of_onnx(op, arrays, outer or {})
        if not op.kind.startswith("core."):
            raise InternalError(f"{op.kind} cannot be evaluated in f64")
        declared = definition(op)
        if op.kind in CONTROL_FLOW or declared.execute is not None:
            execute = declared.execute
            assert execute is not None
            return tuple(execute(op, list(arrays), lambda b, given: self.block(b, given, outer)))
        if declared.decompose is not None:
            return self.block(decomposed(op), arrays)
        if op.operands and op.kind not in _BITS and "random" not in declared.traits:
            made = self._in_f64(op, declared, arrays)
            if made is not None:
                return made
        given = [_narrowed(a, v.type) for a, v in zip(arrays, op.operands, strict=True)]
        return tuple(map(widened, self.narrow.op(op, given, outer)))

    def _of_onnx(
        self, op: Op, arrays: Sequence[np.ndarray], outer: Mapping[Value, np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        """Return a node's results by the ops that it is imported as.

        Raises InternalError for sequences and unknown types.
        """
        from core_compiler.onnx_level.evaluate import evaluate_with

        given = {**outer, **dict(zip(op.operands, arrays, strict=True))}
        wide: dict[int, np.ndarray] = {}

        def narrow(value: Value) -> np.ndarray:
            if isinstance(given[value], tuple):
                raise InternalError(f"{op.kind} cannot be evaluated in f64: it reads a sequence")
            made = array = np.asarray(given[value])
            if array.dtype == np.float64:
                known = value.type if isinstance(value.type, TensorType) else None
                kind = (
                    known.dtype.numpy
                    if known
                    else getattr(self.narrow_tensor_of(value), "dtype", None)
                )
                if kind is None:
                    raise InternalError(
                        f"{op.kind} cannot be evaluated in f64: its types are unknown"
                    )
                with np.errstate(over="ignore", invalid="ignore"):
                    made = array.astype(kind)
            wide[id(made)] = array
            return made

        def run(module: Module, flat: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
            inner = copy(self)
            inner.narrow = Evaluator(module.weights, _KEPT)
            return inner.block(module.main.body, [wide[id(a)] for a in flat])

        around = {v: narrow(v) for v in dict.fromkeys(op.uses())}
        made = evaluate_with(
            run,
            op,
            [around[v] for v in op.operands],
            self.narrow.weights,
            around,
            self.narrow.functions,
        )
        return tuple(widened(a) if isinstance(a, np.ndarray) else a for a in made)

    def _in_f64(self, op: Op, declared: Any, arrays: Sequence[np.ndarray]) -> tuple | None:
        """Return the results of the op's reference on f64, or None if its type rule has no f64."""
        attributes = {
            name: F64 if isinstance(attribute, DType) and attribute.is_float else attribute
            for name, attribute in op.attributes.items()
        }
        types = [_wide_type(v.type) for v in op.operands]
        try:
            results = infer(op.kind, types, attributes, op.regions)
            wanted = [_wide_type(v.type).dtype for v in op.results]
            if any(r.dtype is not w for r, w in zip(results, wanted, strict=True)):
                return None
            return tuple(declared.reference(list(arrays), declared.fill(attributes), results))
        except (TypeRuleError, InternalError, KeyError):
            return None

    def block(
        self,
        block: Block,
        arrays: Sequence[np.ndarray],
        outer: Mapping[Value, np.ndarray] | None = None,
        known: Mapping[Value, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, ...]:
        """Return the outputs of a block; values are dropped after their last use.

        ``known`` are results that need no evaluation.
        """
        values = {**(outer or {}), **dict(zip(block.arguments, arrays, strict=True))}
        last = {v: op for op in block.ops for v in op.uses()}
        kept = {*block.outputs, *(outer or ())}
        for op in block.ops:
            if known is not None and all(v in known for v in op.results):
                values.update((v, known[v]) for v in op.results)
            else:
                around = values if op.regions else None
                made = self.op(op, [values[v] for v in op.operands], around)
                values.update(zip(op.results, made, strict=True))
            for value in op.uses():
                if last[value] is op and value not in kept:
                    values.pop(value, None)
        return tuple(values[v] for v in block.outputs)


def _wide_type(kind: Any) -> Any:
    if isinstance(kind, TensorType) and kind.dtype.is_float and kind.dtype is not F64:
        return kind.with_(dtype=F64)
    return kind
