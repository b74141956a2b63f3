"""Live widgets of a compilation or a recording, in a notebook cell."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_compiler.support.errors import UserError

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation
    from core_compiler.training.run.step import TrainingStep


def show(what: Compilation | str | Path, view: str | None = None, *,
         other: Compilation | TrainingStep | str | Path | None = None) -> Any:  # fmt: skip
    """A compilation or a recording (a ``.run``) in a notebook cell: live widgets with one
    selection, or only the ``view`` of that name.  ``other``: what it is compared with, a
    compilation, the path of a recording, or the name of a run in the library; views that can show
    both do so.

    UserError where the notebook's part is not installed (nothing else needs it), no view is called
    that, or there is no such recording.
    """
    shown = entry_points(group="core_compiler.show", name="notebook")
    if not shown:
        raise UserError("the notebook widgets are not installed", "show",
                        "pip install 'compiler-workbench[ui]'")  # fmt: skip
    return next(iter(shown)).load()(what, view, other)
