"""Translations that an import itself found to be wrong, as checks of the import.

What a translation makes must have the shape and the dtype that the framework says; where it has
not and the framework can decompose the op, the decomposition stands in for it.  The numbers are
right then, and the translation is still wrong: it fails the checks of the compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_compiler.ir import Module, Op
from core_compiler.ir.events import CheckRecord

#: The kind of these checks.
KIND = "translation"


def checks(facts: Mapping[str, Any], module: Module) -> list[CheckRecord]:
    """A failed check for each op of the framework whose translation is wrong, by the ``facts`` of
    an import (its ``stood_in``: rows of ``op``, ``node``, ``line``, ``reason``).  ``module`` is the
    imported one, or one that was made of it; the value of a check is what stands in for the op."""
    return [_check(row, module) for row in facts.get("stood_in") or ()]


def _check(row: Mapping[str, Any], module: Module) -> CheckRecord:
    made = [op for op in module.walk() if _is_of(op, row["node"])]
    value = made[-1].results[0] if made and made[-1].results else None
    note = (f"the translation of {row['op']} (node {row['node']}) is wrong: {row['reason']}; the "
            "framework's decomposition stands in for it")  # fmt: skip
    return CheckRecord(None, "failed", value=value, note=note, kind=KIND)


def _is_of(op: Op, node: str) -> bool:
    return op.origin is not None and any(n.name == node for n in op.origin.nodes())
