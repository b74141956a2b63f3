"""Generated source as a Python function, for a target's compiler."""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Callable
from typing import Any

from core_compiler.codegen.source import SYMBOL


def entry_of(
    source: str, name: str, namespace: Callable[[str, int], dict]
) -> tuple[Callable, dict[str, Any]]:
    """Return the entry of a generated module and the module's constants.

    ``namespace(owner, buffers)`` provides the target's functions by name.
    """
    tree = ast.parse(source)
    facts: dict[str, Any] = {
        word.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for word in node.targets[:1]
        if isinstance(word, ast.Name)
    }
    target = namespace(facts["NAME"], facts["BUFFERS"])
    words = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    local = {n.id for n in words if isinstance(n.ctx, ast.Store)}
    local |= {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    local |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    bound = {n: target[n] for n in sorted({n.id for n in words} - local)}
    bound["__builtins__"] = builtins
    file = f"<kernel {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(tree, file, "exec"), bound)
    return bound[SYMBOL], facts
