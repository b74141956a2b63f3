"""A text diff of two modules that share no values, ignoring the names of values.

A golden file contains a module's text, so the ops of the two sides are matched by their lines
without the names; values that matched lines define then get the same names on both sides.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from core_compiler.ir.core import Function, Module
from core_compiler.ir.parser import parse
from core_compiler.ir.text import line_table
from core_compiler.support.errors import UserError

#: A string, or the name of a value.
_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|%[\w$.\-]+')
#: The number of context lines around a change.
CONTEXT = 3


def ir_diff(wanted: str, got: Module) -> list[str]:
    """Return the unified diff from a module's text to another module.

    [] if only value names differ.

    If ``wanted`` is not the text of a module, names are compared too.
    """
    try:
        before = dict(_functions(parse(wanted, where="the golden file")))
    except UserError:
        return text_diff(wanted.splitlines(), line_table(got).lines)
    after = dict(_functions(got))
    old = [line for name, lines in before.items() if name not in after for line in lines]
    new: list[str] = []
    for name, lines in after.items():
        old += before.get(name, [])
        new += _renamed(before.get(name, []), lines)
    return text_diff(old, new)


def text_diff(wanted: Iterable[str], got: Iterable[str]) -> list[str]:
    """Return a unified diff of lines; [] if they are the same."""
    return list(
        difflib.unified_diff(list(wanted), list(got), "golden", "got", lineterm="", n=CONTEXT)
    )


def _functions(module: Module) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of each function by its name; the module's own first line under ""."""
    table = line_table(module)
    found: dict[str, list[str]] = {}
    name = ""
    for line, key in zip(table.lines[:-1], table.keys, strict=False):
        name = key.name if isinstance(key, Function) else name
        found.setdefault(name, []).append(line)
    yield from found.items()


def _renamed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return ``new`` with the names that ``old`` has for the same values.

    Values that only ``new`` has keep their names, with a ``'`` if ``old`` uses the name for
    another value.
    """
    renamed: dict[str, str] = {}
    for i, j in _aligned([_nameless(line) for line in old], [_nameless(line) for line in new]):
        old_names, new_names = _made(old[i]), _made(new[j])
        if len(old_names) == len(new_names):
            renamed.update(zip(new_names, old_names, strict=True))
    taken = {name for line in old for name in _names(line)}

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        if name.startswith('"'):
            return name
        return renamed.get(name, f"{name}'" if name in taken else name)

    return [_NAME.sub(rename, line) for line in new]


def _aligned(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the indices of lines that are equal apart from names, or replace each other."""
    if old == new:  # the matcher ignores frequent lines
        yield from ((i, i) for i in range(len(old)))
        return
    for _, i, i_end, j, j_end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        yield from zip(range(i, i_end), range(j, j_end), strict=False)


def _nameless(line: str) -> str:
    return _NAME.sub(lambda match: match[0] if match[0].startswith('"') else "%", line)


def _names(text: str) -> list[str]:
    return [name for name in _NAME.findall(text) if not name.startswith('"')]


def _made(line: str) -> list[str]:
    """Return the values that a line defines: results, or arguments of a block."""
    if line.lstrip().startswith("^"):
        return _names(line)
    results, equals, _ = line.partition(" = ")
    return _names(results) if equals and results.lstrip().startswith("%") else []
