"""The parser of MLIR's generic form: the output of ``text``, also rewritten by ``mlir-opt``.

Values keep their names, locations become origins, and ``core.weights`` restores full digests.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from core_compiler.ir.attribute_parser import AttributeParser, StandIn
from core_compiler.ir.attributes import Attribute
from core_compiler.ir.core import Block, Function, Module, Op, Value
from core_compiler.ir.literals import read_value_name
from core_compiler.ir.location_parser import LocationParser
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ir.tokens import shown
from core_compiler.ir.types import TensorType, Type
from core_compiler.ir.weights import WeightStore


def parse(
    text: str,
    *,
    weights: WeightStore | None = None,
    where: str = "text",
    lines: bool = False,
    stand_in: StandIn | None = None,
) -> Module:
    """Parse a module; raise UserError with line and column for invalid text.

    ``weights`` finds the digests of ``dense_resource`` names that the text does not contain in
    full, and becomes the module's store. ``where`` is the file's name for messages. ``lines``: an
    op without a location gets its line in the text as origin. ``stand_in`` puts weights that the
    text names but does not contain (bytes at its end) into ``weights``: a function from name and
    type to the digest.
    """
    parser = _ModuleParser(text, where, weights)
    if lines:
        parser.number_lines()
    if stand_in is not None:
        parser.replace_weights(stand_in)
    return parser.run(_ModuleParser.module)


def parse_type(text: str, where: str = "type") -> Type:
    """Parse a type, ``tensor<2x3xf32>``."""
    return AttributeParser(text, where).run(AttributeParser.type)


def parse_attribute(
    text: str, *, weights: WeightStore | None = None, where: str = "attribute"
) -> Attribute:
    """Parse an attribute, ``[1, 2]`` or ``3 : i64``."""
    return AttributeParser(text, where, weights).run(AttributeParser.attribute)


class _ModuleParser(LocationParser):
    """Parses modules, functions, blocks and ops, by recursive descent."""

    def __init__(self, text: str, where: str, store: WeightStore | None = None):
        super().__init__(text, where, store)
        self._values: dict[str, Value] = {}
        self._blobs: dict[str, bytes] = {}
        self._lines: list[int] = []

    def number_lines(self) -> None:
        """Give ops without a location their line as origin."""
        self._lines = self._token_lines()

    def replace_weights(self, stand_in: StandIn) -> None:
        """Replace weights whose bytes are not at the text's end by those of ``stand_in``."""
        self._stand_in = stand_in
        if "{-#" in self._tokens:
            section = self._tokens[self._tokens.index("{-#") :]
            named = (token for token, after in pairwise(section) if after == ":")
            self._embedded = frozenset(token.strip('"') for token in named)

    # -- module and functions --------------------------------------------------------------------

    def module(self) -> Module:
        self._find_aliases()
        self._skip_aliases()
        facts_at = self._at
        if self._accept("module"):
            facts = self._dictionary() if self._accept("attributes") else {}
            self._take_digests(facts, facts_at)
            self._expect("{")
            functions = self._functions("}")
        else:
            if self._string() != "builtin.module":
                self._fail('expected "module" or "builtin.module"', self._at - 1)
            for token in ("(", ")", "(", "{"):
                self._expect(token)
            facts_at = self._skip_to_module_attributes()
            functions = self._functions("}")
            self._expect(")")
            facts = self._dictionary() if self._tokens[self._at] == "{" else {}
            for token in (":", "(", ")", "->", "(", ")"):
                self._expect(token)
        self._location()
        self._skip_aliases()
        if self._accept("{-#"):
            self._resources()
        return Module(functions, self._filled_store(), self._symbols(facts, facts_at))

    def _skip_to_module_attributes(self) -> int:
        """Skip to the module's attributes.

        In the generic form they follow its body, which needs the digests.
        """
        start, depth = self._at, 1
        while depth:
            token = self._next()
            if not token:
                self._fail("the module is not closed", start - 1)
            depth += (token == "{") - (token == "}")
        position = self._at
        if self._accept(")") and self._tokens[self._at] == "{":
            self._take_digests(self._dictionary(), position)
        self._at = start
        return position

    def _take_digests(self, facts: dict, at: int) -> None:
        table = facts.get("core.weights", {})
        if not isinstance(table, dict) or not all(isinstance(d, str) for d in table.values()):
            self._fail("core.weights must map names to digests", at)
        self._digests.update(table)

    def _symbols(self, facts: dict, at: int) -> dict[str, tuple[int, int]]:
        symbols = facts.get("core.symbols", {})
        fine = isinstance(symbols, dict) and all(
            isinstance(r, tuple) and len(r) == 2 and all(type(b) is int for b in r)
            for r in symbols.values()
        )
        if not fine:
            self._fail("core.symbols must map names to [low, high]", at)
        return symbols

    def _functions(self, close: str) -> dict[str, Function]:
        functions: dict[str, Function] = {}
        while not self._accept(close):
            at = self._at
            if not self._tokens[at]:
                self._fail("the module is not closed")
            function = self._function()
            if function.name in functions:
                self._fail(f"duplicate function @{function.name}", at)
            functions[function.name] = function
        return functions

    def _function(self) -> Function:
        at = self._at
        if self._string() != "core.func":
            self._fail('expected a function, "core.func"() ({ ... })', at)
        for token in ("(", ")", "(", "{"):
            self._expect(token)
        body = self._region()
        self._expect(")")
        attributes = self._dictionary() if self._tokens[self._at] == "{" else {}
        for token in (":", "(", ")", "->", "(", ")"):
            self._expect(token)
        self._location()
        name, level = attributes.pop("sym_name", None), attributes.pop("level", "tensor")
        if not isinstance(name, str) or not isinstance(level, str):
            self._fail("a function needs the attribute sym_name", at)
        return Function(name, body, level, attributes)

    # -- blocks and ops --------------------------------------------------------------------------

    def _region(self) -> Block:
        """Parse a region's block and its closing brace; names defined inside end here."""
        made: list[str] = []
        arguments: list[Value] = []
        token = self._tokens[self._at]
        if token[:1] == "^":
            self._at += 1
            if self._accept("("):
                arguments = self._items(")", lambda: self._argument(made))
            self._expect(":")
        ops: list[Op] = []
        outputs: tuple[Value, ...] = ()
        closed = False
        while not self._accept("}"):
            if not self._tokens[self._at]:
                self._fail("the region is not closed")
            if closed:
                self._fail("unexpected op after the block's terminator")
            op = self._op(made)
            if op.results or op.regions or not op.kind.endswith((".return", ".yield")):
                ops.append(op)
            else:
                outputs, closed = op.operands, True
        if not closed:
            kinds = '"core.return" or "...yield"'
            self._fail(f"the block has no terminator ({kinds})", self._at - 1)
        for name in made:
            del self._values[name]
        return Block(tuple(arguments), tuple(ops), outputs)

    def _argument(self, made: list[str]) -> Value:
        at = self._at
        name = self._next()
        self._expect(":")
        value = self._define(name, self.type(), made, at)
        self._location()
        return value

    def _define(self, name: str, type_: Type, made: list[str], at: int) -> Value:
        if name[:1] != "%":
            self._fail(f"expected a value (%name), found {shown(name)}", at)
        if name in self._values:
            self._fail(f"{name} is defined twice", at)
        value = self._values[name] = Value(type_, read_value_name(name))
        made.append(name)
        return value

    def _op(self, made: list[str]) -> Op:
        start = self._at
        names = self._result_names() if self._tokens[start][:1] == "%" else []
        kind = self._string()
        self._expect("(")
        uses_at = self._at
        operands = self._uses()
        regions: list[Block] = []
        if self._accept("("):
            regions = self._items(")", self._braced_region)
        attributes = self._dictionary() if self._tokens[self._at] == "{" else {}
        types_at = self._at
        self._expect(":")
        self._expect("(")
        operand_types = self._items(")", self.type)
        self._expect("->")
        types = self._items(")", self.type) if self._accept("(") else [self.type()]
        if len(operand_types) != len(operands):
            self._fail(f"{len(operands)} operands but {len(operand_types)} operand types", types_at)
        for index, (value, type_) in enumerate(zip(operands, operand_types, strict=True)):
            if value.type is not type_:
                name = self._tokens[uses_at + 2 * index]
                self._fail(f"{name} has type {value.type}, not {type_}", types_at)
        if len(types) != len(names):
            self._fail(f"{len(names)} results but {len(types)} result types", types_at)
        results = [self._define(n, t, made, start) for n, t in zip(names, types, strict=True)]
        origin = self._location()
        if origin is None and self._lines:
            result_name = (names[0] if names else "").lstrip("%")
            origin = Origin.root(FrontendNode(result_name, kind, self._where, self._lines[start]))
        try:
            return Op(kind, operands, results, attributes, regions, origin)
        except TypeError as problem:
            self._fail(str(problem), start)

    def _result_names(self) -> list[str]:
        names: list[str] = []
        while True:
            name = self._next()
            if self._accept(":"):  # %r:3 stands for %r#0, %r#1, %r#2
                count = self._int()
                if not 0 < count <= len(self._tokens):
                    self._fail("invalid number of results", self._at - 1)
                names += [f"{name}#{i}" for i in range(count)]
            else:
                names.append(name)
            if self._accept("="):
                return names
            self._expect(",")

    def _uses(self) -> list[Value]:
        if self._accept(")"):
            return []
        values = []
        while True:
            name = self._next()
            value = self._values.get(name) or self._values.get(f"{name}#0")
            if value is None:
                what = (
                    f"{name} is used before it is defined"
                    if name[:1] == "%"
                    else (f"expected a value (%name), found {shown(name)}")
                )
                self._fail(what, self._at - 1)
            values.append(value)
            if self._accept(")"):
                return values
            self._expect(",")

    def _braced_region(self) -> Block:
        self._expect("{")
        return self._region()

    # -- weights ---------------------------------------------------------------------------------

    def _resources(self) -> None:
        """Parse ``{-# dialect_resources: { builtin: { name: "0x..." } } #-}``."""
        sections = {"dialect_resources", "builtin"}
        while not self._accept("#-}"):
            token = self._next()
            if not token:
                self._fail("the resource section is not closed")
            if token in "{},:" or token in sections:
                continue
            self._expect(":")
            data = self._string()
            try:
                self._blobs[token.strip('"')] = bytes.fromhex(data.removeprefix("0x"))[4:]
            except ValueError:
                self._fail(f"{token} is not a hexadecimal string", self._at - 1)

    def _filled_store(self) -> WeightStore:
        store = WeightStore() if self._store is None else self._store
        self._store = store
        for name, data in self._blobs.items():
            digest = self._digests.get(name)
            type_ = self._resource_types().get(digest)
            if digest is None or type_ is None or digest in store:
                continue
            if len(data) != type_.bytes:
                self._fail(f"weights {name} have {len(data)} bytes, {type_} needs {type_.bytes}")
            store.add(np.frombuffer(data, type_.dtype.numpy).reshape(type_.shape))
            if digest not in store:
                self._fail(f"weights {name} do not match their digest")
        return store

    def _resource_types(self) -> dict[str | None, TensorType]:
        if not hasattr(self, "_typed"):
            self._typed: dict[str | None, TensorType] = {}
            for number, token in enumerate(self._tokens):
                if token == "dense_resource" and self._tokens[number + 1] == "<":
                    self._at = number
                    resource = self._resource()
                    self._typed[resource.digest] = resource.type
            self._at = len(self._tokens) - 1
        return self._typed
