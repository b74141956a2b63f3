"""Live widgets of a compilation or a recording, in a notebook cell."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_compiler.support.errors import UserError

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation
    from core_compiler.training.run.step import TrainingStep


def show(
    what: Compilation | str | Path,
    view: str | None = None,
    *,
    other: Compilation | TrainingStep | str | Path | None = None,
) -> Any:
    """Return live widgets of a compilation or a recording (a ``.run``) for a notebook cell.

    They share one selection; ``view`` shows only the view of that name.  ``other`` is a
    compilation, the path of a recording, or the name of a run in the library to compare with; views
    that can show both do so.

    Raises UserError if the notebook extra is not installed (nothing else needs it), if the view is
    unknown, or if the recording is missing.
    """
    shown = entry_points(group="core_compiler.show", name="notebook")
    if not shown:
        raise UserError(
            "the notebook widgets are not installed", "show", "pip install 'compiler-workbench[ui]'"
        )
    return next(iter(shown)).load()(what, view, other)
