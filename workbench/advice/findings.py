"""Findings about a run: the one list that every surface shows.

The overview, `workbench show`, `advise` and `numerics`, the tables and the report all read it
here, so that they always agree on the number of findings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from core_compiler.record.reader import RecordedRewrite, Stage
from workbench.advice import advise
from workbench.advice.finding import ERROR, NOTE, WARNING, Finding
from workbench.queries import executions, numeric_results, training_run
from workbench.queries.run import Run

#: The hazards of values.
NUMERIC = frozenset({"precision loss", "cancellation"})
#: Titles of checks of the import, by the kind of check.
_OF_IMPORT = {
    "translation": "The import translates an op incorrectly",
    "function": "An elementary function exceeds the error bound of the contract",
}


def listed(run: Run) -> list[Finding]:
    """Return problems and hazards together, the worst first."""
    return sorted([*problems(run), *advise(run)], key=lambda each: each.rank)


def of_numbers(run: Run) -> list[Finding]:
    """Return the findings of :func:`listed` about values, not about time and memory."""
    return [each for each in listed(run) if not each.hazard or each.hazard in NUMERIC]


def problems(run: Run) -> list[Finding]:
    """Return the problems and omissions of a run, the worst first.

    They are available while a run grows, too.
    """
    found = [
        *_ending(run),
        *_import(run),
        *_failed(run),
        *_executions(run),
        *_diagnostics(run),
        *_numbers(run),
        *_unchecked(run),
    ]
    return sorted(found, key=lambda each: each.rank)


def _ending(run: Run) -> Iterator[Finding]:
    message = str(run.meta().get("message", ""))
    last = {"stage": max(0, run.version.stages - 1), "panes": ["graph", "diff"]}
    what, kept, again = "compile", "The stages before it are kept.", "compile again"
    if run.version.iterations:
        last = {"panes": ["training", "graph"]}
        what, kept, again = "training run", "Its iterations are kept.", "resume it"
    not_finite = _not_finite(run)
    if not_finite is not None:
        yield not_finite
    elif run.status == "failed":
        look = not training_run.is_training(run)
        yield Finding(ERROR, f"The {what} failed", message, last, look=look)
    elif run.status == "cancelled":
        yield Finding(WARNING, f"The {what} was cancelled", kept, last)
    elif run.status == "interrupted":
        yield Finding(
            WARNING,
            f"The {what} ended without finishing",
            f"Its process ended. What it finished is kept; {again}.",
            last,
        )


def _not_finite(run: Run) -> Finding | None:
    """Return a finding for the loss that ended a training run, with a link to its first cause."""
    found = training_run.not_finite(run)
    if found is None:
        return None
    detail = "The state before the iteration is kept."
    if found["op"]:
        detail = (
            f"{found['op']} is the first op to produce a non-finite value from finite inputs. "
            f"{detail}"
        )
    return Finding(
        ERROR, f"The loss of iteration {found['iteration']} is not finite", detail, found["go"]
    )


def _import(run: Run) -> Iterator[Finding]:
    """Yield a finding for the first node of the import that differs from the framework's."""
    comparison = numeric_results.framework((), run.figures())
    if comparison is not None and comparison["beyond"]:
        first, *lines = numeric_results.beyond_lines(comparison["beyond"])
        title = f"The import differs from {comparison['framework']}: {first.partition(': ')[2]}"
        go = {"stage": 0, "panes": ["numerics", "graph"]}
        yield Finding(ERROR, title, ". ".join(line.strip() for line in lines), go)


def _failed(run: Run) -> Iterator[Finding]:
    for stage in run.stages():
        if not stage.verdicts.get("failed"):
            continue
        by_rule: dict[str, list[RecordedRewrite]] = {}
        for step in run.rewrites(stage.index):
            if step.check is not None and step.check.verdict == "failed":
                by_rule.setdefault(step.rewrite.rule, []).append(step)
        yield from (_of_rule(stage, steps) for steps in by_rule.values())
        for result in run.recording.checks(stage.index):
            if result.rewrite is None and result.verdict == "failed":
                title, note = f"{stage.pass_name} changes the result", result.note
                if stage.index:
                    note = f"{_distance(result.worst_error).capitalize()}. {note}"
                else:
                    title = _OF_IMPORT.get(result.kind, title)
                yield Finding(
                    ERROR,
                    title,
                    note,
                    {"stage": stage.index, "panes": ["graph", "diff"]},
                    look=True,
                )


