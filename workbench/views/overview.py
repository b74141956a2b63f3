"""The overview: the figures of a run, their development over the passes, and findings, worst first.

Findings are the problems of the run and the advice of ``workbench.advice`` (together those of
``workbench.advice.findings``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from core_compiler.record.reader import Stage
from core_compiler.runtime.samples import executed_on
from workbench.advice import advise
from workbench.advice.findings import problems
from workbench.queries import (
    compared,
    contracts,
    executions,
    joint,
    numeric_results,
    quantisation,
    training_run,
)
from workbench.queries.kernel_table import table
from workbench.queries.run import Run, Runs, shown
from workbench.queries.work import has_forecasts, work
from workbench.state.view_state import ViewState
from workbench.support import units
from workbench.views import training

#: Findings beyond this number are counted, not listed.
MAX_FINDINGS = 60


def key(run: Run, state: ViewState) -> tuple:
    return run.version, run.status


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _failed(run: Run) -> int:
    """Return the number of failed checks; a comparison with a framework that differs is one."""
    figures = run.figures()
    against = figures.get("verdict"), figures.get(f"{numeric_results.FRAMEWORK}_verdict")
    return sum(s.verdicts.get("failed", 0) for s in run.stages()) + against.count("differs")


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return ``figures`` (label, value, unit, hint), ``passes`` (chart), ``kernels``, ``findings``.

    ``advice`` is requested separately (see ``answer``): it may read all stages, and the first view
    does not wait for it.
    """
    meta, stages = run.meta(), run.stages()
    found = problems(run)
    return {
        "run": run.path.name,
        "title": str(meta.get("model", run.path.stem)),
        "subtitle": _subtitle(meta),
        "status": run.status,
        "failed": _failed(run),
        "elsewhere": run.elsewhere,
        "training": bool(run.version.iterations),
        "message": str(meta.get("message", "")),
        "progress": run.progress() if run.live else None,
        "figures": list(_figures(run, stages)),
        "passes": [
            {"index": s.index, "name": s.pass_name, "ops": s.ops,
             "seconds": s.seconds, "changed": s.changed, "half": s.half}
            for s in stages
        ],
        "phases": [vars(share) for share in _shares(run)],
        "kernels": [
            {"id": r["id"], "name": r["name"], "count": r["count"], "share": r["share"],
             "total_us": r["total_us"], "percent": r["percent"], "beyond": r["beyond"]}
            for r in table(run) if r["count"]
        ][:8],
        "findings": [asdict(f) for f in found[:MAX_FINDINGS]],
        "advice": [] if run.live else None,
        "more_findings": max(0, len(found) - MAX_FINDINGS),
        "versions": _versions(meta),
        "bisects": len(stages) > 1 and not run.live,
    }  # fmt: skip


