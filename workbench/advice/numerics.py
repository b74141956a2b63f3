"""Numerical hazards: a pass that changes the outputs, an op that cancels most of its digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ir.events import TensorStats
from core_compiler.passes.widen_sums import WidenSums, can_widen, lines_of
from workbench.advice.finding import NOTHING, Cost, Fact, Finding, Suggestion, severity
from workbench.advice.offers import insert, option, skip
from workbench.advice.program import Program, of_line
from workbench.queries import numeric_results

#: A pass loses precision if the outputs differ from the import's by this many more roundings of
#: their dtype (relative to the largest magnitude): sums in another order change them by a few, at
#: worst by the square root of their length.
ROUNDINGS = 100
#: An op cancels if its result is smaller than its operands by this fraction of its dtype's digits:
#: half of them are then lost.
DIGITS = 0.5
#: The checks of a pass that are named, the worst first.
MAX_NAMED = 3


def _epsilon(value: Value) -> float | None:
    """Return the distance from 1 to the next number of a value's dtype; None if not a float."""
    dtype = getattr(value.type, "dtype", None)
    return float(ml_dtypes.finfo(dtype.numpy).eps) if dtype is not None and dtype.is_float else None


def passes(program: Program) -> Iterator[Finding]:
    """Yield findings for passes that change the outputs by more than rounding explains."""
    if not program.stages:
        return
    outputs = program.run.index(0).module.main.body.outputs
    found = [e for e in map(_epsilon, outputs) if e is not None]
    if not found:
        return
    limit, before = ROUNDINGS * max(found), 0.0
    for row in numeric_results.passes(program.stages, program.run.figures()):
        after = row["accumulated"]
        if after is None:
            continue
        increase, error_before = after - before, before
        before = after
        if increase >= limit:
            yield _pass(program, row, error_before, after, max(found))


def _pass(
    program: Program, row: dict[str, Any], before: float, after: float, eps: float
) -> Finding:
    count, by = f"{(after - before) / eps:,.0f}", f"by {after - before:.2g}"
    detail = "relative to their largest magnitude"
    if not math.isfinite(after):
        count, by = "infinitely many", "without bound"
        detail = "NaN or infinity where there was none, or nonzero values where all were 0"
    how = (
        f"measured on the example inputs: outputs against the import, relative to their largest "
        f"magnitude; {count} roundings of their dtype"
    )
    cost = Cost(after - before, "relative", how, min(after - before, 1.0))
    run, stage = program.run, row["index"]
    facts = [
        Fact(
            f"error of the outputs: {before:.2g} before {row['name']}, {after:.2g} after it",
            {"stage": stage, "panes": ["numerics", "diff"]},
        )
    ]
    checks = numeric_results.checks(run.recording, stage, run.rewrites(stage), run.source_location)
    for check in [c for c in checks if c["verdict"] in ("within", "failed")][:MAX_NAMED]:
        go = {"stage": stage, "rewrite": check["rewrite"], "panes": ["graph", "diff"]}
        facts.append(Fact(_checked(check), go))
    pipeline_row = program.bench.row(row["name"])
    tries = [
        Suggestion(
            f"{NOTHING}{row['name']} is mandatory. Rescale the model's values at these lines."
        )
    ]
    if pipeline_row is not None and not pipeline_row.pass_.mandatory:
        tries = [
            Suggestion(
                f"Skip {row['name']}: the values stay as they are in the model, the time "
                "may increase.",
                (skip(row["name"]),),
            )
        ]
    return Finding(
        severity(cost),
        f"{row['name']} moves the outputs {by}",
        detail,
        {"stage": stage, "panes": ["numerics", "diff"]},
        "precision loss",
        cost,
        tuple(facts),
        tuple(tries),
        look=True,
    )


def _checked(check: dict[str, Any]) -> str:
    line = of_line(f"{check['file']}:{check['line']}" if check["file"] else "")
    error = "unknown" if check["error"] is None else f"{check['error']:.2g}"
    allowed = check["tolerance"]
    requirement = "expected bitwise equality" if allowed is None else f"allowed {allowed:.2g}"
    distance = "" if check["ulps"] is None else f", {check['ulps']:,} ulps at the worst element"
    return f"{check['rule'] or check['note']}{line}: error {error}, {requirement}{distance}"


