"""One table of colours: nothing else names any, and what is written can be read in both themes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from widgets import colours
from workbench.ui import browser_modules

ROOT = Path(colours.__file__).parents[1]
HEX = re.compile(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b")
INTERFACE = colours.table()["interface"]
#: Black that is no colour: a mask, and what an SVG has before it has any.
MASKS = {"widgets/src/graph/crumbs.ts", "widgets/src/graph/panel.ts", "widgets/src/shared/pen.ts"}


def contrast(a: str, b: str) -> float:
    """Of two colours, as WCAG 2 defines it: 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (
            p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(a), luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_can_be_read_on_every_ground(theme):
    grounds = [INTERFACE[name][theme] for name in ("page", "surface", "raised", "accentSoft")]
    names = ("text", "muted", "faint", "accent", "added", "removed", "changed", "moved", "bad")
    texts = {name: INTERFACE[name][theme] for name in names}
    texts |= {f"syntax {name}": pair[theme] for name, pair in colours.table()["syntax"].items()}
    for name, text in texts.items():
        for ground in grounds:
            assert contrast(text, ground) >= 4.5, f"{name} {text} on {ground}"
    for section in ("launches", "buffers"):
        for name, pair in colours.table()[section].items():
            ink = colours.table()["ink"]["onArea"][theme]
            assert contrast(ink, pair[theme]) >= 3, f"the label of {section} {name}"


def test_no_source_names_a_colour_of_its_own():
    sources = [
        path
        for folder in ("widgets/src", "widgets", "workbench")
        for end in ("ts", "js", "css", "html", "py")
        for path in (ROOT / folder).rglob(f"*.{end}")
        if "node_modules" not in path.parts and "bundle" not in path.parts
    ]
    assert len(sources) > 100
    found = {}
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        own = {
            colour
            for colour in HEX.findall(path.read_text(encoding="utf-8"))
            if not (colour == "#000" and name in MASKS)
        }
        if own:
            found[name] = own
    # A page that is shown before anybody has signed in brings its own, the same.
    table = {colour for pair in INTERFACE.values() for colour in pair}
    assert found.pop("workbench/app/sign_in.html") <= table
    assert found == {}


def test_pages_have_the_table_as_variables():
    text = browser_modules.palette()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w+);", part))
        for part in text.split("[data-theme=dark]")[:2]
    )
    assert {name: [light[name], dark[name]] for name in INTERFACE} == INTERFACE
    assert {"hl-k", "phase-backward"} <= light.keys() == dark.keys()
    hosted = browser_modules.standalone_text("overview")
    assert f"--page: {INTERFACE['page'][1]}" in hosted and ":root" not in hosted
