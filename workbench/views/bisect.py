"""The first bad pass of a compile: the result of a search, or how to search."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from core_compiler.support.errors import UserError
from workbench.model import first_bad_pass, recorded_model
from workbench.queries.numeric_results import json_number
from workbench.queries.run import Run, Runs, shown
from workbench.state.view_state import ViewState

#: The longest line of a module's text, and the most lines of it, that are sent.
MAX_LINES, MAX_LINE = 400, 2_000


def key(run: Run, view_state: ViewState) -> tuple:
    return run.version.stages, run.status, view_state.remembered_text("bisect"), _stamp(run)


def data(runs: Runs, view_state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, view_state) if other is None else _two(run, other, view_state)


def _one(run: Run, view_state: ViewState) -> dict[str, Any]:
    """Return the result of the search, and what a new search needs.

    ``result``: the one for the ``tolerance`` and the ``inputs`` that the view remembers (else the
    newest), with the positions in this recording; ``recorded``: the checks that failed while it
    was made; ``problem``: why it cannot be compiled again; ``itself``: the message if the
    recording replaces its model; ``command``.
    """
    state = view_state.own_state("bisect")
    result = _result(run, state)
    shown = result or {}
    return {
        "path": str(run.path),
        "name": run.path.name,
        "live": run.live,
        "tolerance": _text(state.get("tolerance")) or f"{shown.get('tolerance', 0) or 1e-3:g}",
        "inputs": _text(state.get("inputs")) or str(shown.get("inputs", "")),
        "result": None if result is None else _linked(run, result),
        "recorded": _recorded(run),
        "problem": _problem(run),
        "command": command(run, str(run.path)),
        "itself": recorded_model.replacement_note(run.meta(), run.path),
    }


def choices(entries: Iterable[Any]) -> dict[str, Any]:
    """Return no choices: the page adds the progress of the search."""
    return {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _result(run: Run, state: Mapping[str, Any]) -> dict[str, Any] | None:
    if not state.get("tolerance"):
        return first_bad_pass.newest(run.path, run.identity)
    try:
        allowed = first_bad_pass.tolerance(state["tolerance"])
    except UserError:
        return None
    key = first_bad_pass.key_of(run.identity, allowed, _text(state.get("inputs")))
    return first_bad_pass.RESULTS.kept(run.path, key)


def _stamp(run: Run) -> tuple[int, int] | None:
    try:
        found = first_bad_pass.RESULTS.path_of(run.path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _problem(run: Run) -> dict[str, str] | None:
    try:
        recorded_model.for_search(run.meta(), run.path, run.version.stages)
    except UserError as error:
        return error.to_json()["error"]
    return None


def _inserted(run: Run) -> list[Mapping[str, Any]]:
    edit = run.meta().get("edit")
    found = edit.get("insert") if isinstance(edit, Mapping) else None
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def command(run: Run, path: str) -> str:
    """Return the command that searches the recording at ``path``."""
    trust = ["--trust"] if _inserted(run) else []
    return shlex.join(["workbench", "bisect", path, *trust])


def _recorded(run: Run) -> list[dict[str, Any]]:
    """Return the passes with failed checks, and the one that ended the compile, as recorded."""
    return [
        {"stage": s.index, "name": s.pass_name, "failed": s.verdicts["failed"]}
        for s in run.stages()
        if s.verdicts.get("failed")
    ]


def _linked(run: Run, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with its position in this recording.

    ``there`` is the stage that the pass made, or the one before if it made none; ``rewrite`` of
    that stage; the ``op`` that it replaces.
    """
    stages, number, step = run.stages(), result["stage"], result["first_bad_rewrite"]
    there = rewrite = op = None
    if number is not None:
        made = 0 < number < len(stages) and stages[number].pass_name == result["first_bad_pass"]
        there = number if made else number - 1 if 0 < number <= len(stages) else None
        steps = run.rewrites(number) if made and step is not None else []
        at = step["number"] if steps and step is not None else None
        if at is not None and 0 <= at < len(steps) and steps[at].rewrite.rule == step["rule"]:
            rewrite = at
            ops = [o for o in steps[at].rewrite.old if not o.kind.endswith("constant")]
            op = run.op_id(ops[0]) if ops else None
    worst_pass = result["looked"]["worst_pass"]
    looked = {**result["looked"], "error": json_number(result["looked"]["error"])}
    reduced = result["reduced"]
    if reduced is not None:
        lines = [line[:MAX_LINE] for line in reduced["text"].splitlines()]
        reduced = {**reduced, "lines": lines[:MAX_LINES], "more": max(0, len(lines) - MAX_LINES)}
        del reduced["text"]
    return {
        **result,
        "looked": looked,
        "reduced": reduced,
        "there": there,
        "rewrite": rewrite,
        "op": op,
        "error": json_number(result["error"]),
        "absolute": json_number(result["absolute"]),
        "numbers": None
        if result["numbers"] is None
        else [json_number(n) for n in result["numbers"]],
        "worst_stage": next(
            (s.index for s in stages if worst_pass and s.pass_name == worst_pass), None
        ),
    }


# -- two recordings ------------------------------------------------------------------------------


def _two(run: Run, other: Run, view_state: ViewState) -> dict[str, Any]:
    """Return the data of one recording, and ``two``.

    ``two`` has the newest ``result`` of the other one (its stages have no links here), its
    ``name`` and ``command``, and in ``told`` the comparison of the two results.
    """
    found, other_data = _one(run, view_state), _one(other, ViewState())
    result = other_data["result"]
    if result is not None:
        result = {**result, "there": None, "rewrite": None, "op": None, "worst_stage": None}
    return {
        **found,
        "two": {
            "name": other_data["name"],
            "command": other_data["command"],
            "problem": other_data["problem"],
            "result": result,
            "told": _compare_results(found["result"], result),
        },
    }


def _compare_results(one: Mapping[str, Any] | None, two: Mapping[str, Any] | None) -> str:
    """Return the comparison of the results as text; "" if a recording was not searched."""
    if one is None or two is None:
        return ""
    a, b = (each["first_bad_pass"] for each in (one, two))
    if a is None and b is None:
        return "No fault found in either."
    if a is None or b is None:
        return f"Only {'B' if a is None else 'A'} has a fault."
    if a != b:
        return "The first bad pass is not the same in both."
    one_rule, two_rule = ((each["first_bad_rewrite"] or {}).get("rule") for each in (one, two))
    same_rule = one_rule is not None and one_rule == two_rule
    return f"The same pass in both{', by the same rule' if same_rule else ''}."
