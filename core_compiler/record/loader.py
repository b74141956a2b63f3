"""Loading of IR by ids: each id becomes one object, the same in every stage that has it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from core_compiler.ir.attributes import Attribute, frozen_attributes
from core_compiler.ir.core import Block, Function, Module, Op, Value
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ir.parser import parse_type
from core_compiler.ir.types import Type
from core_compiler.ir.weights import WeightStore
from core_compiler.record.encoding import (
    apply_edits,
    read_attributes,
    read_ids,
    read_json_rows,
    unpack,
)
from core_compiler.record.file import RecordingFile

#: Ids in one SELECT (SQLite's limit on parameters is far above).
_BATCH = 500
#: The columns read of each table, and their types.
_TABLES = {
    "name": ("id, text", "it"),
    "type": ("id, text", "it"),
    "attributes": ("id, json", "it"),
    "node": ("id, name, kind, file, line, scope, stack", "itttitt"),
    "origin": ("id, rule, parents, node, reason", "iitIt"),
    "value": ("id, type, name", "iiT"),
    "block": ("id, arguments, outputs, base, length, size, data", "ittIiid"),
    "op": ("id, kind, operands, results, attributes, regions, origin", "iittItI"),
}
#: Id lists of at least this length are kept, to rebuild the blocks stored as edits of them.
_LONG = 64
_KEPT_LISTS = 64

#: Maximum line number of a source file.
MAX_LINE = (1 << 31) - 1


class _Rows:
    """The rows that one load has fetched but not yet turned into objects."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[list[int], list[int]]] = {}
        self.lists: dict[int, list[int]] = {}
        self.ops: dict[int, tuple] = {}
        self.kinds: dict[int, str] = {}
        self.facts: dict[int, Mapping[str, Attribute]] = {}
        self.open: set[int] = set()


