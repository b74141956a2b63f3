"""From ids back to IR: each id becomes one object, the same in every stage that has it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from core_compiler.ir.attributes import Attribute
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
    "op": ("id, kind, operands, results, attributes, regions, origin", "iittItI"),
}
#: Whole-block id lists kept to rebuild their neighbours from.
_KEPT_LISTS = 64


class Loader:
    """Objects by id, loaded when first asked for, many at a time.  Call it under the file's guard.

    Origins and blocks may only be made of what was recorded before them; content that says
    otherwise is forged and raises ValueError.
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
        self._attributes: dict[int, dict[str, Attribute]] = {}
        self._lists: OrderedDict[int, list[int]] = OrderedDict()
        self._open_blocks: set[int] = set()

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

    def block(self, key: int) -> Block:
        found = self._blocks.get(key)
        if found is None:
            if key in self._open_blocks:
                raise ValueError(f"block {key} lies inside itself")
            self._open_blocks.add(key)
            try:
                ((arguments, outputs),) = self._select(
                    "tt", "SELECT arguments, outputs FROM block WHERE id = ?", (key,)
                )
                sides = read_ids(arguments), read_ids(outputs)
                ops = self.load_ops(self._op_list(key))
                self.load_values([*sides[0], *sides[1]])
                values = [tuple(self.values[v] for v in side) for side in sides]
                found = self._blocks[key] = Block(values[0], tuple(ops), values[1])
            finally:
                self._open_blocks.discard(key)
        return found

    def load_ops(self, keys: list[int]) -> list[Op]:
        """The ops of these ids, in their order."""
        missing = [k for k in dict.fromkeys(keys) if k not in self.ops]
        if missing:
            rows = list(self._by_id("op", missing))
            self._make_ops(rows)
        return [self.ops[k] for k in keys]

    def _make_ops(self, rows: list[tuple]) -> None:
        kinds = self.names({row[1] for row in rows})
        facts = self.attributes([row[4] for row in rows])
        uses = read_json_rows([row[2] for row in rows])
        makes = read_json_rows([row[3] for row in rows])
        self.load_values(v for some in (*uses, *makes) for v in some)
        self.load_origins(row[6] for row in rows)
        values, origins = self.values, self._origins
        nothing: dict[str, Attribute] = {}
        for row, operands, results in zip(rows, uses, makes, strict=True):
            key, kind, _, _, attributes, regions, origin = row
            op = Op(
                kinds[kind],
                [values[v] for v in operands],
                [values[v] for v in results],
                facts[attributes] if attributes else nothing,
                [self.block(b) for b in read_ids(regions)] if regions != "[]" else (),
                origins[origin] if origin else None,
            )
            if key not in self.ops:  # not made by a region of another
                self.ops[key] = op
                self.op_ids[op] = key

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
        """These origins and all their ancestors."""
        rows: dict[int, tuple] = {}
        wanted = {k for k in keys if k is not None and k not in self._origins}
        while wanted:
            found = list(self._by_id("origin", sorted(wanted)))
            wanted = set()
            parents = read_json_rows([row[2] for row in found])
            for (key, rule, _, node, reason), above in zip(found, parents, strict=True):
                if any(p >= key for p in above):
                    raise ValueError(f"origin {key} is made of later ones")
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

    def attributes(self, keys: Iterable[int | None]) -> dict[int, dict[str, Attribute]]:
        wanted = (k for k in keys if k is not None)
        return self._table(
            self._attributes, "attributes", wanted, lambda row: read_attributes(row[1])
        )

    def nodes(self, keys: Iterable[int]) -> dict[int, FrontendNode]:
        missing = [k for k in dict.fromkeys(keys) if k not in self._nodes]
        rows = list(self._by_id("node", missing))
        stacks = read_json_rows([row[6] for row in rows])
        for (key, name, kind, file, line, scope, _), stack in zip(rows, stacks, strict=True):
            frames = tuple([tuple(frame) for frame in stack])
            self._nodes[key] = FrontendNode(name, kind, file, line, scope, frames)
        return self._nodes

    # -- reading rows ----------------------------------------------------------------------------

    def _table(self, cache: dict, table: str, keys: Iterable[int], make: Callable) -> dict:
        """``cache``, with these keys in it."""
        missing = [k for k in dict.fromkeys(keys) if k not in cache]
        for row in self._by_id(table, missing):
            cache[row[0]] = make(row)
        return cache

    def _by_id(self, table: str, keys: list[int]) -> Iterator[tuple]:
        """The rows of these ids; ValueError where one is missing."""
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

    def _op_list(self, key: int) -> list[int]:
        """The ids of a block's ops: its own list, or edits on top of the block it is based on."""
        chain = []
        current: int | None = key
        while current is not None and current not in self._lists:
            ((base, length, size, data),) = self._select(
                "Iiib", "SELECT base, length, size, data FROM block WHERE id = ?", (current,)
            )
            if base is not None and base >= current:
                raise ValueError(f"block {current} is based on a later one")
            chain.append((current, base, length, unpack(data, size)))
            current = base
        for current, base, length, numbers in reversed(chain):
            ids = numbers if base is None else apply_edits(self._lists[base], numbers, length)
            if len(ids) != length:
                raise ValueError(f"block {current} has another length")
            self._lists[current] = ids
        ids = self._lists[key]
        self._lists.move_to_end(key)
        while len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)
        return ids
