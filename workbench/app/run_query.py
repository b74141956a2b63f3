"""The query language for runs: words, ``field:value``, and ``-`` for negation.

resnet target:cuda -status:failed tag:release after:2026-05-01 sort:time
"several words" model:="the very name", in which "" represents one "
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from core_compiler.support.errors import UserError, nearest

#: Fields whose text contains the value (``=value``: equals it), and their columns.
TEXTS = ("name", "model", "variant", "target", "device", "mode", "status", "note")
#: The sort keys of runs with their columns; a ``-`` before one reverses the order.
SORTS = {
    "newest": "began DESC",
    "model": "model COLLATE NOCASE",
    "target": "target COLLATE NOCASE",
    "status": "status",
    "compile": "compile_s",
    "time": "total_ms",
    "peak": "peak_bytes",
    "kernels": "kernels",
    "error": "worst_error",
    "size": "size",
    "stages": "stages",
}
#: The longest query (characters): the text of ``exactly``, and some words.
MAX_TEXT = 1000
_DATES = {"after": "began >= ?", "before": "began < ?"}
_IS = {
    "pinned": "pinned",
    "live": "status = 'recording'",
    "training": "mode = 'training'",
    "noted": "note <> ''",
    "imported": "name LIKE 'imported/%'",
}
FIELDS = (*TEXTS, "tag", "is", *_DATES, "sort")

_TERM = re.compile(
    r'(?P<no>-?)(?:(?P<field>[a-z]+):)?(?:(?P<eq>=?)"(?P<quoted>(?:[^"]|"")*)"?|(?P<word>\S+))'
)


@dataclass(frozen=True)
class Query:
    """SQL over the table ``run``: a condition with its parameters, and an order."""

    where: str
    parameters: tuple[object, ...]
    order: str


def parse(text: str) -> Query:
    """Return the query of a text; UserError if a date, a sort key or an ``is:`` value is unknown.

    A field that does not exist is treated as a word: models are named ``package.module:function``.
    """
    conditions: list[str] = []
    parameters: list[object] = []
    order = SORTS["newest"]
    text = (
        text[:MAX_TEXT].encode("utf-8", "replace").decode()
    )  # bytes of a command line may be invalid
    for term in _TERM.finditer(text):
        word = term["word"]
        if word is None:
            word = term["eq"] + term["quoted"].replace('""', '"')
        field = term["field"] if term["field"] in FIELDS else None
        if term["field"] and field is None:
            word = f"{term['field']}:{word}"
        if field == "sort":
            order = _order(word)
            continue
        condition, values = _condition(field, word)
        conditions.append(f"NOT ({condition})" if term["no"] else f"({condition})")
        parameters += values
    where = " AND ".join(conditions) or "1"
    return Query(where, tuple(parameters), f"pinned DESC, {order}, began DESC, name")


def within(query: Query, model: str, variant: str, target: str) -> Query:
    """Restrict a query to one model, variant and target, the newest first."""
    where = f"({query.where}) AND model = ? AND variant = ? AND target = ?"
    return Query(where, (*query.parameters, model, variant, target), "began DESC, name")


def exactly(model: str, variant: str, target: str) -> str:
    """Return the text that finds the runs of one model, variant and target."""
    return " ".join(
        f'{field}:="{value.replace(chr(34), 2 * chr(34))}"'
        for field, value in (("model", model), ("variant", variant), ("target", target))
    )


def _condition(field: str | None, word: str) -> tuple[str, list[object]]:
    if field is None:
        return r"words LIKE ? ESCAPE '\'", [_like(word.lower())]
    if field == "tag":
        return "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", [word.lower()]
    if field == "is":
        if word not in _IS:
            raise UserError(
                f"unknown value {word[:40]!r}",
                "is",
                nearest(word, _IS, f"choose one of {', '.join(_IS)}"),
            )
        return _IS[word], []
    if field in _DATES:
        return _DATES[field], [_date(word)]
    if word.startswith("="):
        return f"{field} = ? COLLATE NOCASE", [word[1:]]
    return rf"{field} LIKE ? ESCAPE '\'", [_like(word)]


def _like(word: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", word) + "%"


def _date(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UserError("invalid date", text[:40], "write it as 2026-05-31") from None


def _order(word: str) -> str:
    name, turned = word.removeprefix("-"), word.startswith("-")
    if name not in SORTS:
        fix = nearest(name, SORTS, f"choose one of {', '.join(SORTS)}")
        raise UserError(f"unknown sort key {name[:40]!r}", "sort", fix)
    if name == "newest":
        return "began" if turned else "began DESC"
    column = SORTS[name]
    return f"{column.split()[0]} IS NULL, {column}{' DESC' if turned else ''}"
