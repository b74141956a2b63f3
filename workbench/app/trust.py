"""Code that a page is asked to run: where it stands, and whether the person has typed it here."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import Any

from workbench.model import edits, user_pass

#: A pass of a person's own: its text, or the file or module that has it.
Code = tuple[str, str]
#: What a person does to a draft that brings code into it.
_TYPING = ("code", "insert")
#: Most texts that are remembered.
MAX_TYPED = 10_000


def names_code(model: str) -> bool:
    """Whether ``model`` is code by its place (package.module:function)."""
    return ":" in model and "/" not in model and "\\" not in model


def foreign(edit: Any) -> list[dict[str, Any]]:
    """The inserted passes of an edit that are none of ours."""
    inserted = edits.checked(edit)["insert"]
    return [item for item in inserted if user_pass.of_ours(item) is None]


def code_of(edit: Any) -> set[Code]:
    """The code that an edit brings."""
    return {(item.get("code", ""), item.get("source", "")) for item in foreign(edit)}


class Typed:
    """The code that people typed into pages of this server, by their names: it may come from a
    link otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # pages hear in threads of their own
        self._known: dict[tuple[str, str], None] = {}  # the oldest first

    def hear(self, user: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Remember what a gesture in the view of the pipeline has brought into its draft."""
        done, before = request.get("done"), request.get("draft")
        if not isinstance(done, Mapping) or done.get("do") not in _TYPING or "refused" in answer:
            return
        there = code_of(before.get("edit")) if isinstance(before, Mapping) else set()
        with self._lock:
            for code in code_of(answer["draft"]["edit"]) - there:
                self._known[user, _digest(code)] = None
            while len(self._known) > MAX_TYPED:
                self._known.pop(next(iter(self._known)))

    def has(self, user: str, code: Code) -> bool:
        return (user, _digest(code)) in self._known


def _digest(code: Code) -> str:
    return hashlib.sha256("\0".join(code).encode(errors="surrogatepass")).hexdigest()
