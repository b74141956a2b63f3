"""Where a node of a torch program comes from: file, line, module path, stack."""

from __future__ import annotations

import re
from pathlib import Path

from core_compiler.ir import FrontendNode

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n?(?P<text>[^\n]*)'
)


def describe(node) -> FrontendNode:
    """File, line, module path and stack of an fx node; the innermost frame of the user's own
    code."""
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
    """``layer.0.conv.weight`` -> ``layer/0/conv`` (the module that owns a parameter)."""
    parts = dotted.split(".")
    return "/".join(parts if keep_last else parts[:-1])


#: This package, whose frames are on the stack where an export goes through it.
_HERE = str(Path(__file__).parent)


def is_library(file: str) -> bool:
    """Whether a file is torch's own (or ours), or is none: code that it has generated of a
    person's."""
    return "/torch/" in file or "\\torch\\" in file or file.startswith(("<eval_with_key>", _HERE))


def identifier(name: str) -> str:
    """A name as values may have it."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)
