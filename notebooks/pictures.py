"""Pictures of the widgets of an executed notebook, for those who read it without running it: the
widgets' own modules draw what the notebook's saved state holds, in a headless Chromium."""

from __future__ import annotations

import html
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from widgets import colours
from widgets.static_host import script_safe

STATE = "application/vnd.jupyter.widget-state+json"
WIDTH = 1120
#: Colours of a picture: it stays small, and the views have few.
COLOURS = 96
#: How long a view may take to draw (milliseconds).
PATIENCE = 60_000

_PAGE = """<!doctype html><meta charset="utf-8"><style>{css}
body {{ margin: 0; font: 13px/1.45 var(--sans); background: var(--page); color: var(--text); }}
.row {{ display: flex; gap: 6px; }} .column {{ display: flex; flex-direction: column; gap: 6px; }}
.row > *, .column > * {{ min-width: 0; }} .row > * {{ flex: 1 1 0; }} .column > * {{ flex: none; }} .leaf {{ overflow: hidden; }}
</style><body data-theme="light"><div id="all">{body}</div>
<script type="application/json" id="models">{models}</script>{modules}
<script type="module">
const bytes = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const modules = {{}};
for (const script of document.querySelectorAll('script[data-module]')) {{
  const url = URL.createObjectURL(new Blob([script.textContent], {{ type: 'text/javascript' }}));
  modules[script.dataset.module] = (await import(url)).default;
}}
for (const [id, {{ module, traits, blob }}] of Object.entries(JSON.parse(document.getElementById('models').textContent))) {{
  const values = {{ ...traits, blob: bytes(blob) }};
  const model = {{ get: (name) => values[name], set: (name, value) => {{ values[name] = value; }}, save_changes() {{}}, on() {{}}, off() {{}}, send() {{}} }};
  const root = document.createElement('div');
  root.style.height = '100%';
  document.getElementById(id).attachShadow({{ mode: 'open' }}).append(root);
  modules[module].render({{ model, el: root }});
}}
document.body.dataset.ready = 'yes';
</script>"""  # noqa: E501


class Pictures:
    """Takes them with the Chromium of this machine (see :func:`opened`)."""

    def __init__(self, browser: Any):
        self._browser = browser

    def of(self, model: str, state: Mapping[str, Any]) -> bytes | None:
        """What the widget ``model`` shows, as PNG; None where none of our views is in it."""
        page_text = _page(model, state)
        if page_text is None:
            return None
        page = self._browser.new_page(viewport={"width": WIDTH, "height": 800})
        try:
            page.set_content(page_text)
            page.wait_for_selector("body[data-ready]", timeout=PATIENCE)
            page.wait_for_timeout(1200)
            return _small(page.locator("#all").screenshot())
        finally:
            page.close()


@contextmanager
def opened() -> Iterator[Pictures]:
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("google-chrome")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=options)
        yield Pictures(browser)
        browser.close()


def _page(model: str, state: Mapping[str, Any]) -> str | None:
    leaves: dict[str, dict[str, Any]] = {}
    modules: dict[str, str] = {}
    body = _element(model, state, leaves, modules)
    if not leaves:
        return None
    scripts = "".join(
        f'<script type="text/plain" data-module="{name}">{script_safe(text)}</script>'
        for name, text in modules.items()
    )
    held = json.dumps(leaves).replace("<", "\\u003c")
    return _PAGE.format(css=colours.css(), body=body, models=held, modules=scripts)


def _element(
    model: str, state: Mapping[str, Any], leaves: dict[str, dict[str, Any]], modules: dict[str, str]
) -> str:
    """The HTML of a widget: boxes as they are nested, our views at their heights; controls, which
    do nothing in a picture, are left out."""
    entry = state[model]
    traits = entry["state"]
    layout = _layout(traits, state)
    if layout.get("display") == "none":
        return ""
    if "_esm" in traits:
        text = str(traits["_esm"])
        name = next((n for n, known in modules.items() if known == text), f"m{len(modules)}")
        modules[name] = text
        buffers = {"/".join(map(str, b["path"])): b["data"] for b in entry.get("buffers", ())}
        kept = {k: v for k, v in traits.items() if not k.startswith("_") and k != "layout"}
        leaves[model] = {
            "module": name,
            "traits": {**kept, "theme": "light"},
            "blob": buffers.get("blob", ""),
        }
        height = html.escape(str(layout.get("height") or "460px"))
        return f'<div class="leaf" id="{model}" style="height: {height}"></div>'
    children = [c.removeprefix("IPY_MODEL_") for c in traits.get("children", ())]
    made = [m for m in (_element(c, state, leaves, modules) for c in children) if m]
    if not made:
        return ""
    kind = "row" if entry["model_name"] == "HBoxModel" else "column"
    wide = layout.get("width") or ""
    style = f' style="flex: 0 0 {html.escape(wide)}"' if wide.endswith("px") else ""
    return f'<div class="{kind}"{style}>{"".join(made)}</div>'


def _layout(traits: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
    found = state.get(str(traits.get("layout", "")).removeprefix("IPY_MODEL_"), {})
    layout: Mapping[str, Any] = found.get("state", {})
    return layout


def _small(png: bytes) -> bytes:
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS)
    made = io.BytesIO()
    picture.save(made, "PNG", optimize=True)
    return made.getvalue()
