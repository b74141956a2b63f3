"""Origins as MLIR locations: which line of the model, in which of its modules, by which rewrites.

A frontend's node is a named location (``"encoder/layer.0/linear"``) around its file and line; an op
of several nodes, or one that a rewrite made, is a fused location with the rule's name.
"""

from __future__ import annotations

from core_compiler.ir import FrontendNode, Origin
from core_compiler.ir.types import quoted

#: The rule of ops that stand as the frontend made them.
_IMPORT = "import"


class Locations:
    """The aliases of a file's locations, each written once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, origin: Origin) -> str:
        """The alias of where an op comes from."""
        places = [self._alias(_node(node)) for node in origin.nodes()]
        if len(places) == 1 and origin.rule == _IMPORT:
            return places[0]
        if not places:
            return self._alias(f"{quoted(origin.reason or origin.rule)}")
        return self._alias(f"fused<{quoted(origin.rule)}>[{', '.join(places)}]")

    def table(self) -> list[str]:
        """The lines that say what the aliases are."""
        return [f"{alias} = loc({text})" for text, alias in self._known.items()]

    def _alias(self, text: str) -> str:
        return self._known.setdefault(text, f"#loc{len(self._known) + 1}")


def _node(node: FrontendNode) -> str:
    path = f"{node.scope}/{node.name}" if node.scope else node.name or node.kind
    return f"{quoted(path)}({quoted(node.file)}:{node.line}:0)" if node.file else quoted(path)
