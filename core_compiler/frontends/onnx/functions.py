"""Model-local functions: the nodes of a call's body, with the call's attributes put in."""

from __future__ import annotations

from collections.abc import Iterator


def inlined(function, call) -> Iterator:
    """The function's nodes for one call: attribute references resolved, names under the call's."""
    import onnx

    given = {a.name: a for a in function.attribute_proto}
    given |= {a.name: a for a in call.attribute}
    for part in function.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(part)
        copy.name = f"{call.name or call.op_type}/{part.name or part.op_type}"
        if not copy.metadata_props:
            copy.metadata_props.extend(call.metadata_props)
        _resolve(copy, given)
        yield copy


def _resolve(node, given) -> None:
    """Replace ``ref_attr_name`` by the call's attribute, in ``node`` and in its subgraphs."""
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
