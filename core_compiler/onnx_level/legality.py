"""Verification of ops of level ``onnx`` against their schemas: inputs, attributes, subgraphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core_compiler.ir import Dense, Op, Resource, Type
from core_compiler.onnx_level.dialect import (
    ABSENT,
    INITIALIZER,
    NOTHING,
    PREFIX,
    REGIONS,
    SINCE,
    constant,
    domain_and_type,
    is_node,
    is_reference,
    schema_of,
)


def find_error(op: Op) -> str | None:
    """Return the first error of an op; None if it is valid or has no schema."""
    if op.kind == INITIALIZER:
        held = constant(op)
        is_valid = (
            held is not None and not op.operands and [held.type] == [v.type for v in op.results]
        )
        return (
            None
            if is_valid
            else "an initializer must contain one tensor, of the type of its result"
        )
    if op.kind == ABSENT:
        return None
    if not is_node(op):
        return f"{op.kind} is not an ONNX op"
    if len(op.get(REGIONS, ())) != len(op.regions):
        return f"{len(op.regions)} subgraphs, but {len(op.get(REGIONS, ()))} names for them"
    found = schema_of(op)
    return None if found is None else _check_schema(op, found) or _check_subgraphs(op)


def _check_schema(op: Op, schema) -> str | None:
    name = domain_and_type(op)[1]
    given = len(op.operands)
    if not schema.min_input <= given <= schema.max_input:
        return f"{name} takes {schema.min_input} to {schema.max_input} inputs, got {given}"
    for value, formal in zip(op.operands, schema.inputs, strict=False):
        if value.type is NOTHING and formal.option == formal.option.Single:
            return f"{name} needs its input {formal.name!r}"
    made = len(op.results)
    if not schema.min_output <= made <= schema.max_output:
        return f"{name} has {schema.min_output} to {schema.max_output} results, got {made}"
    own = {a for a in op.attributes if not a.startswith(PREFIX)} | set(op.get(REGIONS, ()))
    unknown = sorted(own - schema.attributes.keys())
    if unknown:
        return f"{name} has no attribute {unknown[0]!r} since version {schema.since_version}"
    needed = sorted(n for n, a in schema.attributes.items() if a.required and n not in own)
    if needed:
        return f"{name} needs the attribute {needed[0]!r}"
    for attribute in sorted(own & op.attributes.keys()):
        kind = schema.attributes[attribute].type.name
        if not _has_type(op[attribute], kind):
            return f"attribute {attribute!r} of {name} is not of type {kind}"
    return None


def _has_type(value: Any, kind: str) -> bool:
    """Return whether an attribute's value has the ``AttrType`` ``kind``."""
    if is_reference(value):
        return True
    if isinstance(value, tuple):
        one = _TYPES.get(kind.removesuffix("S")) if kind.endswith("S") else None
        return one is not None and all(isinstance(item, one) for item in value)
    return isinstance(value, _TYPES.get(kind, ()))


#: ``AttrType`` -> the type of such a value in the IR; subgraphs are regions.
_TYPES: dict[str, tuple[type, ...]] = {
    "FLOAT": (float,),
    "INT": (int,),
    "STRING": (str,),
    "TENSOR": (Dense, Resource),
    "TYPE_PROTO": (Type,),
}


def _check_subgraphs(op: Op) -> str | None:
    """Return an error if control flow's subgraphs have the wrong number of inputs or outputs."""
    name = domain_and_type(op)[1]
    if not op.regions or name not in _SUBGRAPHS:
        return None
    input_count, extra_outputs = _SUBGRAPHS[name](op)
    output_count = len(op.results) + extra_outputs
    for own, body in zip(op.get(REGIONS, ()), op.regions, strict=True):
        if input_count not in (None, len(body.arguments)):
            return f"{own} of {name} takes {len(body.arguments)} tensors, got {input_count}"
        if len(body.outputs) != output_count:
            return f"{own} of {name} returns {len(body.outputs)} tensors, expected {output_count}"
    return None


#: Op type -> (number of inputs of its subgraphs, None for any; number of their outputs beyond the
#: node's).
_SUBGRAPHS: dict[str, Callable[[Op], tuple[int | None, int]]] = {
    "If": lambda op: (0, 0),
    "Loop": lambda op: (max(2, len(op.operands)), 1),
    "Scan": lambda op: (None if op.get(SINCE) == 8 else len(op.operands), 0),
}
