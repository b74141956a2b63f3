"""The one table of views and of the traits that every host synchronises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BUNDLE = Path(__file__).parent / "bundle"

VIEWS = ("graph", "diff", "code", "memory", "timeline")


@dataclass(frozen=True)
class Trait:
    """A synchronised value; `default` also determines its type (str, bytes or dict)."""

    name: str
    default: str | bytes | dict
    doc: str


TRAITS = (
    Trait("data", "", "What to show, as JSON text; see README.md for each view's schema."),
    Trait("blob", b"", "Typed arrays which `data` points into, behind an 8-byte header."),
    Trait("selection", {}, "The selection shared by all views: op, scope, buffer, kernel, line."),
    Trait("state", {}, "What the user set in this view (open scopes, overlay, mode), for the URL."),
    Trait("theme", "auto", "'light', 'dark' or 'auto' (follow the page, then the system)."),
    Trait("detail", "", "More of what `data` shows that changes more often, as JSON text."),
    Trait("command", "", "What the user asks for, as JSON text with a `name` and a number `n`."),
    Trait("request", "", "JSON list of the browser's open requests, each with a number `id`."),
    Trait("response", "", "JSON list of answers, each with the `id` of its request."),
)


def module_path(view: str) -> Path:
    """Return the built ES module of a view; FileNotFoundError states how to build it."""
    if view not in VIEWS:
        raise ValueError(f"no view named {view!r}; there are {', '.join(VIEWS)}")
    path = BUNDLE / f"{view}.js"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path.name} is not built; run `python -m widgets.build` in a checkout, "
            "or reinstall the package"
        )
    return path
