"""The printer of the IR in MLIR's generic form, which MLIR accepts as unregistered ops.

A function is ``"core.func"() ({ ... "core.return"(...) }) {level = "tensor", sym_name = "main"}``;
a block's outputs are its terminator.  Values keep their names (``%conv1``; a second ``conv1`` of a
function is ``%conv1$2``; characters that MLIR does not allow become ``$xHH``), unnamed ones are
numbered in program order.  Weights are named by digest.  :mod:`core_compiler.ir.parser` parses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core_compiler.ir.attributes import Attribute, Dense, Resource
from core_compiler.ir.core import Block, Function, Module, Op, Value
from core_compiler.ir.literals import dense_text, float_text, resource_section, value_name
from core_compiler.ir.markup import PRINTERS
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ir.types import Type, quoted

#: Digest digits in the name of a weight (more if two weights share them).
DIGEST_DIGITS = 12
_INT64 = range(-(2**63), 2**63)

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*\Z").match
_PLAIN_KIND = re.compile(r"[A-Za-z0-9_.\-]+\Z").match

#: The terminator of a function's block.
FUNCTION_END = "core.return"

#: The subject of a line of text: an op, a function (header, arguments, return), or None.
LineKey = Op | Function | None


@dataclass(frozen=True, eq=False, slots=True)
class LineTable:
    """Text by lines, with the op or function of each line (None: the module's own)."""

    lines: list[str]
    keys: list[LineKey]

    def line_of(self) -> dict[LineKey, int]:
        """Return the first line (counted from 0) of each op and function."""
        first: dict[LineKey, int] = {}
        for number, key in enumerate(self.keys):
            first.setdefault(key, number)
        return first


def print_module(
    module: Module,
    *,
    locations: str = "",
    embed_weights: bool = False,
    numbers: Mapping[Value, int] | None = None,
) -> str:
    """Print a module, ending in a newline.

    ``locations``: ``""`` none, ``"short"`` each op's model lines, ``"full"`` the whole origin DAG
    (round-trips). ``embed_weights`` adds the weights' bytes. ``numbers`` names unnamed values by
    the caller's numbers instead of their order (a recording's ids, stable from stage to stage).
    """
    pieces = module_pieces(
        module, locations=locations, embed_weights=embed_weights, numbers=numbers
    )
    return "".join(pieces)


def module_pieces(
    module: Module, *, locations: str = "", embed_weights: bool = False, numbers=None
) -> Iterator[str]:
    """Yield the text of :func:`print_module` in pieces: weights are read as they are written."""
    printer = Printer(locations=locations, numbers=numbers)
    printer.module(module)
    for line in printer.lines:
        yield line + "\n"
    if embed_weights:
        names = weight_names(module)
        yield from resource_section({name: module.weights[d] for d, name in names.items()}, 4)


def line_table(module: Module, *, locations: str = "", numbers=None) -> LineTable:
    """Return the lines of :func:`print_module` with the subject of each."""
    printer = Printer(locations=locations, numbers=numbers)
    printer.module(module)
    return LineTable(printer.lines, printer.keys)


def print_function(function: Function, *, locations: str = "", numbers=None) -> str:
    """Print one function (weights by the first digits of their digest)."""
    printer = Printer(locations=locations, numbers=numbers)
    printer.function(function, "")
    return "\n".join(printer.lines) + "\n"


def print_op(
    op: Op, *, names: Mapping[Value, str] | None = None, locations: str = "", numbers=None
) -> str:
    """Print an op on one line, regions as ``({...})``; ``names`` comes from :func:`value_names`."""
    printer = Printer(locations=locations, numbers=numbers)
    if names is None:
        printer.names = _Namer(numbers).add((*op.operands, *op.results)).names
    else:
        printer.names = names
    return printer.op_head(op) + (" ({...})" if op.regions else "") + printer.op_tail(op)


def print_ops(ops: Sequence[Op], names: Mapping[Value, str] | None = None) -> list[str]:
    """Print ops of any blocks, one line each, with one name per value.

    Values in ``names`` have that name (see :func:`value_names`).
    """
    namer = _Namer(names=names)
    for op in ops:
        namer.add((*op.operands, *op.results))
    return [print_op(op, names=namer.names) for op in ops]


def print_attribute(value: Attribute) -> str:
    """Print an attribute as after ``name =`` (``3 : i64``, ``[1, 2]``, ``dense<...>``)."""
    return Printer().attribute(value)


def value_names(function: Function, numbers: Mapping[Value, int] | None = None) -> dict[Value, str]:
    """Return the name of every value of a function in its text (``%x``), including regions."""
    return _Namer(numbers).block(function.body).names


class _Namer:
    """Assigns each value of a function its name or a number; ``names`` are already assigned."""

    def __init__(
        self,
        numbers: Mapping[Value, int] | None = None,
        names: Mapping[Value, str] | None = None,
    ):
        self.names: dict[Value, str] = dict(names or {})
        self._taken: set[str] = set(self.names.values())
        self._repeats: dict[str, int] = {}
        self._numbers = numbers
        self._next = len(self.names)  # above every number in use

    def block(self, block: Block) -> _Namer:
        self.add(block.arguments)
        for op in block.ops:
            self.add(op.results)
            for region in op.regions:
                self.block(region)
        return self

    def add(self, values: Iterable[Value]) -> _Namer:
        names, taken = self.names, self._taken
        for value in values:
            if value in names:
                continue
            if value.name:
                name = value_name(value.name)
                if name in taken:
                    name = self._repeat(name, value)
                taken.add(name)
            elif self._numbers is not None and value in self._numbers:
                name = f"%{self._numbers[value]}"
            else:
                name = f"%{self._next}"
                self._next += 1
            names[value] = name
        return self

    def _repeat(self, name: str, value: Value) -> str:
        if self._numbers is not None and value in self._numbers:
            return f"{name}${self._numbers[value]}"
        self._repeats[name] = self._repeats.get(name, 1) + 1
        return f"{name}${self._repeats[name]}"


class _TypeText(dict):
    def __missing__(self, type_: Type) -> str:
        text = self[type_] = str(type_)
        return text


class _KindText(dict):
    def __missing__(self, kind: str) -> str:
        text = self[kind] = f'"{kind}"' if _PLAIN_KIND(kind) else quoted(kind)
        return text


_TYPE_TEXT, _KIND_TEXT = _TypeText(), _KindText()


def yield_kind(op: Op) -> str:
    """Return the terminator of an op's regions: ``core.yield``, ``kernel.yield``..."""
    return f"{op.kind.split('.', 1)[0]}.yield"


class Printer:
    """Fills ``lines`` and, in parallel, ``keys``; prints one function at a time (``names``)."""

    def __init__(self, *, locations: str = "", numbers: Mapping[Value, int] | None = None) -> None:
        self._numbers = numbers
        self.lines: list[str] = []
        self.keys: list[LineKey] = []
        self.names: Mapping[Value, str] = {}
        self._weights: dict[str, str] = {}
        self._locations: dict[Origin, int] = {}
        self._location: Callable[[Op], str] = _LOCATION_PRINTERS[locations].__get__(self)

    # -- structure -------------------------------------------------------------------------------

    def module(self, module: Module) -> None:
        self._weights = weight_names(module)
        facts = {}
        if module.symbols:
            symbols = module.symbols.items()
            ranges = (f"{_key(name)} = [{low}, {high}]" for name, (low, high) in symbols)
            facts["core.symbols"] = f"{{{', '.join(ranges)}}}"
        if self._weights:
            rows = (f'{name} = "{digest}"' for digest, name in self._weights.items())
            facts["core.weights"] = f"{{{', '.join(rows)}}}"
        head = ", ".join(f"{name} = {text}" for name, text in facts.items())
        self._line(f"module attributes {{{head}}} {{" if head else "module {", None)
        for function in module.functions.values():
            self.function(function, "  ")
        self._line("}", None)
        self._location_table()

    def function(self, function: Function, indent: str) -> None:
        self.names = value_names(function, self._numbers)
        self._line(f'{indent}"core.func"() ({{', function)
        self._block(function.body, indent + "  ", FUNCTION_END, function)
        self._line(indent + self.function_tail(function), function)

    def function_tail(self, function: Function) -> str:
        facts = {"level": function.level, "sym_name": function.name}
        if clash := facts.keys() & function.attributes.keys():
            raise ValueError(f"@{function.name} must not have the attribute {sorted(clash)[0]!r}")
        return f"}}){self.attributes({**facts, **function.attributes})} : () -> ()"

    def _block(self, block: Block, indent: str, terminator: str, owner: LineKey) -> None:
        if block.arguments:
            self._line(indent[:-2] + self.block_head(block), owner)
        self._ops(block.ops, indent)
        self._line(indent + self.terminator(block, terminator), owner)

    def _ops(self, ops: Iterable[Op], indent: str) -> None:
        lines, keys, head, tail = self.lines, self.keys, self.op_head, self.op_tail
        for op in ops:
            if op.regions:
                self._op_with_regions(op, indent)
            else:
                lines.append(f"{indent}{head(op)}{tail(op)}")
                keys.append(op)

    def _op_with_regions(self, op: Op, indent: str) -> None:
        self._line(f"{indent}{self.op_head(op)} ({{", op)
        for number, region in enumerate(op.regions):
            if number:
                self._line(f"{indent}}}, {{", op)
            self._block(region, indent + "  ", yield_kind(op), op)
        self._line(f"{indent}}}){self.op_tail(op)}", op)

    def block_head(self, block: Block) -> str:
        arguments = ", ".join(f"{self.names[v]}: {_TYPE_TEXT[v.type]}" for v in block.arguments)
        return f"^bb0({arguments}):"

    def terminator(self, block: Block, kind: str) -> str:
        names = self.names
        values = ", ".join([names[v] for v in block.outputs])
        types = ", ".join([_TYPE_TEXT[v.type] for v in block.outputs])
        return f'"{kind}"({values}) : ({types}) -> ()'

    def op_head(self, op: Op) -> str:
        """Print ``%r = "kind"(%a, %b)``."""
        names = self.names
        operands = ", ".join([names[v] for v in op.operands])
        if not op.results:
            return f"{_KIND_TEXT[op.kind]}({operands})"
        return f"{', '.join([names[v] for v in op.results])} = {_KIND_TEXT[op.kind]}({operands})"

    def op_tail(self, op: Op) -> str:
        """Print ``{attributes} : (types) -> types loc(...)``."""
        types = _TYPE_TEXT
        results = op.results
        made = (
            types[results[0].type]
            if len(results) == 1
            else f"({', '.join([types[v.type] for v in results])})"
        )
        attributes = self.attributes(op.attributes) if op.attributes else ""
        taken = ", ".join([types[v.type] for v in op.operands])
        return f"{attributes} : ({taken}) -> {made}{self._location(op)}"

    def _line(self, text: str, key: LineKey) -> None:
        self.lines.append(text)
        self.keys.append(key)

    # -- attributes ------------------------------------------------------------------------------

    def attributes(self, attributes: Mapping[str, Attribute]) -> str:
        """Print `` {a = 1 : i64, b = "x"}``, or nothing."""
        if not attributes:
            return ""
        rows = [f"{_key(name)} = {self.attribute(value)}" for name, value in attributes.items()]
        return f" {{{', '.join(rows)}}}"

    def attribute(self, value: Attribute, nested: bool = False) -> str:
        if isinstance(value, str):
            return quoted(value)
        if value is True or value is False:
            return "true" if value else "false"
        if isinstance(value, int):
            if value in _INT64:
                return str(value) if nested else f"{value} : i64"
            return f"{value} : i{64 * (value.bit_length() // 64 + 1)}"
        if isinstance(value, tuple):
            return f"[{', '.join([self.attribute(item, True) for item in value])}]"
        if isinstance(value, float):
            return f"{float_text(value)} : f64"
        if isinstance(value, Dense):
            return dense_text(value)
        if isinstance(value, Resource):
            name = self._weights.get(value.digest) or f"w_{value.digest[:DIGEST_DIGITS]}"
            return f"dense_resource<{name}> : {_TYPE_TEXT[value.type]}"
        return _TYPE_TEXT[value]

    # -- locations -------------------------------------------------------------------------------

    def _no_location(self, op: Op) -> str:
        return ""

    def _short_location(self, op: Op) -> str:
        """Return the op's last rule and the model lines that it comes from."""
        if op.origin is None:
            return ""
        locations = dict.fromkeys(
            f"{quoted(n.file)}:{n.line}:0" for n in op.origin.nodes() if n.file
        )
        return f" loc(fused<{quoted(op.origin.rule)}>[{', '.join(locations) or 'unknown'}])"

    def _full_location(self, op: Op) -> str:
        if op.origin is None:
            return ""
        known = self._locations
        stack = [op.origin]
        while stack:  # parents first: an alias may only refer to earlier ones
            origin = stack[-1]
            waiting = [p for p in origin.parents if p not in known]
            if waiting:
                stack.extend(reversed(waiting))
            else:
                known.setdefault(stack.pop(), len(known) + 1)
        return f" loc(#loc{known[op.origin]})"

    def _location_table(self) -> None:
        for origin, number in self._locations.items():
            self._line(f"#loc{number} = loc({self._origin(origin)})", None)

    def _origin(self, origin: Origin) -> str:
        locations = [f"#loc{self._locations[p]}" for p in origin.parents]
        if origin.node is None and not origin.reason:
            about = quoted(origin.rule)
        else:
            facts = {"rule": quoted(origin.rule)}
            if origin.reason:
                facts["reason"] = quoted(origin.reason)
            if origin.node is not None:
                facts["node"] = self._node(origin.node)
                if origin.node.file:
                    locations.append(f"{quoted(origin.node.file)}:{origin.node.line}:0")
            about = f"{{{', '.join(f'{k} = {v}' for k, v in facts.items())}}}"
        return f"fused<{about}>[{', '.join(locations) or 'unknown'}]"

    def _node(self, node: FrontendNode) -> str:
        facts: dict[str, Attribute] = {"kind": node.kind, "name": node.name}
        if node.scope:
            facts["scope"] = node.scope
        if node.stack:
            facts["stack"] = tuple(map(tuple, node.stack))
        return "{" + ", ".join(f"{k} = {self.attribute(v, True)}" for k, v in facts.items()) + "}"

    # -- weights ---------------------------------------------------------------------------------


_LOCATION_PRINTERS = {
    "": Printer._no_location,
    "short": Printer._short_location,
    "full": Printer._full_location,
}


def _key(name: str) -> str:
    return name if _PLAIN_KEY(name) else quoted(name)


def weight_names(module: Module) -> dict[str, str]:
    """Return digest -> ``w_<first digits>`` of the module's weights, in program order."""
    digests: dict[str, None] = {}

    def find(value) -> None:
        if isinstance(value, Resource):
            digests.setdefault(value.digest)
        elif isinstance(value, tuple):
            for item in value:
                find(item)

    for function in module.functions.values():
        find(tuple(function.attributes.values()))
        for op in function.body.walk():
            for value in op.attributes.values():
                if isinstance(value, (Resource, tuple)):
                    find(value)
    digits = DIGEST_DIGITS
    while len({d[:digits] for d in digests}) < len(digests):
        digits += 1
    return {digest: f"w_{digest[:digits]}" for digest in digests}


PRINTERS[Module] = print_module
