"""Versions of the numerics contract, whose bits are not comparable with each other.

docs/numerics.md lists the changes of each version.
"""

from __future__ import annotations

import platform

from core_compiler import __version__
from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import UserError


def made_with() -> dict[str, str | int]:
    """Return what a recording states about the release that makes it."""
    return {
        "contract": CONTRACT_VERSION,
        "workbench": __version__,
        "python": platform.python_version(),
    }


def need_current(version: object, what: str, where: str, use: str = "read") -> None:
    """Raise UserError if ``what`` was made under another version of the contract.

    ``use`` is what the release that made it can still do with it.
    """
    if version == CONTRACT_VERSION:
        return
    raise UserError(
        f"{what} made under version {version} of the numerics contract, this release uses version "
        f"{CONTRACT_VERSION}, which gives different bits",
        where,
        f"{use} with the release that made it, or train again with this one",
    )
