"""Where an op came from: a DAG that the rewriter extends, never written by hand.

Roots are nodes of the framework's graph, with file, line, module path and stack trace.  One-to-one
rewrites inherit, many-to-one fuse, one-to-many each inherit; an op that a pass makes from nothing
is *synthetic* and says why.
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
    """One step of an op's history: the rule that made it and the origins it was made from."""

    rule: str
    parents: tuple[Origin, ...] = ()
    node: FrontendNode | None = None
    reason: str = ""

    @staticmethod
    def root(node: FrontendNode) -> Origin:
        return Origin("import", (), node)

    @staticmethod
    def synthetic(rule: str, reason: str) -> Origin:
        """An op with no ancestor in the model; ``reason`` is shown to the user."""
        return Origin(rule, (), None, reason)

    @staticmethod
    def derived(rule: str, parents) -> Origin:
        """The origin of an op that ``rule`` made from ops with these origins (order kept)."""
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
        """The frontend nodes this op comes from, in a stable order, without repeats."""
        found: dict[FrontendNode, None] = {}
        for origin in self._walk():
            if origin.node is not None:
                found.setdefault(origin.node)
        return tuple(found)

    def is_explained(self) -> bool:
        """Whether a frontend node is reached, or a reason given (the property every pass keeps)."""
        return any(o.node is not None or o.reason for o in self._walk())

    def rules(self) -> tuple[str, ...]:
        """The rules of this op's history, newest first, along the first parents."""
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
