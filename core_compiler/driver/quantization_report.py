"""Report of a quantised compile: the loss of each value and of the outputs, ops left in floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from core_compiler.debug.statistics import statistics
from core_compiler.driver.compilation import LOSSES, Compilation
from core_compiler.driver.stage import Stage
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.events import (
    FloatOpRecord,
    QuantisationRecord,
    QuantisedRecord,
    TensorStats,
)
from core_compiler.ir.refusal import Refusal
from core_compiler.ir.rewriter import Rewriter
from core_compiler.ir.verifier import where_of
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.traits import has_trait
from core_compiler.passes.quantize.evaluation import decibels
from core_compiler.passes.quantize.insert_quantization import KEPT, QUANTISED, Quantised
from core_compiler.passes.quantize.integerize import integers
from core_compiler.passes.quantize.measure_sensitivity import SENSITIVITY
from core_compiler.passes.quantize.observe import OBSERVED, Observed, evaluated
from core_compiler.passes.quantize.roles import constant_of

#: Ops between integers and floats, which no target computes in either.
_BORDERS = (typed.Quantize, typed.Dequantize, typed.Constant, typed.Broadcast)
#: Bins of the histograms of a value, in floats and dequantised.
BINS = 32


def report(made: Compilation) -> dict[str, Any] | None:
    """Return ``{ops, left_float, sqnr_db, worst, losses}`` of a compile, or None if not quantised.

    ``ops`` is the number of results in integers; ``left_float`` has the float ops with reason and
    line; ``losses`` what each value lost on the example inputs, worst first: ``sqnr_db``,
    ``cosine``, ``saturated``, the range ``observed`` and that of the integers (see
    ``events.QuantisedRecord``). Ratios of what lost nothing are infinite.
    """
    found = made.facts[LOSSES] if LOSSES in made.facts else measured(made)
    if found is None:
        return None
    makers = _makers(made, found.values)
    losses = [_loss(value, makers.get(value.value)) for value in found.values]
    return {
        "ops": found.results,
        "left_float": [
            {"op": left.op.kind, "reason": left.reason, "line": where_of(left.op)}
            for left in found.left
        ],
        "sqnr_db": found.sqnr_db,
        "worst": losses[0] if losses else None,
        "losses": losses,
    }


def _makers(made: Compilation, values: Sequence[QuantisedRecord]) -> dict[Value, Op]:
    modules = {made.stages[value.stage].module for value in values}
    return {v: op for module in modules for v, op in module.main.body.producers().items()}


def _loss(found: QuantisedRecord, maker: Op | None) -> dict[str, Any]:
    return {
        "op": found.value.name or ("input" if maker is None else maker.kind),
        "scope": "" if maker is None or maker.origin is None else maker.origin.scope,
        "line": "" if maker is None else where_of(maker),
        "sqnr_db": found.sqnr_db,
        "cosine": None if found.cosine != found.cosine else found.cosine,
        "saturated": found.saturated,
        "observed": list(found.observed),
        "range": list(found.range),
        "alone_db": found.alone_db,
    }


def measured(made: Compilation) -> QuantisationRecord | None:
    """Return what a compile lost on its example inputs; None if it is not quantised (yet)."""
    stages = {stage.name.partition("#")[0]: stage for stage in made.stages}
    known: Quantised | None = made.facts.get(QUANTISED)
    passes = [stages.get(name) for name in ("observe", "insert_quantization", "integerize")]
    if known is None or None in passes:
        return None
    observed, inserted, integerized = (stage for stage in passes if stage is not None)
    count = len(integerized.rewrites)
    left = left_float(integerized.module, made.facts.get(KEPT, {}))
    if made.inputs is None:
        return QuantisationRecord(count, None, (), left)
    made.observer.progress("measure what quantisation lost", 0, 0)
    alone = {row.result: row.sqnr_db for row in made.facts.get(SENSITIVITY, ())}
    measuring = _Losses(observed, inserted, known, made.facts[OBSERVED], alone)
    end = measuring.run(integerized, made.inputs)
    losses = sorted(measuring.losses, key=lambda loss: loss.sqnr_db)
    return QuantisationRecord(count, end, losses, left, measuring.statistics)


def left_float(module: Module, kept: Mapping[Value, str]) -> list[FloatOpRecord]:
    """Return the ops of main that compute floats, and why.

    ``kept``: the reasons of results that stay in floats on purpose.
    """
    rewriter = Rewriter(module.main.body)
    rows = []
    for op in _needed(module):
        is_float = any(v.type.dtype.is_float for v in op.results)
        if is_float and not _is_border(op, rewriter):
            reason = kept.get(op.results[0]) or _reason(op, rewriter, module)
            rows.append(FloatOpRecord(op, reason))
    return rows


def _is_border(op: Op, rewriter: Rewriter) -> bool:
    """Return whether an op is between integers and floats, or moves an input quantised next.

    Or between floats of other dtypes at the model's inputs and outputs.
    """
    if any(t.match(op) for t in _BORDERS):
        return True
    if typed.Cast.match(op) is not None and op.operands[0].type.dtype.is_float:
        return rewriter.producer(op.operands[0]) is None or rewriter.is_output(op.result)
    users = rewriter.users(op.results[0])
    moves = has_trait(op, "view") and rewriter.producer(op.operands[0]) is None
    return moves and bool(users) and all(u.kind == "core.quantize" for u in users)


def _needed(module: Module) -> list[Op]:
    """Return the ops of main that its results depend on."""
    wanted = set(module.main.outputs)
    found: list[Op] = []
    for op in reversed(module.main.body.ops):
        if any(v in wanted for v in op.results):
            wanted.update(op.uses())
            found.insert(0, op)
    return found


def _reason(op: Op, rewriter: Rewriter, module: Module) -> str:
    """Return why an op is left in floats: the refusal of what quantises its result."""
    for user in rewriter.users(op.results[0]):
        if user.kind == "core.quantize":
            refused = integers(user, rewriter, module, Builder(module.weights))
            if isinstance(refused, Refusal):
                return str(refused)
    other = next((v.type.dtype for v in op.results if v.type.dtype.bits != 32), None)
    if other is not None:
        text = f"it computes {other}; values of f32 are quantised"
        return f"{text}, convert the model to f32 first" if other.name == "f64" else text
    return f"{op.kind.split('.')[1]} has no form in integers"


class _Losses:
    """The measurement of a quantised model beside the one in floats."""

    def __init__(
        self,
        observed: Stage,
        inserted: Stage,
        known: Quantised,
        ranges: Observed,
        alone: Mapping[Value, float],
    ):
        self._alone = alone
        self._observed, self._inserted = observed, inserted
        self._known, self._ranges = known.values, ranges.ranges
        self.losses: list[QuantisedRecord] = []
        self.statistics: list[TensorStats] = []
        self._rewriter = Rewriter(inserted.module.main.body)
        # Integerize defines the dequantised values again; the parameters are in the pass before.
        self._dequantised = {v: d for d, v in inserted.facts[QUANTISED].values.items()}

    def run(self, quantised: Stage, inputs: Sequence[np.ndarray]) -> float:
        """Measure what each value lost, in program order; return the ratio of the results."""
        outputs = self._observed.module.main.outputs
        wanted = {*self._known.values(), *outputs}
        floats = {v: a for v, a in evaluated(self._observed.module, inputs) if v in wanted}
        ends = dict(zip(quantised.module.main.outputs, outputs, strict=True))
        noise = signal = 0.0
        for value, array in evaluated(quantised.module, inputs):
            before = self._known.get(value)
            if before is not None and before in floats:
                self.losses.append(self._loss(before, floats[before], array))
                self.statistics.append(statistics(value, array, quantised.index))
            if value in ends and ends[value] in floats:
                exact = floats[ends[value]].astype(np.float64)
                signal += float((exact**2).sum())
                noise += float(((array - exact) ** 2).sum())
        return decibels(signal, noise)

    def _loss(self, before: Value, exact: np.ndarray, array: np.ndarray) -> QuantisedRecord:
        integers, low, high, step = self._covered(self._dequantised[before])
        beyond = (exact < low - step / 2) | (exact > high + step / 2)
        seen = self._ranges[before]
        return QuantisedRecord(
            before,
            integers,
            self._observed.index,
            sqnr(exact, array),
            cosine(exact, array),
            float(beyond.mean()),
            (seen.low, seen.high),
            (float(low.min()), float(high.max())),
            histograms(exact, array),
            self._alone.get(before),
        )

    def _covered(self, value: Value) -> tuple[Value, np.ndarray, np.ndarray, np.ndarray]:
        """Return the integers of a dequantised value, the range that they cover, and the step."""
        maker = self._rewriter.producer(value)
        assert maker is not None
        back = typed.Dequantize.of(maker)
        stored = self._rewriter.producer(back.q)
        assert stored is not None
        op = typed.Quantize.of(stored)
        least, most = integer_range(back.q.type.dtype)
        ends = (least if op.low is None else op.low, most if op.high is None else op.high)
        scale, zero = (
            np.asarray(constant_of(v, self._rewriter, self._inserted.module), np.float64)
            for v in maker.operands[1:3]
        )
        if back.axis is not None:
            sizes = [-1 if a == back.axis else 1 for a in range(value.type.rank)]
            scale, zero = scale.reshape(sizes), zero.reshape(sizes)
        low, high = ((end - zero) * scale for end in ends)
        return back.q, low, high, scale


def sqnr(exact: np.ndarray, quantised: np.ndarray) -> float:
    """Return the ratio of the power of numbers to that of their error, in decibels."""
    wide = exact.astype(np.float64)
    return decibels(float((wide**2).sum()), float(((quantised - wide) ** 2).sum()))


def cosine(exact: np.ndarray, quantised: np.ndarray) -> float:
    """Return the cosine of the angle between two tensors; NaN if one of them is 0."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (exact, quantised))
    length = float(np.sqrt(a @ a) * np.sqrt(b @ b))
    return max(-1.0, min(1.0, float(a @ b) / length)) if length else nan


def histograms(
    exact: np.ndarray, quantised: np.ndarray
) -> tuple[list[float], list[int], list[int]]:
    """Return the edges of ``BINS`` equal bins that cover both tensors, and the counts of each."""
    low, high = min(exact.min(), quantised.min()), max(exact.max(), quantised.max())
    edges = np.linspace(float(low), float(high) if high > low else float(low) + 1.0, BINS + 1)
    floats, dequantised = (np.histogram(x, edges)[0].tolist() for x in (exact, quantised))
    return [float(f"{edge:.6g}") for edge in edges], floats, dequantised
