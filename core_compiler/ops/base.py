"""The declaration of an op, and the registry of all declarations.

One declaration per op: type rule, contract-exact reference, decomposition, lowering to kernel IR,
cost, documentation. The interpreter, the verifier, the passes, the code generators and the cost
models read declarations and have no per-op code of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any

import numpy as np

from core_compiler.ir import Block, DType, Op, TensorType, Type, Value, dtype
from core_compiler.ops.precision import Precision
from core_compiler.ops.views import view_class
from core_compiler.support.errors import InternalError


class TypeRuleError(Exception):
    """Raised if an op's operands or attributes violate its type rule; the message says how."""


@dataclass(frozen=True, slots=True)
class Attr:
    """A declared attribute.

    ``type`` is bool, int, float, str, tuple, DType, Dense..., or a tuple of these. ``of`` is the
    type of a tuple's items. ``default`` is ``Attr.REQUIRED``, a value, or None: the attribute may
    be absent and ``doc`` says what that means. ``choices`` lists the legal strings of an enum.
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
        """Return ``value`` as the IR stores it; TypeRuleError if it does not fit.

        Lists become tuples, NumPy scalars Python numbers, an int a float if a float is declared, a
        name a DType.
        """
        value = _plain(value)
        if self.type is DType and not isinstance(value, Type):
            try:
                value = dtype(value)
            except (KeyError, TypeError):
                raise TypeRuleError(f"{name} = {value!r} is not a dtype") from None
        if self.type is float and type(value) is int:
            value = float(value)
        if not _is_instance(value, self.type):
            raise TypeRuleError(f"{name} = {value!r} is not {_type_names(self.type)}")
        if self.type is tuple:
            for item in value:
                if not _is_instance(item, self.of):
                    raise TypeRuleError(
                        f"{name} contains {item!r}, which is not {_type_names(self.of)}"
                    )
        if self.choices and value not in self.choices:
            raise TypeRuleError(f"{name} = {value!r} is not one of {', '.join(self.choices)}")
        return value


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _is_instance(value: Any, types: Any) -> bool:
    """Return isinstance(value, types), except that a bool is not an int."""
    types = types if isinstance(types, tuple) else (types,)
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types)


def _type_names(types: Any) -> str:
    types = types if isinstance(types, tuple) else (types,)
    return " or ".join(t.__name__ for t in types)


@dataclass(frozen=True, slots=True)
class Cost:
    """The minimum cost of one execution.

    It has the floating-point or integer operations, and the bytes of operands read and results
    written once each (compulsory traffic).
    """

    flops: int
    bytes: int


TypeRule = Callable[..., tuple[TensorType, ...]]
Reference = Callable[[Sequence[np.ndarray], Mapping[str, Any], Sequence[TensorType]], tuple]


@dataclass(frozen=True, eq=False)
class OpDef:
    """The declaration of one op kind.

    kind        ``core.<name>``.
    operands    operand names for display; ``x?`` optional (trailing), ``*xs`` any number.
    attributes  name -> :class:`Attr`; the type rule receives them with defaults filled in.
    type_rule   ``(operand types, attributes) -> result types``; raises :class:`TypeRuleError`.
                An op with regions gets its blocks as a third argument.
    reference   ``(arrays, attributes, result types) -> tuple of arrays``: the meaning, bit for bit
                (numerics contract).  None only for ops whose meaning is their ``decompose``.
    expand      ``(builder, view of op) -> values``: other ops that are equal up to rounding, for
                exports to formats that lack the op; None: those of ``decompose``, if any.
    decompose   ``(builder, op) -> values``: a composite's declared decomposition, its meaning.
                ``op`` is the op's :attr:`view`, as for ``flops``.
    lower       the lowering to loops: an object of ``core_compiler.lowering.lower`` (or None
                for composites that are always decomposed, and for ops that cost nothing).
    flops       ``(op) -> int`` arithmetic operations (an fma counts two, a transcendental one);
                default: the result's elements for elementwise ops, the decomposition's sum for
                composites.
    regions     names of the regions, for ops that have them.
    execute     ``(op, arrays, run) -> arrays`` for ops with regions; ``run(block, arrays)``
                returns a region's outputs.
    traits      of :data:`core_compiler.ops.traits.TRAITS`.
    precision   the op's behaviour in mixed precision (``core_compiler.ops.precision``); None if
                it has no floats.
    gradient    reverse-mode rule (see ``core_compiler.ops.gradients``); None: that of the
                decomposition.
    slope       ``(builder, view of op) -> value``: ops whose derivative the gradient is, where it
                is not the op's own (a straight-through estimator); None: it is.
    """

    kind: str
    summary: str
    operands: tuple[str, ...]
    type_rule: TypeRule
    reference: Reference | None = None
    attributes: Mapping[str, Attr] = field(default_factory=dict)
    decompose: Callable[[Any, Any], Sequence[Value]] | None = None
    expand: Callable[[Any, Any], Any] | None = None
    lower: Any = None
    flops: Callable[[Any], int] | None = None
    traits: frozenset[str] = frozenset()
    precision: Precision | None = None
    gradient: Any = None
    slope: Callable[[Any, Any], Value] | None = None
    regions: tuple[str, ...] = ()
    execute: Callable[..., Sequence[np.ndarray]] | None = None

    @property
    def name(self) -> str:
        return self.kind.split(".", 1)[1]

    @cached_property
    def view(self) -> type[Any]:  # mypy does not know which class: the caller's annotation says it
        """The class of typed views of this op (see :mod:`core_compiler.ops.typed`)."""
        specs = self.attributes.items()
        required = tuple(name for name, spec in specs if spec.is_required)
        defaults = tuple((name, spec.default) for name, spec in specs if not spec.is_required)
        return view_class(self.kind, self.operands, required, defaults)

    @property
    def is_exact(self) -> bool:
        """Return whether the op never rounds (see ``traits``)."""
        return bool(self.traits & {"exact", "view"})

    @property
    def family(self) -> str:
        """Return the file of ``core_compiler/ops`` that declares the op."""
        return self.type_rule.__module__.rsplit(".", 1)[-1]

    def fill(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked and normalised attributes, with defaults.

        Absent optional attributes are None. Raise a TypeRuleError that names an unknown, missing or
        mismatched attribute.
        """
        unknown = sorted(attributes.keys() - self.attributes.keys())
        if unknown:
            raise TypeRuleError(f"{self.kind}: unknown attribute {unknown[0]!r}")
        filled = {}
        for name, spec in self.attributes.items():
            given = attributes.get(name)
            if given is not None:
                try:
                    filled[name] = spec.normalise(name, given)
                except TypeRuleError as error:
                    raise TypeRuleError(f"{self.kind}: {error}") from None
            elif spec.is_required:
                raise TypeRuleError(f"{self.kind}: missing attribute {name!r}")
            else:
                filled[name] = spec.default
        return filled

    def normalise(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes for a new op: as :meth:`fill`, without absent optional ones."""
        return {name: v for name, v in self.fill(attributes).items() if v is not None}


REGISTRY: dict[str, OpDef] = {}


def declare(definition: OpDef) -> OpDef:
    """Register a declaration; each op is declared once.

    Its ``decompose`` is wrapped so that it receives all attributes and returns a tuple of values.
    """
    if definition.kind in REGISTRY:
        raise InternalError(f"{definition.kind} is declared twice")
    if definition.decompose is not None:
        definition = replace(definition, decompose=_with_normalised_attributes(definition))
    REGISTRY[definition.kind] = definition
    return definition


def _with_normalised_attributes(declared: OpDef) -> Callable[[Any, Op], tuple[Value, ...]]:
    formula = declared.decompose
    assert formula is not None

    @wraps(formula)
    def decompose(builder: Any, op: Op) -> tuple[Value, ...]:
        view = REGISTRY[declared.kind].view
        made = formula(builder, view(op.with_(attributes=declared.normalise(op.attributes))))
        return (made,) if isinstance(made, Value) else tuple(made)

    return decompose


def definition(kind: str | Op) -> OpDef:
    kind = kind.kind if isinstance(kind, Op) else kind
    try:
        return REGISTRY[kind]
    except KeyError:
        raise InternalError(f"unknown op {kind!r}") from None


def view(op: Op) -> Any:
    """Return the typed view of an op; whoever asks annotates which one it is."""
    return definition(op).view(op)


def infer(
    kind: str,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    regions: Sequence[Block] = (),
) -> tuple[TensorType, ...]:
    """Return the result types of ``kind`` on operands of these types.

    TypeRuleError if they are invalid, or if the type rule itself raises another error.
    """
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
    except Exception as error:  # any exception: a fault of the rule, or attributes that it misses
        problem = f"its type rule raises {type(error).__name__}: {error}"
        raise TypeRuleError(f"{kind}: {problem}") from error


def infer_op(op: Op) -> tuple[TensorType, ...]:
    """Return the result types by the op's type rule, without any layout that a pass chose."""
    return infer(op.kind, [v.type for v in op.operands], op.attributes, op.regions)


def agrees(inferred: TensorType, actual: TensorType) -> bool:
    """Return whether a result type satisfies its type rule, in any memory order.

    The shape and the dtype must be the same.
    """
    return inferred.shape == actual.shape and inferred.dtype is actual.dtype
