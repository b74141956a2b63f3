"""The colours of all that is drawn, light and dark: one table, ``colours.json``.

The browser modules hold the table themselves (``src/shared/theme.ts``); pages get it here, as CSS
variables of the same names.

- ``interface``: grounds, texts, lines; the colours of changes are Okabe and Ito's
  (jfly.uni-koeln.de/color), darkened or lightened for contrast.  Every use of those also has a sign
  and a border style.
- ``syntax``: words of a program by what they are (keyword, type, value, string, number, function,
  attribute).
- ``phases``: of a training step: the light scheme of Tol (personal.sron.nl/~pault), which stays
  apart without colour vision, darker on light pages.  Names and counts stand beside every use.
- ``work``: marks of the kinds of ops; ``launches``: the same hues for areas; ``buffers``: muted
  Okabe and Ito hues for areas, in the order of a plan's categories; ``ink``: texts on areas.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

#: What the name of a section's CSS variables begins with; the others are for canvases only.
_PREFIXES = {"interface": "", "syntax": "hl-", "phases": "phase-"}


@cache
def table() -> dict[str, Any]:
    """Colours by section and name, each ``#rrggbb`` in the light and in the dark theme; and the
    font families of texts and of programs (``fonts``)."""
    return json.loads((Path(__file__).parent / "colours.json").read_text(encoding="utf-8"))


@cache
def css() -> str:
    """The variables ``--NAME`` of ``:root``, and those of a part that has ``data-theme=dark``."""
    light, dark = (
        "".join(
            f"  --{prefix}{name}: {pair[theme]};\n"
            for section, prefix in _PREFIXES.items() for name, pair in table()[section].items()
        )
        for theme in (0, 1)
    )  # fmt: skip
    fonts = "".join(f"  --{name}: {families};\n" for name, families in table()["fonts"].items())
    return f":root {{\n{light}{fonts}}}\n[data-theme=dark] {{\n{dark}}}\n"
