"""The views as notebook widgets: `GraphWidget`, `DiffWidget`, `SourceWidget`, `MemoryWidget`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from widgets.encode import pack
from widgets.requests import Handler, Requests
from widgets.views import TRAITS, module_path

_TRAITLETS = {str: traitlets.Unicode, bytes: traitlets.Bytes, dict: traitlets.Dict}


class _Widget(anywidget.AnyWidget):
    """Shared behaviour; the synchronised traits come from `widgets.views.TRAITS`."""

    def show(self, data: Mapping[str, Any]) -> None:
        """Show `data` (the view's schema in README.md; numpy arrays travel as bytes)."""
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


def _widget(name: str, view: str) -> type[_Widget]:
    traits = {
        trait.name: _TRAITLETS[type(trait.default)](trait.default, help=trait.doc).tag(sync=True)
        for trait in TRAITS
    }
    members = {"__doc__": f"The {view} view.", "__module__": __name__, **traits}
    return type(name, (_Widget,), {**members, "_esm": module_path(view)})


GraphWidget = _widget("GraphWidget", "graph")
DiffWidget = _widget("DiffWidget", "diff")
SourceWidget = _widget("SourceWidget", "source")
MemoryWidget = _widget("MemoryWidget", "memory")
