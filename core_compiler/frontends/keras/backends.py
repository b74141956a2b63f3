"""The selection of Keras's backend: an installed one if the user has not chosen."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from typing_extensions import override

from core_compiler.support.errors import CANNOT_HERE, UserError

#: The supported backends, in order of preference.
BACKENDS = ("jax", "torch", "tensorflow")
_BACKEND_VARIABLE = "KERAS_BACKEND"


def installed() -> list[str]:
    """Return the installed backends."""
    return [name for name in BACKENDS if importlib.util.find_spec(name) is not None]


def fix() -> str:
    """Return advice for a model whose backend is not supported."""
    choices = " or ".join(installed() or BACKENDS)
    return f"set {_BACKEND_VARIABLE} to {choices}: a .keras file loads on any backend"


def backend() -> str:
    """Return the backend that Keras uses, or will use once it is imported.

    It is the user's choice (the environment, else Keras's own keras.json if that backend is
    installed), else the first of :func:`installed`.  Raise UserError if the chosen backend is not
    installed, or if none is.
    """
    loaded = sys.modules.get("keras")
    if loaded is not None and hasattr(loaded, "config"):
        return str(loaded.config.backend())
    known = installed()
    chosen = os.environ.get(_BACKEND_VARIABLE, "")
    if chosen in BACKENDS and chosen not in known:
        raise UserError(
            f"{chosen} is not installed",
            _BACKEND_VARIABLE,
            f"set it to {' or '.join(known)}" if known else _INSTALL,
            CANNOT_HERE,
        )
    if chosen:
        return chosen
    if (configured := _configured()) in known:
        return configured
    if not known:
        raise UserError(
            "Keras needs a backend, and none is installed", "keras", _INSTALL, CANNOT_HERE
        )
    return known[0]


_INSTALL = "pip install 'compiler-workbench[keras]'"


def _configured() -> str:
    """Return the backend that keras.json names, or ""."""
    folder = os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser()
    try:
        found = json.loads((Path(folder) / "keras.json").read_text("utf-8"))
        return str(found["backend"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return ""


def choose() -> None:
    """Let Keras use :func:`backend` before it is imported.

    Report the choice on standard error if the user has not made one.
    """
    if "keras" in sys.modules or os.environ.get(_BACKEND_VARIABLE) in (
        *installed(),
        "numpy",
        "openvino",
    ):
        return
    name = backend()
    if not os.environ.get(_BACKEND_VARIABLE):
        os.environ[_BACKEND_VARIABLE] = name
        print(f"{_BACKEND_VARIABLE} is not set: Keras runs on {name}", file=sys.stderr, flush=True)
    # An import that failed because of its backend leaves modules that remember it.
    for stale in [m for m in sys.modules if m.startswith("keras.")]:
        del sys.modules[stale]


class _Finder(MetaPathFinder):
    """A meta path finder that finds nothing; it chooses the backend when Keras is imported."""

    @override
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == "keras":
            choose()


@contextmanager
def chosen() -> Iterator[None]:
    """Apply :func:`choose` if code in this context imports Keras without choosing a backend."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
