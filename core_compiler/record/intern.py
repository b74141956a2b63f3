"""Interning: every string, type, origin, value, op and block of a compile gets an id, once.

New rows are buffered here until the recorder writes them in batches.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_compiler.ir.attributes import Attribute, Resource, attributes_key
from core_compiler.ir.core import Block, Function, Op, Value
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ir.types import Type
from core_compiler.record.encoding import FEW, attributes_json, edits, ids_json, pack

#: Maximum length of a chain of edits from a block to one stored in full.
CHAIN = 9

INSERTS = {
    "name": "INSERT INTO name VALUES (?, ?)",
    "type": "INSERT INTO type VALUES (?, ?)",
    "attributes": "INSERT INTO attributes VALUES (?, ?)",
    "node": "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?)",
    "origin": "INSERT INTO origin VALUES (?, ?, ?, ?, ?)",
    "op": "INSERT INTO op VALUES (?, ?, ?, ?, ?, ?, ?)",
    "block": "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?)",
    "function": "INSERT INTO function VALUES (?, ?, ?, ?, ?)",
    "weight": "INSERT OR IGNORE INTO weight VALUES (?, ?)",
    "blob": "INSERT INTO blob VALUES (?, ?, ?, ?)",
}

#: All values at once, by their types: consecutive ids.  Most have no name.
_VALUES = "INSERT INTO value SELECT ? + key, value, NULL FROM json_each(?)"
_VALUE_NAMES = "UPDATE value SET name = ? WHERE id = ?"

_encode = json.JSONEncoder(separators=(",", ":")).encode


def clean(text: str) -> str:
    """Return text that SQLite can store: lone surrogates (from odd file names) are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class Interner:
    """Ids by dictionary, with unwritten rows by table.

    With ``source_text`` off, source lines are omitted from stack traces.
    """

    def __init__(self, source_text: bool = True) -> None:
        self._source_text = source_text
        self.rows: dict[str, list[tuple]] = {table: [] for table in INSERTS}
        self._value_types: list[int] = []
        self._value_names: list[tuple[str, int]] = []
        self.ops: dict[Op, int] = {}
        self.values: dict[Value, int] = {}
        self._names: dict[str, int] = {}
        self._types: dict[Type, int] = {}
        self._attributes: dict[tuple, int] = {}
        #: Ids of attributes and types by object: most are shared.  The objects are referenced, so
        #: that their addresses are not reused.
        self._seen: dict[int, tuple[Type, int]] = {}
        self._shared: dict[int, tuple[Mapping[str, Attribute], int]] = {}
        self._nodes: dict[FrontendNode, int] = {}
        self._frames: dict[tuple[str, int, str, str], str] = {}
        self._origins: dict[Origin, int] = {}
        self._blocks: dict[Block, int] = {}
        self._functions: dict[Function, int] = {}
        self._blobs: dict[bytes, int] = {}
        #: The ids of the regions of each op that has any.
        self._regions: dict[int, list[int]] = {}
        #: The op ids of each block, and its distance from one stored in full.
        self._contents: dict[int, tuple[list[int], int]] = {}
        #: The latest block that contained an op: the base of the next block that contains it.
        self._home: dict[int, int] = {}

    def take(self) -> list[tuple[str, Sequence[tuple]]]:
        """Return the pending statements, each with its rows, and clear them."""
        rows, self.rows = self.rows, {table: [] for table in INSERTS}
        types, self._value_types = self._value_types, []
        names, self._value_names = self._value_names, []
        made: list[tuple[str, Sequence[tuple]]] = [(INSERTS[t], some) for t, some in rows.items()]
        if types:
            made.append((_VALUES, [(len(self.values) - len(types) + 1, ids_json(types))]))
            made.append((_VALUE_NAMES, names))
        return [one for one in made if one[1]]

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
        self._seen[id(type_)] = type_, found
        return found

    def value(self, value: Value) -> int:
        found = self.values.get(value)
        if found is None:
            found = self.values[value] = len(self.values) + 1
            seen = self._seen.get(id(value.type))
            self._value_types.append(seen[1] if seen is not None else self.type(value.type))
            if value.name:
                self._value_names.append((clean(value.name), found))
        return found

    def attributes(self, attributes: Mapping[str, Attribute]) -> int | None:
        if not attributes:
            return None
        shared = self._shared.get(id(attributes))
        if shared is None:
            shared = self._shared[id(attributes)] = attributes, self._equal_attributes(attributes)
        return shared[1]

    def _equal_attributes(self, attributes: Mapping[str, Attribute]) -> int:
        key = attributes_key(attributes.items())
        found = self._attributes.get(key)
        if found is None:
            found = self._attributes[key] = len(self._attributes) + 1
            self.rows["attributes"].append((found, attributes_json(attributes)))
            self._weights(attributes.values())
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
            stack = f"[{','.join(map(self._frame, node.stack))}]"
            row = (found, *texts, node.line, clean(node.scope), stack)
            self.rows["node"].append(row)
        return found

    def _frame(self, frame: tuple[str, int, str, str]) -> str:
        """Return one stack frame as JSON; outer frames are common to all stacks."""
        found = self._frames.get(frame)
        if found is None:
            found = self._frames[frame] = _encode(frame if self._source_text else (*frame[:3], ""))
        return found

    def origin(self, origin: Origin | None) -> int | None:
        """Return the origin's id; its parents get smaller ones."""
        if origin is None:
            return None
        known = self._origins
        found = known.get(origin)
        if found is not None:
            return found
        stack = [origin]
        while stack:
            current = stack[-1]
            waiting = [p for p in current.parents if p not in known]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if current not in known:
                found = known[current] = len(known) + 1
                parents = str([known[p] for p in current.parents])
                node = None if current.node is None else self.node(current.node)
                reason = clean(current.reason) if current.reason else ""
                self.rows["origin"].append((found, self.name(current.rule), parents, node, reason))
        return known[origin]

    def op(self, op: Op) -> int:
        found = self.ops.get(op)
        if found is None:
            regions = [self.block(b) for b in op.regions]
            known, value = self.values, self.value
            operands = str([known.get(v) or value(v) for v in op.operands])
            results = str([known.get(v) or value(v) for v in op.results])
            found = self.ops[op] = len(self.ops) + 1
            kind = self._names.get(op.kind) or self.name(op.kind)
            facts = self.attributes(op.attributes) if op.attributes else None
            origin = self.origin(op.origin)
            if regions:
                self._regions[found] = regions
            row = (found, kind, operands, results, facts, str(regions), origin)
            self.rows["op"].append(row)
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
        """Return how to store a block: (base or None, numbers to pack, steps to a full one)."""
        base = next((self._home[op] for op in ops if op in self._home), None)
        if base is not None and len(ops) >= FEW:
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
        """Return the ids of all ops of a function, including nested ones."""
        found: set[int] = set()
        blocks = [self._blocks[function.body]]
        while blocks:
            ops = set(self._contents[blocks.pop()][0])
            found |= ops
            blocks += [block for op in ops & self._regions.keys() for block in self._regions[op]]
        return found

    def blob(self, content: bytes | str) -> int:
        content = clean(content).encode() if isinstance(content, str) else bytes(content)
        digest = hashlib.sha256(content).digest()
        found = self._blobs.get(digest)
        if found is None:
            found = self._blobs[digest] = len(self._blobs) + 1
            self.rows["blob"].append((found, digest, len(content), zlib.compress(content, 1)))
        return found
