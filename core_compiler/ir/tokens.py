"""The tokens of the text form: one regular expression; positions are computed only for errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from core_compiler.ir.literals import unquoted
from core_compiler.support.errors import UserError

_Item = TypeVar("_Item")

_STRING = r'"(?:[^"\\\n]|\\.)*"'
#: The text between < and > in the type of another dialect, which may contain nested types.
_INNER = rf'(?:[^<>"]|{_STRING}|<(?:[^<>"]|{_STRING}|<(?:[^<>"]|{_STRING}|<[^<>"]*>)*>)*>)*'
_TOKEN = re.compile(
    rf"""\s*(?://[^\n]*\s*)*(
      (?:tensor|memref|vector)<(?:[^<>"]|{_STRING}|<[^<>"]*>)*>
    | ![A-Za-z_][A-Za-z0-9_$]*\.[A-Za-z0-9_$.]+(?:<{_INNER}>)?
    | %[A-Za-z0-9_$.\-]+(?:\#\d+)?
    | {_STRING}
    | ->
    | [A-Za-z_][A-Za-z0-9_$.]*
    | -?0x[0-9A-Fa-f]+
    | -?\d+(?:\.\d*(?:[eE][-+]?\d+)?)?
    | \^[A-Za-z0-9_$.\-]+
    | \#[A-Za-z0-9_$.]+
    | \{{-\# | \#-\}}
    | \S
    )""",
    re.VERBOSE,
)
_INT = re.compile(r"-?\d+\Z").match
#: Python refuses to parse longer numbers.
_MAX_DIGITS = 4000


class Tokens:
    """The tokens of ``text`` and the index ``_at`` of the next one; the base of the parsers.

    ``where`` names the text in messages.
    """

    def __init__(self, text: str, where: str):
        self._text, self._where = text, where
        self._tokens: list[str] = _TOKEN.findall(text)
        self._tokens += ["", "", ""]  # the end, and lookahead
        self._at = 0

    def run(self, rule: Callable[[Any], _Item]) -> _Item:
        """Return the result of ``rule`` if it consumes the whole text."""
        try:
            result = rule(self)
            if self._tokens[self._at]:
                self._fail(f"unexpected {shown(self._tokens[self._at])} after the end")
        except RecursionError:
            raise UserError("nested too deeply to parse", self._where) from None
        return result

    def _next(self) -> str:
        token = self._tokens[self._at]
        if token:
            self._at += 1
        return token

    def _accept(self, token: str) -> bool:
        if self._tokens[self._at] == token:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if self._tokens[self._at] != token:
            self._fail(f"expected {token!r}, found {shown(self._tokens[self._at])}")
        self._at += 1

    def _fail(self, what: str, at: int | None = None, fix: str = "") -> NoReturn:
        """Raise UserError at token number ``at`` (default: the next one)."""
        at = min(self._at if at is None else at, len(self._tokens) - 1)
        offset = len(self._text)
        for number, match in enumerate(_TOKEN.finditer(self._text)):
            if number == at:
                offset = match.start(1)
                break
        line = self._text.count("\n", 0, offset) + 1
        column = offset - (self._text.rfind("\n", 0, offset) + 1) + 1
        raise UserError(what, f"{self._where}:{line}:{column}", fix)

    def _token_lines(self) -> list[int]:
        """Return the line, counted from 1, of each token."""
        lines, line, seen = [], 1, 0
        for match in _TOKEN.finditer(self._text):
            line += self._text.count("\n", seen, match.start(1))
            seen = match.start(1)
            lines.append(line)
        return lines

    def _string(self) -> str:
        token = self._next()
        if token[:1] != '"' or len(token) < 2:
            self._fail(f"expected a string, found {shown(token)}", self._at - 1)
        return unquoted(token)

    def _int(self) -> int:
        token = self._next()
        if not _INT(token):
            self._fail(f"expected an integer, found {shown(token)}", self._at - 1)
        return self._number_of(token)

    def _number_of(self, token: str) -> int:
        if len(token) > _MAX_DIGITS:
            self._fail("the number is too long", self._at - 1)
        return int(token, 0)

    def _items(self, close: str, item: Callable[[], _Item]) -> list[_Item]:
        """Parse comma-separated items up to ``close`` (the opening bracket is already consumed)."""
        if self._accept(close):
            return []
        items = [item()]
        while self._accept(","):
            items.append(item())
        self._expect(close)
        return items


def shown(token: str) -> str:
    """Return a token for a message."""
    if not token:
        return "the end of the text"
    return repr(token if len(token) <= 60 else token[:57] + "...")
