"""Widen floats: what a model computes in bf16 or f16 is computed in f32, to be quantised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import DType, Module, Op, Rewriter, Value, WeightStore, dtype
from core_compiler.ops import typed
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.eliminate_dead_code import erase_unused

F32 = dtype("f32")
#: The relative error of one rounding, of the largest number that may need it.
ROUNDINGS = {dtype("bf16"): 2.0**-8, dtype("f16"): 2.0**-11}


@dataclass(frozen=True)
class WidenFloats(Pass):
    """Compute in f32 what the model computes in bf16 or f16, as passes quantise values of f32.

    First each op reads widened operands and its result is rounded as before: the numerics contract
    says that these are the same bits, but for composites, which round between their parts. Then
    values are not rounded between two ops. Constants are held in f32; inputs and outputs keep their
    dtypes. Loops, branches, random numbers and values of f64 stay as they are.
    """

    exact = False
    changes_semantics = True
    tolerance = (
        "a value that is not rounded to bf16 or f16 differs by one rounding (2^-8, 2^-11) of the "
        "largest element; a composite by four"
    )

    @override
    def run(self, module: Module, context):
        def edit(rewriter: Rewriter) -> None:
            for change in (_widen, _keep_wide):
                for op in rewriter.ops:
                    now = rewriter.now(op)
                    if now is not None:
                        change(now, rewriter, module.weights)
            if rewriter.events:
                erase_unused(rewriter)

        return context.rewrite(module, edit)


def _is_narrow(op: Op) -> bool:
    """Return whether an op computes narrow floats, in a way that f32 has too."""
    if op.regions or not any(v.type.dtype in ROUNDINGS for v in op.results):
        return False
    return typed.Bitcast.match(op) is None and not has_trait(op, "random")


def _widen(op: Op, rewriter: Rewriter, weights: WeightStore) -> None:
    """Let an op read and make values of f32, whose results are rounded."""
    if not _is_narrow(op):
        return
    b = Builder(weights)
    cast = typed.Cast.match(op)
    if cast is not None and cast.x.type.dtype is F32:
        return  # the model's own rounding
    if op.kind == "core.constant":
        b.constant(constant_array(op, weights).astype(np.float32), name=op.result.name)
    else:
        operands = tuple(
            b.cast(v, dtype=F32) if v.type.dtype in ROUNDINGS else v for v in op.operands
        )
        attributes = {k: F32 if _is_of(v) else v for k, v in op.attributes.items()}
        results = tuple(Value(_wide(v).type, v.name) for v in op.results)
        b.ops.append(op.with_(operands=operands, attributes=attributes, results=results))
    made = b.ops[-1].results
    rounded = {
        old: b.cast(new, dtype=old.type.dtype) if new.type != old.type else new
        for old, new in zip(op.results, made, strict=True)
    }
    one = max(ROUNDINGS[v.type.dtype] for v in op.results if v.type.dtype in ROUNDINGS)
    tolerance = None
    if definition(op).decompose is not None:
        tolerance = 4 * one  # a composite may round between its parts
    elif cast is not None and cast.x.type.dtype.bits > 16:
        tolerance = one  # rounded to f32, and then again
    in_f64 = tolerance or 0.0
    rewriter.replace(op, b.ops, rounded, rule="in f32", tolerance=tolerance, in_f64=in_f64)


def _is_of(attribute: object) -> bool:
    return isinstance(attribute, DType) and attribute in ROUNDINGS


def _wide(value: Value) -> Value:
    is_narrow = value.type.dtype in ROUNDINGS
    return Value(value.type.with_(dtype=F32)) if is_narrow else value


def _keep_wide(op: Op, rewriter: Rewriter, weights: WeightStore) -> None:
    """Let the readers of a widened value read what was rounded before."""
    if typed.Cast.match(op) is None or op.result.type.dtype is not F32:
        return
    maker = rewriter.producer(op.operands[0])
    rounded = typed.Cast.match(maker)
    if maker is None or rounded is None or maker.operands[0].type.dtype is not F32:
        return
    tolerance = ROUNDINGS.get(maker.result.type.dtype)
    if tolerance is not None:
        rewriter.replace(
            op,
            (),
            {op.result: maker.operands[0]},
            rule="not rounded between",
            tolerance=tolerance,
            in_f64=tolerance,
        )
