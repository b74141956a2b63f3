"""The workbench in a notebook: every view as a live widget, one selection, and controls.

``c.show()`` of a compilation, ``cc.show("x.run")`` of a recording. When a compilation continues
(``c.step()``, ``c.profile()``), the widgets follow it.
"""

from __future__ import annotations

from pathlib import Path

from core_compiler.driver.compilation import Compilation
from core_compiler.training.run.step import TrainingStep
from workbench.notebook.panes import Pane
from workbench.notebook.session import SHOWN, Workbench
from workbench.state.view_state import VIEWS

__all__ = ["Pane", "Workbench", "show"]


def show(
    what: Compilation | str | Path,
    view: str | None = None,
    other: Compilation | TrainingStep | str | Path | None = None,
) -> Workbench | Pane:
    """Return the workbench of a compilation or of a recording, or one ``view`` of it, for a cell.

    ``other``: B, the one it is compared with (:meth:`Workbench.compare`), in all views that can
    show both. UserError for an unknown view, or if a recording cannot be opened.
    """
    if isinstance(what, Compilation):
        made = SHOWN.get(id(what))
        if made is None:
            made = SHOWN[id(what)] = Workbench(what)
    else:
        made = Workbench(Path(what))
    if view is not None:
        made.check(view)
    if other is not None:
        shown = [n for n, each in VIEWS.items() if each.two] if view is None else [view]
        made.compare(other, *shown)
    return made if view is None else made.view(view)
