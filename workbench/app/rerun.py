"""Executing a shown recording's program, and compiling its model again with an edited pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError
from workbench.app.compiles import Compile
from workbench.app.trust import code_of, foreign
from workbench.app.workspace import UntrustedCode, Workspace, as_recorded
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
    spec = recorded_model.spec_of(meta, run.path)
    workspace.check_trust(run, spec.text, meta.get("edit"), trust=bool(command.get("trust")))
    job = workspace.job(spec.text, as_recorded(meta, spec))
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
    basis = pipeline_editor.basis_of(run)
    draft = pipeline_editor.clean(command.get("draft"), basis.base)
    basis.check(draft)
    meta, trust = run.meta(), bool(command.get("trust"))
    spec = recorded_model.spec_of(meta, run.path)
    base = code_of(basis.base["edit"])
    known = base if workspace.made_here(run.path) else set()
    untrusted = [c for c in code_of(draft["edit"]) - known if not workspace.typed.has(user, c)]
    if untrusted and not trust:
        source = "recording" if base.intersection(untrusted) else "link"
        raise UntrustedCode(f"this {source} contains custom pass code", run.path.name)
    workspace.check_trust(run, spec.text, trust=trust)
    return workspace.job(
        spec.text,
        {
            "frontend": spec.frontend,
            "target": meta.get("target"),
            "sizes": spec.sizes,
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

    It has the model's name there, the ``options`` that the form does not show (pipeline edit,
    options of the target), those that it does (``form``), the hidden ones in ``words``, and the
    view state that is left; its ``find`` is the name of the shown pass.
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


def origin(workspace: Workspace, run: Run, shown_state: ViewState) -> Origin:
    """Return how the model of a recording was compiled, without the code of a foreign recording."""
    meta = run.meta()
    spec, figures = recorded_model.spec_of(meta, run.path), run.figures()
    options = as_recorded(meta, spec)
    if foreign(options["edit"]) and not workspace.made_here(run.path):
        options["edit"] = None
    sizes = dict(options["sizes"] or {})
    form = {
        "frontend": options["frontend"],
        "target": options["target"],
        "width": sizes.pop("width", None),
        "shape": ", ".join(f"{name}={value}" for name, value in sizes.items()),
        "check": bool(meta.get("checked")),
        "against": FRAMEWORK in figures,
        "execute": bool({"digest", "not_executed"} & figures.keys()),
    }
    edited = edits.words(edits.checked(options["edit"]), options["target_options"] or {})
    stages = run.stages()
    shown = stages[run.stage_number(shown_state.stage)].pass_name if stages else ""
    hidden = {
        "edit": options["edit"],
        "pass_timeout": options["pass_timeout"],
        "target_options": options["target_options"],
    }
    return Origin(spec.text, hidden, form, edited, run.path.name, shown_state.with_(find=shown))


def state_while_compiling(previous_state: ViewState | None, name: str) -> ViewState:
    """Return the view state of a recording being made, in the panes of ``previous_state``.

    It is compared with the recording of ``previous_state``.
    """
    if previous_state is None:
        return ViewState(run=name)
    views = tuple((view, text) for view, text in previous_state.views if view != "pipeline")
    return ViewState(
        run=name,
        other=previous_state.run,
        panes=previous_state.panes,
        zoom=previous_state.zoom,
        fold=previous_state.fold,
        views=views,
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
    partial = None
    if made.path.exists():
        try:
            run = workspace.acquire(made.path)
        except UserError:
            run = None
        if run is not None:
            partial = {"name": workspace.library.name(made.path), "stages": run.version.stages}
            workspace.release(run)
    return {"state": made.outcome, "error": error, "kept": partial}
