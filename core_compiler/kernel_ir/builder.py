"""Construction of kernels: nested regions with ``with``, folded index arithmetic, checked types.

::

    kb = KernelBuilder("scale")
    x = kb.buffer("x", ("n",), "f32", strides=(1,))
    y = kb.buffer("y", ("n",), "f32", strides=(1,))
    n = kb.size("n")
    with kb.loop("block", 0, n, 4096, loop="parallel") as block:
        with kb.loop("i", block, kb.min(kb.add(block, 4096), n), loop="vector") as i:
            kb.store(kb.mul(kb.load(x, i), kb.number(2.0, "f32")), y, i)
    function = kb.function()

A loop that carries values: ``with kb.loop("k", 0, n, init=[zero]) as (k, acc): kb.carry(...)``; its
results are then ``kb.results``.
"""

from __future__ import annotations

from contextlib import contextmanager

from core_compiler.ir import Block, DType, Function, Op, Value, dtype, vector
from core_compiler.ir.types import INDEX, Dim, buffer, row_major
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.ops import KERNEL_OPS, result_types
from core_compiler.support.errors import InternalError

_QUOTIENTS = frozenset({"mod", "floordiv", "ceildiv"})
#: Index arithmetic that is simplified.
_FOLDED = frozenset({"add", "sub", "mul", "min", "max", *_QUOTIENTS})


