"""Origins as MLIR locations: the model's line, its module path, and the rewrites applied.

A frontend node is a named location (``"encoder/layer.0/linear"``) around its file and line.  An op
that comes from several nodes, or from a rewrite, is a fused location with the rule's name.
"""

from __future__ import annotations

from core_compiler.ir import FrontendNode, Origin
from core_compiler.ir.types import quoted

#: The rule of ops that are unchanged since the frontend created them.
_IMPORT = "import"


class Locations:
    """The aliases of a file's locations, each written once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, origin: Origin) -> str:
        """Return the alias of an op's origin."""
        places = [self._alias(_node(node)) for node in origin.nodes()]
        if len(places) == 1 and origin.rule == _IMPORT:
            return places[0]
        if not places:
            return self._alias(f"{quoted(origin.reason or origin.rule)}")
        return self._alias(f"fused<{quoted(origin.rule)}>[{', '.join(places)}]")

    def table(self) -> list[str]:
        """Return the lines that define the aliases."""
        return [f"{alias} = loc({text})" for text, alias in self._known.items()]

    def _alias(self, text: str) -> str:
        return self._known.setdefault(text, f"#loc{len(self._known) + 1}")


def _node(node: FrontendNode) -> str:
    path = f"{node.scope}/{node.name}" if node.scope else node.name or node.kind
    return f"{quoted(path)}({quoted(node.file)}:{node.line}:0)" if node.file else quoted(path)