def answer(runs: Runs, state: ViewState, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ``advice``: the recording's hazards as data; for two, with ``sides``."""
    run, other = shown(runs)
    return _hazards(run) if other is None else found_in(_hazards(run), _hazards(other))


def _hazards(run: Run) -> list[dict[str, Any]]:
    rows = [asdict(found) for found in advise(run)[:MAX_FINDINGS]]
    return [
        {**row, "cost": row["cost"] and numeric_results.json_rows([row["cost"]], "value")[0]}
        for row in rows
    ]


def _subtitle(meta: dict[str, Any]) -> str:
    sizes = meta.get("sizes") or {}
    parts = [f"{name} {value}" for name, value in sizes.items()] if isinstance(sizes, dict) else []
    return " · ".join(
        str(p) for p in (meta.get("frontend"), meta.get("target"), meta.get("mode"), *parts) if p
    )


def _versions(meta: dict[str, Any]) -> str:
    found = meta.get("versions")
    libraries = [f"{n} {v}" for n, v in found.items() if v] if isinstance(found, dict) else []
    own = f"workbench {meta['workbench']}" if "workbench" in meta else ""
    return ", ".join(
        part for part in (own, f"Python {meta.get('python', '?')}", *libraries) if part
    )


def _figures(run: Run, stages: list[Stage]) -> Iterator[dict[str, Any]]:
    memory, timing, figures = run.figures("memory"), run.figures("timing"), run.figures()
    ops = [s.ops for s in stages]
    ends = {s.half: s for s in stages}
    if run.version.iterations:
        yield from _of_training(run)
    if joint.trains(run):
        yield from _of_step(run)
    yield _figure(
        "time per execution", timing.get("total_ms"), "ms", _of_execution(run, timing), "kernels"
    )
    if not run.timings() and has_forecasts(work(run)):
        yield _predicted_time(run)
    yield _figure("peak memory", memory.get("arena_bytes"), "B", "activation arena", "memory")
    facts = run.meta().get("facts")
    stand_ins = facts.get("stand_ins") if isinstance(facts, dict) else None
    yield _figure(
        "weights",
        memory.get("weight_bytes"),
        "B",
        f"{stand_ins} are not available: replaced by seeded random values"
        if stand_ins
        else "constant data",
        "memory",
    )
    count = sum(len(k.launches) for k in run.kernels())
    if run.timings():  # including their runs in loops
        known = {k.name for k in run.kernels()}
        count = sum(w.runs for w in work(run) if w.kernel in known)
    yield _figure(
        "kernels",
        sum(1 for k in run.kernels() if k.launches) or None,
        "",
        f"compiled functions, {units.launches(count)}",
        "kernels",
    )
    if ops:
        last = ends.get("meaning", stages[-1])
        is_complete = "implementation" in ends or run.status != "recording"
        hint = (
            f"{last.ops} after {'the target-independent passes' if is_complete else last.pass_name}"
        )
        yield _figure("imported ops", ops[0], "", hint, "graph")
        yield _figure("launches", count or None, "", "kernel launches per execution", "graph")
        # Use the last passes that count: how often loops run is determined late.
        flops = [s.figures["flops"] for s in stages if s.figures.get("flops")]
        yield _figure("work", flops[-1] if flops else 0, "flop", "of one execution", "graph")
    worst = [s for s in stages if s.worst_error is not None]
    if worst:
        # A rule may fail on special values and keep every bit of the recorded ones.
        worst_stage = max(
            worst, key=lambda s: (bool(s.verdicts.get("failed")), s.worst_error or 0.0)
        )
        wrong = bool(worst_stage.verdicts.get("failed"))
        hint = "every rewrite kept every bit"
        if wrong or worst_stage.worst_error:
            outcome = "a failed check" if wrong else "within its tolerance"
            hint = f"in {worst_stage.pass_name}, {outcome}"
        if math.isinf(worst_stage.worst_error or 0.0):
            hint += ": integers or non-finite values differ"
        yield {
            **_figure("worst check error", worst_stage.worst_error, "relative", hint, "numerics"),
            "stage": worst_stage.index,
            "bad": wrong,
        }
    accumulated = [v for n, v in figures.items() if n.startswith("accumulated_error/")]
    quantised = quantisation.summary(stages, figures)
    if accumulated:
        hint = "outputs against the import"
        if quantised:
            hint += ", apart from their rounding to integers"
        first = numeric_results.changing(numeric_results.passes(stages, figures))
        if first:
            hint += f"; the first pass that changed bits is {first[0]['name']}"
        wrong = any(s.verdicts.get("failed") for s in stages)
        yield {
            **_figure("end-to-end error", accumulated[-1], "relative", hint, "numerics"),
            "bad": wrong,
        }
    if quantised and (quantised["measured"] or not run.live):
        yield _quantisation(quantised)
    if "worst_relative_error" in figures:
        verdict = str(figures.get("verdict", numeric_results.NOT_JUDGED)).replace("_", " ")
        yield {
            **_figure(
                "error against peer",
                figures["worst_relative_error"],
                "relative",
                f"{figures.get('against', '')}: {verdict}",
                "numerics",
            ),
            "bad": verdict == "differs",
        }
    if numeric_results.FRAMEWORK in figures:
        comparison = numeric_results.framework((), figures) or {}
        first_difference = comparison["beyond"]
        where = f", first at {first_difference['node']}" if first_difference else ""
        yield {
            **_figure(
                "import against its framework",
                None,
                "",
                f"{comparison['framework']}, node by node{where}",
                "numerics",
            ),
            "text": comparison["verdict"].replace("_", " "),
            "bad": bool(first_difference),
        }
    if training_run.is_training(run):  # its recording continued after the compile
        yield _figure("compile time", sum(s.seconds for s in stages), "s", "all passes", "")
    else:
        yield _figure(
            "compile time",
            figures.get("compile_seconds") or run.meta().get("seconds"),
            "s",
            "recording included",
            "",
        )
    contract = contracts.version(run)
    hint = f"hash of everything that determines the result; numerics contract {contract}"
    yield {**_figure("identity", None, "", hint, ""), "text": str(figures.get("identity", ""))[:16]}
    if figures.get("not_executed"):
        yield {
            **_figure("not executed", None, "", "missing on this machine", ""),
            "text": str(figures["not_executed"]),
        }
        return
    if "state_digest" in figures:
        yield {
            **_figure("state digest", None, "", "bits of the state after the run", ""),
            "text": str(figures["state_digest"])[:16],
        }
        return
    yield {
        **_figure("output digest", None, "", "bits of the outputs on the example inputs", ""),
        "text": str(figures.get("digest", ""))[:16],
    }


def _quantisation(found: numeric_results.Row) -> dict[str, Any]:
    """Return the figure of what the outputs lost by quantisation."""
    ratio = found["sqnr_db"]
    hint = f"signal-to-noise ratio of the outputs; {found['results']} results in integers"
    made = _figure("quantisation", ratio, "dB", hint, "numerics")
    if not found["measured"]:
        ended = "the compile ended before, or an older version made it"
        return {**made, "hint": ended, "text": "not measured"}
    return {**made, "text": "no loss"} if ratio == math.inf else made


def _predicted_time(run: Run) -> dict[str, Any]:
    """Return the predicted time of one execution, and what bounds most of it."""
    bounds: dict[str, float] = {}
    for each in work(run):
        bounds[each.bound_by] = bounds.get(each.bound_by, 0.0) + (each.predicted_us or 0.0)
    worst = max(bounds, key=lambda name: bounds[name])
    hint = f"on {run.figures().get('machine')}, mostly bound by {worst}"
    return _figure("predicted time", sum(bounds.values()) / 1e3, "ms", hint, "kernels")


def _of_execution(run: Run, timing: Mapping[str, Any]) -> str:
    """Return the hint for an execution time: its meaning, its interval, and the previous time."""
    hint, found = f"median on {executed_on(timing.get('threads'))}", executions.facts(run)
    if found and (spread := executions.spread(found[0])):
        hint += f", {spread}"
    if len(found) > 1 and found[1]["median_ms"] is not None:
        hint += f"; before: {units.duration(1e3 * found[1]['median_ms'])}"
    return hint


def _of_training(run: Run) -> Iterator[dict[str, Any]]:
    found = training.about(run)
    wanted = f"of {found['wanted']}" if found["wanted"] else "of the training run"
    yield _figure("iterations", found["done"], "", wanted, "training")
    yield _figure("loss", found["loss"], "", "of the last iteration", "training")
    yield _figure("time per iteration", found["seconds"], "s", "median of the last 20", "training")


def _of_step(run: Run) -> Iterator[dict[str, Any]]:
    """Yield the figures of a training step."""
    found, chosen = joint.sizes_of_state(run), run.meta().get("training", {})
    for label, hint in (("loss", "what is differentiated"), ("optimizer", "")):
        name, _, options = str(chosen.get(label, "")).partition("(")
        if name:
            detail = options.removesuffix(")") or hint
            kind = "loss function" if label == "loss" else label
            yield {**_figure(kind, None, "", detail, ""), "text": name}
    yield _figure(
        "parameters",
        found.numbers,
        "",
        f"{units.size(found.bytes)} in {found.parameters} tensors",
        "graph",
    )
    yield _figure("optimizer state", found.state_bytes, "B", "carried from step to step", "memory")
    saved = joint.saved_bytes(run)
    if saved is not None:
        saved_bytes, without = saved
        hint = "forward values, at the start of the backward pass"
        if saved_bytes < without:
            hint += f"; {units.size(without)} without recomputation"
        yield _figure("saved for backward", saved_bytes, "B", hint, "memory")


def _shares(run: Run) -> list[joint.Share]:
    """Return the phases of a training step; none while it is compiled."""
    return joint.shares(run) if joint.trains(run) and not run.live else []


def _figure(label: str, value: Any, unit: str, hint: str, view: str) -> dict[str, Any]:
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        number = None
    known = None if number is None or math.isnan(number) else numeric_results.json_number(number)
    return {"label": label, "value": known, "unit": unit, "hint": hint, "view": view}


# -- two recordings ------------------------------------------------------------------------------

#: The most kernels that are listed, those that take longest on either side first.
MAX_KERNELS = 8
#: Units for which less is better.
_LESS = ("s", "ms", "us", "B", "relative")


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return the overviews of two recordings.

    ``a`` and ``b``: facts about the recordings; ``figures`` of both by label (``a``, ``b``:
    numbers or texts; ``less``: less is better), ``passes`` and ``kernels`` as matched by Compare,
    ``findings`` with their ``sides``. ``advice`` is requested separately, as for one.
    """
    one, two = _one(run, state), _one(other, state)
    rows = compared.kernels_of(run, other)["kernels"] if run.kernels() and other.kernels() else []
    return {
        "two": True,
        "title": one["title"],
        "a": {**compared.about(run), **_state(one)},
        "b": {**compared.about(other), **_state(two)},
        "figures": _figure_pairs(one["figures"], two["figures"]),
        "passes": compared.passes(run, other),
        "kernels": sorted(rows, key=_longest, reverse=True)[:MAX_KERNELS],
        "findings": found_in(one["findings"], two["findings"]),
        "advice": [] if run.live or other.live else None,
        "more_findings": one["more_findings"] + two["more_findings"],
        "status": one["status"],
        "bisects": False,
    }


def _state(of: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: of[name]
        for name in ("subtitle", "status", "failed", "elsewhere", "training", "versions")
    }


def _longest(row: Mapping[str, Any]) -> float:
    return max((row[side] or {}).get("us") or 0.0 for side in ("a", "b"))


def _figure_pairs(
    ones: Iterable[Mapping[str, Any]], twos: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return figures of the same name, in the first recording's order; None if missing."""
    first, second = ({each["label"]: each for each in side} for side in (ones, twos))
    rows = []
    for label in dict.fromkeys((*first, *second)):
        one, two = first.get(label), second.get(label)
        known = one or two or {}
        a, b = (_figure_value(each) for each in (one, two))
        if a is None and b is None:
            continue
        rows.append(
            {
                "label": label,
                "unit": known["unit"],
                "view": known["view"],
                "less": known["unit"] in _LESS and label != "weights",
                "a": a,
                "b": b,
                "hints": ["" if each is None else each["hint"] for each in (one, two)],
            }
        )
    return rows


def _figure_value(figure: Mapping[str, Any] | None) -> float | str | None:
    if figure is None:
        return None
    return figure["text"] if figure.get("text") else figure["value"]


def found_in(
    ones: Sequence[Mapping[str, Any]], twos: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the findings of both; those with the same title appear once, as in A.

    Findings only in B have no links in A, and are not tried on A's pipeline.
    """
    second = {(each["hazard"], each["title"]): each for each in twos}
    found = []
    for each in ones:
        in_both = second.pop((each["hazard"], each["title"]), None) is not None
        found.append({**each, "sides": "ab" if in_both else "a"})
    for each in second.values():
        evidence = [{**fact, "go": {}} for fact in each["evidence"]]
        tries = [
            {**t, "draft": None, "reason": "it belongs to B: open B to try it"}
            for t in each["tries"]
        ]
        found.append(
            {**each, "sides": "b", "go": {}, "evidence": evidence, "tries": tries, "look": False}
        )
    return found
