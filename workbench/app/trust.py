"""The code that a page is asked to run: its origin, and whether the user has typed it here."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import Any

from workbench.model import edits, user_pass

#: A user pass: its text, or the file or module that contains it.
Code = tuple[str, str]
#: The gestures on a draft that add code to it.
_TYPING = ("code", "insert")
#: The most texts that are remembered.
MAX_TYPED = 10_000


def names_code(model: str) -> bool:
    """Return whether ``model`` names code (package.module:function)."""
    return ":" in model and "/" not in model and "\\" not in model


def foreign(edit: Any) -> list[dict[str, Any]]:
    """Return the inserted user passes of an edit."""
    inserted = edits.checked(edit)["insert"]
    return [item for item in inserted if user_pass.builtin_pass(item) is None]


def code_of(edit: Any) -> set[Code]:
    """Return the code that an edit contains."""
    return {(item.get("code", ""), item.get("source", "")) for item in foreign(edit)}


class Typed:
    """The code that users typed into pages of this server, by user name.

    Other code may come from a link.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # pages report in threads of their own
        self._known: dict[tuple[str, str], None] = {}  # the oldest first

    def remember_code(
        self, user: str, request: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> None:
        """Remember the code that a gesture in the pipeline view has added to its draft."""
        gesture, draft = request.get("done"), request.get("draft")
        if (
            not isinstance(gesture, Mapping)
            or gesture.get("do") not in _TYPING
            or "refused" in answer
        ):
            return
        previous_code = code_of(draft.get("edit")) if isinstance(draft, Mapping) else set()
        with self._lock:
            for code in code_of(answer["draft"]["edit"]) - previous_code:
                self._known[user, _digest(code)] = None
            while len(self._known) > MAX_TYPED:
                self._known.pop(next(iter(self._known)))

    def has(self, user: str, code: Code) -> bool:
        return (user, _digest(code)) in self._known


def _digest(code: Code) -> str:
    return hashlib.sha256("\0".join(code).encode(errors="surrogatepass")).hexdigest()
