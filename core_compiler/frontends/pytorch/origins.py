"""Origins of the nodes of a torch program: file, line, module path, stack."""

from __future__ import annotations

import re
from pathlib import Path

from core_compiler.ir import FrontendNode

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n?(?P<text>[^\n]*)'
)


def describe(node) -> FrontendNode:
    """Return file, line, module path and stack of an fx node.

    The line is that of the innermost frame in the user's own code.
    """
    trace = node.meta.get("stack_trace") or ""
    frames = tuple(
        (m["file"], int(m["line"]), m["function"].strip(), m["text"].strip())
        for m in _FRAME.finditer(trace)
    )
    own = [f for f in frames if not is_library(f[0])] or list(frames)
    file, line = (own[-1][0], own[-1][1]) if own else ("", 0)
    modules = node.meta.get("nn_module_stack") or {}
    path = [entry[0] for entry in modules.values() if entry[0]]
    scope = owner_of(path[-1], keep_last=True) if path else ""
    return FrontendNode(node.name, str(node.target), file, line, scope, frames)


def owner_of(dotted: str, keep_last: bool = False) -> str:
    """Return the module that owns a parameter: ``layer.0.conv.weight`` -> ``layer/0/conv``."""
    parts = dotted.split(".")
    return "/".join(parts if keep_last else parts[:-1])


#: This package, whose frames are on the stack during an export.
_HERE = str(Path(__file__).parent)


def is_library(file: str) -> bool:
    """Return whether a file belongs to torch or to this package, or is generated code."""
    return "/torch/" in file or "\\torch\\" in file or file.startswith(("<eval_with_key>", _HERE))


def identifier(name: str) -> str:
    """Return a name in a form that is valid for values."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)
