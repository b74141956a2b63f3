"""A user pass as text: read without running it, run only if that is allowed.

The page's process only reads (``outline``, ``stand_in``); ``load`` executes, in the worker process
or on the command line.
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import linecache
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import lru_cache
from typing import Any

from core_compiler.passes.base import Pass, with_options
from core_compiler.pipelines.edit_data import MAX_TEXT, TEXTS
from core_compiler.pipelines.pipeline import OPTIONAL
from core_compiler.support.errors import UserError, raised_at

#: The template of a new user pass.
TEMPLATE = '''\
from dataclasses import dataclass

from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class OwnPass(Pass):
    """A relu of a relu is one relu."""

    # half = "implementation"  # default: "meaning"
    # exact = False  # where it may change bits
    kind: str = "core.relu"  # an option

    def run(self, module, context):
        def edit(rewriter):
            for op in rewriter.ops:
                if op.kind != self.kind:
                    continue
                inner = rewriter.producer(op.operands[0])
                if inner is not None and inner.kind == self.kind:
                    values = {op.result: inner.result}
                    rewriter.replace(op, [], values, rule=f"{self.kind} of {self.kind}")

        return context.rewrite(module, edit)
'''
_HALVES = ("meaning", "implementation")


@dataclass(frozen=True)
class Outline:
    """The facts that can be read from a pass's text.

    Class ``name`` ("" if there is none), its facts and options, and the ``problem`` that prevents
    loading it (``line`` in the text).
    """

    name: str = ""
    summary: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[tuple[str, Any], ...] = ()
    problem: str = ""
    line: int = 0


@lru_cache(maxsize=64)
def outline(code: str, class_name: str = "") -> Outline:
    """Return the class in ``code`` that derives from Pass (``class_name``: the one so called)."""
    if len(code) > MAX_TEXT:
        return Outline(problem=f"{len(code):,} characters exceed the limit of {MAX_TEXT:,}", line=0)
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 0
        message = getattr(error, "msg", None) or str(error) or type(error).__name__
        return Outline(problem=f"line {line}: {message}" if line else message, line=line)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    passes = [node for node in classes if any(_name(b).endswith("Pass") for b in node.bases)]
    found = [node for node in (classes if class_name else passes) if class_name in ("", node.name)]
    if len(found) != 1:
        listed = ", ".join(node.name for node in passes)
        if class_name:
            return Outline(problem=f"class {class_name} not found")
        several = f"{len(found)} classes derive from Pass ({listed}): keep one"
        return Outline(problem=several if found else "no class derives from Pass")
    return _read(found[0])


def _read(node: ast.ClassDef) -> Outline:
    facts: dict[str, Any] = {}
    options: list[tuple[str, Any]] = []
    for part in node.body:
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            facts[part.targets[0].id] = _constant(part.value)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            if "ClassVar" in ast.unparse(part.annotation):
                facts[part.target.id] = _constant(part.value)
            else:
                options.append((part.target.id, _constant(part.value)))
    known = {name: value for name, value in facts.items() if _is_fact(name, value)}
    summary = (ast.get_docstring(node) or "").split("\n", 1)[0]
    return Outline(node.name, summary, known, tuple(options))


def _is_fact(name: str, value: Any) -> bool:
    if name == "half":
        return value in _HALVES
    if name in ("exact", "mandatory"):
        return isinstance(value, bool)
    return name in ("requires", "ensures", "invalidates") and isinstance(value, frozenset)


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def _constant(node: ast.expr | None) -> Any:
    """Return the value of a literal, a ``frozenset`` of literals, or ``field(default=...)``."""
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if name == "frozenset":
            inner = _constant(node.args[0]) if node.args else ()
            return frozenset(inner) if isinstance(inner, set | list | tuple) else None
        default = next((k.value for k in node.keywords if k.arg == "default"), None)
        return _constant(default) if name == "field" else None
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError):
        return None


def builtin_pass(item: Mapping[str, Any]) -> Pass | None:
    """Return the pass that ``item`` describes if it is a built-in one (without user code)."""
    return None if item.get("code") else OPTIONAL.get(str(item.get("source") or ""))


def stand_in(item: Mapping[str, Any]) -> Pass:
    """Return a pass that does nothing, with the name, facts and options of ``item``.

    They are given as far as they can be read. A built-in pass is returned itself.
    """
    code = str(item.get("code") or "")
    builtin = builtin_pass(item)
    if builtin is not None:
        given = {n: t for n, t in _options(item).items() if n in builtin.options()}
        return with_options(builtin, given)
    if code:
        found = outline(code, str(item.get("class") or ""))
    else:
        name = re.split(r"[:./\\]", str(item.get("source") or ""))[-1]
        found = Outline(name if name.isidentifier() else "")
    name = found.name if found.name and not keyword.iskeyword(found.name) else "OwnPass"
    simple = [(n, v) for n, v in found.options if isinstance(v, bool | int | float | str)]
    made = make_dataclass(
        name,
        [(n, type(v), field(default=v)) for n, v in simple],
        bases=(Pass,),
        namespace={"__doc__": found.summary or None, **found.facts},
        frozen=True,
    )
    options = {n: t for n, t in _options(item).items() if n in dict(simple)}
    return with_options(made(), options)


def load(item: Mapping[str, Any]) -> Pass:
    """Return the pass that ``item`` describes; this executes user code.

    ``item`` has ``code`` (and which ``class`` of it), or ``source`` (a file or module,
    ``my_pass.py:Class``, or a built-in one by name), and its ``options``.
    """
    code = str(item.get("code") or "")
    if code:
        pass_ = _load_text(code, str(item.get("class") or ""), str(item.get("file") or ""))
    else:
        from workbench.model.user_code import load_pass

        source = str(item.get("source") or "").strip()
        if not source:
            raise UserError(
                "missing pass", "insert", "write its code, FILE.py:CLASS or package.module:CLASS"
            )
        pass_ = load_pass(source)
    return with_options(pass_, _options(item))


def _options(item: Mapping[str, Any]) -> dict[str, str]:
    given = item.get("options") or {}
    return {str(k): str(v) for k, v in given.items()} if isinstance(given, Mapping) else {}


def _load_text(code: str, class_name: str, file: str) -> Pass:
    found = outline(code, class_name)
    name = file or file_name(found)
    if found.problem:
        location = f"{name}:{found.line}" if found.line else name
        message = found.problem.partition(": ")[2] if found.line else found.problem
        raise UserError(message, location, "fix the code of the pass")
    digest = hashlib.sha256(f"{class_name}:{code}".encode()).hexdigest()[:12]
    module = types.ModuleType(f"own_pass_{digest}")
    module.__file__ = name
    sys.modules[module.__name__] = module  # dataclasses look their module up
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        exec(compile(code, name, "exec"), module.__dict__)
        made = getattr(module, found.name)()
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the code of the pass raised {raised_at(error)}",
            name,
            "fix it, and give every option a default",
        ) from error
    if not isinstance(made, Pass):
        raise UserError(f"{found.name} is not a pass", name, "derive it from Pass")
    TEXTS[module.__name__] = code
    return made


def file_name(found: Outline) -> str:
    """Return the file name for a pass's text: ``OwnPass`` is in ``own_pass.py``."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", found.name or "OwnPass").lower()
    return f"{words}.py"
