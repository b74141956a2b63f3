"""Small tensor programs for tests of passes: built by a function, or drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from core_compiler.ir import (
    Block,
    FrontendNode,
    Function,
    Module,
    Op,
    Origin,
    TensorType,
    Value,
    WeightStore,
)
from core_compiler.ir.parser import parse_type
from core_compiler.ops import Builder

NAMES = "xyzwvu"


def tensor_type(text: str) -> TensorType:
    """``2x3xf32`` -> ``tensor<2x3xf32>``."""
    return parse_type(f"tensor<{text}>")


def program(build: Callable, *types: str) -> Module:
    """The module whose main is ``build(builder, *arguments)``, arguments of these types.

    Each op comes from a frontend node of its own: ``model.py``, line = its place from 1.
    """
    arguments = [Value(tensor_type(t), n) for t, n in zip(types, NAMES, strict=False)]
    weights = WeightStore()
    builder = Builder(weights)
    outputs = build(builder, *arguments)
    outputs = (outputs,) if isinstance(outputs, Value) else tuple(outputs)
    return Module({"main": Function("main", block_of(arguments, builder.ops, outputs))}, weights)


def block_of(arguments: Sequence[Value], ops: Sequence[Op], outputs: Sequence[Value]) -> Block:
    placed = [
        op.with_(origin=Origin.root(FrontendNode(f"node_{i}", op.kind, "model.py", i, "net")))
        for i, op in enumerate(ops, 1)
    ]
    return Block(tuple(arguments), tuple(placed), tuple(outputs))


# -- inputs ----------------------------------------------------------------------------------------

#: Numbers that tell an exact rewrite from one that is nearly so.
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3.4e38, 1.0, -1.0, 0.1, -7.25)


def inputs(module: Module, seed: int = 0, special: bool = False) -> list[np.ndarray]:
    """Seeded arrays for main's arguments; ``special`` puts zeros, infinities, NaN and subnormal
    numbers first."""
    random = np.random.default_rng(seed)
    made = []
    for place, value in enumerate(module.main.arguments):
        kind = value.type
        if kind.dtype.kind == "bool":
            made.append(random.integers(0, 2, kind.shape).astype(bool))
        elif kind.dtype.is_float:
            flat = random.standard_normal(kind.elements)
            if special:
                count = min(len(SPECIAL), flat.size)
                flat[:count] = np.roll(SPECIAL, 5 * place)[:count]
            with np.errstate(over="ignore", invalid="ignore"):
                made.append(flat.reshape(kind.shape).astype(kind.dtype.numpy))
        else:
            made.append(random.integers(-4, 5, kind.shape).astype(kind.dtype.numpy))
    return made


# -- random programs -------------------------------------------------------------------------------

UNARY = ("neg", "abs", "exp", "tanh", "sigmoid", "sqrt", "floor", "relu", "gelu", "silu")
BINARY = ("add", "sub", "mul", "div", "max", "min")
REDUCTIONS = ("reduce_sum", "reduce_max", "mean")
NUMBERS = (0.0, -0.0, 1.0, 2.0, 0.5, -1.0, 3.0)


class _Grower:
    """Draws ops over a pool of values; every method makes one op (or gives up silently)."""

    def __init__(self, draw, builder: Builder, pool: list[Value]):
        self.draw, self.b, self.pool = draw, builder, pool

    def pick(self) -> Value:
        # Late values first: programs become chains, and some values are read twice.
        return self.pool[-1 - self.draw(st.integers(0, min(len(self.pool), 4) - 1))]

    def keep(self, value: Value) -> None:
        if value.type.elements <= 600:
            self.pool.append(value)

    def unary(self):
        self.keep(getattr(self.b, self.draw(st.sampled_from(UNARY)))(self.pick()))

    def binary(self):
        x, y = self.pick(), self.pick()
        try:
            x, y = self.b.broadcast_together(x, y)
        except ValueError:
            y = x
        self.keep(getattr(self.b, self.draw(st.sampled_from(BINARY)))(x, y))

    def with_number(self):
        x = self.pick()
        number = self.b.scalar_like(self.draw(st.sampled_from(NUMBERS)), x)
        kind = self.draw(st.sampled_from((*BINARY, "pow")))
        if kind == "pow":
            x = self.b.abs(x)
        self.keep(getattr(self.b, kind)(x, number))

    def choose(self):
        x, y = self.pick(), self.pick()
        try:
            x, y = self.b.broadcast_together(x, y)
        except ValueError:
            y = self.b.neg(x)
        test = self.b.gt(x, y)
        if self.draw(st.booleans()):
            test = self.b.not_(test)
        self.keep(self.b.select(test, x, y))

    def reshape(self):
        x = self.pick()
        shape = list(x.type.shape)
        if len(shape) > 1 and self.draw(st.booleans()):
            k = self.draw(st.integers(0, len(shape) - 2))
            shape[k : k + 2] = [shape[k] * shape[k + 1]]
        elif len(shape) < 4:
            shape.insert(self.draw(st.integers(0, len(shape))), 1)
        self.keep(self.b.reshape(x, shape=tuple(shape)))

    def transpose(self):
        x = self.pick()
        axes = self.draw(st.permutations(range(x.type.rank)))
        self.keep(self.b.transpose(x, permutation=tuple(axes)))

    def broadcast(self):
        x = self.pick()
        if x.type.rank < 4:
            self.keep(self.b.expand(x, (self.draw(st.integers(1, 3)), *x.type.shape)))

    def slice(self):
        x = self.pick()
        starts, limits, strides = [], [], []
        for size in x.type.shape:
            low = self.draw(st.integers(0, size - 1))
            starts.append(low)
            limits.append(self.draw(st.integers(low + 1, size)))
            strides.append(self.draw(st.integers(1, 2)))
        self.keep(self.b.slice(x, starts=starts, limits=limits, strides=strides))

    def concat(self):
        x = self.pick()
        if x.type.rank:
            axis = self.draw(st.integers(0, x.type.rank - 1))
            self.keep(self.b.concat(x, self.b.tanh(x), axis=axis))

    def pad(self):
        x = self.pick()
        if x.type.rank:
            low = tuple(self.draw(st.integers(0, 1)) for _ in x.type.shape)
            zero = self.b.constant(0.0, "f32")
            self.keep(self.b.pad(x, zero, low=low, high=low[::-1], interior=(0,) * len(low)))

    def reduce(self):
        x = self.pick()
        if not x.type.rank:
            return
        axis = self.draw(st.integers(0, x.type.rank - 1))
        made = getattr(self.b, self.draw(st.sampled_from(REDUCTIONS)))(x, axes=(axis,))
        self.keep(made)
        if self.draw(st.booleans()):  # as normalisations do: combined with what was reduced
            dims = tuple(a for a in range(x.type.rank) if a != axis)
            self.keep(self.b.sub(x, self.b.broadcast(made, shape=x.type.shape, dims=dims)))

    def rows(self):
        x = self.pick()
        if x.type.rank:
            axis = x.type.rank - 1
            kind = self.draw(st.sampled_from(("softmax", "log_softmax", "layer_norm", "rms_norm")))
            extra = {"epsilon": 1e-5} if kind.endswith("norm") else {}
            self.keep(getattr(self.b, kind)(x, axis=axis, **extra))

    def matmul(self):
        x = self.pick()
        if x.type.rank < 2:
            return
        *batch, _, k = x.type.shape
        n = self.draw(st.integers(1, 4))
        values = np.linspace(-1, 1, k * n, dtype=np.float32).reshape(k, n)
        weight = self.b.expand(self.b.constant(values), (*batch, k, n))
        product = self.b.matmul(x, weight)
        if self.draw(st.booleans()):
            bias = self.b.constant(np.arange(n, dtype=np.float32))
            product = self.b.add(product, self.b.expand(bias, product.type.shape))
        self.keep(product)

    def convolution(self):
        x = self.pick()
        if x.type.rank != 4:
            return
        c, o = x.type.shape[1], self.draw(st.integers(1, 3))
        values = np.linspace(-1, 1, o * c * 4, dtype=np.float32).reshape(o, c, 2, 2)
        y = self.b.conv(
            x,
            self.b.constant(values),
            strides=(1, 1),
            low=(1, 1),
            high=(0, 0),
            dilations=(1, 1),
            groups=1,
        )
        if self.draw(st.booleans()):
            statistics = [self.b.constant(np.full(o, v, np.float32)) for v in (1.5, 0.25, -0.5, 2)]
            y = self.b.batch_norm(y, *statistics, axis=1, epsilon=1e-5)
        self.keep(y)

    def twice(self):
        """The same op again: common subexpressions."""
        if self.b.ops and self.b.ops[-1].kind not in ("core.constant",):
            op = self.b.ops[-1]
            again = self.b.op(op.kind, op.operands, **op.attributes)
            self.keep(again)


STEPS = tuple(
    getattr(_Grower, name)
    for name in ("unary", "binary", "with_number", "choose", "reshape", "transpose", "broadcast",
                 "slice", "concat", "pad", "reduce", "rows", "matmul", "convolution", "twice")
)  # fmt: skip


@st.composite
def programs(draw, steps: Sequence = STEPS, most: int = 9) -> Module:
    """A random program of f32 tensors: one or two inputs, up to ``most`` draws of ``steps``."""
    builder = Builder(WeightStore())
    arguments = []
    for name in NAMES[: draw(st.integers(1, 2))]:
        shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
        arguments.append(Value(tensor_type("x".join([*map(str, shape), "f32"])), name))
    grower = _Grower(draw, builder, list(arguments))
    for _ in range(draw(st.integers(1, most))):
        draw(st.sampled_from(tuple(steps)))(grower)
    outputs = [grower.pick() for _ in range(draw(st.integers(1, 3)))]
    return Module(
        {"main": Function("main", block_of(arguments, builder.ops, outputs))}, builder.weights
    )
