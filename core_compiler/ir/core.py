"""Values, ops, blocks, functions and modules: immutable, shared between snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from core_compiler.ir.attributes import Attribute, frozen_attributes
from core_compiler.ir.markup import Displayed
from core_compiler.ir.origin import Origin
from core_compiler.ir.types import Type
from core_compiler.ir.weights import WeightStore

_NO_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType({})


class Value:
    """An SSA value: an identity with a type and an optional name; it does not know its op."""

    __slots__ = ("name", "type")

    # A ``Type``. The op's kind and the level determine which; the verifier checks it.
    type: Any
    name: str | None

    def __init__(self, type: Type, name: str | None = None):
        self.type, self.name = type, name

    @override
    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


class Op:
    """An immutable operation: ``results = kind(operands) {attributes} (regions)``.

    ``regions`` are single blocks. A region may use values of the enclosing blocks. Ops compare by
    identity; a pass that changes nothing returns the same objects.
    """

    __slots__ = ("_free", "attributes", "kind", "operands", "origin", "regions", "results")

    kind: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Mapping[str, Any]  # of :data:`Attribute`, as the op's kind defines
    regions: tuple[Block, ...]
    origin: Origin | None
    _free: tuple[Value, ...] | None

    def __init__(self, kind, operands=(), results=(), attributes=None, regions=(), origin=None):
        set_ = object.__setattr__
        set_(self, "kind", kind)
        set_(self, "operands", tuple(operands))
        set_(self, "results", tuple(results))
        set_(self, "attributes", frozen_attributes(attributes) if attributes else _NO_ATTRIBUTES)
        set_(self, "regions", tuple(regions))
        set_(self, "origin", origin)
        set_(self, "_free", None)

    @override
    def __setattr__(self, name, value):
        raise AttributeError(f"ops are immutable: cannot set {name}; use with_()")

    def __getitem__(self, attribute: str) -> Any:
        return self.attributes[attribute]

    def get(self, attribute: str, default=None) -> Any:
        return self.attributes.get(attribute, default)

    @property
    def result(self) -> Value:
        """The only result; ValueError if there is not exactly one."""
        (value,) = self.results
        return value

    def with_(self, **parts) -> Op:
        """Return this op with some of its parts replaced (``operands=``, ``attributes=``, ...)."""
        fields = {n: getattr(self, n) for n in Op.__slots__ if n != "_free"}
        fields.update(parts)
        return Op(**fields)

    def uses(self) -> tuple[Value, ...]:
        """Return the operands, then the outer values of regions (each once, in program order)."""
        if not self.regions:
            return self.operands
        if self._free is None:
            seen = dict.fromkeys(self.operands)
            for block in self.regions:
                seen.update(dict.fromkeys(block.free_values()))
            object.__setattr__(self, "_free", tuple(seen))
        return self._free  # type: ignore[return-value]  # the line above is an assignment

    def substitute(self, mapping: Mapping[Value, Value]) -> Op:
        """Return this op with ``mapping[v]`` in place of ``v``, also in regions, or itself."""
        if not any(v in mapping for v in self.uses()):
            return self
        return self.with_(
            operands=tuple(mapping.get(v, v) for v in self.operands),
            regions=tuple(block.substitute(mapping) for block in self.regions),
        )

    def walk(self) -> Iterator[Op]:
        """Yield this op, then every op of its regions, in program order."""
        yield self
        if self.regions:
            yield from _nested(self.regions)

    @override
    def __repr__(self) -> str:
        outs = ", ".join(f"%{v.name or '?'}" for v in self.results)
        ins = ", ".join(f"%{v.name or '?'}" for v in self.operands)
        return f"<{outs} = {self.kind}({ins})>"


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """A straight-line list of ops with ``arguments`` and ``outputs`` (MLIR's terminator)."""

    arguments: tuple[Value, ...] = ()
    ops: tuple[Op, ...] = ()
    outputs: tuple[Value, ...] = ()

    def walk(self) -> Iterator[Op]:
        """Yield every op, nested ones after the op that contains them."""
        return _nested((self,))

    def free_values(self) -> tuple[Value, ...]:
        """Return the values used here but defined outside, each once, in program order."""
        bound = set(self.arguments)
        free: dict[Value, None] = {}
        for op in self.ops:
            for value in op.uses():
                if value not in bound:
                    free[value] = None
            bound.update(op.results)
        for value in self.outputs:
            if value not in bound:
                free[value] = None
        return tuple(free)

    def producers(self) -> dict[Value, Op]:
        """Return the op of this block that defines each value."""
        return {v: op for op in self.ops for v in op.results}

    def users(self) -> dict[Value, list[Op]]:
        """Return the users of each value in this block, also in regions, in program order."""
        table: dict[Value, list[Op]] = {}
        for op in self.ops:
            for value in dict.fromkeys(op.uses()):
                table.setdefault(value, []).append(op)
        return table

    def substitute(self, mapping: Mapping[Value, Value]) -> Block:
        ops = tuple(op.substitute(mapping) for op in self.ops)
        outputs = tuple(mapping.get(v, v) for v in self.outputs)
        if outputs == self.outputs and all(a is b for a, b in zip(ops, self.ops, strict=True)):
            return self
        return Block(self.arguments, ops, outputs)

    def with_(self, **parts) -> Block:
        return replace(self, **parts)


def _nested(blocks: tuple[Block, ...]) -> Iterator[Op]:
    """Yield every op of ``blocks``, nested ones after the op that contains them.

    A single generator handles all levels, because kernels are traversed very often.
    """
    stack = [iter(b.ops) for b in reversed(blocks)]
    while stack:
        for op in stack[-1]:
            yield op
            if op.regions:
                stack.extend(iter(b.ops) for b in reversed(op.regions))
                break
        else:
            stack.pop()


def clone_block(block: Block, mapping: dict[Value, Value] | None = None) -> Block:
    """Return a copy with fresh values; ``mapping`` (extended in place) renames outer values."""
    mapping = {} if mapping is None else mapping

    def fresh(values):
        for value in values:
            mapping[value] = Value(value.type, value.name)
        return tuple(mapping[v] for v in values)

    def copy(op: Op) -> Op:
        operands = tuple(mapping.get(v, v) for v in op.operands)
        regions = tuple(clone_block(b, mapping) for b in op.regions)
        return op.with_(operands=operands, results=fresh(op.results), regions=regions)

    arguments = fresh(block.arguments)
    ops = tuple(copy(op) for op in block.ops)
    return Block(arguments, ops, tuple(mapping.get(v, v) for v in block.outputs))


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A named block; ``level`` is ``tensor``, ``kernel`` or ``target``.

    ``attributes`` contains facts about the whole function: ``aliases`` as ``((result, argument),
    ...)`` says that a result may reuse a donated argument's memory; ``schedule``, ``target``...
    """

    name: str
    body: Block
    level: str = "tensor"
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of :data:`Attribute`

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.body.arguments

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.body.outputs

    def with_(self, **parts) -> Function:
        return replace(self, **parts)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Module(Displayed):
    """Functions by name (``main`` is the entry), the weight store, and facts about symbols.

    ``symbols`` maps a symbolic size to its inclusive ``(low, high)`` range (high -1: unbounded).
    """

    functions: Mapping[str, Function]
    weights: WeightStore = field(default_factory=WeightStore)
    symbols: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def main(self) -> Function:
        return self.functions["main"]

    def with_function(self, function: Function) -> Module:
        """Return this module with ``function`` added, or in place of the one of its name."""
        if self.functions.get(function.name) is function:
            return self
        return replace(self, functions={**self.functions, function.name: function})

    def with_main(self, body: Block) -> Module:
        """Return this module with another main block; the same module if the block is the same."""
        return self if body is self.main.body else self.with_function(self.main.with_(body=body))

    def with_(self, **parts) -> Module:
        return replace(self, **parts)

    def walk(self) -> Iterator[Op]:
        for function in self.functions.values():
            yield from function.body.walk()

    @override
    def __repr__(self) -> str:
        ops = sum(1 for _ in self.walk())
        return f"<module of {ops} ops in {', '.join(self.functions)}>"


def structure_key(module: Module) -> str:
    """Return the SHA-256 of structure, attributes and weights, the input of the numerics identity.

    Names, locations and the numbering of values are not included, except for the arguments of
    kernels: their buffer types refer to sizes by the names of index arguments.
    """
    import hashlib

    state = hashlib.sha256()

    def put_block(block: Block, numbers: dict[Value, int]) -> None:
        def number(value: Value) -> str:
            return str(numbers.setdefault(value, len(numbers)))

        state.update(f"({','.join(f'{number(v)}:{v.type}' for v in block.arguments)})".encode())
        for op in block.ops:
            attributes = ",".join(f"{k}={_plain(v)}" for k, v in op.attributes.items())
            state.update(
                f"{op.kind}({','.join(map(number, op.operands))}){{{attributes}}}"
                f"->{','.join(f'{number(v)}:{v.type}' for v in op.results)};".encode()
            )
            for region in op.regions:
                put_block(region, numbers)
        state.update(f"return {','.join(map(number, block.outputs))}".encode())

    for name, function in module.functions.items():
        state.update(f"@{name}:{function.level}".encode())
        if function.level == "kernel":
            state.update(repr([v.name for v in function.arguments]).encode())
        put_block(function.body, {})
    return state.hexdigest()


def _plain(attribute: Attribute) -> str:
    """Return a canonical spelling of an attribute for hashing (floats by their exact bits)."""
    if isinstance(attribute, float):
        return attribute.hex()
    if isinstance(attribute, tuple):
        return "(" + ",".join(map(_plain, attribute)) + ")"
    return repr(attribute)
