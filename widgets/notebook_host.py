"""The views as notebook widgets.

These are `GraphWidget`, `DiffWidget`, `CodeWidget`, `MemoryWidget` and `TimelineWidget`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from widgets.encode import pack
from widgets.requests import Handler, Requests
from widgets.views import TRAITS, module_path

_TRAITLETS = {str: traitlets.Unicode, bytes: traitlets.Bytes, dict: traitlets.Dict}


class Widget(anywidget.AnyWidget):
    """Shared behaviour of the widgets; the synchronised traits come from `widgets.views.TRAITS`."""

    def show(self, data: Mapping[str, Any]) -> None:
        """Show `data` (the view's schema in README.md; numpy arrays are sent as bytes)."""
        text, blob = pack(data)
        with self.hold_sync():
            self.data, self.blob = text, blob

    def on_request(self, handler: Handler) -> None:
        """Answer the browser's requests with `handler(request) -> JSON value`."""
        requests = Requests(handler)

        def answer(change: Mapping[str, Any]) -> None:
            response = requests.answer(change["new"])
            if response is not None:
                self.response = response

        self.observe(answer, "request")


def widget(name: str, esm: Any) -> type[Widget]:
    """Return a widget class with the synchronised traits of a view.

    The module ``esm`` (its text or its path) draws it.
    """
    traits = {
        trait.name: _TRAITLETS[type(trait.default)](trait.default, help=trait.doc).tag(sync=True)
        for trait in TRAITS
    }
    members = {"__doc__": f"The widget {name}.", "__module__": __name__, **traits}
    return type(name, (Widget,), {**members, "_esm": esm})


GraphWidget = widget("GraphWidget", module_path("graph"))
DiffWidget = widget("DiffWidget", module_path("diff"))
CodeWidget = widget("CodeWidget", module_path("code"))
MemoryWidget = widget("MemoryWidget", module_path("memory"))
TimelineWidget = widget("TimelineWidget", module_path("timeline"))
