"""The page's components for Panel: the views of `widgets` and the page's own modules."""

from __future__ import annotations

import json
from pathlib import Path

import param
from panel.custom import AnyWidgetComponent

from widgets.panel_host import DiffView, GraphView, MemoryView, SourceView
from widgets.views import module_path

HERE = Path(__file__).parent
#: Own modules by name; those of `widgets` are bundles.
_OWN = {
    "bar": HERE / "bar.js", "start": HERE / "start.js",
    **{name: HERE.parent / "views" / f"{name}.js"
       for name in ("passes", "inspector", "overview", "kernels")},
}  # fmt: skip
_BUNDLED = ("graph", "diff", "source", "memory")
#: What Panel is given for a component.  The module itself comes from the server by its own address:
#: Panel would send it inside every page and compile it there, half a second for all of them.
_STUB = """
export default { render({ model, el }) {
  const name = NAME;
  let undo = null, over = false;
  const draw = (module) => {
    if (over) return;
    undo = module.default.render({ model, el });
    document.dispatchEvent(new CustomEvent('cw-drawn', { detail: name }));
  };
  const failed = (error) => {
    const note = document.createElement('p');
    note.textContent = `This part of the page did not load (${error.message}). Reload the page.`;
    el.append(note);
  };
  const load = () => {
    model.off('change:data', load);
    window.cwModule(name).then(draw).catch(failed);
  };
  if (model.get('data')) load();
  else model.on('change:data', load);
  return () => { over = true; if (undo) undo(); };
} };
"""


def module_text(name: str) -> str:
    """The ES module of a component."""
    if name in _BUNDLED:
        return module_path(name).read_text(encoding="utf-8")
    shared = (HERE / "dom.js").read_text(encoding="utf-8")
    return shared + _OWN[name].read_text(encoding="utf-8")


MODULE_NAMES = (*_OWN, *_BUNDLED)


class Prompt(AnyWidgetComponent):
    """Fetches its module when it has something to show, and is acted on at once: Panel otherwise
    waits 50 ms for more of what the browser writes."""

    __abstract = True
    _debounce = 0
    _bundle_path = None
    _stylesheets = []  # noqa: RUF012  # as Panel declares it


def _stub(name: str) -> str:
    return _STUB.replace("NAME", json.dumps(name))


class Own(Prompt):
    """A module of the page: ``data``, ``detail`` (JSON) go to it, ``command`` (JSON) comes back."""

    __abstract = True

    data = param.String(default="")
    detail = param.String(default="")
    selection = param.Dict(default={})
    command = param.String(default="")


class Bar(Own):
    _esm = _stub("bar")


class Start(Own):
    _esm = _stub("start")


class Rail(Own):
    _esm = _stub("passes")


class Inspector(Own):
    _esm = _stub("inspector")


class Overview(Own):
    _esm = _stub("overview")


class Kernels(Own):
    _esm = _stub("kernels")


class Graph(Prompt, GraphView):
    """The graph of `widgets`."""

    _esm = _stub("graph")


class Diff(Prompt, DiffView):
    """The diff of `widgets`."""

    _esm = _stub("diff")


class Source(Prompt, SourceView):
    """The source of `widgets`."""

    _esm = _stub("source")


class Memory(Prompt, MemoryView):
    """The memory map of `widgets`."""

    _esm = _stub("memory")


#: What stands around the views.
FRAME = {"bar": Bar, "rail": Rail, "inspector": Inspector, "start": Start}
#: The views by name; those of `widgets` also tell their own state and ask for more.
VIEWS = {
    "overview": Overview, "graph": Graph, "diff": Diff, "kernels": Kernels, "source": Source,
    "memory": Memory,
}  # fmt: skip
