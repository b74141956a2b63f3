"""The origin of a node in the form that torch keeps: a stack trace and the path of modules."""

from __future__ import annotations

from typing import Any

from core_compiler.exporters.base import nodes
from core_compiler.ir import FrontendNode, Op

#: The class that torch shows for a module; the IR does not know the model's own.
MODULE = "torch.nn.modules.module.Module"


def of_node(op: Op | None) -> dict[str, Any]:
    """Return the metadata of the nodes of an op of the model."""
    found = nodes(op) if op is not None else ()
    located = next((n for n in found if n.file), None)
    scoped = next((n.scope for n in found if n.scope), "")
    made: dict[str, Any] = {"nn_module_stack": _modules(scoped)}
    if located is not None:
        made["stack_trace"] = _stack_trace(located)
    return made


def _stack_trace(node: FrontendNode) -> str:
    """Return the lines of the model, innermost last, as a traceback prints them."""
    frames = list(node.stack)
    if (node.file, node.line) not in {frame[:2] for frame in frames}:
        frames.append((node.file, node.line, "forward", ""))
    rows = []
    for file, line, function, text in frames:
        rows += [f'  File "{file}", line {line}, in {function}', *([f"    {text}"] if text else ())]
    return "\n".join(rows) + "\n"


def _modules(scope: str) -> dict[str, tuple[str, str]]:
    """Return the modules around a node from the outermost in: key -> (path, class)."""
    parts = scope.split("/") if scope else []
    paths = ["", *(".".join(parts[: n + 1]) for n in range(len(parts)))]
    return {
        f"L['self']{''.join(f'.{p}' for p in path.split('.') if p)}": (path, MODULE)
        for path in paths
    }
