"""Damage to a parsed ``ModelProto``: files that are protobufs and lies at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from tests.fuzz.seeds import DATA_FILE

#: An input has at most about this many bytes.
_LARGEST = 1 << 22
#: Numbers that sizes, axes, counts and positions are changed to.
NUMBERS = (0, 1, -1, 2, -2, 3, 7, 17, 64, 1000, 1 << 16, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31,
           1 << 32, 1 << 40, 10**15, 1 << 62, (1 << 63) - 1, -(1 << 31), -(1 << 63))  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
_LOCATIONS = (
    DATA_FILE,
    "../secret.bin",
    "/etc/passwd",
    "link.bin",
    "loop.bin",
    "folder",
    ".",
    "",
    "\0",
    "folder/../../secret.bin",
    "a" * 5000,
    "folder/" * 100 + DATA_FILE,
    "weights:00",
    "missing.bin",
)
_WORDS = ("", "x", "NOTSET", "SAME_UPPER", "VALID", "linear", "cubic", "reflect", "none", "add",
          "bogus", "i,j->", "...ij,...jk->...ik", "i" * 100, "Relu", "n,,->", "\n",
          "é" * 50)  # fmt: skip


class Damage:
    """The damages of one kind of seeds: ``op_types`` are those that nodes are changed to."""

    def __init__(self, op_types: list[tuple[str, str]]):
        self.op_types = op_types

    def damaged(self, data: bytes, other: bytes, random: Random) -> bytes:
        """The model ``data`` with one to four of its parts changed; parts of ``other`` come in."""
        foreign = onnx.ModelProto.FromString(other)
        for _ in range(random.choice((1, 1, 2, 2, 3, 4))):
            try:  # (protobuf reads what it wrote only if that is not nested too deep)
                model = onnx.ModelProto.FromString(data)
                random.choice(_KINDS)(_Parts(model, foreign, random, self.op_types))
            except DecodeError:
                return data
            if model.ByteSize() > _LARGEST:
                return data
            data = model.SerializeToString()
        return data


class _Parts:
    """What there is to change, and draws from it."""

    def __init__(self, model, foreign, random: Random, op_types):
        self.model, self.foreign, self.random, self.op_types = model, foreign, random, op_types

    def graphs(self) -> list[Any]:
        return list(_graphs(self.model.graph))

    def nodes(self) -> list[Any]:
        found = [n for g in self.graphs() for n in g.node]
        return found + [n for f in self.model.functions for n in f.node]

    def node(self) -> Any:
        return self.one(self.nodes())

    def tensors(self) -> list[Any]:
        held = [t for g in self.graphs() for t in g.initializer]
        return held + [a.t for n in self.nodes() for a in n.attribute if a.HasField("t")]

    def names(self) -> list[str]:
        found = [name for n in self.nodes() for name in (*n.input, *n.output)]
        found += [i.name for g in self.graphs() for i in (*g.input, *g.output, *g.initializer)]
        return found or ["x"]

    def infos(self) -> list[Any]:
        return [i for g in self.graphs() for i in (*g.input, *g.input, *g.output, *g.value_info)]

    def one(self, held) -> Any:
        """One of ``held``; None where there is none."""
        return self.random.choice(held) if len(held) else None

    def number(self) -> int:
        return self.random.choice(NUMBERS)


def _graphs(graph) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


# -- names and edges -------------------------------------------------------------------------------


def _rewire(p: _Parts) -> None:
    """An input takes any name there is: cycles, uses before their definition, other shapes."""
    node = p.node()
    if node is not None and node.input:
        node.input[p.random.randrange(len(node.input))] = p.random.choice((*p.names(), "", "no"))


def _same_name(p: _Parts) -> None:
    """Two things of one name."""
    held = p.one([*p.nodes(), *p.tensors(), *p.infos()])
    if held is None:
        return
    if isinstance(held, onnx.NodeProto):
        if held.output:
            held.output[p.random.randrange(len(held.output))] = p.random.choice(p.names())
    else:
        held.name = p.random.choice(p.names())


def _operands(p: _Parts) -> None:
    """Operands left out, put in, doubled; results too."""
    node = p.node()
    if node is None:
        return
    held = node.input if p.random.random() < 0.7 else node.output
    kind = p.random.randrange(4)
    if kind == 0 and held:
        del held[p.random.randrange(len(held))]
    elif kind == 1:
        held.append(p.random.choice((*p.names(), "", "new")))
    elif kind == 2:
        held.extend([p.random.choice(p.names())] * p.random.choice((3, 200)))
    else:
        del held[:]


def _order(p: _Parts) -> None:
    """Nodes out of order, doubled, gone."""
    graph = p.one(p.graphs())
    if not graph.node:
        return
    nodes = list(graph.node)
    kind = p.random.randrange(4)
    if kind == 0:
        p.random.shuffle(nodes)
    elif kind == 1:
        nodes.insert(0, p.random.choice(nodes))
    elif kind == 2:
        del nodes[p.random.randrange(len(nodes))]
    else:
        one = p.random.choice(nodes)
        for i in range(p.random.choice((2, 300 if one.ByteSize() < 1000 else 3))):
            copy = onnx.NodeProto()
            copy.CopyFrom(one)
            copy.output[:] = [f"{name}_{i}" for name in one.output]
            nodes.append(copy)
    copy = onnx.GraphProto()
    copy.node.extend(nodes)
    del graph.node[:]
    graph.node.extend(copy.node)


def _outputs(p: _Parts) -> None:
    graph = p.one(p.graphs())
    kind = p.random.randrange(3)
    if kind == 0 and graph.output:
        graph.output[p.random.randrange(len(graph.output))].name = p.random.choice(p.names())
    elif kind == 1 and graph.output:
        del graph.output[p.random.randrange(len(graph.output))]
    else:
        graph.output.add().name = p.random.choice(p.names())


def _long_name(p: _Parts) -> None:
    node = p.node()
    if node is not None:
        node.name = p.random.choice(("n" * 1_000_000, "a/" * 10_000, "a." * 10_000, "\n", "'\"\\"))
        if node.output and p.random.random() < 0.5:
            node.output[0] = node.name


# -- what nodes say --------------------------------------------------------------------------------


def _other_op(p: _Parts) -> None:
    node = p.node()
    if node is not None:
        node.domain, node.op_type = p.random.choice(p.op_types)


def _domain(p: _Parts) -> None:
    node = p.node()
    if node is not None:
        node.domain = p.random.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "own", "?"))


def _versions(p: _Parts) -> None:
    held = p.one(p.model.opset_import)
    if held is None or p.random.random() < 0.2:
        held = p.model.opset_import.add(domain=p.random.choice(("", "own", "ai.onnx.ml")))
    held.version = p.random.choice((*range(1, 27), *NUMBERS))
    if p.random.random() < 0.1:
        p.model.ir_version = p.number()


def _attribute(p: _Parts) -> None:
    """The value, the type, the name or the presence of an attribute."""
    node = p.one([n for n in p.nodes() if n.attribute] or p.nodes())
    if node is None:
        return
    if not node.attribute or p.random.random() < 0.2:
        pool = [a for n in p.foreign.graph.node for a in n.attribute]
        name = p.random.choice(("axis", "axes", "to", "perm", "shape", "k", "mode", "value",
                                "keepdims", "kernel_shape", "pads", "strides",
                                "group"))  # fmt: skip
        fresh = (
            p.one(pool)
            if pool and p.random.random() < 0.5
            else (helper.make_attribute(name, p.number()))
        )
        node.attribute.add().CopyFrom(fresh)
        return
    held = p.random.choice(node.attribute)
    kind = p.random.randrange(6)
    if kind == 0:
        held.type = p.random.randrange(15)
    elif kind == 1:
        node.attribute.remove(held)
    elif kind == 2:
        held.name = p.random.choice([a.name for n in p.nodes() for a in n.attribute])
    elif kind == 3:
        held.ref_attr_name = p.random.choice(("alpha", "", "x"))
    else:
        _value(held, p)


def _value(held, p: _Parts) -> None:
    kind = held.type
    if kind == 2:
        held.i = p.number()
    elif kind == 1:
        held.f = p.random.choice(_FLOATS)
    elif kind == 3:
        held.s = p.random.choice((*(w.encode() for w in _WORDS), b"\xff\xfe"))
    elif kind == 7:
        _list(held.ints, p.number, p)
    elif kind == 6:
        _list(held.floats, lambda: p.random.choice(_FLOATS), p)
    elif kind == 8:
        _list(held.strings, lambda: p.random.choice(_WORDS).encode(), p)
    elif kind == 4:
        _tensor_of(held.t, p)


def _list(held, new: Callable[[], Any], p: _Parts) -> None:
    kind = p.random.randrange(4)
    if kind == 0 and len(held):
        held[p.random.randrange(len(held))] = new()
    elif kind == 1 and len(held):
        del held[p.random.randrange(len(held))]
    elif kind == 2:
        held.extend([new()] * p.random.choice((1, 2, 100_000)))
    else:
        held.extend([new()])
        del held[:-1]


# -- tensors and types -----------------------------------------------------------------------------


def _tensor(p: _Parts) -> None:
    held = p.one(p.tensors())
    if held is not None:
        _tensor_of(held, p)


def _tensor_of(held, p: _Parts) -> None:
    kind = p.random.randrange(9)
    if kind == 0:
        _list(held.dims, p.number, p)
    elif kind == 1:
        held.data_type = p.random.choice((*range(28), -1, 1 << 30))
    elif kind == 2:
        held.raw_data = held.raw_data[: p.random.randrange(len(held.raw_data) + 1)]
    elif kind == 3:
        held.raw_data += b"\x7f" * p.random.choice((1, 4, 8, 4096))
    elif kind == 4:
        field = p.random.choice(
            ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
        )
        getattr(held, field).extend([1] * p.random.choice((1, 12, 100)))
        held.ClearField("raw_data")
    elif kind == 5:
        held.segment.begin, held.segment.end = p.number(), p.number()
    elif kind == 6:
        held.string_data.extend([b"\xff", b"text"])
        held.data_type = TensorProto.STRING
    else:
        _elsewhere(held, p)


def _elsewhere(held, p: _Parts) -> None:
    """External data: anywhere, of any extent."""
    del held.external_data[:]
    held.data_location = p.random.choice((1, 1, 1, 0))
    facts = [("location", p.random.choice(_LOCATIONS))]
    for key in ("offset", "length"):
        if p.random.random() < 0.7:
            number = p.random.choice((0, 8, 48, 4096, *NUMBERS))
            facts.append((key, p.random.choice((str(number), str(number), "x", "", "1e3", "٣"))))
    p.random.shuffle(facts)
    for key, value in facts * p.random.choice((1, 1, 2)):
        held.external_data.add(key=key, value=value)
    if p.random.random() < 0.7:
        held.ClearField("raw_data")


def _numbers(p: _Parts) -> None:
    """The numbers of a small tensor of integers: shapes, axes, counts, positions."""
    held = p.one([t for t in p.tensors() if t.data_type in (6, 7) and len(t.dims) < 2])
    if held is None:
        return
    count = p.random.choice((1, 1, 2, 3, 4, 6)) if held.dims else 1
    wide = held.data_type == 7
    numbers = [
        p.number() if p.random.random() < 0.6 else p.random.randrange(-2, 5) for _ in range(count)
    ]
    raw = b"".join(
        (n if wide else max(-(1 << 31), min(n, (1 << 31) - 1))).to_bytes(
            8 if wide else 4, "little", signed=True
        )
        for n in numbers
    )
    for field in ("int32_data", "int64_data", "external_data"):
        held.ClearField(field)
    held.data_location, held.raw_data = 0, raw
    if held.dims:
        held.dims[:] = [count]


def _constant_input(p: _Parts) -> None:
    """An operand of integers that is known: what sizes, axes and counts are read from."""
    node = p.node()
    if node is None or not node.input:
        return
    count = p.random.choice((0, 1, 1, 2, 3, 4))
    shape = [count] if count or p.random.random() < 0.3 else []
    numbers = [
        p.number() if p.random.random() < 0.5 else p.random.randrange(-2, 6)
        for _ in range(count if shape else 1)
    ]
    name = f"known{p.random.randrange(1000)}"
    p.model.graph.initializer.add().CopyFrom(helper.make_tensor(name, 7, shape, numbers))
    node.input[p.random.randrange(len(node.input))] = name


def _type(p: _Parts) -> None:
    """The declared type of a value."""
    info = p.one(p.infos())
    if info is None:
        return
    held, kind = info.type, p.random.randrange(8)
    if kind == 0:
        held.tensor_type.elem_type = p.random.choice((*range(28), -1, 1 << 30))
    elif kind == 1:
        held.tensor_type.ClearField("shape")
    elif kind == 2:
        inner = onnx.TypeProto()
        inner.CopyFrom(held)
        for _ in range(p.random.choice((1, 2, 20, 40))):
            outer = onnx.TypeProto()
            field = p.random.choice((outer.sequence_type, outer.optional_type))
            field.elem_type.CopyFrom(inner)
            inner = outer
        held.CopyFrom(inner)
    elif kind == 3:
        held.map_type.key_type = p.random.randrange(28)
    elif kind == 4:
        held.sparse_tensor_type.elem_type = 1
    elif kind == 5:
        held.Clear()
    else:
        dims = held.tensor_type.shape.dim
        one = (
            dims[p.random.randrange(len(dims))]
            if dims and p.random.random() < 0.7
            else (dims.add())
        )
        one.Clear()
        if p.random.random() < 0.8:
            one.dim_value = p.number()
        else:
            one.dim_param = p.random.choice(("N", "", "N", 'a"b', "é", "?", "1"))


def _shape_of_operand(p: _Parts) -> None:
    """An input of any rank and sizes, consistently used."""
    info = p.one(p.model.graph.input)
    if info is None:
        return
    dims = [
        p.number() if p.random.random() < 0.3 else p.random.randrange(0, 6)
        for _ in range(p.random.choice((0, 1, 2, 3, 4, 5, 70)))
    ]
    shape = info.type.tensor_type.shape
    shape.Clear()
    shape.SetInParent()
    for size in dims:
        shape.dim.add().dim_value = size


def _grown(p: _Parts) -> None:
    """A size of the inputs made large wherever it stands, so that shapes still fit."""
    dims = [d for i in p.model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_value]
    chosen = p.one(dims)
    if chosen is None:
        return
    old, new = chosen.dim_value, p.random.choice((100_000, 1 << 24, 1 << 31, 10**12, 10**15))
    for dim in dims if p.random.random() < 0.8 else (chosen,):
        if dim.dim_value == old:
            dim.dim_value = new
    for info in (*p.model.graph.output, *p.model.graph.value_info):
        info.type.tensor_type.ClearField("shape")


# -- structure -------------------------------------------------------------------------------------


def _deep(p: _Parts) -> None:
    """A node inside branches inside branches."""
    graph = p.model.graph
    node = p.one(graph.node)
    if node is None or not node.output:
        return
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    for _ in range(p.random.choice((1, 3, 15, 28, 33))):
        body = onnx.GraphProto(name="b")
        body.node.add().CopyFrom(inner)
        body.output.add().name = node.output[0]
        kind = p.random.choice(("If", "If", "Loop"))
        condition = p.random.choice(("", *p.names()))
        inner = onnx.NodeProto(op_type=kind, input=[condition], output=[node.output[0]])
        names = ("then_branch", "else_branch") if kind == "If" else ("body",)
        for name in names[: p.random.choice((1, 2))]:
            inner.attribute.add(name=name, type=5).g.CopyFrom(body)
            if inner.ByteSize() > 1 << 20:
                return
    node.CopyFrom(inner)


def _function(p: _Parts) -> None:
    """Functions that call themselves, each other, or others twice at every level."""
    node = p.node()
    if node is None:
        return
    kind, levels = p.random.randrange(3), p.random.choice((1, 2, 12, 200))
    made = []
    for level in range(levels):
        callee = f"f{(level + 1) % levels}" if kind == 0 else f"f{level + 1}"
        calls = [helper.make_node(callee, ["x"], ["h"], domain="own")]
        if kind == 2 and levels < 20:
            calls.append(helper.make_node(callee, ["h"], ["y"], domain="own"))
        else:
            calls.append(helper.make_node("Relu", ["h"], ["y"]))
        made.append(
            helper.make_function(
                "own", f"f{level}", ["x"], ["y"], calls, [helper.make_opsetid("", 18)]
            )
        )
    body = [helper.make_node("Neg", ["x"], ["y"])]
    made.append(
        helper.make_function("own", f"f{levels}", ["x"], ["y"], body, [helper.make_opsetid("", 18)])
    )
    p.model.functions.extend(made)
    node.domain, node.op_type = "own", "f0"
    del node.attribute[:]
    if p.random.random() < 0.3:  # what an op of ONNX's own is, said otherwise
        p.model.functions[-1].domain = ""
        p.model.functions[-1].name = p.random.choice(p.op_types)[1]


def _foreign(p: _Parts) -> None:
    """Nodes of another model, on values of this one."""
    nodes = list(p.foreign.graph.node)[:6]
    names = p.names()
    for node in nodes:
        copy = p.model.graph.node.add()
        copy.CopyFrom(node)
        for i in range(len(copy.input)):
            if p.random.random() < 0.8:
                copy.input[i] = p.random.choice(names)
    p.model.graph.initializer.extend(p.foreign.graph.initializer[:3])
    if nodes and nodes[-1].output:
        p.model.graph.output.add().name = nodes[-1].output[0]


def _aside(p: _Parts) -> None:
    """Parts of the format that few models have."""
    graph, kind = p.model.graph, p.random.randrange(6)
    if kind == 0:
        graph.sparse_initializer.add().values.name = p.random.choice(p.names())
    elif kind == 1:
        p.model.training_info.add().algorithm.CopyFrom(graph)
    elif kind == 2:
        text = p.random.choice(
            (
                "[" * 50_000,
                "['a', 'b'",
                "['a', 3]",
                "é",
                "\0",
                'File "x", line 3, in f\n' * 9,
                'File "", line 99999999999999999999, in f',
            )
        )
        node = p.node()
        if node is not None:
            key = p.random.choice(
                (
                    "pkg.torch.onnx.stack_trace",
                    "pkg.torch.onnx.name_scopes",
                    "pkg.core_compiler.kind",
                    "pkg.core_compiler.line",
                )
            )
            node.metadata_props.add(key=key, value=text)
    elif kind == 3:
        p.model.metadata_props.add(key="", value="x" * 1_000_000)
    elif kind == 4 and graph.input and graph.initializer:
        graph.input.add().name = p.random.choice(graph.initializer).name
    else:
        graph.name = p.random.choice(_WORDS)
        p.model.producer_name = p.random.choice(_WORDS)


_KINDS: tuple[Callable[[_Parts], None], ...] = (
    _rewire, _rewire, _same_name, _operands, _order, _outputs, _long_name, _other_op, _other_op,
    _domain, _versions, _attribute, _attribute, _attribute, _tensor, _tensor, _numbers, _numbers,
    _constant_input, _constant_input, _type, _type, _grown, _grown, _shape_of_operand,
    _deep, _function, _foreign, _aside,
)  # fmt: skip
