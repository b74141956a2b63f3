"""The failures of a checked compile, as plain rows: for the command line, plugin and training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from core_compiler.debug.bisect import Finding
from core_compiler.driver.compilation import Compilation
from core_compiler.driver.stage import Stage
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.claims import Gradient
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.target import LAUNCH
from core_compiler.ir.text import print_op
from workbench.queries import numeric_results

#: The ``pass`` of the rows for an import's values, and for an op's own reference.
IMPORT, REFERENCE = "import", "reference"


def rows(made: Compilation) -> list[dict[str, Any]]:
    """Return a row for each failed check, in the order of the passes.

    ``pass``, ``rule`` (or the kind of check: results, kernel, memory...), ``op`` as text, ``line``
    of the model (``file:line``), ``element``, the values there (``want``, ``got``), ``error``
    relative to the largest magnitude, ``ulps``, ``note``. Rows of references that two independent
    checks find at fault come first.
    """
    found = [
        (stage, record)
        for stage in made.stages
        for record in made.checks.get(stage.index, ())
        if record.verdict == "failed"
    ]
    narrowed = next((record for stage, record in found if stage.index), None)  # of a pass
    return [
        *_reference_failures(found),
        *(_row(made, *each, first=each[1] is narrowed) for each in found),
    ]


def import_failures(comparison: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the row of the first node of an import that differs from its framework.

    [] if none differs.

    ``comparison`` is the result of :func:`workbench.queries.numeric_results.framework`.
    """
    beyond = comparison and comparison["beyond"]
    if not comparison or not beyond:
        return []
    fields = ("op", "line", "element", "want", "got", "error", "ulps", "note")
    return [
        {
            "pass": IMPORT,
            "rule": f"{comparison['framework']} {beyond['node']}",
            **{name: beyond[name] for name in fields},
        }
    ]


def _reference_failures(found: Sequence[tuple[Stage, CheckRecord]]) -> list[dict[str, Any]]:
    """Return the rows of ops whose reference implementation is wrong.

    It agrees neither with a numerical derivative (if a gradient is made of the op) nor with the
    kernel that lowering makes of the op: a rule and a lowering are not at fault in the same op by
    chance.
    """
    derived = {
        op.kind: op
        for _, record in found
        if record.rewrite is not None and isinstance(record.rewrite.claim, Gradient)
        for op in record.rewrite.new
    }
    lowered = {
        inner.kind
        for stage, record in found
        if record.kind == "loops"
        for op in stage.module.main.body.ops
        if op.kind == LAUNCH and record.value in (*op.operands, *op.results)
        for inner in op.regions[0].ops
    }
    note = (
        "its reference agrees neither with a numerical derivative (its gradient rule) nor with "
        "the plain loops that it is lowered to"
    )
    return [
        _failure_row(REFERENCE, kind, op, op.results[0], (), (None, None), math.inf, note)
        for kind, op in derived.items()
        if kind in lowered and kind not in CONSTANTS
    ]


def step_failures(wrong: str) -> list[dict[str, Any]]:
    """Return the row of a training step that does not carry over its program's results."""
    return [_failure_row("training step", "state", None, None, (), (None, None), math.inf, wrong)]


def finding_failure(found: Finding) -> dict[str, Any]:
    """Return the row of the failure that ended a checked compile."""
    modules = [found.before] if found.before is not None else []
    rule = found.rewrite.rule if found.rewrite is not None else found.how
    return _failure_row(
        found.pass_label,
        rule,
        _op(modules, found.rewrite, found.value),
        found.value,
        found.index,
        found.numbers or (None, None),
        found.error,
        found.note,
    )


def _row(made: Compilation, stage: Stage, record: CheckRecord, first: bool) -> dict[str, Any]:
    finding = made.finding
    rewrite, value, name = record.rewrite, record.value, stage.name
    if finding is not None and first:  # more precise than the check alone
        name, rewrite = finding.pass_label, finding.rewrite or rewrite
        value = value if value is not None else finding.value
    modules = [stage.module] if stage.before is None else [stage.before, stage.module]
    rule = rewrite.rule if rewrite is not None else record.kind
    return _failure_row(
        name,
        rule,
        _op(modules, rewrite, value),
        value,
        record.index,
        (record.old, record.new),
        record.worst_error,
        record.note,
    )


def _failure_row(
    name: str,
    rule: str,
    op: Op | None,
    value: Value | None,
    index: Sequence[int],
    values: tuple[float | None, float | None],
    error: float,
    note: str,
) -> dict[str, Any]:
    nodes = op.origin.nodes() if op is not None and op.origin is not None else ()
    dtype = getattr(getattr(value, "type", None), "dtype", None)
    return {
        "pass": name,
        "rule": rule,
        "op": None if op is None else print_op(op),
        "line": next((f"{n.file}:{n.line}" for n in nodes if n.file), None),
        "element": list(index),
        "want": values[0],
        "got": values[1],
        "error": numeric_results.as_number(error),
        "ulps": None if dtype is None else numeric_results.ulps(*values, dtype.numpy),
        "note": note,
    }


def _op(modules: Sequence[Module], rewrite: Any, value: Value | None) -> Op | None:
    """Return the op that made the value before the pass, or that the rewrite replaced.

    For a gradient it is the op that is differentiated.
    """
    claim = None if rewrite is None else rewrite.claim
    if isinstance(claim, Gradient) and claim.forward:
        return claim.forward[-1]
    if value is not None:
        for module in modules:
            found = next((op for op in module.walk() if value in op.results), None)
            if found is not None:
                return found
    if rewrite is not None:
        return next(iter(reversed((*rewrite.new, *rewrite.old))), None)
    return None
