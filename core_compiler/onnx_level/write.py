"""Conversion of a module of level ``onnx`` to a ``ModelProto``, and to a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.onnx.reading import STORED
from core_compiler.ir import (
    Block,
    Dense,
    Function,
    Module,
    Op,
    OpaqueType,
    Resource,
    TensorType,
    Type,
    Value,
    WeightStore,
    as_array,
)
from core_compiler.onnx_level.dialect import (
    ABSENT,
    INITIALIZER,
    NOTHING,
    OVERLOAD,
    OVERRIDABLE,
    PREFIX,
    REGIONS,
    domain_and_type,
    element_number,
    is_reference,
    proto_of,
    schema_of,
)
from core_compiler.support.errors import UserError

#: The size in bytes above which tensors go to an external file (protobuf's limit is 2 GiB).
MAX_INLINE_BYTES = 1 << 30
#: The alignment of a tensor in the external file, so that it can be memory-mapped.
ALIGNMENT = 4096


def write(module: Module, *, weights: bool = True):
    """Return the ``ModelProto`` of a module.

    If ``weights`` is false, large tensors keep their position and type, but are replaced by a
    reference to the module's weights (external data called ``weights:DIGEST``).
    """
    return _Writer(module, _store_inline if weights else _store_reference).model()


def named(module: Module):
    """Return the ``ModelProto`` of a module without its weights, and the names of main's values."""
    writer = _Writer(module, _store_reference)
    return writer.model(), writer.main_names


def save(module: Module, path: Path | str, *, external: bool | None = None) -> list[Path]:
    """Write a module as a ``.onnx`` file; return the files written, the model first.

    ``external``: whether large tensors go into ``NAME.data`` next to it (default: if they exceed
    the limit of a model file).  Existing files are replaced only when everything is written.  Raise
    UserError if the folder is not writable.
    """
    path = Path(path)
    needed = sum(r.type.bytes for r in _resources(module))
    drafts: dict[Path, Path] = {}
    try:
        if external or (external is None and needed > MAX_INLINE_BYTES):
            data = path.with_name(f"{path.name}.data")
            drafts[data] = _draft(data)
            with drafts[data].open("wb") as stream:
                made = _Writer(module, _ExternalStore(data.name, stream)).model()
        else:
            made = write(module)
        drafts[path] = _draft(path)
        drafts[path].write_bytes(made.SerializeToString(deterministic=True))
        for place, draft in drafts.items():
            draft.replace(place)
    except OSError as problem:
        raise UserError(
            f"cannot be written: {problem.strerror}", str(path), "choose another path"
        ) from None
    finally:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    return list(reversed(drafts))


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _resources(module: Module) -> list[Resource]:
    found = {
        v.digest: v
        for op in module.walk()
        for v in op.attributes.values()
        if isinstance(v, Resource)
    }
    return list(found.values())


# -- tensors ---------------------------------------------------------------------------------------


def _empty(held: TensorType, name: str):
    import onnx

    sizes: Any = held.shape  # the sizes of a constant are static
    return onnx.TensorProto(name=name, dims=sizes, data_type=element_number(held.dtype))


def _store_inline(made, held: Dense | Resource, weights: WeightStore | None) -> None:
    made.raw_data = packed(as_array(held, weights), held.type.dtype.bits)


def _store_reference(made, held: Dense | Resource, weights: WeightStore | None) -> None:
    if isinstance(held, Dense):
        return _store_inline(made, held, weights)
    made.data_location = 1
    made.external_data.add(key="location", value=f"{STORED}{held.digest}")