class Loader:
    """Objects by id, loaded on demand in batches.  Call it under the file's guard.

    Origins and blocks may only refer to earlier rows; other content is forged and raises
    ValueError.
    """

    def __init__(self, file: RecordingFile, weights: WeightStore):
        self._file, self.weights = file, weights
        self.ops: dict[int, Op] = {}
        self.values: dict[int, Value] = {}
        self.op_ids: dict[Op, int] = {}
        self.value_ids: dict[Value, int] = {}
        self._origins: dict[int, Origin] = {}
        self._nodes: dict[int, FrontendNode] = {}
        self._blocks: dict[int, Block] = {}
        self._functions: dict[int, Function] = {}
        self._names: dict[int, str] = {}
        self._types: dict[int, Type] = {}
        self._attributes: dict[int, Mapping[str, Attribute]] = {}
        self._lists: OrderedDict[int, list[int]] = OrderedDict()

    # -- what others ask for ---------------------------------------------------------------------

    def function(self, key: int) -> Function:
        found = self._functions.get(key)
        if found is None:
            ((name, level, body, facts),) = self._select(
                "ttiI", "SELECT name, level, body, attributes FROM function WHERE id = ?", (key,)
            )
            attributes = self.attributes([facts]).get(facts, {})
            found = Function(name, self.block(body), level, attributes)
            self._functions[key] = found
        return found

    def module(self, functions: Iterable[int], symbols: Mapping[str, Any]) -> Module:
        made = [self.function(key) for key in functions]
        ranges = {str(name): (int(low), int(high)) for name, (low, high) in symbols.items()}
        return Module({f.name: f for f in made}, self.weights, ranges)

    def facts(self, functions: Iterable[int], name: str) -> Mapping[str, Attribute]:
        """Return the attributes of the function of this name."""
        for key in functions:
            ((found, facts),) = self._select(
                "tI", "SELECT name, attributes FROM function WHERE id = ?", (key,)
            )
            if found == name:
                return self.attributes([facts]).get(facts, {})
        return {}

    def block(self, key: int) -> Block:
        self._load([key], [])
        return self._blocks[key]

    def load_ops(self, keys: Sequence[int]) -> list[Op]:
        """Return the ops of these ids, in order."""
        self._load([], keys)
        return [self.ops[k] for k in keys]

    # -- blocks and ops --------------------------------------------------------------------------

    def _load(self, blocks: Iterable[int], ops: Iterable[int]) -> None:
        """Create these blocks and ops.

        First the rows of all their contents are read, level by level, then those that these refer
        to, then the objects are created.
        """
        found = _Rows()
        wanted = [k for k in dict.fromkeys(blocks) if k not in self._blocks]
        needed = [k for k in dict.fromkeys(ops) if k not in self.ops]
        while wanted or needed:
            self._fetch_blocks(wanted, found)
            lists = (found.lists[k] for k in wanted)
            inside = dict.fromkeys(op for ids in lists for op in ids)
            needed += [k for k in inside if k not in self.ops and k not in found.ops]
            rows = list(self._by_id("op", list(dict.fromkeys(needed))))
            parts = [read_json_rows([row[column] for row in rows]) for column in (2, 3, 5)]
            for row, operands, results, regions in zip(rows, *parts, strict=True):
                found.ops[row[0]] = (row[1], operands, results, row[4], regions, row[6])
            inner = dict.fromkeys(b for regions in parts[2] for b in regions)
            wanted = [b for b in inner if b not in self._blocks and b not in found.blocks]
            needed = []
        if found.ops or found.blocks:
            self._make(found)

    def _make(self, found: _Rows) -> None:
        rows = found.ops.values()
        self.load_values(
            v
            for some in (*found.blocks.values(), *((row[1], row[2]) for row in rows))
            for side in some
            for v in side
        )
        self.load_origins(row[5] for row in rows)
        found.kinds = self.names(dict.fromkeys(row[0] for row in rows))
        found.facts = self.attributes(row[3] for row in rows)
        for key in found.ops:
            self._make_op(key, found)
        for key in found.blocks:
            self._make_block(key, found)

    def _make_op(self, key: int, found: _Rows) -> Op:
        made = self.ops.get(key)
        if made is None:
            kind, operands, results, attributes, regions, origin = found.ops[key]
            values = self.values
            inner = [self._make_block(b, found) for b in regions] if regions else ()
            made = self.ops[key] = Op(
                found.kinds[kind],
                [values[v] for v in operands],
                [values[v] for v in results],
                found.facts[attributes] if attributes else None,
                inner,
                self._origins[origin] if origin else None,
            )
            self.op_ids[made] = key
        return made

    def _make_block(self, key: int, found: _Rows) -> Block:
        made = self._blocks.get(key)
        if made is None:
            if key in found.open:
                raise ValueError(f"block {key} contains itself")
            found.open.add(key)
            sides = [tuple([self.values[v] for v in side]) for side in found.blocks[key]]
            ops = tuple([self._make_op(op, found) for op in found.lists[key]])
            made = self._blocks[key] = Block(sides[0], ops, sides[1])
        return made

    def _fetch_blocks(self, keys: list[int], found: _Rows) -> None:
        """Fetch arguments, outputs and op ids of these blocks and of those that they edit."""
        rows: dict[int, tuple] = {}
        wanted = keys
        while wanted:
            fetched = list(self._by_id("block", wanted))
            rows.update((row[0], row[1:]) for row in fetched)
            if any(row[3] is not None and row[3] >= row[0] for row in fetched):
                raise ValueError("a block is based on a later one")
            bases = dict.fromkeys(row[3] for row in fetched if row[3] is not None)
            wanted = [b for b in bases if b not in rows and b not in self._lists]
        for key in sorted(rows):
            base, length, size, data = rows[key][2:]
            ids = unpack(data, size)
            if base is not None:
                old = found.lists.get(base) or self._lists.get(base)
                ids = apply_edits(old or [], ids, length)
            if len(ids) != length:
                raise ValueError(f"block {key} has the wrong length")
            found.lists[key] = ids
            if length >= _LONG:
                self._lists[key] = ids
        for key in keys:
            found.blocks[key] = read_ids(rows[key][0]), read_ids(rows[key][1])
        while len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)

    def load_values(self, keys: Iterable[int]) -> None:
        missing = [k for k in dict.fromkeys(keys) if k not in self.values]
        if not missing:
            return
        rows = list(self._by_id("value", missing))
        types = self.types({row[1] for row in rows})
        for key, type_, name in rows:
            value = self.values[key] = Value(types[type_], name)
            self.value_ids[value] = key

    def load_origins(self, keys: Iterable[int | None]) -> None:
        """Load these origins and all their ancestors."""
        rows: dict[int, tuple] = {}
        wanted = {k for k in keys if k is not None and k not in self._origins}
        while wanted:
            found = list(self._by_id("origin", sorted(wanted)))
            wanted = set()
            parents = read_json_rows([row[2] for row in found])
            for (key, rule, _, node, reason), above in zip(found, parents, strict=True):
                if any(p >= key for p in above):
                    raise ValueError(f"origin {key} depends on later ones")
                rows[key] = (rule, above, node, reason)
                wanted.update(p for p in above if p not in self._origins and p not in rows)
        rules = self.names({row[0] for row in rows.values()})
        nodes = self.nodes({row[2] for row in rows.values() if row[2] is not None})
        for key in sorted(rows):
            rule, above, node, reason = rows[key]
            made_of = tuple(self._origins[p] for p in above)
            made = Origin(rules[rule], made_of, None if node is None else nodes[node], reason)
            self._origins[key] = made

    def origin(self, key: int) -> Origin:
        self.load_origins([key])
        return self._origins[key]

    def names(self, keys: Iterable[int]) -> dict[int, str]:
        return self._table(self._names, "name", keys, lambda row: row[1])

    def types(self, keys: Iterable[int]) -> dict[int, Type]:
        return self._table(self._types, "type", keys, lambda row: parse_type(row[1]))

    def attributes(self, keys: Iterable[int | None]) -> dict[int, Mapping[str, Attribute]]:
        wanted = (k for k in keys if k is not None)
        return self._table(
            self._attributes,
            "attributes",
            wanted,
            lambda row: frozen_attributes(read_attributes(row[1])),
        )

    def nodes(self, keys: Iterable[int]) -> dict[int, FrontendNode]:
        missing = [k for k in dict.fromkeys(keys) if k not in self._nodes]
        rows = list(self._by_id("node", missing))
        stacks = read_json_rows([row[6] for row in rows])
        for (key, name, kind, file, line, scope, _), stack in zip(rows, stacks, strict=True):
            frames = tuple([tuple(frame) for frame in stack])
            if not 0 <= line <= MAX_LINE:
                raise ValueError(f"line {line} of a node")
            self._nodes[key] = FrontendNode(name, kind, file, line, scope, frames)
        return self._nodes

    # -- reading rows ----------------------------------------------------------------------------

    def _table(self, cache: dict, table: str, keys: Iterable[int], make: Callable) -> dict:
        """Return ``cache``, with these keys in it."""
        missing = [k for k in dict.fromkeys(keys) if k not in cache]
        for row in self._by_id(table, missing):
            cache[row[0]] = make(row)
        return cache

    def _by_id(self, table: str, keys: list[int]) -> Iterator[tuple]:
        """Yield the rows of these ids; ValueError if one is missing."""
        columns, types = _TABLES[table]
        found = 0
        for start in range(0, len(keys), _BATCH):
            some = keys[start : start + _BATCH]
            marks = ",".join("?" * len(some))
            statement = f"SELECT {columns} FROM {table} WHERE id IN ({marks})"
            rows = self._select(types, statement, tuple(some))
            found += len(rows)
            yield from rows
        if found != len(keys):
            raise ValueError(f"{len(keys) - found} rows of {table} are missing")

    def _select(self, types: str, statement: str, parameters: tuple) -> list[tuple]:
        return self._file.rows(types, statement, parameters)
