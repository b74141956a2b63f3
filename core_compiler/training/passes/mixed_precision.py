"""Mixed precision: store values in a narrow dtype, by a table of ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from core_compiler.ir import DType, Module, Op, Rewriter, Value, WeightStore
from core_compiler.ops import typed
from core_compiler.ops.base import REGISTRY, definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.precision import Follows, Narrow
from core_compiler.ops.rules import BOOL, F32
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.rules import reuse_results
from core_compiler.training.graph.precision import (
    PRECISIONS,
    ROUNDING,
    narrow_dtype,
)
from core_compiler.training.graph.roles import Roles

#: Classes of values that a narrow float cannot represent.
_OUT_OF_RANGE = ("mixed", "denormals", "largest", "infinities")


@dataclass(frozen=True)
class MixedPrecision(Pass):
    """Store operands of contractions, convolutions and attention, and later values, narrow.

    Each rewrite is independent: the op reads rounded operands, and its result is widened again for
    its users. The next op that qualifies takes the narrow value before that cast. Parameters stay
    f32 and are rounded once per iteration, so their gradients arrive in f32.
    """

    exact = False
    changes_semantics = True
    tolerance = (
        "operands and results are rounded to the narrow dtype: a rewrite moves a result by at most "
        "four of its roundings (2^-8 of bf16, 2^-11 of f16) of the largest element"
    )
    requires = frozenset({"tensor_ops"})
    precision: str = field(default="bf16", metadata={"choices": tuple(PRECISIONS)})

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        dtype = narrow_dtype(self.precision)
        if dtype is F32:
            return module
        roles = Roles.of(module.main)
        parameters = [module.main.arguments[i] for i in roles.numbers("parameter")]

        def edit(rewriter: Rewriter) -> None:
            _Narrowing(rewriter, dtype, module.weights, set(parameters)).run()

        made = context.rewrite(module, edit)
        if made is module:
            context.note(
                "warning",
                f"nothing is stored in {dtype.name}: the model has no f32 product or convolution",
            )
        return made


@dataclass
class _Narrowing:
    """The narrowing of one block.

    ``flexible`` are the f32 values that depend only on parameters, constants and random numbers;
    they take the dtype of the other operands. ``known`` maps a value to its narrow form.
    """

    rewriter: Rewriter
    dtype: DType
    weights: WeightStore
    flexible: set[Value]
    known: dict[Value, Value] = field(default_factory=dict)
    #: F32 values that were replaced by their narrow form.
    bypassed: set[Value] = field(default_factory=set)

    def run(self) -> None:
        for op in self.rewriter.ops:
            if self._is_flexible(op):
                self.flexible.update(v for v in op.results if v.type.dtype is F32)
                continue
            reads = _narrow_operands(op, Narrow)
            if reads:
                self._narrow(op, reads, f"{op.kind} reads {self.dtype.name}")
                continue
            reads = _narrow_operands(op, Follows)
            sources = [self._narrow_source(op.operands[i]) for i in reads]
            if any(v is not None for v in sources) and all(
                v is not None or op.operands[i] in self.flexible
                for i, v in zip(reads, sources, strict=True)
            ):
                self._narrow(op, reads, f"{op.kind} follows in {self.dtype.name}")
        self._erase_unused()

    def _is_flexible(self, op: Op) -> bool:
        """Return whether an op depends only on parameters, constants and random numbers.

        It also holds for the constants 0 and 1. A constant that the narrow dtype cannot represent
        (the -3e38 of a mask) stays f32.
        """
        if op.kind == "core.constant":
            return op.result.type.dtype is F32 and self._is_representable(op)
        if op.kind == "core.cast":
            return typed.Cast.of(op).dtype is F32 and op.operands[0].type.dtype is BOOL
        if has_trait(op, "random"):
            return True
        reads = _narrow_operands(op, Follows)
        return bool(reads) and all(op.operands[i] in self.flexible for i in reads)

    def _is_representable(self, op: Op) -> bool:
        wide = constant_array(op, self.weights)
        with np.errstate(over="ignore"):
            narrow = wide.astype(self.dtype.numpy).astype(np.float32)
        return bool(np.array_equal(np.isfinite(narrow), np.isfinite(wide)))

    def _narrow_source(self, value: Value) -> Value | None:
        """Return the narrow value of which ``value`` is the widened form, or None."""
        maker = self.rewriter.producer(value)
        if maker is None or maker.kind != "core.cast":
            return None
        return maker.operands[0] if maker.operands[0].type.dtype is self.dtype else None

    def _narrow(self, op: Op, reads: Sequence[int], rule: str) -> None:
        """Let ``op`` read narrow operands and widen its results again."""
        b = Builder(self.weights)
        operands = list(op.operands)
        for i in reads:
            operands[i] = self._narrowed(b, op.operands[i])
        names = [v.name for v in op.results]
        made = b.op(op.kind, operands, names, op.regions, **op.attributes)
        results = [
            as_dtype(b, v, old.type.dtype)
            for v, old in zip(made if isinstance(made, tuple) else (made,), op.results, strict=True)
        ]
        new, values = reuse_results(op, results, b.ops)
        bound = 4 * ROUNDING[self.dtype]
        self.rewriter.replace(
            op, new, values, rule=rule, tolerance=bound, in_f64=bound, except_for=_OUT_OF_RANGE
        )

    def _narrowed(self, b: Builder, value: Value) -> Value:
        """Return ``value`` rounded, once for all users; moved parameters are rounded first."""
        source = self._narrow_source(value)
        if source is not None:
            self.bypassed.add(value)
            return source
        if value not in self.known:
            maker = self.rewriter.producer(value)
            if value in self.flexible and maker is not None and _commutes_with_rounding(maker):
                self.bypassed.add(value)
                inner = self._narrowed(b, maker.operands[0])
                self.known[value] = b.op(maker.kind, (inner,), **maker.attributes)
            else:
                self.known[value] = b.cast(value, dtype=self.dtype)
        return self.known[value]

    def _erase_unused(self) -> None:
        """Erase the casts and movements that have lost all users."""
        erased: dict[Op, None] = {}
        for op in reversed(self.rewriter.ops):
            if self.bypassed.isdisjoint(op.results) or self.rewriter.is_output(op.results[0]):
                continue
            users = self.rewriter.users(op.results[0])
            if all(user in erased for user in users):
                erased[op] = None
                self.bypassed.update(op.operands)
        if erased:
            self.rewriter.erase(tuple(reversed(erased)), rule="nothing reads the f32 form any more")


def _narrow_operands(op: Op, declaration: type[Narrow] | type[Follows]) -> list[int]:
    """Return the positions of the f32 operands stored narrow for an op declared ``declaration``."""
    declared = definition(op).precision if op.kind in REGISTRY else None
    return _f32_operands(op, declared.operands) if isinstance(declared, declaration) else []


def _commutes_with_rounding(op: Op) -> bool:
    """Return whether rounding before an op equals rounding after it."""
    return has_trait(op, "view") and isinstance(definition(op).precision, Follows)


def _f32_operands(op: Op, count: int) -> list[int]:
    """Return the positions of the f32 tensors among the first ``count`` operands.

    There are none if another of these operands, or a result, is a float of another dtype.
    """
    first = [(i, v.type.dtype) for i, v in enumerate(op.operands[:count])]
    floats = [(i, d) for i, d in first if d.is_float]
    results = [v.type.dtype for v in op.results if v.type.dtype.is_float]
    if any(d is not F32 for _, d in floats) or any(d is not F32 for d in results):
        return []
    return [i for i, _ in floats]