class _ExternalStore:
    """A store that writes large tensors to a stream, equal ones once."""

    def __init__(self, name: str, stream):
        self._name, self._stream = name, stream
        self._places: dict[str, tuple[int, int]] = {}

    def __call__(self, made, held: Dense | Resource, weights: WeightStore | None) -> None:
        if isinstance(held, Dense) or held.type.dtype.bits < 8:
            return _store_inline(made, held, weights)
        if held.digest not in self._places:
            start = -(-self._stream.tell() // ALIGNMENT) * ALIGNMENT
            self._stream.seek(start)
            # This is a view: memory-mapped weights go through the page cache, not through our
            # memory.
            flat = np.ascontiguousarray(as_array(held, weights)).reshape(-1)
            self._stream.write(flat.view(np.uint8).data)
            self._places[held.digest] = start, self._stream.tell() - start
        offset, length = self._places[held.digest]
        made.data_location = 1
        for key, value in (("location", self._name), ("offset", offset), ("length", length)):
            made.external_data.add(key=key, value=str(value))


def packed(array: np.ndarray, bits: int) -> bytes:
    """Return a tensor's bytes as ONNX stores them.

    Little-endian; elements of less than a byte are packed, starting with the low bits.
    """
    data = np.ascontiguousarray(array)
    if bits >= 8 or array.dtype == np.bool_:
        return data.tobytes()
    each = 8 // bits
    codes = data.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    codes = np.concatenate([codes, np.zeros(-len(codes) % each, np.uint8)]).reshape(-1, each)
    shifts = np.arange(each, dtype=np.uint8) * bits
    return np.bitwise_or.reduce(codes << shifts, axis=1).astype(np.uint8).tobytes()


# -- models ----------------------------------------------------------------------------------------


class _Names:
    """A unique name for every value of a function: the value's own if it is unused."""

    def __init__(self) -> None:
        self._taken: set[str] = {""}
        self._counts: dict[str, int] = {}
        self.of: dict[Value, str] = {}

    def __getitem__(self, value: Value) -> str:
        return self.of[value]

    def reserve(self, value: Value, name: str) -> None:
        """Give ``value`` the name that is part of the model's interface."""
        self.of[value] = name
        self._taken.add(name)

    def __contains__(self, value: Value) -> bool:
        return value in self.of

    def fresh(self, wanted: str) -> str:
        name, count = wanted, self._counts.get(wanted, 1)
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._counts[wanted] = count  # continue here next time: many values may want the same name
        self._taken.add(name)
        return name

    def name(self, value: Value, fallback: str) -> str:
        if value not in self.of:
            self.of[value] = self.fresh(value.name or fallback)
        return self.of[value]


class _Writer:
    def __init__(self, module: Module, store):
        self.module, self._store = module, store
        self.main_names: Mapping[Value, str] = {}

    def model(self):
        import onnx

        main = self.module.main
        facts = main.attributes
        made = onnx.ModelProto(ir_version=facts["ir_version"])
        made.producer_name, made.producer_version = facts.get("producer", ("", ""))
        made.doc_string, graph_doc = facts.get("doc", ("", ""))
        for key, text in facts.get("metadata", ()):
            made.metadata_props.add(key=key, value=text)
        for domain, version in facts["opsets"]:
            made.opset_import.add(domain=domain, version=version)
        made.graph.name = facts.get("graph") or "main"
        made.graph.doc_string = graph_doc
        self._begin_function(main)
        self._graph(made.graph, main.body, main.attributes["outputs"])
        self.main_names = self._names.of
        for name, function in self.module.functions.items():
            if name != "main":
                self._function(made.functions.add(), function)
        return made

    def _begin_function(self, function: Function) -> None:
        """Start a function's scope of names; the names of its interface take precedence."""
        self._names, self._node_names = _Names(), _Names()
        own = {v for op in function.body.ops for v in op.results}
        for value in function.arguments:
            self._names.reserve(value, value.name or "")
        for value, name in zip(function.outputs, function.attributes["outputs"], strict=True):
            if value in own and value not in self._names:
                self._names.reserve(value, name)
            elif self._names[value] != name:
                self._names.fresh(name)
        self._absent = {op.result for op in function.body.walk() if op.kind == ABSENT}

    def _function(self, made, function: Function) -> None:
        made.domain, _, rest = function.name.partition("::")
        made.name, _, made.overload = rest.partition(":")
        made.doc_string = function.attributes.get("doc", "")
        opsets = dict(function.attributes["opsets"])
        if any(op.kind == INITIALIZER for op in function.body.ops):
            opsets.setdefault("", dict(self.module.main.attributes["opsets"]).get("", 1))
        for domain, version in opsets.items():
            made.opset_import.add(domain=domain, version=version)
        made.attribute.extend(function.attributes["takes"])
        for name, value in function.attributes["defaults"]:
            self._attribute(made.attribute_proto.add(), name, value, None)
        self._begin_function(function)
        made.input.extend(self._names[v] for v in function.arguments)
        for op in function.body.ops:
            if op.kind == INITIALIZER:
                self._constant(made.node.add(), op)
        self._nodes(made.node, function.body.ops)
        made.output.extend(self._outputs(made.node, function.body, function.attributes["outputs"]))

    def _constant(self, made, op: Op) -> None:
        """Write an initializer as a node: a function of a model has no initializers."""
        made.op_type = "Constant"
        made.output.append(self._names.name(op.result, "weight"))
        made.name = self._node_names.fresh(made.output[0])
        self._attribute(made.attribute.add(), "value", op["value"], op)

    def _graph(self, made, block: Block, outputs: Sequence[str] = ()) -> None:
        for value in block.arguments:
            self._info(made.input.add(), self._names.name(value, "input"), value.type)
        for op in block.ops:
            if op.kind == INITIALIZER:
                name = self._names.name(op.result, "weight")
                self._node_names.fresh(name)  # the import identifies both by their names
                held = _empty(op["value"].type, name)
                self._store(held, op["value"], self.module.weights)
                made.initializer.append(held)
                if op.get(OVERRIDABLE):
                    self._info(made.input.add(), name, op.result.type)
        self._nodes(made.node, block.ops)
        names = self._outputs(made.node, block, outputs)
        for value, name in zip(block.outputs, names, strict=True):
            self._info(made.output.add(), name, value.type)
        skip = {*block.arguments, *block.outputs}
        for op in block.ops:
            for value in op.results if op.kind not in (INITIALIZER, ABSENT) else ():
                if value not in skip and value in self._names and proto_of(value.type) is not None:
                    self._info(made.value_info.add(), self._names[value], value.type)

    def _outputs(self, nodes, block: Block, wanted: Sequence[str]) -> list[str]:
        """Return the names of a block's outputs.

        An output that is defined outside, or occurs twice, is copied, because each name denotes a
        single result.
        """
        names: list[str] = []
        own = {v for op in block.ops for v in op.results}
        own |= set(block.arguments if wanted else ())  # a model may return an input
        for place, value in enumerate(block.outputs):
            name = self._names[value]
            output_name = wanted[place] if wanted else name
            if name != output_name or name in names or value not in own:
                output_name = (
                    output_name
                    if wanted and output_name not in names
                    else self._names.fresh(output_name)
                )
                nodes.add(
                    op_type="Identity",
                    input=[name],
                    output=[output_name],
                    name=self._node_names.fresh(output_name),
                )
            names.append(output_name)
        return names

    def _info(self, made, name: str, held: Type) -> None:
        made.name = name
        proto = proto_of(held)
        if proto is not None:
            made.type.CopyFrom(proto)

    # -- nodes -------------------------------------------------------------------------------------

    def _nodes(self, nodes, ops: Iterable[Op]) -> None:
        for op in ops:
            if op.kind not in (INITIALIZER, ABSENT):
                self._node(nodes.add(), op)

    def _node(self, made, op: Op) -> None:
        made.domain, made.op_type = domain_and_type(op)
        made.overload = op.get(OVERLOAD, "")
        origin = op.origin.nodes() if op.origin is not None else ()
        made.name = self._node_names.fresh(origin[0].name if origin else made.op_type)
        made.input.extend("" if v in self._absent else self._names[v] for v in op.operands)
        while made.input and not made.input[-1]:
            made.input.pop()
        for value in op.results:
            is_omitted = value.type is NOTHING
            made.output.append("" if is_omitted else self._names.name(value, made.op_type.lower()))
        for name, value in op.attributes.items():
            if not name.startswith(PREFIX):
                self._attribute(made.attribute.add(), name, value, op)
        for name, region in zip(op.get(REGIONS, ()), op.regions, strict=True):
            held = made.attribute.add(name=name, type=5)
            held.g.name = name
            self._graph(held.g, self._named(region))

    def _named(self, region: Block) -> Block:
        for value in region.arguments:
            self._names.name(value, "input")
        return region

    def _attribute(self, made, name: str, value: Any, op: Op | None) -> None:
        made.name = name
        if is_reference(value):
            _, made.ref_attr_name, made.type = value
            return
        if isinstance(value, Dense | Resource):
            made.type = 4
            made.t.CopyFrom(_empty(value.type, ""))
            self._store(made.t, value, self.module.weights)
        elif isinstance(value, TensorType | OpaqueType):
            made.type = 13
            held = proto_of(value)
            if held is not None:
                made.tp.CopyFrom(held)
        elif isinstance(value, tuple):
            made.type = _list_type(name, value, op)
            field = {6: made.floats, 7: made.ints}.get(made.type)
            if field is not None:
                field.extend(value)
            else:
                made.strings.extend(text.encode() for text in value)
        else:
            made.type = {float: 1, int: 2, bool: 2, str: 3}[type(value)]
            if made.type == 3:
                made.s = value.encode()
            else:
                setattr(made, "f" if made.type == 1 else "i", value)


def _list_type(name: str, value: Sequence, op: Op | None) -> int:
    """Return ``FLOATS``, ``INTS`` or ``STRINGS``; for an empty list, from the op's schema."""
    if value:
        return {float: 6, int: 7, bool: 7, str: 8}[type(value[0])]
    found = schema_of(op) if op is not None else None
    wanted: Mapping = found.attributes if found is not None else {}
    return int(wanted[name].type.value) if name in wanted else 7
