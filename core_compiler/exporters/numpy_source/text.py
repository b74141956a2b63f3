"""Python text: names, literals, dtypes, statements within the line length."""

from __future__ import annotations

import builtins
import json
import keyword
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.ir import DType, dtype

WIDTH = 100
#: Names that an exported file defines itself.
RESERVED = ("W", "INPUTS", "OUTPUTS", "main", "math", "ml_dtypes", "np", "rng")


def reserved_names() -> set[str]:
    """Return the names that no variable may have."""
    return {*RESERVED, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}


def identifier(text: str) -> str:
    """Return ``text`` as a Python identifier: NFKC-normalised, other characters as underscores."""
    made = "".join(
        c if f"_{c}".isidentifier() else "_" for c in unicodedata.normalize("NFKC", text)
    )
    made = unicodedata.normalize("NFKC", made)
    return made if made.isidentifier() else f"_{made}"


def quoted(text: str) -> str:
    """Return a text as a string literal."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)


def plain(text: str) -> str:
    """Return a text for a comment or a docstring: on one line and without their terminators."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown.replace("\\", "/").replace('"""', "'''")


# -- values ----------------------------------------------------------------------------------------


def is_native(kind: DType) -> bool:
    """Return whether NumPy itself has the dtype, as opposed to the package ml_dtypes."""
    return kind.numpy.kind in "biuf" and kind.numpy.isbuiltin == 1


def dtype_text(kind: DType) -> str:
    """Return the dtype's expression: ``np.float32``, ``ml_dtypes.bfloat16``."""
    if kind.kind == "bool":
        return "np.bool_"
    return f"{'np' if is_native(kind) else 'ml_dtypes'}.{kind.numpy.name}"


def number(value: Any, kind: DType) -> str:
    """Return a literal that rounds to ``value`` in its dtype."""
    if kind.kind == "bool":
        return str(bool(value))
    if not kind.is_float:
        return str(int(value))
    wide = float(value)
    if not math.isfinite(wide):
        return "np.nan" if wide != wide else "np.inf" if wide > 0 else "-np.inf"
    short = str(np.float32(wide)) if kind.bits <= 32 else repr(wide)
    exact = float(np.asarray(float(short)).astype(kind.numpy)) == wide
    return short if exact and np.signbit(float(short)) == np.signbit(wide) else repr(wide)


def literal(value: Any, kind: DType) -> str:
    """Return a literal for use as an operand next to an array of its dtype."""
    text = number(value, kind)
    return f"({text})" if text.startswith("-") else text


def typed(value: Any, kind: DType) -> str:
    """Return a scalar expression with an explicit dtype."""
    return f"{dtype_text(kind)}({number(value, kind)})"


def small_array(array: np.ndarray) -> str:
    """Return a short list of values as an array expression."""
    kind = dtype(array.dtype)
    items = ", ".join(number(v, kind) for v in array)
    default = kind.name in ("i64", "f64", "i1") and array.size
    return f"np.array([{items}]{'' if default else f', {dtype_text(kind)}'})"


def sequence(items: Iterable[Any]) -> str:
    """Return a tuple expression."""
    held = [str(i) for i in items]
    return f"({held[0]},)" if len(held) == 1 else f"({', '.join(held)})"


def atom(expression: str) -> str:
    """Return an expression in parentheses, unless it is a name, a call or an index already.

    Binary operators are surrounded by spaces.
    """
    bare = expression[0] in "-~" or _operator(expression) is not None
    return f"({expression})" if bare else expression


# -- statements ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """A statement ``targets = expression``; without targets, a line of text.

    ``depth`` is the indentation level.
    """

    expression: str
    targets: str = ""
    depth: int = 1
    comment: str = ""

    def lines(self) -> Iterator[str]:
        indent, trailing_comment = (
            "    " * self.depth,
            f"  # {self.comment}" if self.comment else "",
        )
        head = f"{indent}{self.targets} = " if self.targets else indent
        whole = f"{head}{self.expression}"
        if len(whole + trailing_comment) <= WIDTH:
            yield whole + trailing_comment
            return
        if trailing_comment:
            yield f"{indent}# {self.comment}"
        if len(whole) <= WIDTH or not self.targets:
            yield whole
            return
        yield from _break_lines(head, self.expression, indent)


def _break_lines(head: str, expression: str, indent: str) -> Iterator[str]:
    """Break a long call at its arguments, or a long operation at its operator."""
    inner = f"{indent}    "
    start = _call(expression)
    if start is not None:
        yield f"{head}{expression[: start + 1]}"
        line = ""
        for argument in _arguments(expression[start + 1 : -1]):
            longer = f"{line} {argument}," if line else f"{inner}{argument},"
            if line and len(longer) > WIDTH:
                yield line
                longer = f"{inner}{argument},"
            line = longer
        yield line.removesuffix(",")
        yield f"{indent})"
        return
    position = _operator(expression)
    if position is None:
        yield f"{head}{expression}"
        return
    yield f"{head}("
    yield f"{inner}{expression[:position]}"
    yield f"{inner}{expression[position + 1 :]}"
    yield f"{indent})"


def _operator(expression: str) -> int | None:
    """Return the position of the space before an operator outside parentheses."""
    depth = 0
    for position, character in _outside_strings(expression):
        depth += (character in "([{") - (character in ")]}")
        if character == " " and depth == 0:
            return position
    return None


def _call(expression: str) -> int | None:
    """Return the position of the opening parenthesis if the expression is a call, else None."""
    depth, outer = 0, 0
    for position, character in _outside_strings(expression):
        if character == " " and depth == 0:
            return None
        depth += (character in "([{") - (character in ")]}")
        if character == "(" and depth == 1:
            outer = position
    return outer if outer and expression.endswith(")") and expression[outer - 1] != " " else None


def _outside_strings(expression: str) -> Iterator[tuple[int, str]]:
    """Yield the characters outside string literals, with their positions."""
    quote, escaped = "", False
    for position, character in enumerate(expression):
        if quote:
            if character == quote and not escaped:
                quote = ""
            escaped = character == "\\" and not escaped
        elif character in "\"'":
            quote = character
        else:
            yield position, character


def _arguments(text: str) -> Sequence[str]:
    """Return the arguments of a call."""
    parts, depth, start = [], 0, 0
    for position, character in _outside_strings(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()]
