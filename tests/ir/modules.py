"""Modules for tests of IR, text and recording: one by hand, random ones; what equal means."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from core_compiler.ir import (
    Block,
    Dense,
    FrontendNode,
    Function,
    Module,
    Op,
    Origin,
    Resource,
    Type,
    Value,
    WeightStore,
    buffer,
    tensor,
    vector,
)
from core_compiler.ir.types import DTYPES, INDEX

F32 = tensor((2, 3), "f32")


def small_module() -> Module:
    """A tensor function with weights, a loop with a region, symbols, and a kernel."""
    weights = WeightStore()
    handle = weights.add(np.arange(600, dtype=np.float32).reshape(200, 3))
    node = FrontendNode(
        "linear",
        "aten.linear",
        "model.py",
        7,
        "head/fc",
        (("model.py", 7, "forward", "self.fc(x)"),),
    )
    root = Origin.root(node)
    dynamic = tensor(("batch", 200), "f32")
    out = tensor(("batch", 3), "f32")
    x, w, y = Value(dynamic, "x"), Value(handle.type, "w"), Value(out, "y")
    state = Value(out, "state")
    scalar = Value(tensor((), "f32"))
    carried, shifted, looped = Value(out, "y"), Value(out), Value(out, "looped")
    loop = Block((carried,), (Op("core.add", (carried, state), (shifted,)),), (shifted,))
    ops = (
        Op("core.constant", (), (w,), {"value": handle}, (), root),
        Op("core.matmul", (x, w), (y,), None, (), Origin.derived("decompose", [root])),
        Op(
            "core.constant",
            (),
            (scalar,),
            {"value": Dense(scalar.type, b"\0\0\xc0\x7f")},
            (),
            Origin.synthetic("make_nan", "a NaN is wanted"),
        ),
        Op("core.while", (y,), (looped,), {"limit": 3, "unroll": True}, (loop,)),
    )
    main = Function(
        "main", Block((x, state), ops, (looped, scalar)), "tensor", {"aliases": ((0, 1),)}
    )
    a = Value(buffer(("M", 4), "f32", ("s0", 1)), "a")
    m, i, v = Value(INDEX, "M"), Value(INDEX, "i"), Value(vector(4, "f32"), "v")
    inner = Block((i,), (Op("kernel.load", (a, i), (v,)), Op("kernel.store", (v, a, i))))
    kernel = Function(
        "copy", Block((a, m), (Op("kernel.for", (m,), (), None, (inner,)),)), "kernel"
    )
    return Module({"main": main, "copy": kernel}, weights, {"batch": (1, -1)})


# -- random modules ------------------------------------------------------------------------------

names = st.one_of(
    st.none(),
    st.sampled_from(["x", "y", "x$2", "12", "a.b", "/encoder/layer.0/Add", 'é\n"', "-", "$x2F"]),
    st.text(min_size=1, max_size=6),
)
dims = st.one_of(st.integers(0, 5), st.sampled_from(["batch", "seq", 'odd "name"']))
dtypes = st.sampled_from(sorted(DTYPES)).map(DTYPES.__getitem__)


@st.composite
def tensor_types(draw, static: bool = False):
    shape = draw(st.lists(st.integers(0, 4) if static else dims, max_size=3))
    order = draw(st.one_of(st.none(), st.permutations(range(len(shape)))))
    return tensor(shape, draw(dtypes), None if static else order)


@st.composite
def buffer_types(draw):
    shape = draw(st.lists(dims, max_size=3))
    strides = draw(st.lists(dims, min_size=len(shape), max_size=len(shape)))
    space = draw(st.sampled_from(["dram", "scratch", "a b"]))
    return buffer(shape, draw(dtypes), strides, draw(st.sampled_from([0, 3, "off"])), space)


types = st.one_of(
    tensor_types(),
    buffer_types(),
    dtypes,
    st.just(INDEX),
    st.builds(vector, st.integers(1, 16), dtypes),
)


@st.composite
def denses(draw):
    type_ = draw(tensor_types(static=True))
    kind, bits = type_.dtype.kind, type_.dtype.bits
    if kind == "float" and bits >= 8:  # any bit pattern, NaN payloads too
        return Dense(type_, draw(st.binary(min_size=type_.bytes, max_size=type_.bytes)))
    low = -(2 ** (bits - 1)) if kind == "int" else 0
    high = 2 ** (bits - 1) - 1 if kind == "int" else 2**bits - 1
    count = type_.elements
    items = draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
    if kind == "float":  # four bits, one to a byte
        return Dense(type_, bytes(items))
    home = np.uint64 if kind != "int" else np.int64
    return Dense(type_, np.array(items, home).astype(type_.dtype.numpy).tobytes())


digests = st.text("0123456789abcdef", min_size=64, max_size=64)
attributes = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        types,
        denses(),
        st.builds(Resource, tensor_types(static=True), digests),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
attribute_names = st.one_of(
    st.sampled_from(["axis", "value", "odd name"]), st.text(min_size=1, max_size=5)
)
words = st.text(max_size=3)
nodes = st.builds(
    FrontendNode,
    st.text(max_size=5),
    st.text(max_size=5),
    st.just(""),
    st.just(0),
    st.sampled_from(["", "a/b"]),
    st.lists(st.tuples(words, st.integers(0, 99), words, words), max_size=2).map(tuple),
)


@st.composite
def origins(draw):
    """A list of origins that share ancestors."""
    made: list[Origin] = []
    for _ in range(draw(st.integers(1, 5))):
        parents = (
            tuple(draw(st.lists(st.sampled_from(made), max_size=3, unique_by=id))) if made else ()
        )
        node = draw(st.one_of(st.none(), nodes))
        if node is not None and draw(st.booleans()):
            node = FrontendNode(node.name, node.kind, 'dir/m".py', draw(st.integers(1, 9)))
        made.append(Origin(draw(st.text(max_size=6)), parents, node, draw(st.text(max_size=4))))
    return made


@st.composite
def blocks(draw, outer: tuple[Value, ...], made: list[Origin], depth: int, tag: str):
    arguments = tuple(Value(draw(types), draw(names)) for _ in range(draw(st.integers(0, 2))))
    seen = [*outer, *arguments]
    ops = []
    for _ in range(draw(st.integers(0, 3))):
        operands = draw(st.lists(st.sampled_from(seen), max_size=3)) if seen else []
        count = draw(st.integers(0, 2)) if depth else 0
        regions = [draw(blocks(tuple(seen), made, depth - 1, tag)) for _ in range(count)]
        results = [Value(draw(types), draw(names)) for _ in range(draw(st.integers(0, 2)))]
        facts = draw(st.dictionaries(attribute_names, attributes, max_size=2))
        origin = draw(st.one_of(st.none(), st.sampled_from(made)))
        kind = draw(st.sampled_from([f"{tag}.add", f"{tag}.if", f"{tag}.odd kind"]))
        ops.append(Op(kind, operands, results, facts, regions, origin))
        seen += results
    outputs = tuple(draw(st.lists(st.sampled_from(seen), max_size=2))) if seen else ()
    return Block(arguments, tuple(ops), outputs)


@st.composite
def modules(draw):
    made = draw(origins())
    functions = {}
    for name in draw(st.lists(st.sampled_from(["main", "k.1", "ö"]), min_size=1, unique=True)):
        level = draw(st.sampled_from(["tensor", "kernel", "target"]))
        tag = "core" if level == "tensor" else level
        facts = draw(
            st.dictionaries(st.sampled_from(["aliases", "schedule"]), attributes, max_size=1)
        )
        functions[name] = Function(name, draw(blocks((), made, 2, tag)), level, facts)
    bounds = st.tuples(st.integers(0, 9), st.integers(-1, 99))
    symbols = draw(st.dictionaries(st.text(min_size=1, max_size=5), bounds, max_size=2))
    return Module(functions, WeightStore(), symbols)


# -- equality ------------------------------------------------------------------------------------


def difference(a: Module, b: Module, *, names: bool = True, origins: bool = True) -> str:
    """What first differs between two modules, everything compared; empty where nothing does."""
    compare = _Compare(names, origins)
    return compare.modules(a, b)


class _Compare:
    def __init__(self, names: bool, origins: bool):
        self._names, self._origins = names, origins
        self._values: dict[Value, Value] = {}
        self._seen: dict[Origin, Origin] = {}

    def modules(self, a: Module, b: Module) -> str:
        if list(a.functions) != list(b.functions):
            return f"functions {list(a.functions)} / {list(b.functions)}"
        if dict(a.symbols) != dict(b.symbols):
            return f"symbols {a.symbols} / {b.symbols}"
        for name, f in a.functions.items():
            g = b.functions[name]
            if (f.name, f.level) != (g.name, g.level):
                return f"@{name} {f.level} / {g.level}"
            found = self.facts(f.attributes, g.attributes) or self.blocks(f.body, g.body)
            if found:
                return f"@{name}: {found}"
        return ""

    def blocks(self, a: Block, b: Block) -> str:
        if found := self.define(a.arguments, b.arguments):
            return found
        if len(a.ops) != len(b.ops):
            return f"{len(a.ops)} / {len(b.ops)} ops"
        for p, q in zip(a.ops, b.ops, strict=True):
            if found := self.ops(p, q):
                return f"{p} / {q}: {found}"
        return self.uses(a.outputs, b.outputs)

    def ops(self, p: Op, q: Op) -> str:
        if p.kind != q.kind:
            return "kind"
        found = self.facts(p.attributes, q.attributes) or self.uses(p.operands, q.operands)
        if found or len(p.regions) != len(q.regions):
            return found or "regions"
        for a, b in zip(p.regions, q.regions, strict=True):
            if found := self.blocks(a, b):
                return found
        if self._origins and not self.same_origin(p.origin, q.origin):
            return "origin"
        return self.define(p.results, q.results)

    def define(self, a, b) -> str:
        if [v.type for v in a] != [v.type for v in b]:
            return f"types {a} / {b}"
        if self._names and [v.name or None for v in a] != [v.name or None for v in b]:
            return f"names {a} / {b}"
        self._values.update(zip(a, b, strict=True))
        return ""

    def uses(self, a, b) -> str:
        same = len(a) == len(b) and all(self._values[v] is w for v, w in zip(a, b, strict=True))
        return "" if same else f"uses {a} / {b}"

    def facts(self, a, b) -> str:
        if list(a) != list(b):
            return f"attributes {list(a)} / {list(b)}"
        return next((f"{k}: {a[k]!r} / {b[k]!r}" for k in a if not same_attribute(a[k], b[k])), "")

    def same_origin(self, a: Origin | None, b: Origin | None) -> bool:
        if a is None or b is None or a in self._seen:
            return (a and self._seen.get(a)) is b
        self._seen[a] = b
        if (a.rule, a.node, a.reason, len(a.parents)) != (b.rule, b.node, b.reason, len(b.parents)):
            return False
        return all(self.same_origin(p, q) for p, q in zip(a.parents, b.parents, strict=True))


def same_attribute(a, b) -> bool:
    """Equal in type and in every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_attribute, a, b))
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes()
    return a is b if isinstance(a, Type) else a == b
