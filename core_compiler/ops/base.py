"""What a declaration of an op holds, and the registry of all declarations.

One declaration an op: type rule, contract-exact reference, decomposition, lowering to kernel IR,
cost, documentation.  The interpreter, the verifier, the passes, the code generators and the cost
models read declarations and have no per-op code of their own.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.errors import InternalError
from core_compiler.ir import Op, TensorType, Value, as_array
from core_compiler.ir.weights import WeightStore


class TypeRuleError(Exception):
    """An op's operands or attributes break its type rule; the message says how."""


@dataclass(frozen=True, slots=True)
class Attr:
    """A declared attribute: its Python type, a default (``Attr.REQUIRED`` if none), one line of doc."""

    type: type
    default: Any = "required"
    doc: str = ""

    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one execution needs at least: floating or integer operations, and bytes of operands
    read and results written once each (compulsory traffic)."""

    flops: int
    bytes: int


TypeRule = Callable[[Sequence[TensorType], Mapping[str, Any]], tuple[TensorType, ...]]
Reference = Callable[[Sequence[np.ndarray], Mapping[str, Any], Sequence[TensorType]], tuple]


@dataclass(frozen=True, eq=False)
class OpDef:
    """The declaration of one op kind.

    kind        ``core.<name>``.
    operands    operand names for people; ``x?`` optional (trailing), ``*xs`` any number.
    attributes  name -> :class:`Attr`; the type rule sees them with defaults filled in.
    type_rule   ``(operand types, attributes) -> result types``; raises :class:`TypeRuleError`.
    reference   ``(arrays, attributes, result types) -> tuple of arrays``: the meaning, bit for bit
                (numerics contract).  None only for ops whose meaning is their ``decompose``.
    decompose   ``(builder, op) -> values``: a composite's declared decomposition, its meaning.
    lower       how the op becomes loops: an object of ``core_compiler.kernels.lowering`` (or None
                for composites that are always decomposed, and for ops that cost nothing).
    flops       ``(op) -> int`` arithmetic operations (an fma counts two); default: result elements
                for elementwise ops, 0 otherwise.
    traits      any of: ``elementwise``, ``commutative``, ``view`` (result is a rearrangement of one
                operand, no arithmetic), ``composite``, ``random``, ``terminator``, ``impure``.
    gradient    reverse-mode rule (see the training package).
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

    @property
    def name(self) -> str:
        return self.kind.split(".", 1)[1]

    def fill(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes with defaults; TypeRuleError names an unknown or a missing one."""
        unknown = attributes.keys() - self.attributes.keys()
        if unknown:
            raise TypeRuleError(f"{self.kind} has no attribute {sorted(unknown)[0]!r}")
        filled = {}
        for name, spec in self.attributes.items():
            if name in attributes:
                filled[name] = attributes[name]
            elif spec.default == Attr.REQUIRED and isinstance(spec.default, str):
                raise TypeRuleError(f"{self.kind} needs the attribute {name!r}")
            else:
                filled[name] = spec.default
        return filled


REGISTRY: dict[str, OpDef] = {}


def declare(definition: OpDef) -> OpDef:
    """Enter a declaration; an op is declared once."""
    if definition.kind in REGISTRY:
        raise InternalError(f"{definition.kind} is declared twice")
    REGISTRY[definition.kind] = definition
    return definition


def definition(kind: str | Op) -> OpDef:
    kind = kind.kind if isinstance(kind, Op) else kind
    try:
        return REGISTRY[kind]
    except KeyError:
        raise InternalError(f"no op is declared as {kind!r}") from None


def infer(kind: str, types: Sequence[TensorType], attributes: Mapping[str, Any]):
    """Result types of ``kind`` on operands of these types; TypeRuleError says what is wrong."""
    declared = definition(kind)
    fixed = [n for n in declared.operands if not n.startswith("*") and not n.endswith("?")]
    variadic = any(n.startswith("*") for n in declared.operands)
    if len(types) < len(fixed) or (not variadic and len(types) > len(declared.operands)):
        raise TypeRuleError(f"{kind} takes ({', '.join(declared.operands)}), got {len(types)} operands")
    return tuple(declared.type_rule(list(types), declared.fill(attributes)))


def evaluate(op: Op, arrays: Sequence[np.ndarray], weights: WeightStore | None = None):
    """The results of one tensor-level op by its reference (or its decomposition's references).

    ``arrays`` are NumPy arrays of the operands' dtypes and shapes; the answer is a tuple of arrays.
    """
    declared = definition(op)
    if op.kind == "core.constant":
        return (as_array(op["value"], weights),)
    types = [v.type for v in op.results]
    if declared.reference is not None:
        results = declared.reference(list(arrays), declared.fill(op.attributes), types)
        return tuple(results)
    from core_compiler.ops.builder import decomposed  # built on the registry

    return evaluate_block(decomposed(op), arrays, weights)


def evaluate_block(block, arrays: Sequence[np.ndarray], weights: WeightStore | None = None):
    """The outputs of a block of tensor-level ops, op by op through :func:`evaluate`."""
    values = dict(zip(block.arguments, arrays, strict=True))
    for op in block.ops:
        results = evaluate(op, [values[v] for v in op.operands], weights)
        values.update(zip(op.results, results, strict=True))
    return tuple(values[v] for v in block.outputs)


def cost(op: Op) -> Cost:
    """Flops and compulsory bytes of one op (static shapes)."""
    declared = definition(op)
    moved = sum(v.type.bytes for v in (*dict.fromkeys(op.operands), *op.results))
    if declared.flops is not None:
        return Cost(int(declared.flops(op)), moved)
    if "elementwise" in declared.traits:
        return Cost(sum(v.type.elements for v in op.results), moved)
    return Cost(0, moved)
