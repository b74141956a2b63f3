"""What a declaration of an op holds, and the registry of all declarations.

One declaration an op: type rule, contract-exact reference, decomposition, lowering to kernel IR,
cost, documentation.  The interpreter, the verifier, the passes, the code generators and the cost
models read declarations and have no per-op code of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np

from core_compiler.ir import Block, DType, Op, TensorType, Type, Value, as_array, dtype
from core_compiler.ir.verifier import where_of
from core_compiler.ir.weights import WeightStore
from core_compiler.support.errors import InternalError


class TypeRuleError(Exception):
    """An op's operands or attributes break its type rule; the message says how."""


@dataclass(frozen=True, slots=True)
class Attr:
    """A declared attribute.

    ``type`` is bool, int, float, str, tuple, DType, Dense..., or a tuple of these.  ``of`` is the
    type of a tuple's items.  ``default`` is ``Attr.REQUIRED``, a value, or None: the attribute may
    be absent and ``doc`` says what that means.  ``choices`` lists the legal strings of an enum.
    """

    type: Any
    default: Any = "required"
    doc: str = ""
    choices: tuple[str, ...] = ()
    of: Any = int

    REQUIRED = "required"

    @property
    def is_required(self) -> bool:
        return isinstance(self.default, str) and self.default == Attr.REQUIRED

    def normalise(self, name: str, value: Any) -> Any:
        """``value`` as the IR holds it (lists become tuples, NumPy scalars Python numbers, an int a
        float where a float is declared, a name a DType); TypeRuleError where it does not fit."""
        value = _plain(value)
        if self.type is DType and not isinstance(value, Type):
            try:
                value = dtype(value)
            except (KeyError, TypeError):
                raise TypeRuleError(f"{name} = {value!r} names no dtype") from None
        if self.type is float and type(value) is int:
            value = float(value)
        if not _is(value, self.type):
            raise TypeRuleError(f"{name} = {value!r} is not {_words(self.type)}")
        if self.type is tuple:
            for item in value:
                if not _is(item, self.of):
                    raise TypeRuleError(f"{name} holds {item!r}, which is not {_words(self.of)}")
        if self.choices and value not in self.choices:
            raise TypeRuleError(f"{name} = {value!r} is none of {', '.join(self.choices)}")
        return value


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _is(value: Any, types: Any) -> bool:
    """isinstance, but a bool is no int."""
    types = types if isinstance(types, tuple) else (types,)
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types)


