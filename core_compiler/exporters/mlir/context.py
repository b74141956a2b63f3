"""The traversal of a function that both dialects share: tables, compositions, unsupported ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

import numpy as np

from core_compiler.exporters.base import archived
from core_compiler.exporters.expansion import Composition, Expansion, Vocabulary
from core_compiler.exporters.mlir.text import Ref, Writer
from core_compiler.ir import (
    Block,
    Dense,
    DType,
    Op,
    Origin,
    Resource,
    TensorType,
    Value,
    WeightStore,
    as_array,
    tensor,
)
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.ops.builder import Builder
from core_compiler.support.errors import UserError

#: The number of locations of an op that an error lists; the others are counted.
_MAX_LOCATIONS = 3

#: ``(context, op, operands) -> result(s)``: the translation of a core op to the dialect.
Handler = Callable[..., Any]
#: ``(context, view of op) -> reason``: why the dialect lacks a form of an op, or "".
Lacks = Callable[..., str]


@dataclass(frozen=True)
class Missing:
    """An op that a dialect does not support: its kind, the missing feature, and the op's origin."""

    kind: str
    reason: str
    origin: Origin | None


@dataclass
class Shared:
    """The state shared by all functions of one file.

    ``arrays``     resources by name: large constants that the file embeds.
    ``parameters`` large constants that are arguments instead, by name; None if they are embedded.
    ``missing``    the unsupported ops, in program order.
    """

    weights: WeightStore
    parameters: dict[str, np.ndarray] | None = None
    arrays: dict[str, tuple[np.ndarray, DType]] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    made: WeightStore = field(default_factory=WeightStore)
    maps: dict[str, str] = field(default_factory=dict)
    _parameters: dict[str, str] = field(default_factory=dict)

    def array(self, value: Dense | Resource) -> np.ndarray:
        """Return the array of a constant in its logical shape; ``made``: those of compositions."""
        if isinstance(value, Resource) and value.digest in self.made:
            return self.made[value.digest]
        return as_array(value, self.weights)

    def resource(self, value: Resource) -> str:
        """Return the name of an embedded constant."""
        name = _digest_name(value)
        self.arrays[name] = self.array(value), value.type.dtype
        return name

    def parameter(self, value: Dense | Resource, name: str | None) -> str | None:
        """Return the name of the argument that replaces a large constant of the model.

        None for other constants, and if constants are embedded.  ``name`` is the model's name of
        the constant.
        """
        if self.parameters is None or isinstance(value, Dense) or value.digest in self.made:
            return None
        if value.digest not in self._parameters:
            plain = chosen = archived(name or "") or _digest_name(value)
            for repeat in count(2):
                if chosen not in self.parameters:
                    break
                chosen = f"{plain}_{repeat}"
            self._parameters[value.digest] = chosen
            self.parameters[chosen] = self.array(value)
        return self._parameters[value.digest]

    def map(self, text: str) -> str:
        """Return the alias of an affine map."""
        return self.maps.setdefault(text, f"#map{len(self.maps) or ''}")


