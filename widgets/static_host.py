"""The views on one self-contained HTML page: reports, and the browser tests of this package."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from widgets import colours
from widgets.encode import pack
from widgets.views import TRAITS, module_path

# The page must not communicate: no connections of any kind, scripts only from the page itself.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src 'none'; connect-src 'none'; form-action 'none'; base-uri 'none'"
)

_STYLE = """
html, body { margin: 0; height: 100%; }
body { font: 13px/1.45 var(--sans); background: var(--page); color: var(--text); }
main { display: grid; gap: 8px; padding: 8px; box-sizing: border-box; min-height: 100%;
  grid-auto-rows: minmax(420px, 1fr); }
main.one { height: 100%; padding: 0; }
section { min-width: 0; min-height: 0; display: flex; flex-direction: column; }
section > h2 { font-size: 13px; margin: 4px 2px; font-weight: 600; }
section > div { flex: 1; min-height: 0; }
"""

_SCRIPT = """
const boot = JSON.parse(document.getElementById('boot').textContent);
const SHARED = ['selection'];
const models = [];
const bytes = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);

function makeModel(traits) {
  const values = {...traits};
  const listeners = new Map();
  const fire = (name) => (listeners.get('change:' + name) || []).slice().forEach((f) => f());
  const changed = new Set();
  const model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; changed.add(name); fire(name); },
    save_changes: () => {
      for (const name of changed) {
        if (!SHARED.includes(name)) continue;
        for (const other of models) if (other !== model) other.receive(name, values[name]);
      }
      changed.clear();
    },
    receive: (name, value) => { values[name] = value; fire(name); },
    on: (event, f) => listeners.set(event, [...(listeners.get(event) || []), f]),
    off: (event, f) => listeners.set(event, (listeners.get(event) || []).filter((g) => g !== f)),
  };
  return model;
}

const modules = {};
for (const script of document.querySelectorAll('script[data-view]')) {
  const url = URL.createObjectURL(new Blob([script.textContent], {type: 'text/javascript'}));
  modules[script.dataset.view] = (await import(url)).default;
  URL.revokeObjectURL(url);
}
for (const view of boot.views) models.push(makeModel({...view.traits, blob: bytes(view.blob)}));
window.workbench = {models};
boot.views.forEach((view, i) => {
  const el = document.getElementById('view-' + i).attachShadow({mode: 'open'});
  const root = document.createElement('div');
  root.style.height = '100%';
  el.append(root);
  modules[view.name].render({model: models[i], el: root});
});
document.body.dataset.ready = 'yes';
"""


def page(
    views: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    title: str = "Compiler Workbench",
    headings: Sequence[str] = (),
    theme: str = "auto",
    selection: Mapping[str, Any] | None = None,
    state: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return one HTML page that shows `views`, each `(view name, data)`, with one common selection.

    The page contains the modules and the data, needs no server and can reach none. `headings` and
    `state` correspond to the views by position; `theme` is 'light', 'dark' or 'auto'.
    """
    defaults = {trait.name: trait.default for trait in TRAITS if trait.name != "blob"}
    entries, sections = [], []
    for i, (name, data) in enumerate(views):
        text, blob = pack(data)
        traits = {
            **defaults,
            "data": text,
            "theme": theme,
            "selection": dict(selection or {}),
            "state": dict(state[i]) if i < len(state) else {},
        }
        entries.append(
            {"name": name, "traits": traits, "blob": base64.b64encode(blob).decode("ascii")}
        )
        heading = f"<h2>{html.escape(headings[i])}</h2>" if i < len(headings) else ""
        sections.append(f'<section>{heading}<div id="view-{i}"></div></section>')
    modules = "".join(
        f'<script type="text/plain" data-view="{name}">{script_safe(_source(name))}</script>\n'
        for name in sorted({name for name, _ in views})
    )
    boot = json.dumps({"views": entries}, allow_nan=False).replace("<", "\\u003c")
    layout = "one" if len(views) == 1 else "many"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{html.escape(title)}</title><style>{colours.css()}{_STYLE}</style></head>\n"
        f'<body data-theme="{html.escape(theme)}"><main class="{layout}">{"".join(sections)}'
        f'</main>\n<script type="application/json" id="boot">{boot}</script>\n{modules}'
        f'<script type="module">{_SCRIPT}</script></body></html>\n'
    )


def _source(view: str) -> str:
    return module_path(view).read_text(encoding="utf-8")


def script_safe(source: str) -> str:
    """Return JavaScript that cannot end its script element early."""
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")