def _words(types: Any) -> str:
    types = types if isinstance(types, tuple) else (types,)
    return " or ".join(t.__name__ for t in types)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one execution needs at least: floating or integer operations, and bytes of operands
    read and results written once each (compulsory traffic)."""

    flops: int
    bytes: int


TypeRule = Callable[..., tuple[TensorType, ...]]
Reference = Callable[[Sequence[np.ndarray], Mapping[str, Any], Sequence[TensorType]], tuple]


@dataclass(frozen=True, eq=False)
class OpDef:
    """The declaration of one op kind.

    kind        ``core.<name>``.
    operands    operand names for people; ``x?`` optional (trailing), ``*xs`` any number.
    attributes  name -> :class:`Attr`; the type rule sees them with defaults filled in.
    type_rule   ``(operand types, attributes) -> result types``; raises :class:`TypeRuleError`.
                An op with regions gets its blocks as a third argument.
    reference   ``(arrays, attributes, result types) -> tuple of arrays``: the meaning, bit for bit
                (numerics contract).  None only for ops whose meaning is their ``decompose``.
    decompose   ``(builder, op) -> values``: a composite's declared decomposition, its meaning.
    lower       how the op becomes loops: an object of ``core_compiler.kernels.lowering`` (or None
                for composites that are always decomposed, and for ops that cost nothing).
    flops       ``(op) -> int`` arithmetic operations (an fma counts two, a transcendental one);
                default: the result's elements for elementwise ops, the decomposition's sum for
                composites.
    regions     names of the regions, for ops that have them.
    execute     ``(op, arrays, run) -> arrays`` for ops with regions; ``run(block, arrays)`` gives
                a region's outputs.
    traits      any of: ``elementwise``, ``commutative``, ``view`` (result is a rearrangement of one
                operand, no arithmetic), ``composite``, ``random``, ``terminator``, ``impure``,
                ``exact`` (nothing rounds: elements of the operands are moved, compared, chosen,
                or counted; a ``view`` is as well).
    gradient    reverse-mode rule (see ``core_compiler.ops.gradients``); None: that of the
                decomposition.
    """

    kind: str
    summary: str
    operands: tuple[str, ...]
    type_rule: TypeRule
    reference: Reference | None = None
    attributes: Mapping[str, Attr] = field(default_factory=dict)
    decompose: Callable[[Any, Op], Sequence[Value]] | None = None
    lower: Any = None
    flops: Callable[[Op], int] | None = None
    traits: frozenset[str] = frozenset()
    gradient: Any = None
    regions: tuple[str, ...] = ()
    execute: Callable[..., Sequence[np.ndarray]] | None = None

    @property
    def name(self) -> str:
        return self.kind.split(".", 1)[1]

    @property
    def is_exact(self) -> bool:
        """Whether nothing rounds in it (see ``traits``)."""
        return bool(self.traits & {"exact", "view"})

    @property
    def family(self) -> str:
        """The file of ``core_compiler/ops`` that declares the op."""
        return self.type_rule.__module__.rsplit(".", 1)[-1]

    def fill(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes checked, normalised, with defaults (None where an optional one is absent).

        TypeRuleError names an unknown, a missing or a misfit one.
        """
        unknown = sorted(attributes.keys() - self.attributes.keys())
        if unknown:
            raise TypeRuleError(f"{self.kind} has no attribute {unknown[0]!r}")
        filled = {}
        for name, spec in self.attributes.items():
            given = attributes.get(name)
            if given is not None:
                try:
                    filled[name] = spec.normalise(name, given)
                except TypeRuleError as error:
                    raise TypeRuleError(f"{self.kind}: {error}") from None
            elif spec.is_required:
                raise TypeRuleError(f"{self.kind} needs the attribute {name!r}")
            else:
                filled[name] = spec.default
        return filled

    def settle(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes an op is made with: as :meth:`fill`, absent optional ones left out."""
        return {name: v for name, v in self.fill(attributes).items() if v is not None}


REGISTRY: dict[str, OpDef] = {}


def declare(definition: OpDef) -> OpDef:
    """Enter a declaration; an op is declared once.

    Its ``decompose`` is entered so that it sees all attributes and gives a tuple of values.
    """
    if definition.kind in REGISTRY:
        raise InternalError(f"{definition.kind} is declared twice")
    if definition.decompose is not None:
        definition = replace(definition, decompose=_settled(definition))
    REGISTRY[definition.kind] = definition
    return definition


def _settled(declared: OpDef) -> Callable[[Any, Op], tuple[Value, ...]]:
    formula = declared.decompose
    assert formula is not None

    @wraps(formula)
    def decompose(builder: Any, op: Op) -> tuple[Value, ...]:
        made = formula(builder, op.with_(attributes=declared.settle(op.attributes)))
        return (made,) if isinstance(made, Value) else tuple(made)

    return decompose


def definition(kind: str | Op) -> OpDef:
    kind = kind.kind if isinstance(kind, Op) else kind
    try:
        return REGISTRY[kind]
    except KeyError:
        raise InternalError(f"no op is declared as {kind!r}") from None


def infer(
    kind: str,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    regions: Sequence[Block] = (),
) -> tuple[TensorType, ...]:
    """Result types of ``kind`` on operands of these types; TypeRuleError says what is wrong."""
    declared = definition(kind)
    fixed = [n for n in declared.operands if not n.startswith("*") and not n.endswith("?")]
    variadic = any(n.startswith("*") for n in declared.operands)
    if len(types) < len(fixed) or (not variadic and len(types) > len(declared.operands)):
        wanted = ", ".join(declared.operands)
        raise TypeRuleError(f"{kind} takes ({wanted}), got {len(types)} operands")
    if len(regions) != len(declared.regions):
        wanted = f"the regions {', '.join(declared.regions)}" if declared.regions else "no regions"
        raise TypeRuleError(f"{kind} takes {wanted}, got {len(regions)}")
    filled = declared.fill(attributes)
    extra = (tuple(regions),) if declared.regions else ()
    try:
        return tuple(declared.type_rule(list(types), filled, *extra))
    except TypeRuleError as error:
        raise TypeRuleError(f"{kind}: {error}") from None


def infer_op(op: Op) -> tuple[TensorType, ...]:
    """Result types by the op's type rule; they say nothing of a layout that a pass chose."""
    return infer(op.kind, [v.type for v in op.operands], op.attributes, op.regions)


def agrees(inferred: TensorType, actual: TensorType) -> bool:
    """Whether a result type keeps its type rule: same shape and dtype, any memory order."""
    return inferred.shape == actual.shape and inferred.dtype is actual.dtype


def evaluate(
    op: Op,
    arrays: Sequence[np.ndarray],
    weights: WeightStore | None = None,
    outer: Mapping[Value, np.ndarray] | None = None,
) -> tuple[np.ndarray, ...]:
    """The results of one tensor-level op by its reference (or its decomposition's references).

    ``arrays`` are NumPy arrays of the operands' dtypes and shapes; the answer is a tuple of arrays.
    ``outer`` holds the values around the op that its regions read.
    """
    declared = definition(op)
    if op.kind == "core.constant":
        return (as_array(op["value"], weights),)
    if declared.execute is not None:

        def run(block: Block, given: Sequence[np.ndarray]):
            return evaluate_block(block, given, weights, outer)

        return tuple(declared.execute(op, list(arrays), run))
    if declared.reference is not None:
        types = [v.type for v in op.results]
        try:
            results = tuple(declared.reference(list(arrays), declared.fill(op.attributes), types))
        except Exception as error:
            line = where_of(op)
            error.add_note(f"in the reference of {op.kind}{f' of {line}' if line else ''}")
            raise
        if all(map(_is_of, arrays, (v.type for v in op.operands))):
            _hold(op, results)
        return results
    from core_compiler.ops.builder import decomposed  # built on the registry

    return evaluate_block(decomposed(op), arrays, weights)


def _is_of(array: Any, type_: Type) -> bool:
    """Whether an array has a type's shape and dtype, as far as it has a fixed one."""
    if not isinstance(array, np.ndarray) or not isinstance(type_, TensorType):
        return True
    return not type_.is_static or (array.shape, array.dtype) == (type_.shape, type_.dtype.numpy)


def _hold(op: Op, results: Sequence[np.ndarray]) -> None:
    """InternalError where a reference's results are not of the types that the op has."""
    for array, value in zip(results, op.results, strict=True):
        if not _is_of(array, value.type):
            shape = "x".join(map(str, array.shape))
            raise InternalError(f"the reference of {op.kind} gives {array.dtype} of shape "
                                f"[{shape}] for {value.type}")  # fmt: skip


def evaluate_block(
    block: Block,
    arrays: Sequence[np.ndarray],
    weights: WeightStore | None = None,
    outer: Mapping[Value, np.ndarray] | None = None,
) -> tuple[np.ndarray, ...]:
    """The outputs of a block of tensor-level ops, op by op through :func:`evaluate`.

    ``outer`` holds the values of the blocks around this one, for a block that reads them.  A value
    is let go after its last use.
    """
    last: dict[Value, Op | None] = {v: op for op in block.ops for v in op.uses()}
    last.update(dict.fromkeys(block.outputs))
    values = dict(outer or {})
    values.update(zip(block.arguments, arrays, strict=True))
    for op in block.ops:
        around = values if op.regions else None
        results = evaluate(op, [values[v] for v in op.operands], weights, around)
        values.update(zip(op.results, results, strict=True))
        for value in op.uses():
            if last[value] is op:
                values.pop(value, None)
    return tuple(values[v] for v in block.outputs)


def cost(op: Op) -> Cost:
    """Flops and compulsory bytes of one op (static shapes).

    Bytes: each different operand read once, each result written once.
    """
    moved = sum(v.type.bytes for v in (*dict.fromkeys(op.operands), *op.results))
    return Cost(_flops(op), moved)


def _flops(op: Op) -> int:
    declared = definition(op)
    if declared.flops is not None:
        return int(declared.flops(op))
    if "elementwise" in declared.traits and declared.decompose is None:
        return sum(v.type.elements for v in op.results)
    if declared.decompose is not None:
        from core_compiler.ops.builder import decomposed  # built on the registry

        return sum(map(_flops, decomposed(op).ops))
    raise InternalError(f"{op.kind} declares no cost")
