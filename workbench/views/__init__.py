"""What each view shows, as plain data: one file a view, a function of the recording and the sight.

`workbench.state.VIEWS` lists them.  A view's module has

``key(run, sight)``              what its data depend on, hashable;
``data(run, sight)``             what its browser module draws: JSON-able data with NumPy arrays;
``selection(run, sight)``        (where it has one) the selection as that module knows it;
``answer(run, sight, request)``  (where it has one) the answer to what the browser asks.

One that compares (``View.pair``) has ``key`` and ``data`` of ``(run, sight, other)`` and ``answer``
of ``(run, sight, request, other)``; ``other`` is None while nothing is compared.  Where it has
``choices(entries)``, that says which recordings of the library it can be given.  ``Empty`` says why
there is nothing to show, and what to do.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from workbench.state import VIEWS, Sight


def module(name: str) -> ModuleType:
    """The module of view ``name``."""
    return import_module(f"workbench.views.{name}")


def key(name: str, run: Any, sight: Sight, other: Any = None) -> Hashable:
    """What the data of view ``name`` depend on."""
    made = module(name)
    if VIEWS[name].pair:
        return name, other and other.path, made.key(run, sight, other)
    return name, made.key(run, sight)


def data(name: str, run: Any, sight: Sight, other: Any = None) -> dict[str, Any]:
    """The data of view ``name``; `Empty` where there is nothing to show."""
    made = module(name)
    return made.data(run, sight, other) if VIEWS[name].pair else made.data(run, sight)


def answer(
    name: str, run: Any, sight: Sight, request: Mapping[str, Any], other: Any = None
) -> Any:  # fmt: skip
    """What view ``name`` answers to its browser module."""
    made = module(name)
    if VIEWS[name].pair:
        return made.answer(run, sight, request, other)
    return made.answer(run, sight, request)


class Empty(Exception):
    """There is nothing to show: ``what`` says why, ``fix`` what would bring something, and ``do``
    is the page's command that does it, if there is one (``again``, ``execute``)."""

    def __init__(self, what: str, fix: str = "", do: str = ""):
        super().__init__(f"{what} {fix}".strip())
        self.message = {"what": what, "fix": fix, "do": do}
