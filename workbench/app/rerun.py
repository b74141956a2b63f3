"""Compiling a shown recording's model again with an edited pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_compiler.errors import UserError
from workbench import editing, own_pass
from workbench.app.compiles import Compile
from workbench.app.workspace import Distrust, Workspace
from workbench.state import Sight
from workbench.views import pipeline
from workbench.views.reading import Run


def job(workspace: Workspace, run: Run, command: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's job for the ``draft`` of a command; UserError where it is refused.

    A recording from elsewhere may bring code of its own: that runs only once the person has said
    that they ``trust`` it.
    """
    on = pipeline.ground(run)
    draft = editing.clean(command.get("draft"), on.base)
    on.check(draft)
    if (
        _code(on.base) & _code(draft)
        and not command.get("trust")
        and not workspace.made_here(run.path)
    ):
        raise Distrust("the recording brings a pass with code of its own", run.path.name)
    meta = run.meta()
    if not meta.get("spec"):
        raise UserError("the recording does not say where its model comes from", run.path.name,
                        "compile where the model is: the edit is below as Python")  # fmt: skip
    sizes = meta.get("sizes") if isinstance(meta.get("sizes"), dict) else {}
    return workspace.job(str(meta.get("spec", "")), {
        "frontend": meta.get("frontend"), "target": meta.get("target"), "sizes": sizes,
        "execute": draft["execute"], "check": draft["check"], "edit": draft["edit"],
        "target_options": draft["target"], "pass_timeout": draft["timeout"],
        "hold": bool(command.get("hold")),
    })  # fmt: skip


def _code(draft: editing.Draft) -> set[tuple[Any, Any]]:
    items = [item for item in draft["edit"]["insert"] if own_pass.of_ours(item) is None]
    return {(item.get("code"), item.get("source")) for item in items}


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
