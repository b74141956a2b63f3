"""Python source for objects: the expression that recreates a pass, and its imports.

A file of the user's is named, to be copied beside the source; code from a notebook cell becomes
part of the source, and so does the running script if the source must work :func:`standalone`.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import symtable
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from core_compiler.support.errors import UserError


class Spelling:
    """The dependencies of the spelled objects.

    ``files`` are texts of files by name; ``lines()`` the imports and cells.  ``reserved`` is a
    module name that is taken.  ``standalone``: the running script is treated like a cell.
    """

    def __init__(self, reserved: str = "", *, standalone: bool = False):
        self.files: dict[str, str] = {}
        self._imports: dict[str, dict[str, None]] = {}
        self._modules: dict[str, str] = {}
        self._cells: dict[str, str] = {}
        self._reserved = reserved
        self._standalone = standalone

    def of(self, value: Any) -> str:
        """Return the expression for ``value``; raise UserError if it has none."""
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if isinstance(value, tuple):
            inner = ", ".join(map(self.of, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.of, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.of(k)}: {self.of(v)}' for k, v in value.items())}}}"
        if isinstance(value, type) or inspect.isfunction(value):
            return self._named(value, value.__module__, value.__qualname__)
        named = self._global(value)
        return self._dataclass(value) if named is None else self._named(value, *named)

    def lines(self) -> list[str]:
        """Return the imports, and the cells that are part of the file itself."""
        found = [f"import {m}" + f" as {n}" * (m != n) for n, m in self._modules.items()]
        found += [f"from {m} import {', '.join(sorted(n))}" for m, n in self._imports.items()]
        return sorted(found) + [f"\n\n{cell.rstrip()}" for cell in self._cells.values()]

    # -- details ---------------------------------------------------------------------------------

    def _dataclass(self, value: Any) -> str:
        if not is_dataclass(value):
            raise UserError(
                f"a value of type {type(value).__name__} cannot be written as Python",
                "reproducer",
                "use pass options that are numbers, strings, functions or tuples of these",
            )
        changed = []
        for each in fields(value):
            field_value = getattr(value, each.name)
            is_shown = each.init and each.compare  # not compared: not part of the value
            if is_shown and not (field_value is each.default or field_value == each.default):
                changed.append(f"{each.name}={self.of(field_value)}")
        return f"{self.of(type(value))}({', '.join(changed)})"

    def _global(self, value: Any) -> tuple[str, str] | None:
        """Return the module global that holds a value without an expression (a rule table)."""
        names = [type(value).__module__]
        code = getattr(value, "rewrite", None) or getattr(value, "build", None)
        names += [code.__module__] if inspect.isfunction(code) else []
        for module in names:
            for name, held in vars(sys.modules.get(module, sys)).items():
                if held is value and not name.startswith("__"):
                    return module, name
        return None

    def _named(self, value: Any, module: str, name: str) -> str:
        if "<" in name:
            raise UserError(
                f"{name} is defined inside a function and cannot be imported",
                "reproducer",
                "define it at the top of a file",
            )
        top = name.partition(".")[0]
        if module == "builtins":
            return name
        in_file = getattr(sys.modules.get(module), "__file__", None) and not self._standalone
        if module == "__main__" and not in_file:
            self._cell_of(value, name)
            return name
        self._imports.setdefault(self._home(module), {})[top] = None
        return name

    def _home(self, module: str) -> str:
        """Return the module name to import from; a user's own single file is copied."""
        path = getattr(sys.modules.get(module), "__file__", None)
        if path is None or (module != "__main__" and "." in module) or _is_installed(path):
            return module
        stem = Path(path).stem
        taken = stem in sys.stdlib_module_names or stem == self._reserved
        stem = stem if stem.isidentifier() and not taken else f"own_{_identifier(stem)}"
        self.files[f"{stem}.py"] = _text_of(path)
        return stem

    # -- notebooks -------------------------------------------------------------------------------

    def _cell_of(self, value: Any, name: str) -> None:
        """Add the cell that defines a class, function or table, and the cells that it needs."""
        if name in self._cells:
            return
        self._cells[name] = ""  # a function may call itself
        if isinstance(value, type) or inspect.isfunction(value):
            text = definition(value)
            for each in _globals_read(text):
                self._needed(each)
        else:
            text = f"{name} = {self._dataclass(value)}"
        del self._cells[name]  # after its dependencies
        self._cells[name] = text

    def _needed(self, name: str) -> None:
        """Add a global that a cell reads."""
        held = vars(sys.modules["__main__"]).get(name, _MISSING)
        if held is _MISSING:
            return
        if isinstance(held, ModuleType):
            self._modules[name] = held.__name__
        elif isinstance(held, type) or inspect.isfunction(held):
            self._named(held, held.__module__, held.__qualname__)
        elif name not in self._cells and not name.startswith("__"):
            spelled = self.of(held)
            if spelled != name:
                self._cells[name] = f"{name} = {spelled}"


_MISSING = object()


def standalone(value: type | Callable) -> str:
    """Return a class or function of ``__main__`` as a standalone text.

    It includes the imports and the parts of the notebook or script that it uses.  Raises UserError
    if something cannot be written.
    """
    spelling = Spelling(standalone=True)
    spelling.of(value)
    return "\n".join(spelling.lines()).lstrip() + "\n"


def definition(value: type | Callable) -> str:
    """Return the text of a class or function at the top level of a file or cell.

    Raises UserError if it is unknown.  ``inspect`` cannot read classes of cells: their module has
    no file, but their code has.
    """
    code = _code(value)
    lines = linecache.getlines(code.co_filename) if code is not None else []
    try:
        top = ast.parse("".join(lines)).body
    except (SyntaxError, ValueError):
        top = []
    found = [n for n in top if getattr(n, "name", None) == value.__name__]
    if not found:
        raise UserError(
            f"source of {value.__qualname__} not found",
            "reproducer",
            "define it in a file and import it",
        )
    last = found[-1]
    start = min([last.lineno, *(d.lineno for d in getattr(last, "decorator_list", ()))])
    return "".join(lines[start - 1 : last.end_lineno])


def _globals_read(text: str) -> Iterator[str]:
    """Yield the names that a definition reads from its module or ``builtins``, in order."""

    def read(table: symtable.SymbolTable, top: bool) -> Iterator[str]:
        found = (s for s in table.get_symbols() if s.is_referenced() and (top or s.is_global()))
        yield from (s.get_name() for s in found)
        for inner in table.get_children():
            yield from read(inner, False)

    known = set(read(symtable.symtable(text, "<text>", "exec"), True))
    names = (n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name))
    yield from dict.fromkeys(n for n in names if n in known)


def _text_of(path: str) -> str:
    """Return a file's text; text entered interactively is taken from the cache of tracebacks."""
    linecache.checkcache(path)
    text = "".join(linecache.getlines(path))
    if not text:
        raise UserError("cannot read the source of the pass", path, "save it as a file")
    return text


def _code(value: Any):
    if inspect.isfunction(value):
        return value.__code__
    functions = (f for f in vars(value).values() if inspect.isfunction(f))
    written = (f.__code__ for f in functions if f.__module__ == value.__module__)
    return next((c for c in written if not c.co_filename.startswith("<string")), None)


def _is_installed(path: str) -> bool:
    folders = (sysconfig.get_paths()[n] for n in ("purelib", "platlib", "stdlib", "platstdlib"))
    return path.startswith(tuple(folders))


def _identifier(text: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in text)