def _distance(error: float) -> str:
    return (
        "integers or non-finite values differ"
        if math.isinf(error)
        else f"relative error {error:.2g}"
    )


def _of_rule(stage: Stage, steps: list[RecordedRewrite]) -> Finding:
    """Return one finding for the rewrites of a rule whose checks failed in a pass.

    It shows the worst of them (the first, if all are equally bad).
    """

    def error(step: RecordedRewrite) -> float:
        found = math.nan if step.check is None else step.check.worst_error
        return math.inf if math.isnan(found) else found

    worst = max(steps, key=error)
    assert worst.check is not None
    where = f"element {list(worst.check.index)}" if worst.check.index else ""
    title = f"Rewrite {worst.number} of {stage.pass_name} changes the result"
    if len(steps) > 1:
        title = f"{len(steps)} rewrites of {stage.pass_name} change the result"
        where = f"rewrite {worst.number}, {where}".removesuffix(", ")
    note = worst.check.note or f"{worst.rewrite.rule}: {_distance(worst.check.worst_error)}"
    return Finding(
        ERROR,
        title,
        f"{note}. Worst at {where}." if where else f"{note}.",
        {"stage": stage.index, "rewrite": worst.number, "panes": ["graph", "diff"]},
        look=True,
    )


def _executions(run: Run) -> Iterator[Finding]:
    """Yield a finding if executions of one program on the same inputs have different bits.

    They must agree on any machine and at any time.
    """
    if (pair := executions.differing(run)) is not None:
        later, first = pair
        where = " and ".join(dict.fromkeys(str(e["machine"] or "this machine") for e in pair))
        yield Finding(
            ERROR,
            "Two executions of this program gave different bits",
            f"The outputs' digest was {first['digest'][:16]} in execution {first['id']} "
            f"and {later['digest'][:16]} in execution {later['id']}, on {where}.",
            {"panes": ["kernels", "code"]},
        )


def _diagnostics(run: Run) -> Iterator[Finding]:
    for stage, found in run.diagnostics():
        if found.severity not in (ERROR, WARNING):
            continue
        go: dict[str, Any] = {"stage": stage, "panes": ["graph", "diff"]}
        if found.op is not None:
            go["op"] = run.op_id(found.op)
        where = f"{run.stages()[stage].pass_name} {found.where}"
        yield Finding(found.severity, found.message, where, go)


def _numbers(run: Run) -> Iterator[Finding]:
    """Yield findings for the first NaN and the first Inf.

    Later values mostly inherit them.
    """
    for column, severity, what in (("nan", ERROR, "NaN"), ("inf", NOTE, "Inf")):
        found = run.recording.query(
            f"SELECT value, stage, {column}, count(*) OVER (PARTITION BY stage) FROM tensor_stats"
            f" WHERE {column} > 0 ORDER BY id LIMIT 1"
        ).rows
        for value, stage, elements, values in found:
            go: dict[str, Any] = {"stage": stage, "panes": ["numerics", "graph"]}
            maker = next(iter(run.recording.makers(value)), None)
            if maker is not None:
                go["op"] = maker
            name = run.recording.value(value).name or value
            yield Finding(
                severity,
                f"Value %{name} has {elements:,} {what}",
                f"on the example inputs{_more(values - 1)}",
                go,
            )


def _more(count: int) -> str:
    return f", and {count:,} more {'value has' if count == 1 else 'values have'}" if count else ""


def _unchecked(run: Run) -> Iterator[Finding]:
    if run.live or training_run.is_training(run):
        return
    checked = sum(sum(s.verdicts.values()) for s in run.stages())
    unchecked = [s for s in run.stages() if s.verdicts.get("unchecked")]
    if not checked:
        yield Finding(
            NOTE,
            "No rewrite was checked on real tensors",
            "Compile with 'check every rewrite' (--check) to have each one checked.",
            {},
        )
    elif unchecked:
        count = sum(s.verdicts["unchecked"] for s in unchecked)
        yield Finding(
            NOTE,
            f"{count} of {checked} rewrites were not checked",
            "in " + ", ".join(s.pass_name for s in unchecked[:4]),
            {"stage": unchecked[0].index, "panes": ["graph", "diff"]},
        )
