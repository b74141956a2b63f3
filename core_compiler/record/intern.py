"""Numbering: every string, type, origin, value, op and block of a compile gets an id, once.

Rows of what is new collect here until the recorder writes them, many at a time.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_compiler.ir.attributes import Attribute, Resource
from core_compiler.ir.core import Block, Function, Op, Value
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ir.types import Type
from core_compiler.record.encoding import attributes_json, edits, ids_json, pack

#: A block stored as edits of another is at most this many steps from a whole one.
CHAIN = 9

INSERTS = {
    "name": "INSERT INTO name VALUES (?, ?)",
    "type": "INSERT INTO type VALUES (?, ?)",
    "attributes": "INSERT INTO attributes VALUES (?, ?)",
    "node": "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?)",
    "origin": "INSERT INTO origin VALUES (?, ?, ?, ?, ?)",
    "value": "INSERT INTO value VALUES (?, ?, ?)",
    "op": "INSERT INTO op VALUES (?, ?, ?, ?, ?, ?, ?)",
    "result": "INSERT OR IGNORE INTO result VALUES (?, ?)",
    "block": "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?)",
    "function": "INSERT INTO function VALUES (?, ?, ?, ?, ?)",
    "weight": "INSERT OR IGNORE INTO weight VALUES (?, ?)",
    "blob": "INSERT INTO blob VALUES (?, ?, ?, ?)",
}

_encode = json.JSONEncoder(separators=(",", ":")).encode


#: Attributes of these classes are told apart by class and value (0.0 and -0.0 would not be).
_SIMPLE = {bool, int, str}


def _simple_key(attributes: Mapping[str, Attribute]) -> tuple | None:
    """What equal attributes, and only they, have in common; None where that takes a closer look."""
    values = tuple(attributes.values())
    for value in values:
        if isinstance(value, tuple):
            if not {int}.issuperset(map(type, value)):
                return None
        elif value.__class__ not in _SIMPLE:
            return None
    return (*attributes, *values, *[value.__class__ for value in values])


def clean(text: str) -> str:
    """Text that SQLite stores: lone surrogates (from odd file names) are spelled out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class Interner:
    """Ids by dictionary; ``rows`` holds what was not written yet, by table."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple]] = {table: [] for table in INSERTS}
        self.ops: dict[Op, int] = {}
        self.values: dict[Value, int] = {}
        self._names: dict[str, int] = {}
        self._types: dict[Type, int] = {}
        self._attributes: dict[str, int] = {}
        #: Ids of attributes by what is quick to compare, and of types by object: most are shared.
        self._simple: dict[tuple, int] = {}
        self._seen: dict[int, tuple[Type, int]] = {}
        self._nodes: dict[FrontendNode, int] = {}
        self._origins: dict[Origin, int] = {}
        self._blocks: dict[Block, int] = {}
        self._functions: dict[Function, int] = {}
        self._blobs: dict[bytes, int] = {}
        #: Of each block: the ids of its ops, and how far it is from a whole one.
        self._contents: dict[int, tuple[list[int], int]] = {}
        #: The latest block in which an op was seen: the base of the next one that has it.
        self._home: dict[int, int] = {}

    def take(self) -> dict[str, list[tuple]]:
        """The rows to write now."""
        rows, self.rows = self.rows, {table: [] for table in INSERTS}
        return rows

    def name(self, text: str) -> int:
        found = self._names.get(text)
        if found is None:
            found = self._names[text] = len(self._names) + 1
            self.rows["name"].append((found, clean(text)))
        return found

    def type(self, type_: Type) -> int:
        seen = self._seen.get(id(type_))
        if seen is not None:
            return seen[1]
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = len(self._types) + 1
            self.rows["type"].append((found, str(type_)))
        self._seen[id(type_)] = type_, found  # held, so that no other gets its address
        return found

    def value(self, value: Value) -> int:
        found = self.values.get(value)
        if found is None:
            found = self.values[value] = len(self.values) + 1
            name = clean(value.name) if value.name else None
            self.rows["value"].append((found, self.type(value.type), name))
        return found

    def attributes(self, attributes: Mapping[str, Attribute]) -> int | None:
        if not attributes:
            return None
        key = _simple_key(attributes)
        known = self._simple.get(key) if key is not None else None
        if known is not None:
            return known
        text = attributes_json(attributes)
        found = self._attributes.get(text)
        if found is None:
            found = self._attributes[text] = len(self._attributes) + 1
            self.rows["attributes"].append((found, text))
            self._weights(attributes.values())
        if key is not None:
            self._simple[key] = found
        return found

    def _weights(self, values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, Resource):
                self.rows["weight"].append((value.digest, str(value.type)))
            elif isinstance(value, tuple):
                self._weights(value)

    def node(self, node: FrontendNode) -> int:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = len(self._nodes) + 1
            texts = (clean(node.name), clean(node.kind), clean(node.file))
            stack = _encode([list(frame) for frame in node.stack])
            row = (found, *texts, node.line, clean(node.scope), stack)
            self.rows["node"].append(row)
        return found

    def origin(self, origin: Origin | None) -> int | None:
        """The origin's id; its parents get smaller ones."""
        if origin is None:
            return None
        known = self._origins
        stack = [] if origin in known else [origin]
        while stack:
            current = stack[-1]
            waiting = [p for p in current.parents if p not in known]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if current not in known:
                known[current] = len(known) + 1
                parents = ids_json([known[p] for p in current.parents])
                node = None if current.node is None else self.node(current.node)
                facts = self.name(current.rule), parents, node, clean(current.reason)
                self.rows["origin"].append((known[current], *facts))
        return known[origin]

    def op(self, op: Op) -> int:
        found = self.ops.get(op)
        if found is None:
            regions = ids_json([self.block(b) for b in op.regions]) if op.regions else "[]"
            known, value = self.values, self.value
            operands = [known.get(v) or value(v) for v in op.operands]
            results = [known.get(v) or value(v) for v in op.results]
            found = self.ops[op] = len(self.ops) + 1
            kind, facts = self.name(op.kind), self.attributes(op.attributes)
            texts = ids_json(operands), ids_json(results)
            row = (found, kind, *texts, facts, regions, self.origin(op.origin))
            self.rows["op"].append(row)
            self.rows["result"] += [(v, found) for v in results]
        return found

    def block(self, block: Block) -> int:
        found = self._blocks.get(block)
        if found is None:
            known = self.ops
            ops = [known.get(op) or self.op(op) for op in block.ops]
            found = self._blocks[block] = len(self._blocks) + 1
            sides = [
                ids_json([self.value(v) for v in values])
                for values in (block.arguments, block.outputs)
            ]
            base, numbers, distance = self._shorter(ops)
            row = (found, *sides, len(ops), base, len(numbers), pack(numbers))
            self.rows["block"].append(row)
            self._contents[found] = ops, distance
            self._home.update(dict.fromkeys(ops, found))
        return found

    def _shorter(self, ops: list[int]) -> tuple[int | None, Sequence[int], int]:
        """How to store a block: (base or None, numbers to pack, distance from a whole one)."""
        base = next((self._home[op] for op in ops if op in self._home), None)
        if base is not None:
            old, distance = self._contents[base]
            if distance < CHAIN:
                script = edits(old, ops)
                if 2 * len(script) < len(ops):
                    return base, script, distance + 1
        return None, ops, 0

    def function(self, function: Function) -> int:
        found = self._functions.get(function)
        if found is None:
            body, facts = self.block(function.body), self.attributes(function.attributes)
            found = self._functions[function] = len(self._functions) + 1
            names = clean(function.name), clean(function.level)
            self.rows["function"].append((found, *names, body, facts))
        return found

    def contents(self, function: Function) -> set[int]:
        """The ids of all ops of a function, nested ones too."""
        found: set[int] = set()
        blocks = [function.body]
        while blocks:
            block = blocks.pop()
            found.update(self._contents[self._blocks[block]][0])
            blocks += [region for op in block.ops for region in op.regions]
        return found

    def blob(self, content: bytes | str) -> int:
        content = clean(content).encode() if isinstance(content, str) else bytes(content)
        digest = hashlib.sha256(content).digest()
        found = self._blobs.get(digest)
        if found is None:
            found = self._blobs[digest] = len(self._blobs) + 1
            self.rows["blob"].append((found, digest, len(content), zlib.compress(content, 1)))
        return found
