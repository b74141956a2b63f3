"""Checks for translations that an import itself found to be wrong.

The result of a translation must have the framework's shape and dtype.  If it does not and the
framework can decompose the op, the decomposition is used instead.  The values are then right, but
the translation is still wrong and fails the checks of the compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_compiler.ir import Module, Op
from core_compiler.ir.events import CheckRecord

#: The kind of these checks.
KIND = "translation"


def checks(facts: Mapping[str, Any], module: Module) -> list[CheckRecord]:
    """Return a failed check for each op of the framework whose translation is wrong.

    ``facts`` are those of an import (``stood_in``: rows of ``op``, ``node``, ``line``, ``reason``).
    ``module`` is the imported one or one made from it; the value of a check is the replacement of
    the op.
    """
    return [_check(row, module) for row in facts.get("stood_in") or ()]


def _check(row: Mapping[str, Any], module: Module) -> CheckRecord:
    made = [op for op in module.walk() if _is_of(op, row["node"])]
    value = made[-1].results[0] if made and made[-1].results else None
    note = (
        f"the translation of {row['op']} (node {row['node']}) is wrong: {row['reason']}; the "
        "framework's decomposition replaces it"
    )
    return CheckRecord(None, "failed", value=value, note=note, kind=KIND)


def _is_of(op: Op, node: str) -> bool:
    return op.origin is not None and any(n.name == node for n in op.origin.nodes())
