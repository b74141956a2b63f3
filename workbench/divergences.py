"""First differences of training runs that were found, kept beside the recording: a reload shows
them again without running anything."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core_compiler.debug.which_pass import Change
from core_compiler.errors import UserError
from core_compiler.training.diverge import Difference

#: How many results are kept beside a recording; the oldest go first.
KEPT = 20


def path_of(recording: Path) -> Path:
    """The file with the results that were found for a recording."""
    return recording.with_suffix(".diverge.json")


def key_of(identity: str, iteration: int, roots: tuple[str, str]) -> str:
    """What a result depends on: the computation, and both runs up to where they part."""
    return hashlib.sha256("\n".join([identity, str(iteration), *roots]).encode()).hexdigest()


def kept(recording: Path, key: str) -> dict[str, Any] | None:
    """The result of ``key``; None where none is kept, or what is there is none of ours."""
    found = _read(path_of(recording)).get(key)
    return _sound(found) if isinstance(found, Mapping) else None


def keep(recording: Path, key: str, result: Mapping[str, Any]) -> None:
    """UserError where the folder of the recording cannot be written; it says the result then."""
    path = path_of(recording)
    held = _read(path)
    held.pop(key, None)
    rows = [*held.items(), (key, dict(result))][-KEPT:]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(dict(rows), indent=1) + "\n")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UserError(
            f"{result.get('op') or result.get('value')} is the first that differs, but that cannot "
            f"be kept beside the recording: {error.strerror}", str(path),
            "make the folder writable, or copy the recording to one that is",
        ) from None  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


#: What a result is like: the op, or of two pipelines the pass.
_LIKE = tuple(
    json.loads(json.dumps(each.to_json()))
    for each in (Difference(0, True), Change(0, "", ("", "")))
)
#: Lists of a result by what they hold.
_LISTS = {"element": int, "numbers": float, "history": str, "kernels": str, "how": str}
_PAIRS = ("numbers", "kernels", "how")


def _sound(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """A result whose parts have the types that a result has; else None."""
    like = _LIKE["pass" in found]
    try:
        made = {name: type(part)(found[name]) for name, part in like.items()}
        for name in made.keys() & _LISTS.keys():
            made[name] = [_LISTS[name](each) for each in made[name]]
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return made if all(len(made.get(name, "ab")) == 2 for name in _PAIRS) else None
