"""The page's components for Panel: the views of `widgets` and the page's own modules."""

from __future__ import annotations

from pathlib import Path

import param
from panel.custom import AnyWidgetComponent

from widgets.panel_host import DiffView, GraphView, MemoryView, SourceView

HERE = Path(__file__).parent
_SHARED = (HERE / "dom.js").read_text(encoding="utf-8")


def _module(path: Path) -> str:
    return _SHARED + path.read_text(encoding="utf-8")


class Own(AnyWidgetComponent):
    """A module of the page: ``data``, ``detail`` (JSON) go to it, ``command`` (JSON) comes back."""

    __abstract = True

    data = param.String(default="")
    detail = param.String(default="")
    selection = param.Dict(default={})
    command = param.String(default="")


class Bar(Own):
    _esm = _module(HERE / "bar.js")


class Start(Own):
    _esm = _module(HERE / "start.js")


class Rail(Own):
    _esm = _module(HERE.parent / "views" / "passes.js")


class Inspector(Own):
    _esm = _module(HERE.parent / "views" / "inspector.js")


class Overview(Own):
    _esm = _module(HERE.parent / "views" / "overview.js")


class Kernels(Own):
    _esm = _module(HERE.parent / "views" / "kernels.js")


#: What stands around the views.
FRAME = {"bar": Bar, "rail": Rail, "inspector": Inspector, "start": Start}
#: The views by name; those of `widgets` also tell their own state and ask for more.
VIEWS = {
    "overview": Overview, "graph": GraphView, "diff": DiffView, "kernels": Kernels,
    "source": SourceView, "memory": MemoryView,
}  # fmt: skip
