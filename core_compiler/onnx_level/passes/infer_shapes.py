"""ONNX's shape inference; each inferred type is recorded as a rewrite."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import OpaqueType, TensorType, Type, Value, tensor
from core_compiler.onnx_level.dialect import ANY_SIZE, LEVEL, UNKNOWN, is_node, type_of
from core_compiler.onnx_level.shape_inference import NotInferred, infer_types
from core_compiler.onnx_level.write import named
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class InferShapes(Pass):
    """Infer the types of values by ONNX's shape inference, including values of small tensors."""

    half = "source"
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        proto, names = named(module)
        found = _infer(proto, context)
        types: dict[str, Type] = {}
        _collect(found.graph, types)

        def edit(rewriter):
            for op in rewriter.ops:
                if not is_node(op) or not op.results:
                    continue
                refined = [
                    _more_specific(v, types.get(names.get(v, ""), UNKNOWN)) for v in op.results
                ]
                if all(a is b for a, b in zip(refined, op.results, strict=True)):
                    continue
                current = rewriter.producer(op.results[0])
                assert current is not None  # it may have been rebuilt with other operands
                op = current
                mapping = dict(zip(op.results, refined, strict=True))
                rewriter.replace(op, op.with_(results=refined), mapping, rule="its type is known")

        return context.rewrite(module, edit, LEVEL)


def _infer(proto, context):
    """Return ``proto`` with the types that ONNX infers; ``proto`` itself if inference fails.

    Inference is not strict: types that it cannot infer stay unknown, and the import reports
    contradictions.
    """
    try:
        return type(proto).FromString(infer_types(proto.SerializeToString()))
    except NotInferred as problem:
        context.note("warning", f"ONNX cannot infer shapes: {problem}")
        return proto


def _collect(graph, types: dict[str, Type]) -> None:
    for info in (*graph.value_info, *graph.output):
        if info.HasField("type"):
            types[info.name] = type_of(info.type)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == 5:
                _collect(attribute.g, types)


def _more_specific(value: Value, found: Type) -> Value:
    """Return a value with the more specific of two types; ``value`` itself if it has that type."""
    own = value.type
    if isinstance(own, TensorType) and isinstance(found, TensorType):
        if own.rank != found.rank or own.dtype is not found.dtype:
            return value
        sizes = [
            b if _is_more_specific(b, a) else a for a, b in zip(own.shape, found.shape, strict=True)
        ]
        found = tensor(sizes, own.dtype)
    elif isinstance(own, TensorType) or (
        isinstance(own, OpaqueType) and own is not UNKNOWN and not isinstance(found, TensorType)
    ):
        return value
    return value if found is own or found is UNKNOWN else Value(found, value.name)


def _is_more_specific(size: int | str, than: int | str) -> bool:
    if isinstance(than, int):
        return False
    return isinstance(size, int) or (than == ANY_SIZE and size != ANY_SIZE)
