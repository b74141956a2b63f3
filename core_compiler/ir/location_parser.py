"""The parser of locations as origins; aliases (``#loc7 = loc(...)``) may follow their uses."""

from __future__ import annotations

from core_compiler.ir.attribute_parser import AttributeParser
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ir.weights import WeightStore


class LocationParser(AttributeParser):
    """Parses locations; each alias is read once, when first needed, so that the DAG is shared."""

    def __init__(self, text: str, where: str, store: WeightStore | None = None):
        super().__init__(text, where, store)
        self._aliases: dict[str, Origin | None] = {}
        self._alias_starts: dict[str, int] = {}

    def _find_aliases(self) -> None:
        """Find the start of each ``#name = loc(...)``: ops may use an alias before its line."""
        tokens = self._tokens
        at = -1
        while True:
            try:
                at = tokens.index("=", at + 1)
            except ValueError:
                return
            if tokens[at - 1][:1] == "#" and tokens[at + 1] == "loc":
                self._alias_starts[tokens[at - 1]] = at + 1

    def _skip_aliases(self) -> None:
        while self._tokens[self._at][:1] == "#" and self._tokens[self._at + 1] == "=":
            name = self._tokens[self._at]
            self._at += 2
            origin = self._location()
            self._aliases.setdefault(name, origin)

    def _location(self) -> Origin | None:
        """Parse ``loc(...)`` if it comes next."""
        if not self._accept("loc"):
            return None
        self._expect("(")
        origin = self._location_body()
        self._expect(")")
        return origin

    def _location_body(self) -> Origin | None:
        token = self._tokens[self._at]
        if token[:1] == "#":
            self._at += 1
            return self._alias(token)
        if token == "unknown":
            self._at += 1
            return None
        if token == "fused":
            return self._fused()
        if token == "callsite":
            self._at += 1
            self._expect("(")
            callee = self._location_body()
            self._expect("at")
            caller = self._location_body()
            self._expect(")")
            return Origin.derived("callsite", [o for o in (callee, caller) if o is not None])
        text = self._string()
        if self._accept(":"):
            return Origin.root(FrontendNode("", "", text, self._line()))
        inner = None
        if self._accept("("):
            inner = self._location_body()
            self._expect(")")
        return Origin("import", (inner,) if inner else (), FrontendNode(text, ""))

    def _line(self) -> int:
        line = self._int()
        if self._accept(":"):
            self._int()
        return line

    def _alias(self, name: str) -> Origin | None:
        if name not in self._aliases:
            if name not in self._alias_starts:
                self._fail(f"location {name} is not defined", self._at - 1)
            self._resolve_alias(name)
        return self._aliases[name]

    def _resolve_alias(self, name: str) -> None:
        """Read alias lines out of order, dependencies first, without recursion.

        Chains of aliases are long.
        """
        back, stack = self._at, [name]
        entered: set[str] = set()
        while stack:
            current = stack[-1]
            needed = [n for n in self._alias_needs(current) if n not in self._aliases]
            if needed and current in entered:
                self._fail(f"location {current} refers to itself", self._alias_starts[current])
            entered.add(current)
            stack.extend(needed)
            if not needed:
                stack.pop()
                if current not in self._aliases:
                    self._at = self._alias_starts[current]
                    self._aliases[current] = self._location()
        self._at = back

    def _alias_needs(self, name: str) -> list[str]:
        if name not in self._alias_starts:
            self._fail(f"location {name} is not defined")
        at, depth, needs = self._alias_starts[name] + 1, 0, []
        while True:
            token = self._tokens[at]
            depth += (token == "(") - (token == ")")
            if token[:1] == "#":
                needs.append(token)
            at += 1
            if depth <= 0 or not token:
                return needs

    def _fused(self) -> Origin:
        at = self._at
        self._next()
        about: object = "fused"
        if self._accept("<"):
            about = self.attribute()
            self._expect(">")
        self._expect("[")
        parents: list[Origin] = []
        position: tuple[str, int] = ("", 0)

        def child() -> None:
            nonlocal position
            if self._tokens[self._at][:1] == '"' and self._tokens[self._at + 1] == ":":
                file = self._string()
                self._next()
                position = (file, self._line())
                if not isinstance(about, dict):
                    parents.append(Origin.root(FrontendNode("", "", *position)))
            elif (origin := self._location_body()) is not None:
                parents.append(origin)

        self._items("]", child)
        if isinstance(about, str):
            return Origin(about, tuple(parents))
        facts = about if isinstance(about, dict) else {}
        node = facts.get("node")
        try:
            if isinstance(node, dict):
                scope, stack = node.get("scope", ""), tuple(node.get("stack", ()))
                node = FrontendNode(node["name"], node["kind"], *position, scope, stack)
            return Origin(facts["rule"], tuple(parents), node, facts.get("reason", ""))
        except (KeyError, TypeError):
            self._fail("a location needs a rule, and its node a name and a kind", at)
