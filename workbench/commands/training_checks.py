"""Checks of ``workbench train``: ``--check``, and ``--against`` the model's own framework."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.support.errors import UserError
from core_compiler.training.run.last_batch import decided
from workbench.commands import common
from workbench.commands.compile_model import counted, exit_code, listed
from workbench.commands.printing import emit, table
from workbench.model import peers
from workbench.model.failures import IMPORT
from workbench.queries import numeric_results
from workbench.training import runs

if TYPE_CHECKING:
    from core_compiler.debug.framework import Compared

#: Arguments that save or change a run; a compared run is not saved.
_KEEPING = ("folder", "output", "resume", "inject", "scheduler")
_PLURAL = {
    "start": "values at the start",
    "loss": "losses",
    "gradient": "gradients",
    "parameter": "parameters",
    "buffer": "buffers",
}


def checked(arguments: Namespace, step: Any, data: Any, path: Path | None) -> dict[str, Any]:
    """Return the results of checking the compile and two iterations of the step.

    Failures are recorded at once.
    """
    from core_compiler.debug.carried import compare_final_state
    from core_compiler.debug.check import summary
    from workbench.model import failures

    made = step.compilation.finish()
    results = {
        "model": arguments.model,
        "target": arguments.target,
        "checks": summary(made.checks),
        "failures": failures.rows(made),
        "loss": [],
    }
    if not results["failures"]:
        batches = [data.batch(i, arguments.batch, arguments.seed) for i in range(2)]
        wrong = compare_final_state(step, batches)
        results["failures"] += failures.step_failures(wrong) if wrong else []
        results["checks"]["failed" if wrong else "bitwise"] += 1
    if results["failures"] and path is not None:
        made.record(path)
        results["recording"] = str(path)
    return results


def run(arguments: Namespace) -> int:
    """Train the same batches with the step and in torch, and print the differences."""
    from core_compiler.debug.against_torch import compare
    from workbench.model import failures

    given = [name for name in _KEEPING if getattr(arguments, name)]
    if given or arguments.workers > 1:
        raise UserError(
            f"--{given[0] if given else 'workers'} cannot be used with --against",
            "train",
            "leave it out: the run is not saved",
        )
    if arguments.iterations < 1:
        raise UserError(
            f"expected 1 or more, got {arguments.iterations}", "--iterations", "pass 1 or more"
        )
    edit, progress = common.pipeline_edit(arguments), common.progress()
    step, model, data, notes, unchanged = runs.make_with_torch(arguments, edit, progress)
    found = {
        "model": arguments.model,
        "target": arguments.target,
        "against": arguments.against,
        "iterations": arguments.iterations,
        "notes": notes,
    }
    if arguments.check:
        check_results = checked(arguments, step, data, None)
        found |= {name: check_results[name] for name in ("checks", "failures")}
    plan, _ = decided(runs.plan(arguments), step, data)
    batches = [data.batch(i, plan.batch, plan.seed, plan.drop_last) for i in range(plan.iterations)]
    made = compare(step, model, batches, progress.progress)
    # The step is compared without dropout, its nodes with it.
    try:
        beyond = _compare_nodes(unchanged, step.compilation.options.training, batches[0]).beyond
    except UserError as problem:
        if problem.exit_code == 1:  # a finding: ops of ours raised
            raise
        notes.append(f"nodes are not compared: {problem.what}")
        beyond = None
    node = None if beyond is None else numeric_results.beyond(beyond)
    if arguments.check:
        check_results = {"framework": arguments.against, "beyond": node}
        found["failures"] = failures.import_failures(check_results) + found["failures"]
    kinds = dict.fromkeys(row.kind for row in made.rows)
    notes += made.notes
    found |= {
        "verdict": "differs" if node is not None else made.verdict,
        "beyond": node,
        "compared": {kind: sum(row.kind == kind for row in made.rows) for kind in kinds},
        "worst": {kind: _worst([row for row in made.rows if row.kind == kind]) for kind in kinds},
        "first": None if made.first is None else _row(made.first),
        "rows": [_row(row) for row in made.rows],
    }
    emit(arguments, found, lambda: _text(found))
    return 1 if found.get("failures") else exit_code(found["verdict"])


def _compare_nodes(model: Any, training: Any, batch: Sequence[np.ndarray]) -> Compared:
    """Compare each op of a torch module in training, on the inputs of a batch, with torch's own.

    Random values are compared by their distribution.
    """
    import torch

    from core_compiler.debug.framework import Compared, compare
    from core_compiler.frontends.pytorch import import_module
    from core_compiler.training.graph import losses

    if not model.training:
        model.train()
    if not isinstance(losses.loss(training.loss), losses.Own):
        batch = batch[:-1]  # without the targets
    given = [torch.from_numpy(np.array(a)) for a in batch]
    made = import_module(model, given, name=type(model).__name__, training=True)
    if made.nodes is None:
        return Compared()
    compare_reporting = peers.wrap_errors(compare, "torch", type(model).__name__)
    return compare_reporting(made.module, [*batch, *made.state], made.nodes, len(batch))


def _worst(rows: Sequence[Any]) -> dict[str, Any]:
    """Return the row that is nearest to its bound, or farthest beyond it."""
    compared = [row for row in rows if row.verdict != "not_compared"] or rows
    return _row(
        max(compared, key=lambda row: row.error / row.allowed if row.allowed else row.error)
    )


def _row(row: Any) -> dict[str, Any]:
    """Return a compared value as plain values."""
    plain = {
        name: numeric_results.as_number(v) if isinstance(v, float) else v
        for name, v in asdict(row).items()
    }
    return {**plain, "element": list(row.element), "line": row.line or None}


def _text(data: dict[str, Any]) -> str:
    many = ", ".join(
        f"{n} {kind if n == 1 else _PLURAL[kind]}" for kind, n in data["compared"].items()
    )
    headline = f"{data['model']} on {data['target']} against torch, {data['iterations']} iterations"
    lines = [f"{headline}: {data['verdict']} ({many})", *data["notes"]]
    if "checks" in data:
        wrong = [row for row in data["failures"] if row["pass"] != IMPORT]  # that is told below
        lines += [counted(data["checks"]), *listed(wrong)]
    rows = [
        (kind, r["name"], _short(r["error"]), _short(r["theirs"]), _short(r["allowed"]))
        for kind, r in data["worst"].items()
    ]
    lines += ["", table(("worst", "of", "error", "torch's own", "allowed"), rows)]
    if data["beyond"] is not None:
        lines += ["", *numeric_results.beyond_lines(data["beyond"])]
    if data["first"] is not None:
        r = data["first"]
        at = f" at {r['element']}" if r["element"] else ""
        line = f", read in {r['line']}" if r["line"] else ""
        values = f"is {_short(r['got'])}, torch in f64 has {_short(r['want'])}"
        bound = f"error {_short(r['error'])}, allowed {_short(r['allowed'])}{line}"
        lines += ["", f"differs: {r['kind']} {r['name']}{at} {values} ({bound})"]
        more = sum(row["verdict"] == "differs" for row in data["rows"]) - 1
        lines += [f"and {more} more (--json has all)"] if more else []
    return "\n".join(lines)


def _short(value: Any) -> str:
    if value is None:
        return "infinite"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
