"""Executing a shown recording's program, and compiling its model again with an edited pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_compiler.errors import UserError
from workbench import editing, recorded_model
from workbench.app.compiles import Compile
from workbench.app.trust import code_of
from workbench.app.workspace import Distrust, Workspace, as_recorded
from workbench.state import Sight
from workbench.views import pipeline
from workbench.views.reading import Run


def execution(workspace: Workspace, run: Run, command: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's job that executes a recording's program once more and adds its times to the
    recording.  Distrust where the recording comes from elsewhere and brings or names code, unless
    the person says that they ``trust`` it; UserError where nothing can be executed or added."""
    if missing := workspace.not_executable(run):
        raise UserError(missing, run.path.name, "compile the model again")
    meta = run.meta()
    wanted = recorded_model.spec_of(meta, run.path)
    workspace.check_trust(run, wanted.text, meta.get("edit"), trust=bool(command.get("trust")))
    job = workspace.job(wanted.text, as_recorded(meta, wanted))
    return {**job, "out": str(execution_key(run.path)), "append": str(run.path)}


def execution_key(path: Path) -> Path:
    """Under which the execution of a recording is known among the jobs; no file lies there."""
    return path.with_name(f"{path.name}.execution")


def job(
    workspace: Workspace, run: Run, command: Mapping[str, Any], user: str = ""
) -> dict[str, Any]:  # fmt: skip
    """The worker's job for the ``draft`` of a command; UserError where it is refused.

    A recording from elsewhere may bring code of its own, a link may: code that neither ``user`` has
    typed here nor a recording that was made here has runs only once the person has said that they
    ``trust`` it.
    """
    on = pipeline.ground(run)
    draft = editing.clean(command.get("draft"), on.base)
    on.check(draft)
    meta, trust = run.meta(), bool(command.get("trust"))
    wanted = recorded_model.spec_of(meta, run.path)
    base = code_of(on.base["edit"])
    known = base if workspace.made_here(run.path) else set()
    strange = [c for c in code_of(draft["edit"]) - known if not workspace.typed.has(user, c)]
    if strange and not trust:
        brings = "recording" if base.intersection(strange) else "link"
        raise Distrust(f"the {brings} brings a pass with code of its own", run.path.name)
    workspace.check_trust(run, wanted.text, trust=trust)
    return workspace.job(wanted.text, {
        "frontend": wanted.frontend, "target": meta.get("target"), "sizes": wanted.sizes,
        "execute": draft["execute"], "check": draft["check"], "edit": draft["edit"],
        "target_options": draft["target"], "pass_timeout": draft["timeout"],
        "hold": bool(command.get("hold")),
    })  # fmt: skip


def sight(
    workspace: Workspace, before: Sight, made: Compile, start: str, view: str = ""
) -> Sight:  # fmt: skip
    """What is shown when a compile has finished: its recording, compared with the one before, at
    the pass that it began with; in ``view``, else in the panes as they were."""
    path = made.path
    run = workspace.acquire(path)
    try:
        stage = next((s.index for s in run.stages() if s.pass_name == start), None)
    finally:
        workspace.release(run)
    views = tuple((name, text) for name, text in before.views if name != "pipeline")
    panes, zoom = ((view,), None) if view else (before.panes, before.zoom)
    return Sight(run=workspace.library.name(path), other=before.run, stage=stage,
                 panes=panes, zoom=zoom, fold=before.fold, views=views)  # fmt: skip


def failure(workspace: Workspace, made: Compile) -> dict[str, Any]:
    """What the view says of a compile that was stopped or failed: the error, and what is kept."""
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
