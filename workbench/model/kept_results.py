"""Results of a search, kept in a file beside the recording: a reload shows them again without
running anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError

Result = dict[str, Any]
#: How many results are kept beside a recording; the oldest go first.
KEPT = 20


@dataclass(frozen=True)
class Results:
    """The results of one kind of search.

    ``suffix``  ends the name of their file, in place of the recording's.
    ``sound``   a result whose parts have the types that a result has; None of anything else.
    ``words``   the result in a few words, for the error where it cannot be kept.
    """

    suffix: str
    sound: Callable[[Mapping[str, Any]], Result | None]
    words: Callable[[Mapping[str, Any]], str]

    def path_of(self, recording: Path) -> Path:
        """The file with the results that were found for a recording."""
        return recording.with_suffix(self.suffix)

    def kept(self, recording: Path, key: str) -> Result | None:
        """The result of ``key``; None where none is kept, or what is there is none of ours."""
        return self._sound(_read(self.path_of(recording)).get(key))

    def newest(self, recording: Path, begins: str) -> Result | None:
        """The result that was kept last of those whose key ``begins`` so."""
        held = reversed(_read(self.path_of(recording)).items())
        return self._sound(next((found for key, found in held if key.startswith(begins)), None))

    def _sound(self, found: Any) -> Result | None:
        return self.sound(found) if isinstance(found, Mapping) else None

    def keep(self, recording: Path, key: str, result: Mapping[str, Any]) -> None:
        """UserError where the folder of the recording cannot be written; it says the result
        then."""
        path = self.path_of(recording)
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
                f"{self.words(result)}, but the result cannot be saved next to the recording: "
                f"{error.strerror}", str(path),
                "make the folder writable, or copy the recording to a writable one",
            ) from None  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
