"""Search over the ops of a stage in the syntax of the graph view, without a drawn graph.

The syntax is that of ``widgets/src/graph/search.ts``.

Words, "words with spaces" and /regular expressions/, each in all fields or in one: ``kind:``,
``shape:``, ``dtype:``, ``attr:``, ``line:``, ``name:``, ``scope:``, ``phase:``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.support import user_regex

FIELDS = ("kind", "shape", "dtype", "attr", "line", "name", "scope", "phase")
#: The longest query (characters), and the most terms of it; the rest is ignored.
MAX_QUERY, MAX_TERMS = 500, 8
#: The sign that the graph writes between the sizes of a shape.
TIMES = "\u00d7"

_TERM = re.compile(r'(?:([a-z]+):)?(?:"([^"]*)"|/((?:\\.|[^/\\])+)/(?=\s|$)|(\S+))', re.IGNORECASE)
_LINE = re.compile(r"(.*?)(?::(\d+))?\Z", re.DOTALL)
_TENSOR = re.compile(r"(?:tensor|memref|vector)<((?:(?:\d+|\?|[a-z_]\w*)x)*)([^<>,]+)(?:,[^<>]*)?>")


@dataclass(frozen=True)
class Term:
    """A search term: ``text`` in ``field``, or in all fields.

    ``text`` is in lower case unless it is an ``expression``.
    """

    text: str
    field: str = ""
    expression: bool = False

    def matches(self, texts: Sequence[str], exact: bool = False) -> np.ndarray:
        """Return a mask of the texts that contain the term; ``exact``: that equal it."""
        found = np.zeros(len(texts), bool)
        if self.expression:
            found[user_regex.matches(self.text, texts)] = True
        else:
            lower = (text.lower() for text in texts)
            found[:] = [self.text == each if exact else self.text in each for each in lower]
        return found


def terms(query: str) -> list[Term]:
    """Return the terms of a query, all of which must match."""
    return [_term(found) for found in _TERM.finditer(query[:MAX_QUERY])][:MAX_TERMS]


def _term(found: re.Match[str]) -> Term:
    prefix, phrase, expression, word = found.groups(default="")
    field = prefix.lower()
    if field and field not in FIELDS:
        # A colon after an unknown field name is part of the word: `model.py:12`.
        return Term(found[0].lower())
    if expression:
        return Term(expression, field, True)
    return Term((phrase or word).lower(), field)


def matching(data: Mapping[str, Any], wanted: Sequence[Term]) -> np.ndarray:
    """Return the indices of the ops that match all terms, in program order.

    ``data`` has the tables of texts and the columns of ops of the graph view (widgets/README.md).
    UserError if an expression is invalid or takes too long.
    """
    found = np.full(len(data["ops"]["key"]), bool(wanted))
    for term in wanted:
        fields = [term.field] if term.field else FIELDS
        found &= np.any([_TESTS[field](data, term) for field in fields], axis=0)
    return np.flatnonzero(found)


def short_type(type_: str) -> str:
    """Return ``tensor<1x128x768xf32>`` as ``1x128x768 f32``; any other text is unchanged."""

    def short(found: re.Match[str]) -> str:
        dims, element = found.groups()
        return f"{dims[:-1]} {element}" if dims else element

    return _TENSOR.sub(short, type_)


# -- one test per field: the ops that a term matches ----------------------------------------------


def _column(table: str, column: str) -> Callable[[Mapping[str, Any], Term], np.ndarray]:
    def test(data: Mapping[str, Any], term: Term) -> np.ndarray:
        return _in(data, term.matches(data.get(table) or ()), column)

    return test


def _in(data: Mapping[str, Any], found: np.ndarray, column: str) -> np.ndarray:
    """Return a mask of the ops whose number in a column is one of those found in its table."""
    ops = data["ops"]
    if column not in ops or not len(found):
        return np.zeros(len(ops["key"]), bool)
    numbers = np.asarray(ops[column])
    inside = numbers < len(found)  # 255: no phase
    return inside & found[np.where(inside, numbers, 0)]


def _shape(data: Mapping[str, Any], term: Term) -> np.ndarray:
    texts = [f"{each} {short_type(each)}" for each in data["types"]]
    wanted = term if term.expression else Term(term.text.replace(TIMES, "x"))
    return _in(data, wanted.matches(texts), "type")


def _dtype(data: Mapping[str, Any], term: Term) -> np.ndarray:
    texts = [short_type(each).rpartition(" ")[2] for each in data["types"]]
    return _in(data, term.matches(texts, exact=True), "type")


def _line(data: Mapping[str, Any], term: Term) -> np.ndarray:
    if term.expression:
        return _column("files", "file")(data, term)
    text, line = _LINE.match(term.text).groups()  # type: ignore[union-attr]  # it matches any text
    found = _column("files", "file")(data, Term(text))
    return found & (np.asarray(data["ops"]["line"]) == int(line)) if line else found


def _name(data: Mapping[str, Any], term: Term) -> np.ndarray:
    return term.matches(data["ops"]["name"])


_TESTS: Mapping[str, Callable[[Mapping[str, Any], Term], np.ndarray]] = {
    "kind": _column("kinds", "kind"),
    "shape": _shape,
    "dtype": _dtype,
    "attr": _column("attributes", "attribute"),
    "line": _line,
    "name": _name,
    "scope": _column("scopes", "scope"),
    "phase": _column("phases", "phase"),
}
