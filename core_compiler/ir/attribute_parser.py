"""The parser of types and attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.ir.attributes import Dense, Resource
from core_compiler.ir.literals import dense_bytes, unquoted
from core_compiler.ir.tokens import Tokens, shown
from core_compiler.ir.types import (
    DTYPES,
    INDEX,
    TensorType,
    Type,
    buffer,
    opaque,
    row_major,
    tensor,
    vector,
)
from core_compiler.ir.weights import WeightStore
from core_compiler.support.errors import UserError

_NUMBER = re.compile(r"-?\d").match
_IDENTIFIER = re.compile(r"[A-Za-z_]").match
_INT_TYPE = re.compile(r"(?:[us]?i\d+|index)\Z").match
_SHAPED = re.compile(
    r"(tensor|memref|vector)<((?:(?:\d+|\?)x)*)([A-Za-z]\w*)\s*(?:,(.*))?>\Z", re.S
)
_STRIDED = re.compile(r"\s*strided<\[([^\]]*)\](?:,\s*offset:\s*(\?|-?\d+))?>\s*(?:,(.*))?\Z", re.S)

#: Function from a weight's name and type to its digest in the store.
StandIn = Callable[[str, TensorType], str]
#: Largest size of a dense constant in bytes; larger constants belong in the weight store.
MAX_DENSE_BYTES = 1 << 26


class AttributeParser(Tokens):
    """Parses types and attributes; ``store`` finds the digests of resources not in ``_digests``."""

    def __init__(self, text: str, where: str, store: WeightStore | None = None):
        super().__init__(text, where)
        self._store = store
        self._digests: dict[str, str] = {}
        self._types: dict[str, Type] = {}
        #: Creates weights that the text names but does not contain; created weights by name.
        self._stand_in: StandIn | None = None
        self._embedded: frozenset[str] = frozenset()

    # -- types -----------------------------------------------------------------------------------

    def type(self) -> Type:
        token = self._next()
        found = self._types.get(token)
        if found is None:
            found = DTYPES.get(token) or (INDEX if token == "index" else None)
            if found is None:
                found = opaque(token) if token[:1] == "!" and "." in token else self._shaped(token)
            self._types[token] = found
        return found

    def _shaped(self, token: str) -> Type:
        at = self._at - 1
        match = _SHAPED.match(token)
        if match is None or match[3] not in DTYPES:
            self._fail(f"{shown(token)} is not a type", at)
        family, dims, element, rest = match.groups()
        shape = [None if d == "?" else int(d) for d in dims.split("x")[:-1]]
        try:
            return getattr(self, f"_{family}")(shape, DTYPES[element], rest)
        except (ValueError, TypeError, UserError) as problem:
            self._fail(f"{shown(token)} is not a type: {problem}", at)

    def _tensor(self, shape, element, rest):
        facts = _facts(rest) if rest else {}
        return tensor(_named(shape, facts.get("dims")), element, facts.get("order"))

    def _memref(self, shape, element, rest):
        match = _STRIDED.match(rest or "")
        facts: dict = {}
        space = "dram"
        strides: Sequence[int | None] | None = None
        offset = None
        if match:
            texts = [s.strip() for s in match[1].split(",") if s.strip()]
            strides = [None if s == "?" else int(s) for s in texts]
            offset = None if match[2] == "?" else int(match[2] or 0)
            rest = match[3]
        if rest and rest.strip():
            described = AttributeParser(rest, "memref").run(AttributeParser.attribute)
            facts = described if isinstance(described, dict) else {"space": described}
        space = facts.get("space", space)
        shape = _named(shape, facts.get("dims"))
        if strides is None:
            strides, offset = row_major(shape), 0
        steps = _named(strides, facts.get("strides"))
        return buffer(shape, element, steps, _named([offset], (facts.get("offset"),))[0], space)

    def _vector(self, shape, element, rest):
        if len(shape) != 1 or shape[0] is None or rest:
            raise ValueError("a vector must have one known length")
        return vector(shape[0], element)

    # -- attributes ------------------------------------------------------------------------------

    def _dictionary(self) -> dict:
        self._expect("{")
        table: dict = {}

        def entry() -> None:
            at = self._at
            token = self._next()
            key = unquoted(token) if token[:1] == '"' else token
            if not key or not (token[0] == '"' or _IDENTIFIER(token)):
                self._fail(f"expected an attribute's name, found {shown(token)}", at)
            if key in table:
                self._fail(f"duplicate attribute {key}", at)
            table[key] = self.attribute() if self._accept("=") else True

        self._items("}", entry)
        return table

    def attribute(self):
        """Parse an attribute; dictionaries (which are not attributes of this IR) become dicts."""
        token = self._tokens[self._at]
        first = token[:1]
        if first == '"':
            return self._string()
        if first == "[":
            self._at += 1
            return tuple(self._items("]", self.attribute))
        if first == "{":
            return self._dictionary()
        if token == "true" or token == "false":
            self._at += 1
            return token == "true"
        if token == "dense":
            return self._dense()
        if token == "dense_resource":
            return self._resource()
        if _NUMBER(token):
            return self._number()
        if token == "array":
            self._fail("array<...> is not supported; write [1, 2]")
        return self.type()

    def _number(self) -> int | float:
        at = self._at
        token = self._next()
        typed = self._next() if self._accept(":") else ""
        if "0x" in token and typed == "f64":
            bits = int(token, 16)
            if not 0 <= bits < 2**64:
                self._fail("the number has more than 64 bits", at)
            return float(np.uint64(bits).view(np.float64))
        if "." in token or typed[:1] in ("f", "b"):
            if typed not in ("", "f64"):
                self._fail(f"expected a number of type i64 or f64, found {typed}", at)
            return float(token)
        if typed and not _INT_TYPE(typed):
            self._fail(f"{typed} is not a numeric type", at)
        return self._number_of(token)

    def _dense(self) -> Dense:
        at = self._at
        self._next()
        self._expect("<")
        body_at = self._at
        depth = 0
        while not (depth == 0 and self._tokens[self._at] == ">"):
            token = self._next()
            if not token:
                self._fail("dense<...> is not closed", at)
            depth += (token == "[") - (token == "]")
        items = self._tokens[body_at : self._at]
        self._expect(">")
        self._expect(":")
        type_ = self.type()
        if not isinstance(type_, TensorType) or not type_.is_static:
            self._fail("a dense constant must have a tensor type with known sizes", at)
        if type_.bytes > MAX_DENSE_BYTES:
            what = f"a dense constant of {type_.bytes} bytes is too large"
            self._fail(what, at, "use dense_resource")
        try:
            return Dense(type_, dense_bytes(items, type_))
        except (ValueError, OverflowError) as problem:
            self._fail(f"dense constant: {problem}", at)

    def _resource(self) -> Resource:
        at = self._at
        self._next()
        self._expect("<")
        token = self._next()
        name = unquoted(token) if token[:1] == '"' else token
        self._expect(">")
        self._expect(":")
        type_ = self.type()
        if not isinstance(type_, TensorType):
            self._fail("a resource must have a tensor type", at)
        if self._stand_in is not None and name not in self._embedded:
            self._digests[name] = self._stand_in(name, type_)
        digest = self._digests.get(name)
        if digest is None:
            store = () if self._store is None or name[:2] != "w_" else self._store
            found = [d for d in store if d.startswith(name[2:])]
            if len(found) != 1:
                fix = "add core.weights = {name = digest} to the module, or pass a weight store"
                self._fail(f"unknown weights {name}", at, fix)
            digest = self._digests[name] = found[0]
        return Resource(type_, digest)


def _facts(text: str) -> dict:
    """Parse a dictionary's text, ``{dims = ["batch", 4]}``, into a dict."""
    parser = AttributeParser(text, "encoding")
    facts = parser.run(AttributeParser._dictionary)
    return facts


def _named(shape, names) -> tuple:
    """Return ``shape`` with its unknown (None) dimensions replaced by ``names``."""
    if all(d is not None for d in shape):
        return tuple(shape)
    if not isinstance(names, tuple) or len(names) != len(shape):
        raise ValueError("every ? needs a name")
    for known, name in zip(shape, names, strict=True):
        if not (isinstance(name, str) if known is None else name == known):
            raise ValueError("the names do not match the sizes")
    return names
