"""Conversion of a ``ModelProto`` to a module of level ``onnx``, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core_compiler.frontends.base import Unsupported, unsupported_ops_error
from core_compiler.frontends.onnx.origins import LISTING, describe, scope_of
from core_compiler.frontends.onnx.reading import (
    STORED,
    dtype_of,
    need_sound,
    read_model,
    to_array,
)
from core_compiler.ir import (
    Block,
    Dense,
    FrontendNode,
    Function,
    Module,
    Op,
    Origin,
    Resource,
    Value,
    WeightStore,
    tensor,
)
from core_compiler.onnx_level.dialect import (
    ABSENT,
    DEFAULT,
    INITIALIZER,
    LEVEL,
    NOTHING,
    OVERLOAD,
    OVERRIDABLE,
    REFERENCE,
    REGIONS,
    SINCE,
    UNKNOWN,
    kind,
    schema,
    type_of,
)
from core_compiler.onnx_level.legality import find_error
from core_compiler.support.errors import UserError


def read_file(path: Path | str) -> Module:
    """Read a ``.onnx`` file; see :func:`read`."""
    path = Path(path)
    return read(read_model(path), folder=path.parent, name=str(path))


def read(
    model, *, folder: Path | None = None, name: str = "model", weights: WeightStore | None = None
) -> Module:
    """Return the module of a ``ModelProto``.

    ``folder`` is the location of its external data (which are memory-mapped), ``weights`` the
    weight store of the module that a model was written from without weights.

    ``main`` has the graph's inputs as arguments.  Its attributes hold the model's other properties:
    ``ir_version``, ``opsets`` (pairs of domain and version), ``outputs`` (their names),
    ``producer``, ``graph``, ``doc``, ``metadata``.  Raise UserError for a damaged model, and for
    features that the level does not support (all of them at once): sparse tensors, tensors of
    strings, training information.
    """
    need_sound(model, name)
    reader = _Reader(model, folder, name, weights)
    if model.training_info:
        raise UserError(
            "the model contains training information", name, "compile it without --onnx-passes"
        )
    functions = [reader.function(f) for f in model.functions]
    main = reader.main()
    if reader.unsupported:
        raise unsupported_ops_error(reader.unsupported, name)
    return Module({f.name: f for f in (main, *functions)}, reader.weights)


def read_function(proto, weights: WeightStore) -> Function:
    """Return the function of a ``FunctionProto``; its tensors go into ``weights``."""
    import onnx

    reader = _Reader(onnx.ModelProto(), None, proto.name, weights)
    made = reader.function(proto)
    if reader.unsupported:
        raise unsupported_ops_error(reader.unsupported, proto.name)
    return made


class _Reader:
    """A reader of one model; ``unsupported`` collects the features that the level lacks."""

    def __init__(self, model, folder: Path | None, name: str, weights: WeightStore | None):
        self.model, self.folder, self.name = model, folder, name
        self.weights = WeightStore() if weights is None else weights
        self._stored = weights is not None
        self.unsupported: list[Unsupported] = []
        self._opsets = _versions(model.opset_import)
        self._types: dict[str, Any] = {}
        self._line = 0
        self._absent: Op | None = None

    def main(self) -> Function:
        graph, model = self.model.graph, self.model
        body = self._graph(graph, {}, top=True)
        return Function(
            "main",
            body,
            LEVEL,
            {
                "ir_version": model.ir_version,
                "opsets": tuple(sorted(self._opsets.items())),
                "outputs": tuple(o.name for o in graph.output),
                "producer": (model.producer_name, model.producer_version),
                "graph": graph.name,
                "doc": (model.doc_string, graph.doc_string),
                "metadata": tuple((p.key, p.value) for p in model.metadata_props),
            },
        )

    def function(self, proto) -> Function:
        """Return a local function: a template whose values have no types."""
        outer, self._opsets = self._opsets, self._opsets | _versions(proto.opset_import)
        self._types = {v.name: type_of(v.type) for v in proto.value_info}
        arguments = [Value(self._types.get(n, UNKNOWN), n) for n in proto.input]
        scope = {v.name or "": v for v in arguments}
        ops = self._nodes(proto.node, scope)
        # a definition may cover only some of an op's results
        outputs = tuple(scope[n] if n in scope else self._absent_value() for n in proto.output)
        own = tuple((a.name, self._attribute(a, proto)) for a in proto.attribute_proto)
        made = Function(
            f"{proto.domain}::{proto.name}" + (f":{proto.overload}" if proto.overload else ""),
            Block(tuple(arguments), self._with_absent(ops), outputs),
            LEVEL,
            {
                "opsets": tuple(sorted(_versions(proto.opset_import).items())),
                "outputs": tuple(proto.output),
                "takes": tuple(proto.attribute),
                "defaults": own,
                "doc": proto.doc_string,
            },
        )
        self._opsets = outer
        return made

    # -- graphs ------------------------------------------------------------------------------------

    def _graph(self, graph, outer: Mapping[str, Value], top: bool = False) -> Block:
        if graph.sparse_initializer:
            self._refuse("initializer", "sparse tensors", graph.sparse_initializer[0].values.name)
        outer_types = self._types
        self._types = {v.name: type_of(v.type) for v in (*graph.value_info, *graph.output)}
        held = {t.name for t in graph.initializer}
        scope = dict(outer)
        arguments = []
        for given in graph.input:
            if given.name in held:
                continue
            value = Value(type_of(given.type), given.name)
            if top and value.type is UNKNOWN:
                self._refuse(
                    "input", "of a type that is neither tensor, sequence nor optional", given.name
                )
            self._define(scope, outer, given.name, value)
            arguments.append(value)
        overridable = {i.name for i in graph.input} & held
        ops = [self._initializer(t, scope, outer, t.name in overridable) for t in graph.initializer]
        ops += self._nodes(graph.node, scope, outer, top)
        outputs = tuple(self._lookup(scope, o.name) for o in graph.output)
        self._types = outer_types
        return Block(tuple(arguments), self._with_absent(ops) if top else tuple(ops), outputs)

    def _with_absent(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        """Return the ops of a function, starting with the placeholder for omitted inputs."""
        first, self._absent = self._absent, None
        return tuple(ops) if first is None else (first, *ops)

    def _initializer(self, held, scope, outer, overridable: bool) -> Op:
        origin = Origin.root(
            FrontendNode(held.name, "initializer", LISTING, 0, scope_of(held.name))
        )
        constant = self._tensor(held)
        value = Value(constant.type, held.name)
        self._define(scope, outer, held.name, value)
        more = {OVERRIDABLE: True} if overridable else {}
        return Op(INITIALIZER, (), (value,), {"value": constant, **more}, (), origin)

    def _nodes(self, nodes: Iterable, scope, outer: Mapping = {}, top: bool = False) -> list[Op]:
        ops = []
        for node in nodes:
            self._line += top
            ops.append(self._node(node, scope, outer))
        return ops

    def _node(self, node, scope: dict[str, Value], outer: Mapping[str, Value]) -> Op:
        frontend_node, gaps = describe(node, self._line), len(self.unsupported)
        domain = "" if node.domain in DEFAULT else node.domain
        given = list(node.input)
        while given and not given[-1]:  # trailing omitted inputs are the same as missing ones
            given.pop()
        operands = [self._lookup(scope, n) if n else self._absent_value() for n in given]
        regions, names, attributes = [], [], {}
        for held in node.attribute:
            if held.type == 5 and not held.ref_attr_name:
                regions.append(self._graph(held.g, scope))
                names.append(held.name)
            else:
                attributes[held.name] = self._attribute(held, node)
        found = schema(domain, node.op_type, self._opsets.get(domain, 1))
        if found is not None:
            attributes[SINCE] = found.since_version
        if names:
            attributes[REGIONS] = tuple(names)
        if node.overload:
            attributes[OVERLOAD] = node.overload
        results = []
        for name in node.output:
            held = self._types.get(name, UNKNOWN) if name else NOTHING
            results.append(Value(held, name or None))
            if name:
                self._define(scope, outer, name, results[-1])
        made = Op(
            kind(domain, node.op_type),
            operands,
            results,
            attributes,
            regions,
            Origin.root(frontend_node),
        )
        problem = find_error(made)
        if problem and len(self.unsupported) == gaps:
            self.unsupported.append(
                Unsupported(node.op_type, problem, frontend_node, mismatch=True)
            )
        return made

    def _absent_value(self) -> Value:
        if self._absent is None:
            why = Origin.synthetic("import", "represents inputs that nodes omit")
            self._absent = Op(ABSENT, (), (Value(NOTHING),), {}, (), why)
        return self._absent.result

    def _lookup(self, scope: Mapping[str, Value], name: str) -> Value:
        if name not in scope:
            raise UserError(
                f"tensor {name!r} is used before it is defined",
                self.name,
                "sort the nodes; if the file is damaged, export it again",
            )
        return scope[name]

    def _define(self, scope: dict, outer: Mapping, name: str, value: Value) -> None:
        """Define a name; a subgraph may shadow a name of the outer graph."""
        if name in scope and scope[name] is not outer.get(name):
            raise UserError(
                f"tensor {name!r} is defined twice",
                self.name,
                "the file is damaged; export it again",
            )
        scope[name] = value

    # -- attributes --------------------------------------------------------------------------------

    def _attribute(self, held, node) -> Any:
        if held.ref_attr_name:
            return (REFERENCE, held.ref_attr_name, held.type)
        reader = _ATTRIBUTES.get(held.type)
        if reader is None:
            kinds = {9: "a list of tensors", 10: "a list of graphs", 11: "a sparse tensor"}
            self._refuse(
                getattr(node, "op_type", node.name),
                f"attribute {held.name} is {kinds.get(held.type, 'of an unknown type')}",
                node.name,
            )
            return ()
        try:
            return reader(self, held)
        except UnicodeDecodeError:
            raise UserError(
                f"attribute {held.name!r} is not valid UTF-8",
                self.name,
                "the file is damaged; export it again",
            ) from None

    def _tensor(self, held) -> Dense | Resource:
        place = next((e.value for e in held.external_data if e.key == "location"), "")
        if self._stored and held.data_location == 1 and place.startswith(STORED):
            kind_ = tensor(held.dims, dtype_of(held.data_type, f"tensor {held.name!r}"))
            return Resource(kind_, place.removeprefix(STORED))
        return self.weights.add(to_array(held, self.folder))

    def _refuse(self, what: str, reason: str, name: str) -> None:
        self.unsupported.append(Unsupported(what, reason, FrontendNode(name or what, what)))


#: ``AttributeProto`` type -> the attribute's value in the IR.
_ATTRIBUTES = {
    1: lambda reader, a: float(a.f),
    2: lambda reader, a: int(a.i),
    3: lambda reader, a: a.s.decode(),
    4: lambda reader, a: reader._tensor(a.t),
    6: lambda reader, a: tuple(map(float, a.floats)),
    7: lambda reader, a: tuple(map(int, a.ints)),
    8: lambda reader, a: tuple(text.decode() for text in a.strings),
    13: lambda reader, a: type_of(a.tp),
}


def _versions(imports) -> dict[str, int]:
    return {"" if o.domain in DEFAULT else o.domain: o.version for o in imports}
