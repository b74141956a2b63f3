"""The page's components for Panel: the views of `widgets` and the page's own modules."""

from __future__ import annotations

import json
from typing import Any

import param

from widgets.panel_host import View, component
from workbench.state.view_state import VIEWS

#: The module that Panel gets for a component.  It imports the real one from its own URL: Panel
#: would embed that in every page and compile it there, half a second for all of them.
_STUB = """
export default { render({ model, el }) {
  const name = NAME;
  let undo = null, over = false;
  const drawn = () => document.dispatchEvent(new CustomEvent('cw-drawn', { detail: name }));
  const draw = (module) => {
    if (over) return;
    undo = module.default.render({ model, el });
    drawn();
  };
  const failed = (error) => {
    const note = document.createElement('p');
    note.textContent = `This part of the page did not load (${error.message}). Reload the page.`;
    el.append(note);
    drawn();  // the page waits for it no longer
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


class Prompt(View):
    """A component that loads its module when it has something to show and reacts at once.

    Panel otherwise waits 50 ms for further values from the browser.
    """

    __abstract = True
    _debounce = 0
    _bundle_path = None
    _stylesheets = []  # noqa: RUF012  # as Panel declares it


class Beating(Prompt):
    """A component with the page's heartbeat."""

    __abstract = True
    beat = param.Integer(default=0, doc="counts messages that say nothing")


def _component(name: str, module: str, base: type = Prompt) -> Any:
    return component(name.title(), _STUB.replace("NAME", json.dumps(module)), base)


#: The components around the views.
FRAME = {
    "bar": _component("bar", "bar", Beating),
    "rail": _component("rail", "passes"),
    "inspector": _component("inspector", "inspector"),
    "start": _component("start", "start"),
}
#: The views by name.
COMPONENTS = {name: _component(name, name) for name in VIEWS}