class Context:
    """The translation of one function.

    A subclass is a dialect: its ``TABLE`` translates core ops to the dialect, its ``COMPOSED``
    expresses unsupported ops in other core ops.  Composites in neither become their declared
    decomposition.
    """

    #: The display name of the dialect.
    NAME: ClassVar[str]
    TABLE: ClassVar[dict[str, Handler]]
    LACKS: ClassVar[dict[str, Lacks]]
    COMPOSED: ClassVar[dict[str, Composition]]

    def __init__(self, shared: Shared):
        self.shared, self.writer = shared, Writer()
        self.env: dict[Value, Ref] = {}
        #: The op that makes each value of the blocks that have been entered.
        self.makers: dict[Value, Op] = {}
        #: The number of ops that use each value of the blocks that have been entered.
        self.readers: Counter[Value] = Counter()
        #: Values that a block returns to the surrounding op.
        self.given: set[Value] = set()
        #: Ops that the dialect lacks: what remains of an export that is refused at the end.
        self.unsupported: set[Op] = set()
        #: Arguments that parameters became, in the order of their first use.
        self.parameters: dict[str, Ref] = {}

    # -- walking ---------------------------------------------------------------------------------

    def body(self, block: Block, arguments: Sequence[Ref]) -> tuple[Ref, ...]:
        """Write a block of the module, whose ops are expanded to those of the dialect first."""
        return self.block(self._expanded(block), arguments)

    def _expanded(self, block: Block) -> Block:
        self._makes(block.ops)
        self.given.update(v for inner in _blocks(block) for v in inner.outputs)
        vocabulary = Vocabulary(self.lacks, self._refuses, self.COMPOSED, self._makes)
        expansion = Expansion(vocabulary, self.shared.made)
        made = expansion.block(block)
        for missing in expansion.missing:
            op, origin = missing.op, missing.op.origin or missing.of.origin or self.writer.origin
            self.shared.missing.append(Missing(op.kind, missing.reason, origin))
            self.unsupported.add(op)
        return made

    def _makes(self, ops: Iterable[Op]) -> None:
        self.makers.update({value: op for op in ops for value in op.results})

    def block(self, block: Block, arguments: Sequence[Ref]) -> tuple[Ref, ...]:
        """Write the ops of an expanded block; return the values that it yields."""
        self.env.update(zip(block.arguments, arguments, strict=True))
        self._makes(block.ops)
        self.readers.update(v for op in block.ops for v in op.uses())
        self.given.update(block.outputs)
        for op in block.ops:
            self._op(op)
        return tuple(self.env[v] for v in block.outputs)

    def _op(self, op: Op) -> None:
        outer = self.writer.origin
        self.writer.origin = op.origin if op.origin is not None else outer
        for value, ref in zip(op.results, self._translate(op), strict=True):
            self.env[value] = ref
            if value.name and not ref.name:
                ref.name = value.name
        self.writer.origin = outer

    def _translate(self, op: Op) -> Sequence[Ref]:
        operands = [self.env[v] for v in op.operands]
        if op.kind in MEANING_IN_REGION:
            return self.block(op.regions[0], operands)
        if op in self.unsupported:
            return [Ref(plain(v.type), v.name) for v in op.results]
        made = self.TABLE[op.kind](self, view(op), *operands)
        return made if isinstance(made, (tuple, list)) else (made,)

    def lacks(self, op: Op) -> str:
        """Return why the dialect does not have this form of an op, or ""."""
        if op.kind in MEANING_IN_REGION:
            return ""
        if op.kind not in self.TABLE:
            return "no translation"
        lacks = self.LACKS.get(op.kind)
        return "" if lacks is None else lacks(self, view(op))

    def _refuses(self, op: Op) -> str:
        return "" if op.kind in MEANING_IN_REGION else self.refused(op)

    def refused(self, op: Op) -> str:
        """Return why the dialect does not support the op's types, or "" if it does."""
        return ""

    def _formula(self, formula: Callable[..., Any], types: Sequence[TensorType]) -> Block:
        """Return ``formula(builder, *values)`` on values of these types, as a block."""
        arguments = tuple(Value(t) for t in types)
        builder = Builder(self.shared.made)
        made = formula(builder, *arguments)
        outputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        return Block(arguments, tuple(builder.ops), outputs)

    def core(self, formula: Callable[..., Any], *refs: Ref) -> Any:
        """Translate the core ops that ``formula(builder, *values)`` builds on refs."""
        made = self.body(self._formula(formula, [v.type for v in refs]), refs)
        return made[0] if len(made) == 1 else made

    def parameter(self, op: typed.Constant) -> Ref | None:
        """Return the argument that stands for a constant, None if arguments are not accessible."""
        if self.writer.is_isolated:
            return None
        name = self.shared.parameter(op.value, op.result.name)
        if name is None:
            return None
        return self.parameters.setdefault(name, Ref(plain(op.result.type), name))


def make_registrar(
    table: dict[str, Handler], forms: dict[str, Lacks]
) -> Callable[..., Callable[[Handler], Handler]]:
    """Return a decorator that registers a handler in ``table`` for kinds (without ``core.``).

    ``lacks`` says which forms of an op the handler does not translate.
    """

    def op(*kinds: str, lacks: Lacks | None = None) -> Callable[[Handler], Handler]:
        def enter(handler: Handler) -> Handler:
            table.update({f"core.{kind}": handler for kind in kinds})
            if lacks is not None:
                forms.update({f"core.{kind}": lacks for kind in kinds})
            return handler

        return enter

    return op


def _blocks(block: Block) -> Iterator[Block]:
    """Yield a block and those of its ops' regions."""
    yield block
    for op in block.walk():
        yield from op.regions


def _digest_name(value: Resource) -> str:
    return f"w_{value.digest[:16]}"


def plain(type_: Any) -> Any:
    """Return a type without its memory order."""
    return tensor(type_.shape, type_.dtype) if isinstance(type_, TensorType) else type_


def refusal(missing: Sequence[Missing], dialect: str, fix: str) -> UserError:
    """Return one error that lists every unsupported op: kind, reason, count and locations."""
    groups: dict[tuple[str, str], list[Origin | None]] = {}
    for each in missing:
        groups.setdefault((each.kind, each.reason), []).append(each.origin)
    parts = []
    for (kind, reason), origins in groups.items():
        places = list(dict.fromkeys(p for origin in origins for p in _places(origin)))
        shown = ", ".join(places[:_MAX_LOCATIONS])
        if len(places) > _MAX_LOCATIONS:
            shown += f" and {len(places) - _MAX_LOCATIONS} more"
        times = f"{len(origins)} times" if len(origins) > 1 else "once"
        parts.append(f"{kind} ({'; '.join(filter(None, (reason, times, shown)))})")
    number = len(groups)
    what = f"{number} op{'s' if number > 1 else ''} not supported by {dialect}: {', '.join(parts)}"
    return UserError(what, "export to MLIR", fix)


def _places(origin: Origin | None) -> list[str]:
    nodes = origin.nodes() if origin is not None else ()
    return [f"{n.file}:{n.line}" if n.file else n.name for n in nodes]
