"""Report of a quantised compile: the loss per value and at the end, and what stayed in floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log10
from typing import Any

import numpy as np

from core_compiler.driver.compilation import Compilation
from core_compiler.driver.stage import Stage
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.refusal import Refusal
from core_compiler.ir.rewriter import Rewriter
from core_compiler.ir.verifier import where_of
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.traits import has_trait
from core_compiler.passes.quantize.insert_quantization import QUANTISED, Quantised
from core_compiler.passes.quantize.integerize import integers
from core_compiler.passes.quantize.observe import evaluated

#: Ops between integers and floats, which no target computes in either.
_BORDERS = (typed.Quantize, typed.Dequantize, typed.Constant, typed.Broadcast)


@dataclass(frozen=True)
class Loss:
    """The signal-to-noise ratio in decibels of a quantised value, and the model's line."""

    op: str
    line: str
    sqnr_db: float

    def to_json(self) -> dict[str, Any]:
        return {"op": self.op, "line": self.line, "sqnr_db": finite(self.sqnr_db)}


def finite(number: float) -> float | None:
    """Return a number, or None for an infinity (a value without loss)."""
    return number if abs(number) != inf else None


def report(made: Compilation) -> dict[str, Any] | None:
    """Return ``{ops, left_float, sqnr_db, worst, losses}`` of a compile, or None if not quantised.

    ``ops`` is the number of results in integers; ``left_float`` has the float ops with reason and
    line; ``losses`` the ratio of each value on the example inputs, worst first.
    """
    stages = {stage.name.partition("#")[0]: stage for stage in made.stages}
    known: Quantised | None = made.facts.get(QUANTISED)
    integerized, observed = stages.get("integerize"), stages.get("observe")
    if integerized is None or observed is None or known is None:
        return None
    found: dict[str, Any] = {
        "ops": len(integerized.rewrites),
        "left_float": left_float(integerized.module),
        "sqnr_db": None,
        "worst": None,
        "losses": [],
    }
    if made.inputs is not None:
        losses, end = _losses(observed, integerized, known, made.inputs)
        found |= {
            "sqnr_db": finite(end),
            "worst": losses[0].to_json() if losses else None,
            "losses": [loss.to_json() for loss in losses],
        }
    return found


def left_float(module: Module) -> list[dict[str, str]]:
    """Return the ops of main that compute floats: kind, reason and model line of each."""
    rewriter = Rewriter(module.main.body)
    rows = []
    for op in _needed(module):
        is_float = any(v.type.dtype.is_float for v in op.results)
        if is_float and not _is_border(op, rewriter):
            rows.append(
                {"op": op.kind, "reason": _reason(op, rewriter, module), "line": where_of(op)}
            )
    return rows


def _is_border(op: Op, rewriter: Rewriter) -> bool:
    """Return whether an op is between integers and floats, or moves an input quantised next."""
    if any(t.match(op) for t in _BORDERS):
        return True
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
        return f"it computes {other}; values of f32 are quantised"
    return f"{op.kind.split('.')[1]} has no form in integers"


def _losses(
    observed: Stage, integerized: Stage, known: Quantised, inputs: Sequence[np.ndarray]
) -> tuple[list[Loss], float]:
    """Return the loss of each quantised value, worst first, and that of the results."""
    outputs = observed.module.main.outputs
    wanted = {*known.values.values(), *outputs}
    floats = {v: a for v, a in evaluated(observed.module, inputs) if v in wanted}
    ends = dict(zip(integerized.module.main.outputs, outputs, strict=True))
    makers = observed.module.main.body.producers()
    noise = signal = 0.0
    losses = []
    for value, array in evaluated(integerized.module, inputs):
        before: Value | None = known.values.get(value)
        if before is not None and before in floats:
            maker = makers.get(before)
            name = before.name or (maker.kind if maker is not None else "input")
            losses.append(Loss(name, where_of(maker), sqnr(floats[before], array)))
        if value in ends and ends[value] in floats:
            exact = floats[ends[value]].astype(np.float64)
            signal += float((exact**2).sum())
            noise += float(((array - exact) ** 2).sum())
    losses.sort(key=lambda loss: loss.sqnr_db)
    return losses, _decibels(signal, noise)


def sqnr(exact: np.ndarray, quantised: np.ndarray) -> float:
    """Return the ratio of the power of numbers to that of their error, in decibels."""
    wide = exact.astype(np.float64)
    return _decibels(float((wide**2).sum()), float(((quantised - wide) ** 2).sum()))


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    return 10 * log10(signal / noise) if signal else -inf
