"""Validation of command arguments that repeated training runs share."""

from __future__ import annotations

from typing import Any

from core_compiler.support.errors import CANNOT_HERE, UserError

#: ``--tiling``: the choice of loop tilings; the bits do not depend on it.
TILINGS = {"default": "default", "alternate": "small"}


def threads(arguments) -> int:
    """Return the validated ``--threads``; 0 means all."""
    if arguments.threads < 0:
        raise UserError(
            f"expected 0 or more threads, got {arguments.threads}",
            "--threads",
            "pass 0 (all) or more",
        )
    if arguments.threads > 4096:
        raise UserError(
            f"expected at most 4096 threads, got {arguments.threads}",
            "--threads",
            "pass 4096 or fewer",
        )
    return arguments.threads


def pairs(texts: list[str], option: str) -> dict[str, Any]:
    """Return ``NAME=VALUE`` texts as a dictionary, whole numbers as int.

    UserError names an invalid one.
    """
    made: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UserError(f"cannot parse {text!r}", option, "write NAME=VALUE")
        made[name] = int(value) if value.removeprefix("-").isdecimal() else value
    return made


def require_execution(target: str) -> None:
    """Raise UserError (exit code 3) if this machine cannot execute for a target.

    It is called before any work.
    """
    from core_compiler import targets

    missing = targets.target(target).available()
    if missing:
        fix = f"read the kernels with `workbench kernels MODEL -t {target}`, or choose -t cpu"
        raise UserError(missing, f"target {target}", fix, CANNOT_HERE)
