"""Compilers for compile workers, named as in ``core_compiler.codegen.cuda.worker:sm_90``."""

from __future__ import annotations

import re
from functools import partial

from core_compiler.codegen.cuda.compile import compile_source


def __getattr__(name: str):
    """Return the compiler of generated CUDA source for the architecture ``name``."""
    found = re.fullmatch(r"sm_(\d+)(\d)", name)
    if found is None:
        raise AttributeError(name)
    return partial(_compile, (int(found[1]), int(found[2])))


def _compile(capability: tuple[int, int], source: str, name: str):
    return compile_source(source, capability, name)
