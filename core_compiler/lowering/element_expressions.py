"""Conversion of a group of tensor ops to a graph of element expressions.

``inline(value, index)`` returns the element of ``value`` at ``index``: a read of an input, a scalar
op on other elements, or a reduction nest (``nest``: a reduction, product, convolution or window,
which needs its own loops). Index maps are folded into the indices. Nodes are shared: equal value
and index yield the same node, so common subexpressions and row values are found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from typing_extensions import override

from core_compiler.ir import Block, Dense, DType, Op, Value, dtype
from core_compiler.ir.refusal import Refusal
from core_compiler.ir.types import ordered_strides
from core_compiler.kernel_ir import scalars
from core_compiler.ops import hooks, index_maps, typed
from core_compiler.ops.affine import ZERO, AffineExpr, Axis, Data, axis_index, clamp, combine
from core_compiler.ops.base import definition, view

#: Largest number of reduction terms that one level of lanes adds (numerics contract).
LANE_CHUNK = 4096
#: Terms of a chunk of a product, of a ``sequence`` reduction and of a gradient's contributions.
CHUNK = 256
#: Channels of a block of a convolution, and the blocks of a chunk if the window is one pixel.
BLOCK, BLOCKS = 32, 8
#: As many bytes are added in the time and space of one float, and integers in any order.
BYTES = 4
#: The first axis number of reduction loops: after all loops over outputs.
_REDUCED = 1000


class CannotLower(Exception):
    """Raised if a group does not fit one kernel.

    ``text`` is the reason as a format string over ``about``, as in
    :class:`~core_compiler.ir.refusal.Refusal`; the first of ``about`` is the op that does not fit.
    ``condition`` names the failed condition.
    """

    def __init__(self, condition: str, text: str, *about: object):
        super().__init__()
        self.condition, self.text, self.about = condition, text, about

    @property
    def refusal(self) -> Refusal:
        """The reason as a value: the result of ``can_join``."""
        refused = Refusal(self.condition, self.text, self.about)
        trace = self.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            refused.code_location = trace.tb_frame.f_code, trace.tb_lasti
        return refused

    @override
    def __str__(self) -> str:
        return self.refusal.reason


@dataclass(eq=False)
class Node:
    """An element expression.

    ``kind`` is ``load`` (``value`` at linear ``address``), ``number``, ``position`` (``address`` as
    a number), ``compute`` (scalar ``function``), ``choose`` (``conditions``) or ``nest``
    (``nest``). ``index`` and ``value`` identify the element of the group (None for parts of
    reduction nests).
    """

    kind: str
    dtype: DType
    inputs: tuple[Node, ...] = ()
    function: str | Callable[..., Any] = ""
    op: Op | None = None
    value: Any = None  # a Value for the kinds in the docstring
    index: tuple[AffineExpr, ...] = ()
    address: AffineExpr = ZERO
    number: object = None
    conditions: tuple = ()
    nest: Any = None  # a Nest if ``kind`` is ``nest``
    axes: frozenset[Axis] = field(default=frozenset())

    def walk(self, through_nests: bool = False) -> Iterator[Node]:
        """Yield this node and its descendants, each once, operands first."""
        seen: set[Node] = set()

        def visit(node: Node):
            if node in seen:
                return
            seen.add(node)
            below = node.inputs
            if node.nest is not None and through_nests:
                below = (*below, *node.nest.terms)
            for child in below:
                yield from visit(child)
            yield node

        yield from visit(self)

    def index_expressions(self) -> Iterator[AffineExpr]:
        """Yield every index expression that this node itself evaluates."""
        yield self.address
        for expression, _, _ in self.conditions:
            yield expression
        if self.nest is not None:
            yield from self.nest.index_expressions()


@dataclass(eq=False)
class Nest:
    """A reduction nest: a node with its own loops.

    ``form`` is ``lanes`` or ``sequence`` (a reduction over ``axes[0]`` of ``terms[0]``), ``arg``,
    ``contraction`` (terms a, b over ``axes[0]``), ``convolution`` (axes: channel, taps...) or
    ``window`` (``taps``; terms: element). ``kind`` is the combining op (``add``, ``max``...).
    """

    form: str
    kind: str
    axes: tuple[Axis, ...]
    terms: tuple[Node, ...]
    dtype: DType
    conditions: tuple = ()
    facts: dict = field(default_factory=dict)

    def index_expressions(self) -> Iterator[AffineExpr]:
        for expression, _, _ in self.conditions:
            yield expression


class Inliner:
    """Builds nodes for one block."""

    def __init__(self, block: Block):
        self.block = block
        self.producers = block.producers()
        self.nodes: dict[tuple, Node] = {}
        self.data_values: list[Value] = []
        self._reduced = _REDUCED

    # -- the context that index maps see ---------------------------------------------------------

    def read_index(self, value: Value, index, low: int, high: int) -> AffineExpr:
        """Return an index read from an integer tensor, clamped to [low, high].

        A constant becomes an argument of the launch, so that kernels do not differ by its value.
        """
        producer = typed.Constant.match(self.producers.get(value))
        held = None if producer is None else producer.value
        if isinstance(held, Dense) and value.type.elements == 1:
            known = int(held.array().reshape(-1)[0])
            return combine((), min(max(known, low), max(low, high)))
        if value not in self.data_values:
            self.data_values.append(value)
        number = self.data_values.index(value)
        return combine(((Data(number, tuple(index), low, max(low, high)), 1),), 0)

    def reduced_axis(self, size: int) -> Axis:
        self._reduced += 1
        return Axis(self._reduced, size, reduced=True)

    # -- inlining ---------------------------------------------------------------------------------

    def inline(self, value: Value, index) -> Node:
        index = tuple(index)
        key = (value, index)
        if key not in self.nodes:
            node = self._make(value, index)
            if node.value is None:
                node.value, node.index = value, index
            self.nodes[key] = node
        return self.nodes[key]

    def _make(self, value: Value, index) -> Node:
        op = self.producers.get(value)
        if op is None:
            return self.load(value, index)
        hook = definition(op).lower
        method = _METHODS.get(type(hook))
        if method is None:
            raise CannotLower("not alone", "{0} is a kernel of its own", op)
        return method(self, op, hook, index)

    def load(self, value: Value, index) -> Node:
        t = value.type
        # Avoid a load in a loop with no iterations, which might be hoisted out of it.
        if t.elements == 0:
            return Node("number", t.dtype, number=t.dtype.numpy.type(0))
        address = ZERO
        for i, stride in zip(index, ordered_strides(t.shape, t.order), strict=True):
            address = address + i * stride
        return Node(
            "load", t.dtype, value=value, index=tuple(index), address=address, axes=address.axes
        )

    def compute(
        self, function: str | Callable[..., Any], dtype_: DType, *inputs: Node, op=None
    ) -> Node:
        axes = frozenset().union(*(n.axes for n in inputs))
        return Node("compute", dtype_, inputs, function, op, axes=axes)

    def _elementwise(self, op, hook, index) -> Node:
        inputs = [self.inline(v, index) for v in op.operands]
        return self.compute(hook.function, op.result.type.dtype, *inputs, op=op)

    def _constant(self, op, hook, index) -> Node:
        kind = op.result.type.dtype
        iota = typed.Iota.match(op)
        if iota is not None:
            position = index[iota.axis]
            return Node("position", kind, op=op, address=position, axes=position.axes)
        held = typed.Constant.of(op).value
        if not isinstance(held, Dense) or op.result.type.elements != 1:
            raise CannotLower(
                "constants of one element",
                "{0} has several elements: a kernel reads such a constant as an operand",
                op,
            )
        number = held.array().reshape(-1)[0]
        return Node("number", kind, op=op, number=number)

    def _index_map(self, op, hook, index) -> Node:
        return self._read(op, hook.find(self, view(op), index))

    def _read(self, op, read: hooks.Read) -> Node:
        inner = self.inline(op.operands[read.operand], read.index)
        if read.otherwise is None:
            return inner
        other = self._read(op, read.otherwise)
        return self.choose(read.inside, inner, other, op)

    def choose(self, conditions, inside: Node, outside: Node, op=None) -> Node:
        axes = inside.axes | outside.axes
        axes = axes.union(*(e.axes for e, _, _ in conditions))
        return Node(
            "choose",
            inside.dtype,
            (inside, outside),
            op=op,
            conditions=tuple(conditions),
            axes=axes,
        )

    # -- reduction nests -------------------------------------------------------------------------

    def nest(self, form, kind, axes, terms, dtype_, op, conditions=(), **facts) -> Node:
        made = Nest(form, kind, tuple(axes), tuple(terms), dtype_, tuple(conditions), facts)
        outer = frozenset().union(*(t.axes for t in terms), *(e.axes for e, _, _ in conditions))
        return Node("nest", dtype_, op=op, nest=made, axes=outer - set(axes))

    def _reduction(self, op, hook, index) -> Node:
        if hook.kind in ("argmax", "argmin"):
            return self._arg(op, hook, index)
        reduction: typed.Reduction = view(op)
        x, axes = reduction.x, reduction.axes
        groups = reduced_groups(x.type.shape, axes)
        orders = reduction.orders or default_orders(x.type.shape, groups)
        if hook.kind == "prod":  # products always run in sequence
            orders = ("sequence",) * len(groups)
        kept = iter(index)
        full: list[AffineExpr | None] = [
            (ZERO if x.type.shape[a] == 1 else None) if a in axes else next(kept)
            for a in range(x.type.rank)
        ]
        kind = x.type.dtype
        wide = dtype("f32") if kind.is_float and kind.bits <= 16 else kind
        loops = []
        for group in groups:
            shape = [x.type.shape[a] for a in group]
            axis = self.reduced_axis(prod(shape))
            loops.append(axis)
            for a, i in zip(group, index_maps.unravel(axis_index(axis), shape), strict=True):
                full[a] = i
        node = self.inline(x, full)
        if wide is not kind:
            node = self.compute("cast", wide, node, op=op)
        for axis, order in reversed(list(zip(loops, orders, strict=True))):
            node = self.nest(order, hook.kind, (axis,), (node,), wide, op)
        if hook.kind == "sum" and axes and not loops and wide.is_float:
            # A sum starts from +0, so the sum of the single term -0 is +0.
            node = self.compute("add", wide, node, self._zero(wide, op), op=op)
        if wide is not kind:
            node = self.compute("cast", kind, node, op=op)
        return node

    def _arg(self, op, hook, index) -> Node:
        found: typed.Argmax | typed.Argmin = view(op)
        x, axis = found.x, found.axis
        loop = self.reduced_axis(x.type.shape[axis])
        position = axis_index(loop)
        node = self.inline(x, (*index[:axis], position, *index[axis:]))
        if node.dtype.is_float and node.dtype.bits <= 16:
            node = self.compute("cast", dtype("f32"), node, op=op)
        made = self.nest("arg", hook.kind, (loop,), (node,), op.result.type.dtype, op)
        return made

    def _contraction(self, op, hook, index) -> Node:
        a, b = op.operands
        product = typed.Contract.match(op)
        if product is not None:
            ba, bb = product.batch_a, product.batch_b
            ca, cb = product.contract_a, product.contract_b
        else:  # a matmul
            ba = bb = tuple(range(a.type.rank - 2))
            ca, cb = (a.type.rank - 1,), (a.type.rank - 2,)
        sizes = [a.type.shape[i] for i in ca]
        axis = self.reduced_axis(prod(sizes))
        k = index_maps.unravel(axis_index(axis), sizes)
        free_a = [i for i in range(a.type.rank) if i not in ca + ba]
        free_b = [i for i in range(b.type.rank) if i not in cb + bb]
        batch_index = index[: len(ba)]
        ia = _assemble_index(
            a.type.rank,
            (ba, batch_index),
            (ca, k),
            (free_a, index[len(ba) : len(ba) + len(free_a)]),
        )
        ib = _assemble_index(
            b.type.rank, (bb, batch_index), (cb, k), (free_b, index[len(ba) + len(free_a) :])
        )
        wide = accumulator(a.type.dtype)
        terms = [self.widened(self.inline(v, i), wide, op) for v, i in ((a, ia), (b, ib))]
        node = self.nest("contraction", "fma", (axis,), terms, wide, op, **_chunks(terms, 1))
        return self.widened(node, op.result.type.dtype, op)

    def widened(self, node: Node, to: DType, op) -> Node:
        if node.dtype is to:
            return node
        if node.function == "cast" and scalars.is_widened(node.inputs[0].dtype, node.dtype):
            (node,) = node.inputs  # all of its values are those of the wider dtype, too
        return self.compute("cast", to, node, op=op)

    def _convolution(self, op, hook, index) -> Node:
        if hook.transposed:
            return self._transposed_convolution(op, index)
        convolution = typed.Conv.of(op)
        x, w, groups = convolution.x, convolution.w, convolution.groups
        taps = w.type.shape[2:]
        wide = accumulator(x.type.dtype)
        tap_axes = [self.reduced_axis(n) for n in taps]
        group = index[1] // (w.type.shape[0] // groups) if groups > 1 else ZERO
        if wide.is_integer and groups == w.type.shape[1] == 1 and taps:
            # Sums of integers have any order: the taps of a row are adjacent, as channels are.
            c, axes = ZERO, (tap_axes[-1], *tap_axes[:-1])
        else:
            channel = self.reduced_axis(w.type.shape[1])
            c, axes = axis_index(channel), (channel, *tap_axes)
        image, inside = self._image(convolution, index[2:], list(map(axis_index, tap_axes)))
        source = self.inline(x, (index[0], group * w.type.shape[1] + c, *image))
        source = self._padded(self.widened(source, wide, op), inside, op)
        weight = self.inline(w, (index[1], c, *map(axis_index, tap_axes)))
        weight = self.widened(weight, wide, op)
        node = self.nest(
            "convolution",
            "fma",
            axes,
            (source, weight),
            wide,
            op,
            **_chunks((source, weight), prod(each.size for each in axes[1:])),
        )
        return self.widened(node, op.result.type.dtype, op)

    def _transposed_convolution(self, op, index) -> Node:
        convolution = typed.ConvTranspose.of(op)
        x, w, groups = convolution.x, convolution.w, convolution.groups
        taps = w.type.shape[2:]
        per_group = x.type.shape[1] // groups
        channel = self.reduced_axis(per_group)
        tap_axes = [self.reduced_axis(n) for n in taps]
        outputs = w.type.shape[1]
        group, within = (
            (index[1] // outputs, index[1] % outputs) if groups > 1 else (ZERO, index[1])
        )
        c = axis_index(channel)
        image, hits, inside = [], [], []
        for i, tap, size, stride, low, dilation in zip(
            index[2:],
            tap_axes,
            x.type.shape[2:],
            convolution.strides,
            convolution.low,
            convolution.dilations,
            strict=True,
        ):
            # A tap without a position is not a term; a tap with a position outside is padding.
            position = i + low - axis_index(tap) * dilation
            hits += [(position % stride, 0, 1)] if stride > 1 else []
            position = position // stride
            image.append(clamp(position, 0, max(size - 1, 0)))
            inside.append((position, 0, size))
        inside = [c for c in inside if c[0].range[0] < c[1] or c[0].range[1] >= c[2]]
        wide = accumulator(x.type.dtype)
        row = group * per_group + c
        source = self.widened(self.inline(x, (index[0], row, *image)), wide, op)
        source = self._padded(source, inside, op)
        weight = self.inline(w, (row, within, *map(axis_index, tap_axes)))
        weight = self.widened(weight, wide, op)
        count = convolution.taps or prod(taps)
        node = self.nest(
            "convolution",
            "fma",
            (channel, *tap_axes),
            (source, weight),
            wide,
            op,
            hits,
            **_chunks((source, weight), count),
        )
        return self.widened(node, op.result.type.dtype, op)

    def _weight_gradient(self, op, hook, index) -> Node:
        """Return a product over (n, out): dy's elements of a channel times those of x at a tap."""
        product = typed.ConvWeightGradient.of(op)
        x, dy, groups = product.x, product.dy, product.groups
        sizes = (dy.type.shape[0], *dy.type.shape[2:])
        axis = self.reduced_axis(prod(sizes))
        n, *positions = index_maps.unravel(axis_index(axis), sizes)
        group = index[0] // (dy.type.shape[1] // groups) if groups > 1 else ZERO
        image, inside = self._image(product, positions, index[2:])
        wide = accumulator(x.type.dtype)
        channel = group * (x.type.shape[1] // groups) + index[1]
        source = self.widened(self.inline(x, (n, channel, *image)), wide, op)
        source = self._padded(source, inside, op)
        given = self.widened(self.inline(dy, (n, index[0], *positions)), wide, op)
        node = self.nest("contraction", "fma", (axis,), (source, given), wide, op, chunk=CHUNK)
        return self.widened(node, op.result.type.dtype, op)

    def _image(
        self,
        op: typed.Conv | typed.ConvWeightGradient | typed.Pool | typed.MaxPoolPositions,
        positions,
        taps,
    ):
        """Return the position in x of the ``taps`` of the windows at ``positions``.

        It is an index that may always be read, with the conditions under which it is inside.
        """
        image, inside = [], []
        for i, tap, size, stride, low, dilation in zip(
            positions, taps, op.x.type.shape[2:], op.strides, op.low, op.dilations, strict=True
        ):
            position = i * stride + tap * dilation - low
            image.append(clamp(position, 0, max(size - 1, 0)))
            inside.append((position, 0, size))
        return image, [c for c in inside if c[0].range[0] < c[1] or c[0].range[1] >= c[2]]

    def _padded(self, source: Node, inside, op) -> Node:
        """Return ``source`` if it is inside, else 0: padding terms are executed."""
        if not inside:
            return source
        return self.choose(inside, source, self._zero(source.dtype, op), op)

    def _zero(self, kind: DType, op) -> Node:
        return Node("number", kind, op=op, number=kind.numpy.type(0))

    def _window(self, op, hook, index) -> Node:
        pool: Any = view(op)
        x = pool.x
        tap_axes = [self.reduced_axis(n) for n in pool.window]
        image, inside = self._image(pool, index[2:], list(map(axis_index, tap_axes)))
        kind = x.type.dtype
        wide = dtype("f32") if kind.is_float and kind.bits <= 16 else kind
        node = self.widened(self.inline(x, (*index[:2], *image)), wide, op)
        if hook.kind == "positions":
            position = index_maps.linear(image, x.type.shape[2:])
            here = Node("position", dtype("i64"), op=op, address=position, axes=position.axes)
            return self.nest(
                "window", "positions", tap_axes, (node, here), dtype("i64"), op, inside
            )
        combine = hook.kind if hook.kind in ("max", "min") else "add"
        total = self.nest("window", combine, tap_axes, (node,), wide, op, inside)
        if hook.kind == "mean":
            count = self._count(pool, x.type.shape, index[2:], wide, every=not inside)
            total = self.compute("div", wide, total, count, op=op)
        return self.widened(total, kind, op)

    def _window_gradient(self, op, hook, index) -> Node:
        """Return the gradient of a window op; windows of an element ascend as its taps descend."""
        window: typed.MaxPoolGradient | typed.AvgPoolGradient = view(op)
        dy, shape, strides = window.dy, window.shape, window.strides
        tap_axes = [self.reduced_axis(n) for n in window.window]
        positions, hits = [], []
        for i, tap, taps, size, stride, low, dilation in zip(
            index[2:],
            tap_axes,
            window.window,
            dy.type.shape[2:],
            strides,
            window.low,
            window.dilations,
            strict=True,
        ):
            position = i + low - (axis_index(tap) * -1 + (taps - 1)) * dilation
            hits += [(position % stride, 0, 1)] if stride > 1 else []
            position = position // stride
            positions.append(clamp(position, 0, max(size - 1, 0)))
            hits.append((position, 0, size))
        kind = dy.type.dtype
        wide = dtype("f32") if kind.is_float and kind.bits <= 16 else kind
        where = (*index[:2], *positions)
        terms = [self.widened(self.inline(dy, where), wide, op)]
        if isinstance(window, typed.MaxPoolGradient):
            position = index_maps.linear(index[2:], shape[2:])
            here = Node("position", dtype("i64"), op=op, address=position, axes=position.axes)
            there = self.inline(window.positions, where)
            terms.append(self.compute("eq", dtype("i1"), there, here, op=op))
        else:
            count = self._count(window, shape, positions, wide)
            terms = [self.compute("div", wide, terms[0], count, op=op)]
        most = prod(-(-k // s) for k, s in zip(window.window, strides, strict=True))
        node = self.nest(
            "window", "gradient", tap_axes, terms, wide, op, hits, chunked=most > CHUNK
        )
        return self.widened(node, kind, op)

    def _count(
        self,
        pool: typed.AvgPool | typed.AvgPoolGradient,
        shape,
        index,
        wide: DType,
        every: bool = False,
    ) -> Node:
        """Return the number of elements of the mean at ``index`` over an operand of ``shape``.

        It is the window's, if padding is counted or ``every`` window is inside.
        """
        if pool.count_padding or every:
            return Node("number", wide, op=pool.op, number=wide.numpy.type(prod(pool.window)))
        count: Any = None  # every window has axes
        for i, window, size, stride, low, dilation in zip(
            index, pool.window, shape[2:], pool.strides, pool.low, pool.dilations, strict=True
        ):
            start = i * -stride + low
            first = clamp((start + dilation - 1) // dilation, 0, window)
            end = clamp((start + size - 1) // dilation + 1, 0, window)
            inside = clamp(end - first, 0, window)
            here = Node("position", wide, op=pool.op, address=inside, axes=inside.axes)
            count = here if count is None else self.compute("mul", wide, count, here, op=pool.op)
        return count


_METHODS = {
    hooks.Elementwise: Inliner._elementwise,
    hooks.IndexMap: Inliner._index_map,
    hooks.Part: Inliner._index_map,
    hooks.Constant: Inliner._constant,
    hooks.Reduction: Inliner._reduction,
    hooks.Contraction: Inliner._contraction,
    hooks.Convolution: Inliner._convolution,
    hooks.WeightGradient: Inliner._weight_gradient,
    hooks.Window: Inliner._window,
    hooks.WindowGradient: Inliner._window_gradient,
}


def _chunks(factors: Sequence[Node], taps: int) -> dict[str, int]:
    """Return the order of a product's terms: those of a ``chunk``, or ``blocks`` of ``block`` each.

    It is the contract's, but for sums of bytes, signed ones times unsigned ones: they wrap, and
    have the same bits in any order.
    """
    loads = [n.dtype.name for factor in factors for n in factor.walk() if n.kind == "load"]
    if sorted(loads) != ["i8", "ui8"]:
        return {"chunk": CHUNK, "block": BLOCK, "blocks": max(1, BLOCKS // max(1, taps))}
    chunk, block = CHUNK * BYTES, 2 * BLOCK
    return {"chunk": chunk, "block": block, "blocks": -(-chunk // (block * max(1, taps)))}


def _assemble_index(rank: int, *parts) -> tuple[AffineExpr, ...]:
    found: list[AffineExpr] = [ZERO] * rank
    for axes, index in parts:
        for axis, i in zip(axes, index, strict=True):
            found[axis] = i
    return tuple(found)


def accumulator(kind: DType) -> DType:
    """Return the dtype in which a contraction of ``kind`` accumulates (numerics contract)."""
    if kind.is_float:
        return kind if kind.bits >= 32 else dtype("f32")
    return kind if kind.bits == 64 else dtype("i32")


def reduced_groups(shape, axes) -> list[tuple[int, ...]]:
    """Return the reduced axes merged into groups: adjacent ones, ignoring axes of size 1."""
    wide = [a for a in range(len(shape)) if shape[a] != 1]
    groups: list[tuple[int, ...]] = []
    for position, axis in enumerate(wide):
        if axis not in axes:
            continue
        if groups and position and wide[position - 1] == groups[-1][-1]:
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    return groups


def default_orders(shape, groups) -> tuple[str, ...]:
    """Return ``lanes`` for the group with the last axis wider than 1, else ``sequence``."""
    last = max((a for a in range(len(shape)) if shape[a] != 1), default=None)
    return tuple("lanes" if last in group else "sequence" for group in groups)
