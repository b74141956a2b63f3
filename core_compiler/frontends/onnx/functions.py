"""Functions of ONNX: the body of a call with the call's attributes resolved.

These are a model's own functions and those that define an op in terms of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core_compiler.frontends.onnx.reading import MAX_NAME_LENGTH


def schema_with_function(node, opset: int):
    """Return the schema of ``node``'s op at ``opset`` if it has a function body, else None."""
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def definition(schema, node, inputs: Sequence):
    """Return the function that defines an op, with its attributes' defaults filled in.

    None if there is none for these ``inputs``: the TypeProto of each (empty if it is omitted).
    """
    import onnx

    version = schema.since_version
    if schema.has_context_dependent_function:
        text = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [kind.SerializeToString() for kind in inputs]
        )
    else:
        text = schema.get_function_with_opset_version(version)
    if not text:
        return None
    made = onnx.FunctionProto.FromString(text)
    own = {a.name for a in made.attribute_proto}
    defaults = [(n, a.default_value) for n, a in schema.attributes.items() if n not in own]
    made.attribute_proto.extend(value for _, value in defaults if value.type)
    return made


def inlined(function, call) -> Iterator:
    """Yield the function's nodes for one call, with attributes resolved and names prefixed."""
    import onnx

    given = {a.name: a for a in function.attribute_proto}
    given |= {a.name: a for a in call.attribute}
    for part in function.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(part)
        copy.name = f"{call.name or call.op_type}/{part.name or part.op_type}"[-MAX_NAME_LENGTH:]
        if not copy.metadata_props:
            copy.metadata_props.extend(call.metadata_props)
        _resolve(copy, given)
        yield copy


def _resolve(node, given) -> None:
    """Replace ``ref_attr_name`` by the call's attribute in ``node`` and its subgraphs."""
    import onnx

    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = given.get(attribute.ref_attr_name)
            if source is None:
                continue
            own = onnx.AttributeProto()
            own.CopyFrom(source)
            own.name = attribute.name
            attribute = own
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            for inner in graph.node:
                _resolve(inner, given)
        kept.append(attribute)
    fresh = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(fresh)
