"""All passes of this package by name, whether or not they are in a pipeline."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import isabstract

from core_compiler.passes.base import Pass

#: The packages of passes: one module (or package) per pass, besides shared ones.
PACKAGES = (
    "core_compiler.passes",
    "core_compiler.training.passes",
    "core_compiler.onnx_level.passes",
)


@cache
def known_passes() -> Mapping[str, type[Pass]]:
    """Return the passes by name; those from ONNX to ONNX only if onnx is installed."""
    return {found.name(): found for package in PACKAGES for found in _passes(package)}


def _passes(package: str) -> Iterator[type[Pass]]:
    try:
        held = importlib.import_module(package)
        names = [module.name for module in pkgutil.iter_modules(held.__path__)]
        modules = [importlib.import_module(f"{package}.{name}") for name in names]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "core_compiler":
            raise
        return
    for module in modules:
        for made in vars(module).values():
            own = isinstance(made, type) and made.__module__ == module.__name__
            if own and issubclass(made, Pass) and not (made is Pass or isabstract(made)):
                yield made
