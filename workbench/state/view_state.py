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
    """A view that a pane can show; `workbench.views.NAME` says what it shows.

    ``key``     shows it on the page, after ``g``.
    ``bundle``  the module of `widgets` that draws it, else ``workbench/views/NAME.js``.
    ``wide``    it wants the whole width: a pane beside it goes below.
    ``pair``    it also takes the recording that is compared with (``ViewState.other``).
    ``two``     it can show that recording too, where the user asks for it: the titles of the
                switch, without and with it.
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
#: Pane layouts by key: what stands in the left and the right pane.
PRESETS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "1": ("Step", ("graph", "diff")),
    "2": ("Speed", ("kernels", "code")),
    "3": ("Memory", ("memory", "graph")),
    "4": ("Numbers", ("numerics", "diff")),
    "5": ("Train", ("training", "graph")),
    "0": ("Overview", ("overview",)),
}
#: What is remembered of a view that shows two recordings; it is the page's, not the view's own.
TWO = "ab"
#: Longest text of one part of the URL that is read, but of what views remember
#: (:mod:`workbench.state.url_text`).
MAX_TEXT = 4000
_VIEW = ".view"
_HALF = re.compile("[\ud800-\udfff]")

_NUMBERS = ("stage", "rewrite", "op", "buffer", "kernel", "zoom", "skip")
_SHELVES = ("trend", "trash", "uploads")


@dataclass(frozen=True)
class ViewState:
    """What the page shows.

    ``run``: the recording; ``other``: the one it is compared with; ``stage``: a stage of it (None:
    the first that changed something); ``rewrite``: a rewrite of that stage, counted from 0; ``op``,
    ``buffer``, ``kernel``: ids of the recording; ``scope``: a module path; ``panes``: one or two
    views; ``zoom``: the pane that is maximised; ``fold``: side columns folded away; ``stops``:
    breakpoints (:mod:`workbench.queries.breakpoints`); ``views``: what each view remembers, as
    JSON. Of the first page: ``find``: what is searched in the library; ``skip``: how many runs
    stand before those that are listed; ``shelf``: what is shown of them, ``trend``, ``trash`` or
    ``uploads``.
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
        """What view ``name`` remembers replaced by the JSON ``text``."""
        kept = tuple((n, t) for n, t in self.views if n != name)
        return replace(self, views=tuple(sorted((*kept, (name, text)))) if text else kept)

    def remembered(self, name: str) -> dict[str, Any]:
        """What view ``name`` remembers; {} where its text makes no sense."""
        found = _json(self.remembered_text(name) or "{}")
        return found if isinstance(found, dict) else {}

    def own_state(self, name: str) -> dict[str, Any]:
        """What view ``name`` itself remembers, without the page's switch to two recordings."""
        return {k: v for k, v in self.remembered(name).items() if k != TWO}

    def remember(self, name: str, state: Mapping[str, Any]) -> ViewState:
        """View ``name`` remembers ``state``; whether it shows two recordings stays, unless that is
        said too."""
        return self._keep(name, {TWO: self.shows_two(name), **state})

    def shows_two(self, name: str) -> bool:
        """Whether view ``name`` shows the recording that is compared with, where there is one."""
        return VIEWS[name].two is not None and self.remembered(name).get(TWO) is True

    def with_two(self, name: str, both: bool) -> ViewState:
        """View ``name`` shows two recordings, or only this one."""
        return self._keep(name, {**self.remembered(name), TWO: both})

    def _keep(self, name: str, state: Mapping[str, Any]) -> ViewState:
        kept = {k: v for k, v in state.items() if k != TWO or v}
        return self.with_view(name, json.dumps(kept, separators=(",", ":")) if kept else "")

    def select(self, **chosen) -> ViewState:
        """Another thing selected: what was selected before is forgotten, the place stays."""
        empty = {"op": None, "buffer": None, "kernel": None, "scope": ""}
        return replace(self, **{**empty, **chosen})

    def outside(self) -> ViewState:
        """The first page of this state: what it searches in the library."""
        return ViewState(find=self.find, skip=self.skip, shelf=self.shelf)

    def remembered_text(self, name: str) -> str:
        return dict(self.views).get(name, "")

    def query(self) -> str:
        """The URL's query, without the question mark; parts that say nothing new are left out."""
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
        """The view state of a URL's query.  A URL is untrusted: what makes no sense is left out."""
        try:
            given = parse_qsl(query.lstrip("?"), max_num_fields=50)
        except ValueError:
            return ViewState()
        return ViewState.of({
            name: url_text.full(text) if name.endswith(_VIEW) else text
            for name, text in given if name.endswith(_VIEW) or len(text) <= MAX_TEXT
        })  # fmt: skip

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
    """The texts of a JSON list that an address can hold (half a surrogate pair it cannot); none
    where it is something else."""
    found = _json(text)
    texts = (t for t in found if isinstance(t, str)) if isinstance(found, list) else ()
    return tuple(t for t in texts if not _HALF.search(t))


def _json(text: str) -> Any:
    """The value of a JSON text; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
