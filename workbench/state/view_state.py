"""The one selection that all views share, and its form in the URL: a link opens the same state."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from workbench.state import url_text


@dataclass(frozen=True)
class View:
    """A view that a pane can show; `workbench.views.NAME` makes its data.

    ``key``     shows it on the page, after ``g``.
    ``bundle``  the module of `widgets` that draws it, else ``workbench/views/NAME.js``.
    ``wide``    it needs the whole width: a pane beside it goes below.
    ``pair``    it also takes the recording that is compared with (``ViewState.other``).
    ``two``     it can show both recordings, on the user's request: the titles of the switch, for
                one and for both.
    """

    title: str
    key: str
    bundle: str = ""
    wide: bool = False
    pair: bool = False
    two: tuple[str, str] | None = None


#: The titles of the switch between this recording and both.
BOTH = ("A", "A | B")

#: The views in the order of their tabs.
VIEWS: Mapping[str, View] = {
    "overview": View("Overview", "o", two=BOTH),
    "graph": View("Graph", "g", "graph", two=BOTH),
    "diff": View("IR diff", "d", "diff", two=("previous pass", "other run")),
    "rewrites": View("Rewrites", "r", wide=True, two=BOTH),
    "source": View("Source", "s", wide=True, two=BOTH),
    "kernels": View("Kernels", "k", wide=True, two=BOTH),
    "code": View("Code", "c", "code", wide=True, two=BOTH),
    "memory": View("Memory", "m", "memory", wide=True, two=BOTH),
    "timeline": View("Timeline", "t", "timeline", wide=True, two=BOTH),
    "numerics": View("Numbers", "n", two=BOTH),
    "bisect": View("First bad pass", "f", two=BOTH),
    "training": View("Training", "i", wide=True, pair=True),
    "divergence": View("Divergence", "v", wide=True, pair=True),
    "pipeline": View("Pipeline", "p", wide=True, pair=True),
    "compare": View("Compare", "a", wide=True, pair=True),
}
#: Pane layouts by key: the views in the left and the right pane.
PRESETS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "1": ("Step", ("graph", "diff")),
    "2": ("Speed", ("kernels", "code")),
    "3": ("Memory", ("memory", "graph")),
    "4": ("Numbers", ("numerics", "diff")),
    "5": ("Train", ("training", "graph")),
    "0": ("Overview", ("overview",)),
}
#: The remembered switch of a view to two recordings; it is the page's, not the view's own.
TWO = "ab"
#: The maximum length of one part of the URL, except the remembered state of views
#: (:mod:`workbench.state.url_text`).
MAX_TEXT = 4000
_VIEW = ".view"
_SURROGATE = re.compile("[\ud800-\udfff]")

_NUMBERS = ("stage", "rewrite", "op", "buffer", "kernel", "zoom", "skip")
_SHELVES = ("trend", "trash", "uploads")


@dataclass(frozen=True)
class ViewState:
    """The state of the page.

    ``run``: the recording; ``other``: the one it is compared with; ``stage``: a stage of it (None:
    the first that changed something); ``rewrite``: a rewrite of that stage, counted from 0;
    ``op``, ``buffer``, ``kernel``: ids of the recording; ``scope``: a module path; ``panes``: one
    or two views; ``zoom``: the pane that is maximised; ``fold``: side columns folded away;
    ``stops``: breakpoints (:mod:`workbench.queries.breakpoints`); ``views``: the remembered state
    of each view, as JSON.

    On the start page: ``find``: the query on the library; ``skip``: the number of runs before the
    listed ones; ``shelf``: an additional list, ``trend``, ``trash`` or ``uploads``.
    """

    run: str = ""
    other: str = ""
    stage: int | None = None
    rewrite: int | None = None
    op: int | None = None
    buffer: int | None = None
    kernel: int | None = None
    scope: str = ""
    panes: tuple[str, ...] = ("overview",)
    zoom: int | None = None
    fold: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    find: str = ""
    skip: int | None = None
    shelf: str = ""
    views: tuple[tuple[str, str], ...] = ()

    def with_(self, **changes) -> ViewState:
        return replace(self, **changes)

    def with_view(self, name: str, text: str) -> ViewState:
        """Replace the remembered state of view ``name`` by the JSON ``text``."""
        kept = tuple((n, t) for n, t in self.views if n != name)
        return replace(self, views=tuple(sorted((*kept, (name, text)))) if text else kept)

    def remembered(self, name: str) -> dict[str, Any]:
        """Return the remembered state of view ``name``; {} if its text is invalid."""
        found = _json(self.remembered_text(name) or "{}")
        return found if isinstance(found, dict) else {}

    def own_state(self, name: str) -> dict[str, Any]:
        """Return the remembered state of view ``name`` without the switch to two recordings."""
        return {k: v for k, v in self.remembered(name).items() if k != TWO}

    def remember(self, name: str, state: Mapping[str, Any]) -> ViewState:
        """Set the remembered state of view ``name``.

        The switch to two recordings stays unless included.
        """
        return self._keep(name, {TWO: self.shows_two(name), **state})

    def shows_two(self, name: str) -> bool:
        """Return whether view ``name`` shows the recording compared with, if there is one."""
        return VIEWS[name].two is not None and self.remembered(name).get(TWO) is True

    def with_two(self, name: str, both: bool) -> ViewState:
        """Switch view ``name`` to two recordings, or to this one only."""
        return self._keep(name, {**self.remembered(name), TWO: both})

    def _keep(self, name: str, state: Mapping[str, Any]) -> ViewState:
        kept = {k: v for k, v in state.items() if k != TWO or v}
        return self.with_view(name, json.dumps(kept, separators=(",", ":")) if kept else "")

    def select(self, **chosen) -> ViewState:
        """Replace the selection; the stage and the panes stay."""
        empty = {"op": None, "buffer": None, "kernel": None, "scope": ""}
        return replace(self, **{**empty, **chosen})

    def without_run(self) -> ViewState:
        """Return the start page for this state, with its query on the library."""
        return ViewState(find=self.find, skip=self.skip, shelf=self.shelf)

    def remembered_text(self, name: str) -> str:
        return dict(self.views).get(name, "")

    def query(self) -> str:
        """Return the URL's query, without the question mark and without default values."""
        parts: list[tuple[str, str]] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name == "views":
                shown = ((name, url_text.short(text)) for name, text in value)
                parts += [(f"{name}{_VIEW}", text) for name, text in shown if text]
            elif field.name == "stops":
                parts.append(("stops", json.dumps(value, ensure_ascii=False)))
            elif isinstance(value, tuple):
                parts.append((field.name, ",".join(value)))
            else:
                parts.append((field.name, str(value)))
        return urlencode(parts, errors="replace")

    @staticmethod
    def parse(query: str) -> ViewState:
        """Return the view state of a URL's query.

        A URL is untrusted, and invalid parts are ignored.
        """
        try:
            given = parse_qsl(query.lstrip("?"), max_num_fields=50)
        except ValueError:
            return ViewState()
        return ViewState.of(
            {
                name: url_text.full(text) if name.endswith(_VIEW) else text
                for name, text in given
                if name.endswith(_VIEW) or len(text) <= MAX_TEXT
            }
        )

    @staticmethod
    def of(parts: Mapping[str, str]) -> ViewState:
        known: dict = {name: _number(parts[name]) for name in _NUMBERS if name in parts}
        known |= {name: parts[name] for name in ("run", "other", "scope", "find") if name in parts}
        panes = tuple(dict.fromkeys(p for p in parts.get("panes", "").split(",") if p in VIEWS))
        known["panes"] = panes[:2] or ("overview",)
        fold = parts.get("fold", "").split(",")
        known["fold"] = tuple(n for n in ("rail", "inspector") if n in fold)
        if known.get("zoom") is not None and known["zoom"] >= len(known["panes"]):
            known["zoom"] = None
        known["shelf"] = parts.get("shelf", "") if parts.get("shelf") in _SHELVES else ""
        known["stops"] = _texts(parts.get("stops", "[]"))
        views = ((name, parts.get(f"{name}{_VIEW}", "")) for name in sorted(VIEWS))
        known["views"] = tuple((name, text) for name, text in views if text)
        return ViewState(**known)


def _texts(text: str) -> tuple[str, ...]:
    """Return the texts of a JSON list that an address can contain.

    Texts with lone surrogates are dropped; anything but a list returns ().
    """
    found = _json(text)
    texts = (t for t in found if isinstance(t, str)) if isinstance(found, list) else ()
    return tuple(t for t in texts if not _SURROGATE.search(t))


def _json(text: str) -> Any:
    """Return the value of a JSON text; None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
