"""Where an ONNX node came from: its name, its line in our listing, what torch's exporter or ours
left on it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache

from core_compiler.ir import FrontendNode

#: The name under which the node list is shown as a source file.
LISTING = "model.onnx"

_TORCH = "pkg.torch.onnx."
#: What our own exporter leaves on a node (``core_compiler/exporters/onnx/proto.py``).
_OURS = "pkg.core_compiler."
_FRAME = re.compile(
    r'File "([^"]+)", line (\d+), in (\S+)[^\S\n]*(?:\n[^\S\n]*(?!File ")([^\n]*))?'
)


def describe(node, line: int) -> FrontendNode:
    """The frontend node of a ``NodeProto`` that stands on ``line`` of the listing.

    With the metadata of torch's exporter or of ours: the file and line of the model's Python source
    and the module path; else the listing and the path in the node's name.
    """
    facts = {e.key: e.value for e in node.metadata_props if e.key.startswith((_TORCH, _OURS))}
    if f"{_OURS}kind" in facts:
        return _described_by_us(node, line, facts)
    stack = _frames(facts.get(f"{_TORCH}stack_trace", ""))
    # Frames of torch and of code that it made (`<eval_with_key>.7`) are nobody's own lines.
    own = [f for f in stack if "/torch/" not in f[0].replace("\\", "/") and f[0][0] != "<"]
    file, at = own[-1][:2] if own else (LISTING, line)
    scopes = _names(facts.get(f"{_TORCH}name_scopes", ""))
    scope = scopes[-2].replace(".", "/") if len(scopes) > 1 else scope_of(node.name)
    name = node.name or f"{node.op_type}_{line}"
    return FrontendNode(name, node.op_type, file, at, scope, stack)


def _described_by_us(node, line: int, facts: Mapping[str, str]) -> FrontendNode:
    """What we exported comes from where the op came from that it was."""
    name = facts.get(f"{_OURS}name") or node.name or f"{node.op_type}_{line}"
    file, _, at = facts.get(f"{_OURS}line", "").rpartition(":")
    known = file and at.isdecimal() and len(at) < 10
    place = (file, int(at)) if known else (LISTING, line)
    stack = _frames(facts.get(f"{_OURS}stack_trace", ""))
    return FrontendNode(name, node.op_type, *place, facts.get(f"{_OURS}scope", ""), stack)


def scope_of(name: str) -> str:
    """The module path in the name of a node or an initializer (``/layer1/conv/Conv``,
    ``layer1.conv.weight``)."""
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
    """A list of strings as Python writes it; [] where the text is anything else."""
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
    """The node list as text, a node a line: what the source view shows for an ONNX model."""
    lines = []
    for node in graph.node:
        outs, ins = ", ".join(node.output), ", ".join(node.input)
        kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        lines.append(f"{outs} = {kind}({ins})".replace("\n", " "))
    return "\n".join(lines) + "\n"
