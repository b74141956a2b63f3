"""The browser modules: bundles of `widgets`, and the plain JavaScript of the views.

The text of a plain module follows the glossary and the shared helpers (``views/dom.js``,
``views/downloads.js``); it needs no bundler.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from widgets import colours
from widgets.views import module_path
from workbench.state import glossary
from workbench.state.view_state import VIEWS

HERE = Path(__file__).parent
WORKBENCH = HERE.parent
VIEW_FILES = WORKBENCH / "views"
#: Plain modules by name: components around the views, and views that no bundle draws.
_PLAIN = {
    **{name: (WORKBENCH / "app" / f"{name}.js",) for name in ("bar", "tour")},
    "start": (WORKBENCH / "app" / "runs.js", WORKBENCH / "app" / "start.js"),
    **{
        name: (VIEW_FILES / f"{name}.js",)
        for name in ("passes", "inspector", *(n for n, view in VIEWS.items() if not view.bundle))
    },
    **{
        name: (VIEW_FILES / "pair_table.js", VIEW_FILES / f"{name}.js")
        for name, view in VIEWS.items()
        if view.two and not view.bundle
    },
    "numerics": tuple(
        VIEW_FILES / f"{part}.js"
        for part in ("pair_table", "numerics_pair", "numerics_lost", "numerics")
    ),
}
NAMES = tuple(dict.fromkeys((*_PLAIN, *VIEWS)))
#: The helpers shared by every plain module.
SHARED = ("dom", "downloads")


def module_text(name: str) -> str:
    """Return the ES module that draws a component."""
    if name not in _PLAIN:
        return module_path(VIEWS[name].bundle).read_text(encoding="utf-8")
    return shared_text() + "".join(part.read_text(encoding="utf-8") for part in _PLAIN[name])


@cache
def shared_text() -> str:
    """Return the text that precedes every plain module: the glossary and the helpers."""
    known = json.dumps(glossary.plain(), ensure_ascii=False)
    helpers = (VIEW_FILES / f"{name}.js" for name in SHARED)
    texts = [path.read_text(encoding="utf-8") for path in helpers]
    return "\n".join([f"const GLOSSARY = {known};", *texts])


def palette() -> str:
    """Return the colours, fonts and dimensions of plain modules as CSS variables of ``:root``.

    Colours are light and dark.
    """
    return colours.css() + (HERE / "palette.css").read_text(encoding="utf-8")


def standalone_text(name: str) -> str:
    """Return the ES module that draws a component on any page.

    It includes the colours and draws into a shadow root, so that its styles and those of the page
    do not affect each other.
    """
    if name not in _PLAIN:
        return module_text(name)
    style = palette().replace(":root", ":host")
    style = style.replace("[data-theme=dark]", ":host([data-theme=dark])")
    view = module_text(name).replace("export default component(", "const drawn = component(")
    hosted = (HERE / "hosted.js").read_text(encoding="utf-8")
    return f"{view}\nconst PALETTE = {json.dumps(style)};\n{hosted}"
