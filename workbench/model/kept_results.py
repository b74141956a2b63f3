"""Results of a search in a file next to the recording, shown again without searching."""

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
#: The number of results stored for a recording; the oldest are dropped first.
MAX_RESULTS = 20


@dataclass(frozen=True)
class Results:
    """The results of one kind of search.

    ``suffix``  the end of their file's name, in place of the recording's.
    ``validate``   returns a result if its parts have the right types; None otherwise.
    ``describe``   a short description of the result, for the error if it cannot be stored.
    """

    suffix: str
    validate: Callable[[Mapping[str, Any]], Result | None]
    describe: Callable[[Mapping[str, Any]], str]

    def path_of(self, recording: Path) -> Path:
        """Return the file with the results stored for a recording."""
        return recording.with_suffix(self.suffix)

    def kept(self, recording: Path, key: str) -> Result | None:
        """Return the result of ``key``; None if there is none, or it is invalid."""
        return self._validated(_read(self.path_of(recording)).get(key))

    def newest(self, recording: Path, begins: str) -> Result | None:
        """Return the result that was stored last among those whose key starts with ``begins``."""
        stored = reversed(_read(self.path_of(recording)).items())
        return self._validated(
            next((found for key, found in stored if key.startswith(begins)), None)
        )

    def _validated(self, found: Any) -> Result | None:
        return self.validate(found) if isinstance(found, Mapping) else None

    def keep(self, recording: Path, key: str, result: Mapping[str, Any]) -> None:
        """Store a result.

        UserError, which includes the result, if the recording's folder is not writable.
        """
        path = self.path_of(recording)
        stored = _read(path)
        stored.pop(key, None)
        rows = [*stored.items(), (key, dict(result))][-MAX_RESULTS:]
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps(dict(rows), indent=1) + "\n")
            draft.replace(path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise UserError(
                f"{self.describe(result)}, but the result cannot be saved next to the recording: "
                f"{error.strerror}",
                str(path),
                "make the folder writable, or copy the recording to a writable one",
            ) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
