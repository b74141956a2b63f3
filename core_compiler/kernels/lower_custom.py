"""Lowerings of the ops that are always a kernel of their own: scans, sorts, scatters, random."""
from __future__ import annotations

from collections.abc import Callable

from core_compiler.ir import Block

#: core op name -> builder of its kernel.
BUILDERS: dict[str, Callable] = {}


def lower(block: Block, name: str):
    raise NotImplementedError
