"""The Panel components: `GraphView`, `DiffView`, `CodeView`, `MemoryView`, `TimelineView`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import param
from panel import state
from panel.custom import AnyWidgetComponent
from typing_extensions import override

from widgets.encode import pack
from widgets.requests import Handler, Requests
from widgets.views import TRAITS, module_path

_PARAMETERS = {str: param.String, bytes: param.Bytes, dict: param.Dict}


class View(AnyWidgetComponent):
    """Shared behaviour of the components.

    The synchronised parameters come from `widgets.views.TRAITS`.
    """

    __abstract = True

    # Panel's own `show` starts a server for one component, which no view needs: hence the ignore.
    @override
    def show(self, data: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Show `data` (the view's schema in README.md; numpy arrays are sent as bytes)."""
        text, blob = pack(data)
        self.param.update(data=text, blob=blob)

    def on_request(self, handler: Handler) -> None:
        """Answer the browser's requests with `handler(request) -> JSON value`."""
        requests = Requests(handler)

        def answer(event: Any) -> None:
            response = requests.answer(event.new)
            if response is not None:
                self.response = response

        self.param.watch(answer, "request")

    @override
    def _update_model(
        self, events: Any, msg: Any, root: Any, model: Any, doc: Any, comm: Any
    ) -> None:
        """Update the model, holding the document's events while the browser loads it.

        Panel (1.9.4) drops values set after the browser has fetched the document and before it has
        reported that all of it is drawn. It leaves held events to Bokeh, which sends them.
        """
        parameters = (events, msg, root, model, doc, comm)
        if comm is not None or state.loaded or doc.callbacks.hold_value:
            super()._update_model(*parameters)
            return
        doc.hold()
        try:
            super()._update_model(*parameters)
        finally:
            doc.unhold()


def component(name: str, esm: Any, base: type = View) -> Any:
    """Return a component class with the synchronised parameters of a view.

    The module ``esm`` (its text or its path) draws it.

    It is created at run time, so a type checker does not see a class.
    """
    parameters = {
        trait.name: _PARAMETERS[type(trait.default)](
            default=trait.default, doc=trait.doc, allow_refs=True
        )
        for trait in TRAITS
    }
    members = {"__doc__": f"The component {name}.", "__module__": __name__, **parameters}
    return type(name, (base,), {**members, "_esm": esm})


GraphView = component("GraphView", module_path("graph"))
DiffView = component("DiffView", module_path("diff"))
CodeView = component("CodeView", module_path("code"))
MemoryView = component("MemoryView", module_path("memory"))
TimelineView = component("TimelineView", module_path("timeline"))
