"""The numerics contract of a recording, and whether the bits of two recordings are comparable."""

from __future__ import annotations

from core_compiler.numerics import CONTRACT_VERSION
from workbench.queries.run import Run

#: The version assumed for recordings that do not state one.
FIRST = 1


def version(run: Run) -> int:
    found = run.meta().get("contract", FIRST)
    return found if type(found) is int else FIRST


def refusal(run: Run, other: Run) -> str:
    """Return why the bits of two recordings are not compared; "" if they may be."""
    a, b = version(run), version(other)
    if a == b:
        return ""
    return (
        f"A was recorded under version {a} of the numerics contract, B under version {b}: "
        "their bits differ by the contract and are not compared."
    )


def remedy(run: Run, other: Run) -> str:
    """Return the suggested fix for :func:`refusal`."""
    a, b = version(run), version(other)
    older = "A" if a < b else "B"
    if max(a, b) == CONTRACT_VERSION:
        return f"Record {older} again with this release."
    return "Compare them with the release that made both."