def cancellations(program: Program) -> Iterator[Finding]:
    """Yield findings for sums and differences in which most digits of the result cancel."""
    run = program.run
    stats = [s for s in run.recording.tensors() if s.stage == 0]
    by_value = {s.value: s for s in stats}
    if not by_value:
        return
    worst: dict[tuple[str, int], tuple[float, Op]] = {}
    for op in run.index(0).module.main.body.ops:
        error = _cancelled(op, by_value)
        place = run.source_location(op)
        if error is not None and error > worst.get(place, (0.0, op))[0]:
            worst[place] = error, op
    for (file, line), (error, op) in worst.items():
        if _is_widened(program, op):
            continue  # the model's own digits are not computed by this program
        eps = _epsilon(op.result) or 0.0
        operands = ", ".join(f"{_largest(by_value[v]):.3g}" for v in op.operands if v in by_value)
        where = of_line(f"{file}:{line}" if file else "")
        how = (
            "from the largest magnitudes on the example inputs: one rounding of an operand, "
            "relative to the result"
        )
        cost = Cost(error, "relative", how, min(error, 1.0), estimated=True)
        yield Finding(
            severity(cost),
            f"{op.kind.partition('.')[2]} cancels most of its digits{where}",
            f"operands up to {operands}, a result up to {_largest(by_value[op.result]):.3g}",
            {"op": run.op_id(op), "stage": 0, "panes": ["numerics", "graph"]},
            "cancellation",
            cost,
            (
                Fact(
                    f"one rounding to {op.result.type.dtype.name} is {eps:.2g} of an operand, and "
                    f"{error:.2g} of this result"
                ),
            ),
            tuple(_digits(program, op)),
        )


_BEFORE = (
    "subtract the common part before it grows (a mean from the data, not from their sum of squares)"
)


def _digits(program: Program, op: Op) -> Iterator[Suggestion]:
    """Yield suggestions that keep the digits of a sum, where its operands are computed."""
    makers, rows = program.run.index(0).module.main.body.producers(), program.stages
    line = next(iter(sorted(lines_of(op))), "")
    if len(rows) > 1 and can_widen(op, makers.get):
        name = WidenSums.name()
        pipeline_row = program.bench.row(name)
        # If the ops are still those of the model, the lines are theirs.
        done = [insert(rows[1].pass_name, name)] if pipeline_row is None else []
        chosen = [] if pipeline_row is None else [pipeline_row.options.get("lines", "")]
        wanted = ", ".join([*chosen, line]) if line else ""
        yield Suggestion(
            "Compute this sum and the arithmetic before it in f64, and round once: it "
            "then has the accuracy of f64, but the launch takes longer.",
            (*done, option(name, "lines", wanted)),
        )
        yield Suggestion(f"Or {_BEFORE}.")
        return
    yield Suggestion(
        f"{NOTHING}its operands are rounded to {op.result.type.dtype.name} outside or by "
        f"ops that are not available in f64. In the model, {_BEFORE}."
    )


def _is_widened(program: Program, op: Op) -> bool:
    """Return whether this run already computes a sum in f64."""
    row = program.bench.row(WidenSums.name())
    if row is None or row.skipped:
        return False
    named = {each.strip() for each in row.options.get("lines", "").split(",") if each.strip()}
    makers = program.run.index(0).module.main.body.producers()
    return can_widen(op, makers.get) and (not named or bool(named & lines_of(op)))


def _cancelled(op: Op, stats: dict[Value, TensorStats]) -> float | None:
    """Return one rounding of the largest operand, relative to the result.

    None if half of the digits are left, or the values are not known.
    """
    if op.kind not in ("core.add", "core.sub") or op.result not in stats:
        return None
    eps, result = _epsilon(op.result), _largest(stats[op.result])
    known = [_largest(stats[v]) for v in op.operands if v in stats]
    if eps is None or not known or not 0 < result < np.inf:
        return None
    error = eps * max(known) / result
    return error if error > eps ** (1 - DIGITS) and max(known) < np.inf else None


def _largest(stats: TensorStats) -> float:
    return max(abs(stats.minimum), abs(stats.maximum))
