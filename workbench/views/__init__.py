"""What each view shows, as plain data: one file a view, a function of the recording and the sight.

`workbench.state.view_state.VIEWS` lists them.  A view's module has

``key(run, sight)``              what its data depend on, hashable;
``data(run, sight)``             what its browser module draws: JSON-able data with NumPy arrays;
``selection(run, sight)``        (where it has one) the selection as that module knows it;
``answer(run, sight, request)``  (where it has one) the answer to what the browser asks.

One that compares (``View.pair``) has ``key`` and ``data`` of ``(run, sight, other)`` and ``answer``
of ``(run, sight, request, other)``; ``other`` is None while nothing is compared.  Where it has
``choices(entries)``, that says which recordings of the library it can be given.  One that can show
two recordings (``View.two``) is a module ``two_NAME`` more, which takes ``other`` in the same
places, and ``selection(run, sight, other)``.  ``Empty`` says why there is nothing to show, and what
to do.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from workbench.state.view_state import VIEWS, Sight

T = TypeVar("T")


def module(name: str) -> ModuleType:
    """The module of view ``name``."""
    return import_module(f"workbench.views.{name}")


def key(name: str, run: Any, sight: Sight, other: Any = None) -> Hashable:
    """What the data of view ``name`` depend on."""
    made, more = _of(name, other)
    path = None if other is None or not more else other.path
    return name, path, made.key(run, sight, *more)


def data(name: str, run: Any, sight: Sight, other: Any = None) -> dict[str, Any]:
    """The data of view ``name``; `Empty` where there is nothing to show."""
    made, more = _of(name, other)
    return made.data(run, sight, *more)


def selection(name: str, run: Any, sight: Sight, other: Any = None) -> dict[str, Any] | None:
    """The selection as view ``name`` knows it; None where it knows none."""
    made, more = _of(name, other)
    if not hasattr(made, "selection"):
        return None
    return made.selection(run, sight, *(() if VIEWS[name].pair else more))


def answer(
    name: str, run: Any, sight: Sight, request: Mapping[str, Any], other: Any = None
) -> Any:  # fmt: skip
    """What view ``name`` answers to its browser module."""
    made, more = _of(name, other)
    return made.answer(run, sight, request, *more)


def beside(name: str, sight: Sight, other: T | None) -> T | None:
    """The recording that view ``name`` takes besides, where ``other`` is compared with."""
    view = VIEWS[name]
    return other if view.pair or (view.two and sight.shows_two(name)) else None


def _of(name: str, other: Any) -> tuple[ModuleType, tuple[Any, ...]]:
    """The module that knows what view ``name`` shows, and what its functions take besides."""
    view = VIEWS[name]
    if view.two and other is not None:
        return module(f"two_{name}"), (other,)
    return module(name), (other,) if view.pair else ()


class Empty(Exception):
    """There is nothing to show: ``what`` says why, ``fix`` what would bring something, and ``do``
    is the page's command that does it, if there is one (``again``, ``execute``)."""

    def __init__(self, what: str, fix: str = "", do: str = ""):
        super().__init__(f"{what} {fix}".strip())
        self.message = {"what": what, "fix": fix, "do": do}
