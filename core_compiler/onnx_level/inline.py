"""Inlining of function calls, and of ops that ONNX defines in terms of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core_compiler.frontends.onnx.functions import definition, schema_with_function
from core_compiler.ir import Block, Function, Module, Op, Value, WeightStore
from core_compiler.ir.core import clone_block
from core_compiler.onnx_level.dialect import (
    ABSENT,
    LEVEL,
    NOTHING,
    PREFIX,
    SINCE,
    domain_and_type,
    is_reference,
    proto_of,
)
from core_compiler.onnx_level.read import read_function
from core_compiler.onnx_level.write import write


def expand_call(function: Function, call: Op) -> tuple[list[Op], Sequence[Value]]:
    """Return the ops of a function's body for one call, and their values for its results."""
    given = dict(function.attributes["defaults"])
    given |= {n: v for n, v in call.attributes.items() if not n.startswith(PREFIX)}
    made: list[Op] = []
    mapping: dict[Value, Value] = {}
    for place, argument in enumerate(function.arguments):
        if place < len(call.operands):
            mapping[argument] = call.operands[place]
        else:
            mapping[argument] = Value(NOTHING)
            made.append(Op(ABSENT, (), (mapping[argument],)))
    body = clone_block(Block((), function.body.ops, function.outputs), mapping)
    made += [_resolved(op, given).with_(origin=None) for op in body.ops]
    return made, body.outputs


def _resolved(op: Op, given: dict[str, Any]) -> Op:
    """Return ``op`` with the attributes that its function takes from the call.

    An attribute that the call does not provide is omitted.
    """
    own: dict[str, Any] = {}
    for name, value in op.attributes.items():
        if is_reference(value):
            if value[1] in given:
                own[name] = given[value[1]]
        else:
            own[name] = value
    regions = tuple(
        block.with_(ops=tuple(_resolved(o, given) for o in block.ops)) for block in op.regions
    )
    return op.with_(attributes=own, regions=regions)


def expand_definition(
    op: Op, weights: WeightStore, producer_of: Callable[[Value], Op | None]
) -> tuple[list[Op], Sequence[Value]] | None:
    """Return an op's expansion by ONNX's own definition.

    None if it is a primitive, or is only defined for known types and these are unknown.
    """
    since = op[SINCE]
    node = node_proto(op, weights, producer_of)
    schema = schema_with_function(node, since)
    if schema is None:
        return None
    types = [_context(v, producer_of) for v in op.operands]
    if schema.has_context_dependent_function and any(t is None for t in types):
        return None
    found = definition(schema, node, [t for t in types if t is not None])
    return None if found is None else expand_call(read_function(found, weights), op)


def _context(value: Value, producer_of: Callable[[Value], Op | None]):
    """Return the ``TypeProto`` of an input, which a context-dependent definition may use.

    Empty for an omitted input, None if the type is unknown.
    """
    import onnx

    return onnx.TypeProto() if _is_omitted(value, producer_of) else proto_of(value.type)


def _is_omitted(value: Value, producer_of: Callable[[Value], Op | None]) -> bool:
    producer = producer_of(value)
    return value.type is NOTHING or (producer is not None and producer.kind == ABSENT)


def reuse_results(
    root: Op, results: Sequence[Value], ops: Sequence[Op]
) -> tuple[list[Op], dict[Value, Value]]:
    """Return ``ops`` with their ``results`` replaced by ``root``'s values, which stay unchanged.

    Also return the replacements of those results of ``root`` that no op defines.
    """
    made = {v for op in ops for v in op.results}
    renamed: dict[Value, Value] = {}
    replacements: dict[Value, Value] = {}
    for old, new in zip(root.results, results, strict=False):
        if new in made and new not in renamed and new.type is not NOTHING:
            renamed[new] = old
        else:
            replacements[old] = renamed.get(new, new)
    kept = [
        o.substitute(renamed).with_(results=tuple(renamed.get(v, v) for v in o.results))
        for o in ops
    ]
    return kept, replacements


def node_proto(op: Op, weights: WeightStore, producer_of: Callable[[Value], Op | None]):
    """Return the ``NodeProto`` of a single op."""
    renamed = {v: Value(v.type, f"input{i}") for i, v in enumerate(dict.fromkeys(op.uses()))}
    absent = [Op(ABSENT, (), (renamed[v],)) for v in renamed if _is_omitted(v, producer_of)]
    omitted = {o.result for o in absent}
    arguments = tuple(v for v in renamed.values() if v not in omitted)
    own = tuple(v for v in op.results if v.type is not NOTHING)
    body = Block(arguments, (*absent, op.substitute(renamed)), own)
    facts = {
        "ir_version": 10,
        "opsets": ((domain_and_type(op)[0], op.get(SINCE, 1)),),
        "outputs": tuple(f"output{i}" for i in range(len(own))),
    }
    module = Module({"main": Function("main", body, LEVEL, facts)}, weights)
    return write(module, weights=False).graph.node[0]
