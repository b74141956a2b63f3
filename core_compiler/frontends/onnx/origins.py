"""Origins of ONNX nodes: their name, their line in the listing, and an exporter's metadata."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache

from core_compiler.ir import FrontendNode

#: The name of the node list as a source file.
LISTING = "model.onnx"

_TORCH_PREFIX = "pkg.torch.onnx."
#: The key prefix of our exporter's metadata (``core_compiler/exporters/onnx/proto.py``).
_OWN_PREFIX = "pkg.core_compiler."
_FRAME = re.compile(
    r'File "([^"]+)", line (\d+), in (\S+)[^\S\n]*(?:\n[^\S\n]*(?!File ")([^\n]*))?'
)


def describe(node, line: int) -> FrontendNode:
    """Return the frontend node of a ``NodeProto`` on ``line`` of the listing.

    With the metadata of torch's exporter or ours: the file and line of the model's Python source
    and the module path; else the listing and the path in the node's name.
    """
    facts = {
        e.key: e.value
        for e in node.metadata_props
        if e.key.startswith((_TORCH_PREFIX, _OWN_PREFIX))
    }
    if f"{_OWN_PREFIX}kind" in facts:
        return _describe_exported(node, line, facts)
    stack = _frames(facts.get(f"{_TORCH_PREFIX}stack_trace", ""))
    # Frames of torch and of code that it generated (`<eval_with_key>.7`) are not the user's lines.
    own = [f for f in stack if "/torch/" not in f[0].replace("\\", "/") and f[0][0] != "<"]
    file, at = own[-1][:2] if own else (LISTING, line)
    scopes = _names(facts.get(f"{_TORCH_PREFIX}name_scopes", ""))
    scope = scopes[-2].replace(".", "/") if len(scopes) > 1 else scope_of(node.name)
    name = node.name or f"{node.op_type}_{line}"
    return FrontendNode(name, node.op_type, file, at, scope, stack)


def _describe_exported(node, line: int, facts: Mapping[str, str]) -> FrontendNode:
    """Return the origin of a node that our exporter wrote: that of the exported op."""
    name = facts.get(f"{_OWN_PREFIX}name") or node.name or f"{node.op_type}_{line}"
    file, _, at = facts.get(f"{_OWN_PREFIX}line", "").rpartition(":")
    known = file and at.isdecimal() and len(at) < 10
    place = (file, int(at)) if known else (LISTING, line)
    stack = _frames(facts.get(f"{_OWN_PREFIX}stack_trace", ""))
    return FrontendNode(name, node.op_type, *place, facts.get(f"{_OWN_PREFIX}scope", ""), stack)


def scope_of(name: str) -> str:
    """Return the module path in the name of a node or initializer.

    For example ``/layer1/conv/Conv`` or ``layer1.conv.weight``.
    """
    if "/" in name:
        return "/".join(p for p in name.split("/")[:-1] if p)
    parts = name.split(".")
    return "/".join(parts[:-1]) if len(parts) > 1 else ""


@lru_cache(maxsize=1024)  # functions and unrolled loops repeat it
def _frames(text: str) -> tuple:
    return tuple(
        (file, min(int(line), 1 << 30) if len(line) < 12 else 0, function, source.strip())
        for file, line, function, source in _FRAME.findall(text[: 1 << 16])
    )


def _names(text: str) -> list[str]:
    """Parse a list of strings in Python syntax; return [] for any other text."""
    if len(text) > 1 << 14:
        return []
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    if isinstance(found, list) and all(isinstance(v, str) for v in found):
        return found
    return []


def listing(graph) -> str:
    """Return the node list as text, one node per line, for the source view of an ONNX model."""
    lines = []
    for node in graph.node:
        outs, ins = ", ".join(node.output), ", ".join(node.input)
        kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        lines.append(f"{outs} = {kind}({ins})".replace("\n", " "))
    return "\n".join(lines) + "\n"
