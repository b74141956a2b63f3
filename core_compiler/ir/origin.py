"""The origin of an op: a DAG that the rewriter extends, never written by hand.

Roots are nodes of the framework's graph, with file, line, module path and stack trace. One-to-one
rewrites inherit origins, many-to-one rewrites merge them, and in one-to-many rewrites each new op
inherits. An op that a pass creates without a source is *synthetic* and has a reason.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrontendNode:
    """A node of the framework's graph.

    ``scope`` is the module path (``encoder/layer.0/attention``), ``stack`` the framework's own
    stack trace, innermost last, as ``(file, line, function, text)`` rows.
    """

    name: str
    kind: str
    file: str = ""
    line: int = 0
    scope: str = ""
    stack: tuple[tuple[str, int, str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A step of an op's history: the rule that created it and the origins of its sources."""

    rule: str
    parents: tuple[Origin, ...] = ()
    node: FrontendNode | None = None
    reason: str = ""

    @staticmethod
    def root(node: FrontendNode) -> Origin:
        return Origin("import", (), node)

    @staticmethod
    def synthetic(rule: str, reason: str) -> Origin:
        """Return the origin of an op without a source in the model; the user sees ``reason``."""
        return Origin(rule, (), None, reason)

    @staticmethod
    def derived(rule: str, parents) -> Origin:
        """Return the origin of an op that ``rule`` created from ops with these origins.

        Their order is kept.
        """
        seen: dict[int, Origin] = {id(p): p for p in parents}
        return Origin(rule, tuple(seen.values()))

    def _walk(self):
        stack, seen = [self], set()
        while stack:
            origin = stack.pop()
            if id(origin) in seen:
                continue
            seen.add(id(origin))
            yield origin
            stack.extend(reversed(origin.parents))

    def nodes(self) -> tuple[FrontendNode, ...]:
        """Return the frontend nodes that this op comes from, in a stable order, without repeats."""
        found: dict[FrontendNode, None] = {}
        for origin in self._walk():
            if origin.node is not None:
                found.setdefault(origin.node)
        return tuple(found)

    def is_explained(self) -> bool:
        """Return whether the origin reaches a frontend node or has a reason.

        Every pass preserves this property.
        """
        return any(o.node is not None or o.reason for o in self._walk())

    def rules(self) -> tuple[str, ...]:
        """Return the rules of this op's history, newest first, along the first parents."""
        names: list[str] = []
        origin: Origin | None = self
        while origin is not None:
            names.append(origin.rule)
            origin = origin.parents[0] if origin.parents else None
        return tuple(names)

    @property
    def scope(self) -> str:
        """The longest module path shared by all frontend nodes of this op."""
        paths = [n.scope.split("/") for n in self.nodes() if n.scope]
        if not paths:
            return ""
        shared = paths[0]
        for path in paths[1:]:
            k = 0
            while k < min(len(shared), len(path)) and shared[k] == path[k]:
                k += 1
            shared = shared[:k]
        return "/".join(shared)
