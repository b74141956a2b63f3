"""The pipeline of a recording as an editable list, and the edit that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_compiler.support.errors import UserError
from workbench.model import edits, pipeline_editor, recorded_model
from workbench.queries.run import Run, Runs, shown
from workbench.state.view_state import ViewState
from workbench.views import missing
from workbench.views.passes import check, values


def key(run: Run, state: ViewState) -> tuple:
    return run.version.stages, run.version.checks, run.version.figures, run.status


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the recorded pipeline and its edit.

    ``shown``: the rows of the recorded pipeline (see ``pipeline_editor.shown``); ``did``: the
    effect of each pass by label; ``other``: the same of the recording that is compared with;
    ``fixed``: why nothing can be edited ("" if it can); ``itself``: the message if the
    recording replaces its model.
    """
    run, other = shown(runs)
    if not run.version.stages:
        raise missing.stages(run)
    meta = run.meta()
    fixed = ""
    try:
        basis = pipeline_editor.basis_of(run)
        rows = pipeline_editor.shown(basis, basis.base, recorded_model.compiled_as(run))
    except UserError as problem:
        fixed, rows = f"{problem.what}; {problem.fix}", _as_recorded(run)
    return {
        "name": run.path.name,
        "model": str(meta.get("model", "")),
        "target": meta.get("target"),
        "status": run.status,
        "message": str(meta.get("message") or ""),
        "fixed": fixed,
        "made_with": describe_edit(run),
        "did": did(run),
        "shown": rows,
        "itself": recorded_model.replacement_note(meta, run.path),
        "other": None
        if other is None
        else {
            "name": other.path.name,
            "made_with": describe_edit(other),
            "did": did(other),
            "model": str(other.meta().get("model", "")),
        },
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    run = runs[0]
    return {"stage": run.stage_number(state.stage)}


def answer(runs: Runs, state: ViewState, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the draft after a gesture (``request["done"]``), or why it is ``refused``."""
    run = runs[0]
    basis, meta = pipeline_editor.basis_of(run), recorded_model.compiled_as(run)
    draft, refused = basis.base, None
    try:
        draft = pipeline_editor.clean(request.get("draft"), basis.base)
        draft = pipeline_editor.change(basis, draft, dict(request.get("done") or {}))
        return pipeline_editor.shown(basis, draft, meta)
    except UserError as problem:
        refused = problem.to_json()["error"]
    try:
        return {**pipeline_editor.shown(basis, draft, meta), "refused": refused}
    except UserError:  # a link to a draft of an older version
        return {**pipeline_editor.shown(basis, basis.base, meta), "refused": refused}


def describe_edit(run: Run) -> str:
    """Return the edits of a recording's pipeline as text; "" if there are none."""
    meta = run.meta()
    try:
        return edits.words(edits.checked(meta.get("edit")), meta.get("target_options") or {})
    except UserError:
        return ""


def did(run: Run) -> dict[str, dict[str, Any]]:
    """Return each pass's effect by label: ops after it, change, rewrites, seconds, checks."""
    found: dict[str, dict[str, Any]] = {}
    before = 0
    for stage in run.stages():
        if stage.index:
            found[stage.pass_name] = {
                "stage": stage.index,
                "ops": stage.ops,
                "change": stage.ops - before,
                "check": check(stage),
                "rewrites": stage.rewrites,
                "seconds": stage.seconds,
                "changed": stage.changed,
                "values": values(stage),
            }
        before = stage.ops
    return found


def _as_recorded(run: Run) -> dict[str, Any]:
    """Return the rows as far as the recording itself states them."""
    rows = []
    for stage in run.stages()[1:]:
        options = [
            {
                "name": name,
                "type": type(value).__name__,
                "text": str(value),
                "default": "",
                "choices": [],
                "set": False,
            }
            for name, value in stage.options.items()
        ]
        rows.append({
            "label": stage.pass_name, "half": stage.half, "mandatory": False, "exact": stage.exact,
            "tolerance": stage.tolerance_class, "summary": stage.summary, "requires": [],
            "ensures": [], "ends": [], "options": options, "limit": None, "skipped": False,
            "repeat": False, "cuts": "", "own": False, "set": False, "changed": False,
            "locked": True,
        })  # fmt: skip
    return {
        "draft": {},
        "rows": rows,
        "edited": False,
        "plain": True,
        "words": "",
        "target": [],
        "command": "",
        "python": "",
    }