class KernelBuilder:
    """Appends kernel ops to nested blocks; ints are accepted as indices everywhere."""

    def __init__(self, name: str = "kernel", origin=None):
        self.name, self.origin = name, origin
        self.arguments: list[Value] = []
        self._blocks: list[list[Op]] = [[]]
        self._carries: list[tuple[Value, ...]] = []
        self._constants: dict[Value, int] = {}
        self._shared: list[dict] = [{}]
        self.results: tuple[Value, ...] = ()

    # -- the kernel itself -----------------------------------------------------------------------

    def buffer(self, name, shape, dtype_, strides=None, offset=0, space="dram") -> Value:
        """Add a buffer argument; strings in ``shape``, ``strides``, ``offset`` name arguments.

        The named arguments are index arguments.
        """
        strides = row_major(shape) if strides is None else tuple(strides)
        value = Value(buffer(shape, dtype_, strides, offset, space), name)
        self.arguments.append(value)
        return value

    def size(self, name: str) -> Value:
        """Add an index argument: the run-time size or stride ``name`` of buffer types."""
        value = Value(INDEX, name)
        self.arguments.append(value)
        return value

    def function(self, **attributes) -> Function:
        """Return the finished kernel: buffers, then index arguments, in declaration order."""
        if len(self._blocks) != 1:
            raise InternalError("a region is still open")
        arguments = sorted(self.arguments, key=lambda v: v.type is INDEX)
        block = Block(tuple(arguments), tuple(self._blocks[0]), ())
        return Function(self.name, block, "kernel", attributes)

    # -- regions ---------------------------------------------------------------------------------

    @contextmanager
    def loop(self, name, lower, upper, step=1, *, loop="sequential", init=()):
        """Open a ``kernel.for``; yield ``iv``, or ``(iv, *carried)`` if ``init`` is given."""
        bounds = [self.index(b) for b in (lower, upper, step)]
        iv = Value(INDEX, name)
        carried = tuple(Value(v.type, v.name) for v in init)
        self._open()
        yield (iv, *carried) if init else iv
        outputs = self._carries.pop()
        if len(outputs) != len(carried):
            raise InternalError(
                f"loop {name}: expected {len(carried)} carried values, got {len(outputs)}"
            )
        body = Block((iv, *carried), tuple(self._close()), outputs)
        self.results = self._append(
            "kernel.for", (*bounds, *init), {"loop": loop, "name": name}, regions=(body,)
        )

    def carry(self, *values: Value) -> None:
        """Set the outputs of the innermost open loop (or branch): the next carried values."""
        self._carries[-1] = values

    @contextmanager
    def branch(self, condition: Value):
        """Open a ``kernel.if`` without results, whose body runs if ``condition`` holds."""
        self._open()
        yield
        self._carries.pop()
        then = Block((), tuple(self._close()), ())
        self._append("kernel.if", (condition,), {}, regions=(then, Block()))

    def choose(self, condition: Value, then, otherwise) -> tuple[Value, ...]:
        """Add a ``kernel.if`` with results from two functions that build the regions.

        Each function builds its region and returns its values.
        """
        blocks = []
        for build in (then, otherwise):
            self._open()
            values = build()
            values = (values,) if isinstance(values, Value) else tuple(values)
            self._carries.pop()
            blocks.append(Block((), tuple(self._close()), values))
        types = [v.type for v in blocks[0].outputs]
        return self._append("kernel.if", (condition,), {}, types, tuple(blocks))

    def _open(self):
        self._blocks.append([])
        self._carries.append(())
        self._shared.append({})

    def _close(self):
        self._shared.pop()
        return self._blocks.pop()

    # -- memory ----------------------------------------------------------------------------------

    def load(self, source: Value, *indices, width=None, count=None, axis=None, name=None) -> Value:
        """Load an element, or ``width`` lanes along ``axis`` (the first ``count`` of them)."""
        operands = [source, *map(self.index, indices)]
        operands += [] if count is None else [self.index(count)]
        requested = source.type.dtype if width is None else vector(width, source.type.dtype)
        attributes = {} if axis is None else {"axis": axis}
        return self._append("kernel.load", operands, attributes, (requested,), name=name)[0]

    def store(
        self, value: Value, target: Value, *indices, count=None, axis=None, asynchronous=False
    ) -> None:
        operands = [value, target, *map(self.index, indices)]
        operands += [] if count is None else [self.index(count)]
        attributes: dict = {} if axis is None else {"axis": axis}
        attributes |= {"asynchronous": True} if asynchronous else {}
        self._append("kernel.store", operands, attributes)

    def prefetch(self, source: Value, *indices) -> None:
        """Give the hint that an element, which need not exist, is read soon."""
        self._append("kernel.prefetch", [source, *map(self.index, indices)], {})

    def alloc(self, shape, dtype_, *sizes, space="scratch", name=None) -> Value:
        """Allocate a private buffer; ``sizes`` are the values of the strings in ``shape``.

        They are in the order of the dimensions.
        """
        strides: list[Dim] = []
        step: Dim = 1
        for d in reversed(tuple(shape)):
            strides.append(step)
            known = isinstance(d, int) and isinstance(step, int)
            step = d * step if known else (d if step == 1 else f"{d}*{step}")
        kind = buffer(shape, dtype_, tuple(reversed(strides)), 0, space)
        return self._append("kernel.alloc", map(self.index, sizes), {}, (kind,), name=name)[0]

    # -- numbers ---------------------------------------------------------------------------------

    def index(self, what) -> Value:
        """Return ``what`` as an index value: a Python int becomes a constant."""
        if isinstance(what, Value):
            return what
        return self._constant(int(what), INDEX)

    def number(self, value, type_) -> Value:
        """Return a constant of a dtype, INDEX or vector type (a splat).

        A narrow float is the cast of an f32, because it has no constants of its own.
        """
        type_ = dtype(type_) if isinstance(type_, str) else type_
        if scalars.is_narrow(type_):
            return self.cast(self.number(value, "f32"), type_)
        lane = getattr(type_, "dtype", type_)
        if isinstance(lane, DType):
            value = {"float": float, "bool": bool}.get(lane.kind, int)(value)
        return self._constant(value, type_)

    def _constant(self, value, type_) -> Value:
        found = self._append("kernel.constant", (), {"value": value}, (type_,))[0]
        if type_ is INDEX:
            self._constants[found] = value
        return found

    def known(self, value) -> int | None:
        """Return the constant of an index value, or None if it is not known here."""
        return value if isinstance(value, int) else self._constants.get(value)

    def cast(self, x: Value, to) -> Value:
        """Convert to a dtype or INDEX; return ``x`` itself if it has that type."""
        to = dtype(to) if isinstance(to, str) else to
        if getattr(x.type, "dtype", x.type) is to:
            return x
        return self.op("cast", x, dtype=to)

    def broadcast(self, x: Value, width: int) -> Value:
        return self._append("kernel.broadcast", (x,), {}, (vector(width, x.type),))[0]

    def lanes(self, width: int) -> Value:
        return self._append("kernel.lanes", (), {}, (vector(width, "i64"),))[0]

    def op(self, name: str, *operands, **attributes) -> Value:
        """Add ``kernel.<name>`` with one result; index arithmetic on constants folds."""
        kind = f"kernel.{name}"
        if all(isinstance(v, int) or v.type is INDEX for v in operands) and name in _FOLDED:
            return self._index_op(name, *operands)
        return self._append(kind, [self.index(v) for v in operands], attributes)[0]

    def __getattr__(self, name: str):
        kind = name.rstrip("_")
        if name.startswith("_") or f"kernel.{kind}" not in KERNEL_OPS:
            raise AttributeError(name)
        return lambda *operands, **attributes: self.op(kind, *operands, **attributes)

    def _index_op(self, name, a, b) -> Value:
        x, y = self.known(a), self.known(b)
        if x is not None and y is not None:
            if y == 0 and name in _QUOTIENTS:  # in a loop that runs over nothing
                return self.index(0)
            evaluate = KERNEL_OPS[f"kernel.{name}"].on_indices
            assert evaluate is not None
            return self.index(evaluate(x, y))
        neutral = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1, "ceildiv": 1}.get(name)
        if y is not None and y == neutral:
            return a
        if name in ("add", "mul") and x is not None and x == neutral:
            return b
        if name == "mul" and 0 in (x, y):
            return self.index(0)
        if name in ("min", "max") and a is b:
            return a
        return self._append(f"kernel.{name}", (self.index(a), self.index(b)), {})[0]

    # -- construction of ops ---------------------------------------------------------------------

    def _append(self, kind, operands, attributes, types=(), regions=(), name=None):
        operands, types = tuple(operands), tuple(types)
        facts = _facts(attributes) if attributes else ()
        typed = (kind, tuple([v.type for v in operands]), facts, types)
        known = _TYPED.get(typed)
        if known is None:
            known = tuple(result_types(kind, typed[1], attributes, types))
            _TYPED[typed] = known
        types = known
        pure = KERNEL_OPS[kind].pure
        key = (kind, operands, facts, types)
        if pure:  # reuse an equal pure op of this or an outer region
            for scope in reversed(self._shared):
                if key in scope:
                    return scope[key]
        results = tuple(Value(t, name) for t in types)
        op = Op(kind, operands, results, attributes, regions, self.origin)
        self._blocks[-1].append(op)
        if pure:
            self._shared[-1][key] = results
        return results

    def append(self, op: Op) -> None:
        """Append an existing op (for transformations that copy most of a kernel)."""
        self._blocks[-1].append(op)


#: Result types by (kind, operand types, attributes, requested types): transformations copy the same
#: ops repeatedly, and types are interned.
_TYPED: dict[tuple, tuple] = {}


def _facts(attributes) -> tuple:
    """Return attributes as a key that distinguishes more than equality.

    It distinguishes 1, 1.0 and True, -0.0 and 0.0, and one NaN from another.
    """
    return tuple(
        (name, type(v), v.hex() if isinstance(v, float) else v)
        for name, v in sorted(attributes.items(), key=lambda item: item[0])
    )
