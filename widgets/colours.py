"""The colour table of all drawings, light and dark, in ``colours.json``.

The browser modules include the table themselves (``src/shared/theme.ts``); pages get it here, as
CSS variables of the same names.

- ``interface``: backgrounds, texts, lines; the colours of changes are Okabe and Ito's
  (jfly.uni-koeln.de/color), darkened or lightened for contrast.  Every use of those also has a sign
  and a border style.
- ``syntax``: tokens of a program by their kind (keyword, type, value, string, number, function,
  attribute).
- ``phases``: of a training step: the light scheme of Tol (personal.sron.nl/~pault), which is
  distinguishable without colour vision, darker on light pages.  Names and counts accompany every
  use.
- ``work``: marks of the kinds of ops; ``launches``: the same hues for areas; ``buffers``: muted
  Okabe and Ito hues for areas, in the order of a plan's categories; ``ink``: texts on areas.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

#: The prefixes of the CSS variables by section; other sections are for canvases only.
_PREFIXES = {"interface": "", "syntax": "hl-", "phases": "phase-"}


@cache
def table() -> dict[str, Any]:
    """Return the colours by section and name, light and dark, and the font families.

    A colour is ``#rrggbb`` in both themes; ``fonts`` are those of texts and of programs.
    """
    return json.loads((Path(__file__).parent / "colours.json").read_text(encoding="utf-8"))


@cache
def css() -> str:
    """Return the variables ``--NAME`` of ``:root``, and of ``data-theme=dark`` elements."""
    light, dark = (
        "".join(
            f"  --{prefix}{name}: {pair[theme]};\n"
            for section, prefix in _PREFIXES.items()
            for name, pair in table()[section].items()
        )
        for theme in (0, 1)
    )
    fonts = "".join(f"  --{name}: {families};\n" for name, families in table()["fonts"].items())
    return f":root {{\n{light}{fonts}}}\n[data-theme=dark] {{\n{dark}}}\n"
