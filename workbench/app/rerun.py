"""Executing a shown recording's program, and compiling its model again with an edited pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError
from workbench.app.compiles import Compile
from workbench.app.trust import code_of, foreign
from workbench.app.workspace import Distrust, Workspace, as_recorded
from workbench.model import edits, pipeline_editor, recorded_model
from workbench.queries.numeric_results import FRAMEWORK
from workbench.queries.run import Run
from workbench.state.view_state import ViewState


def execution(workspace: Workspace, run: Run, command: Mapping[str, Any]) -> dict[str, Any]:
    """Return the worker's job that executes a recording's program again and adds its times.

    Distrust if the recording is foreign and contains or names code, unless the user trusts it
    (``trust``); UserError if nothing can be executed or added.
    """
    if missing := workspace.not_executable(run):
        raise UserError(missing, run.path.name, "compile the model again")
    meta = run.meta()
    wanted = recorded_model.spec_of(meta, run.path)
    workspace.check_trust(run, wanted.text, meta.get("edit"), trust=bool(command.get("trust")))
    job = workspace.job(wanted.text, as_recorded(meta, wanted))
    return {**job, "out": str(execution_key(run.path)), "append": str(run.path)}


def execution_key(path: Path) -> Path:
    """Return the key of a recording's execution among the jobs; no file exists there."""
    return path.with_name(f"{path.name}.execution")


def job(
    workspace: Workspace, run: Run, command: Mapping[str, Any], user: str = ""
) -> dict[str, Any]:
    """Return the worker's job for the ``draft`` of a command; UserError if it is rejected.

    A foreign recording or a link may contain code: code that neither ``user`` has typed here nor a
    recording made here contains runs only once the user trusts it (``trust``).
    """
    on = pipeline_editor.ground_of(run)
    draft = pipeline_editor.clean(command.get("draft"), on.base)
    on.check(draft)
    meta, trust = run.meta(), bool(command.get("trust"))
    wanted = recorded_model.spec_of(meta, run.path)
    base = code_of(on.base["edit"])
    known = base if workspace.made_here(run.path) else set()
    strange = [c for c in code_of(draft["edit"]) - known if not workspace.typed.has(user, c)]
    if strange and not trust:
        brings = "recording" if base.intersection(strange) else "link"
        raise Distrust(f"this {brings} contains custom pass code", run.path.name)
    workspace.check_trust(run, wanted.text, trust=trust)
    return workspace.job(
        wanted.text,
        {
            "frontend": wanted.frontend,
            "target": meta.get("target"),
            "sizes": wanted.sizes,
            "execute": draft["execute"],
            "check": draft["check"],
            "edit": draft["edit"],
            "target_options": draft["target"],
            "pass_timeout": draft["timeout"],
            "hold": bool(command.get("hold")),
        },
    )


@dataclass(frozen=True)
class Origin:
    """A recording whose model is compiled again from the start page.

    It has the model's name there, the ``options`` that the form does not show (sizes, pipeline
    edit, options of the target), those that it does (``form``), the hidden ones in ``words``, and
    the view state that is left; its ``find`` is the name of the shown pass.
    """

    what: str
    options: Mapping[str, Any]
    form: Mapping[str, Any]
    words: str
    name: str
    view_state: ViewState

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            **self.form,
            "words": self.words,
            "name": self.name,
            "query": self.view_state.with_(find="").query(),
        }


def origin(workspace: Workspace, run: Run, left: ViewState) -> Origin:
    """Return how the model of a recording was compiled, without the code of a foreign recording."""
    meta = run.meta()
    wanted, figures = recorded_model.spec_of(meta, run.path), run.figures()
    options = as_recorded(meta, wanted)
    if foreign(options["edit"]) and not workspace.made_here(run.path):
        options["edit"] = None
    sizes = dict(options["sizes"] or {})
    form = {
        "frontend": options["frontend"],
        "target": options["target"],
        "width": sizes.pop("width", None),
        "check": bool(meta.get("checked")),
        "against": FRAMEWORK in figures,
        "execute": bool({"digest", "not_executed"} & figures.keys()),
    }
    parts = [f"{name} {value}" for name, value in sizes.items()]
    edited = edits.words(edits.checked(options["edit"]), options["target_options"] or {})
    parts += [edited] if edited else []
    stages = run.stages()
    shown = stages[run.stage_number(left.stage)].pass_name if stages else ""
    hidden = {
        "sizes": sizes,
        "edit": options["edit"],
        "pass_timeout": options["pass_timeout"],
        "target_options": options["target_options"],
    }
    return Origin(
        wanted.text, hidden, form, ", ".join(parts), run.path.name, left.with_(find=shown)
    )


def beside(place: ViewState | None, name: str) -> ViewState:
    """Return the view state of a recording being made, in the panes of ``place``.

    It is compared with the recording of ``place``.
    """
    if place is None:
        return ViewState(run=name)
    views = tuple((view, text) for view, text in place.views if view != "pipeline")
    return ViewState(
        run=name, other=place.run, panes=place.panes, zoom=place.zoom, fold=place.fold, views=views
    )


def state_of(
    workspace: Workspace, before: ViewState, made: Compile, start: str, view: str = ""
) -> ViewState:
    """Return the view state after a compile, at the pass it began with.

    It shows the new recording compared with the previous one.

    It is shown in ``view``, else in the same panes.
    """
    path = made.path
    run = workspace.acquire(path)
    try:
        stage = next((s.index for s in run.stages() if s.pass_name == start), None)
    finally:
        workspace.release(run)
    views = tuple((name, text) for name, text in before.views if name != "pipeline")
    panes, zoom = ((view,), None) if view else (before.panes, before.zoom)
    return ViewState(
        run=workspace.library.name(path),
        other=before.run,
        stage=stage,
        panes=panes,
        zoom=zoom,
        fold=before.fold,
        views=views,
    )


def failure(workspace: Workspace, made: Compile) -> dict[str, Any]:
    """Return the report of a compile that was stopped or failed: the error, and what is kept."""
    error = made.error
    if made.outcome == "cancelled":
        error = {"what": "The compile was cancelled", "where": "", "fix": ""}
    kept = None
    if made.path.exists():
        try:
            run = workspace.acquire(made.path)
        except UserError:
            run = None
        if run is not None:
            kept = {"name": workspace.library.name(made.path), "stages": run.version.stages}
            workspace.release(run)
    return {"state": made.outcome, "error": error, "kept": kept}
