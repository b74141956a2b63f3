"""From a group of tensor ops to an unscheduled kernel: plain loops that spell out the meaning.

``lower_group(op)`` lowers a ``core.group`` (or one op) to a kernel that is generic in sizes;
``can_join`` answers the fusion passes whether ops fit one kernel.  The order of accumulation in the
loops written here *is* the contract's (numerics): chunks of 256 for products and sequences, 32
lanes and chunks of 4096 for the last axis, windows row-major.  Schedules may not change it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from core_compiler.errors import InternalError
from core_compiler.ir import Block, DType, Function, Op, Value, dtype
from core_compiler.ir.types import INDEX
from core_compiler.kernels import scalars
from core_compiler.kernels.affine import Axis, Clamped, Data, Lin, Quotient
from core_compiler.kernels.builder import KernelBuilder
from core_compiler.kernels.hooks import (
    Constant,
    Contraction,
    Convolution,
    Custom,
    Elementwise,
    Hook,
    IndexMap,
    Read,
    Reduction,
    Scan,
    Window,
)
from core_compiler.kernels.planning import Phase, Plan, Store, make_plan
from core_compiler.kernels.pull import LANE_CHUNK, CannotLower, Node

__all__ = [
    "CannotLower", "Constant", "Contraction", "Convolution", "Custom", "Elementwise", "Hook",
    "IndexMap", "Lowered", "Read", "Reduction", "Refusal", "Scan", "Window", "can_join",
    "lower_group", "use_declarations",
]  # fmt: skip

GROUP = "core.group"
#: Terms of a product's chunk, and of a ``sequence`` reduction's (numerics contract).
CHUNK = 256
LANES = 32


@dataclass(frozen=True)
class Refusal:
    """Why ops do not fit one kernel; ``op`` is the op the reason speaks of."""

    reason: str
    op: Op | None = None


@dataclass(frozen=True, eq=False)
class Lowered:
    """An unscheduled kernel and what to launch it with.

    ``arguments``: for each kernel argument ``("operand", number)`` or ``("result", number)`` of the
    lowered op (buffers), or ``("size", value)`` (index arguments).
    """

    function: Function
    arguments: tuple[tuple[str, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(n for kind, n in self.arguments if kind == "size")

    @property
    def buffers(self) -> tuple[tuple[str, int], ...]:
        return tuple(a for a in self.arguments if a[0] != "size")


# -- declarations ------------------------------------------------------------------------------------

_declarations: list[tuple[Callable, Callable]] = []


def use_declarations(definition: Callable, decomposed: Callable) -> None:
    """Called once by ``core_compiler.ops``, which lies above this package: ``definition(op)`` has
    ``lower``, ``decompose`` and ``fill``; ``decomposed(op)`` is a composite's block."""
    _declarations[:] = [(definition, decomposed)]


def _lookup(op: Op) -> Hook | None:
    if not _declarations:
        raise InternalError("import core_compiler.ops before lowering")
    return _declarations[0][0](op).lower


def expanded(block: Block) -> Block:
    """The block with attributes filled in and composites that have no hook decomposed."""
    ops: list[Op] = []
    renamed: dict[Value, Value] = {}

    def put(op: Op) -> None:
        op = op.substitute(renamed)
        declared = _declarations[0][0](op)
        if declared.lower is not None or declared.decompose is None:
            ops.append(op.with_(attributes=_plain(declared.fill(op.attributes))))
            return
        inner = _declarations[0][1](op)
        renamed.update(zip(inner.arguments, op.operands, strict=True))
        for part in inner.ops:
            put(part if part.origin is not None else part.with_(origin=op.origin))
        for old, new in zip(op.results, inner.outputs, strict=True):
            renamed[old] = renamed.get(new, new)

    if not _declarations:
        raise InternalError("import core_compiler.ops before lowering")
    for op in block.ops:
        put(op)
    return Block(block.arguments, tuple(ops), tuple(renamed.get(v, v) for v in block.outputs))


def _plain(attributes: dict) -> dict:
    return {k: v for k, v in attributes.items() if v is not None}


def block_of(op: Op) -> Block:
    """The block of a group; a single op becomes a block of its own, over fresh arguments."""
    if op.kind == GROUP:
        return op.regions[0]
    arguments = tuple(Value(v.type, v.name) for v in op.operands)
    results = tuple(Value(v.type, v.name) for v in op.results)
    return Block(arguments, (op.with_(operands=arguments, results=results),), results)


def can_join(first: Sequence[Op], second: Sequence[Op], outputs: Sequence[Value] = ()):
    """None if the ops of both units fit one kernel, else a :class:`Refusal`.

    ``first`` feeds ``second`` (both in program order, spelled over the values outside them);
    ``outputs`` are results of ``first`` that others read too.
    """
    ops = [*first, *second]
    used = {v for op in ops for v in op.uses()}
    made = {v: None for op in ops for v in op.results}
    inputs = dict.fromkeys(v for op in ops for v in op.uses() if v not in made)
    results = dict.fromkeys([*outputs, *(v for v in made if v not in used)])
    block = Block(tuple(inputs), tuple(ops), tuple(results))
    try:
        block = expanded(block)
        for op in block.ops:
            if isinstance(_lookup(op), Custom | Scan):
                return Refusal(f"{op.kind} is a kernel of its own", op)
        make_plan(block, _lookup)
    except CannotLower as error:
        return Refusal(error.reason, error.op)
    return None


def lower_group(op: Op, name: str | None = None) -> Lowered:
    """The unscheduled kernel of a group or of one op; :class:`CannotLower` says why there is none.

    The same access pattern, dtypes and scalar ops give an equal function, whatever the sizes.
    """
    block = expanded(block_of(op))
    if len(block.ops) >= 1 and isinstance(_lookup(block.ops[-1]), Custom | Scan):
        from core_compiler.kernels import lower_custom

        return lower_custom.lower(block, name or kernel_name(block))
    plan = make_plan(block, _lookup)
    return Emitter(plan, name or kernel_name(block)).lower()


def kernel_name(block: Block) -> str:
    """``add_relu``: the ops that compute, at most four, each once."""
    names = [op.kind.split(".")[-1] for op in block.ops]
    moving = ("constant", "broadcast", "reshape", "transpose", "iota")
    names = list(dict.fromkeys(n for n in names if n not in moving)) or names[-1:]
    return "_".join(names if len(names) <= 4 else [*names[:3], names[-1]])


def family(plan: Plan) -> str:
    """Which family of schedules the kernel belongs to."""
    forms = {h.heavy.form for h in plan.heavies}
    if not forms:
        return "elementwise"
    for form in ("contraction", "convolution", "window"):
        if form in forms:
            return form
    return "rows"


# -- emission ----------------------------------------------------------------------------------------


class Emitter:
    """Writes the kernel of a plan."""

    def __init__(self, plan: Plan, name: str):
        self.plan, self.family = plan, family(plan)
        self.kb = KernelBuilder(name)
        self.block = plan.block
        self.arguments: dict[Value, tuple[str, int]] = {}
        self.scopes: list[dict] = [{}]
        self.axes: dict[Axis, Value] = {}
        self.sizes: dict[Value, int] = {}
        self.extents: dict = {}
        self.buffers: dict[tuple, Value] = {}
        self.kept: dict[Value, tuple[Value, Axis]] = {}
        self.counts: dict[str, int] = {}
        self.names = self._axis_names()

    def lower(self) -> Lowered:
        with self.loops(self.plan.rows, "parallel"):
            for phase in self.plan.phases:
                self.phase(phase)
            for store in self.plan.row_stores:
                self.store(store)
        function = self.kb.function(family=self.family)
        arguments = tuple(
            self.arguments[v] if v in self.arguments else ("size", self.sizes[v])
            for v in function.arguments
        )
        return Lowered(function, arguments)

    def _axis_names(self) -> dict[Axis, str]:
        """Loop names: ``b m n`` where a product's operands tell, else ``i0 i1``, ``j0 j1``."""
        names: dict[Axis, str] = {}
        for node in self.plan.heavies:
            if node.heavy.form != "contraction":
                continue
            a, b = (t.axes for t in node.heavy.terms)
            groups = {"b": [], "m": [], "n": []}
            for axis in self.plan.rows:
                groups["n" if axis not in a else "m" if axis not in b else "b"].append(axis)
            for letter, axes in groups.items():
                for number, axis in enumerate(axes):
                    names[axis] = letter if len(axes) == 1 else f"{letter}{number}"
        for letter, axes in (("i", self.plan.rows), ("j", self.plan.inner)):
            for number, axis in enumerate(axes):
                names.setdefault(axis, f"{letter}{number}")
        return names

    # -- index arguments -------------------------------------------------------------------------

    def argument(self, letter: str, number: int) -> Value:
        """A fresh index argument, called ``letter`` and a number, worth ``number`` at launch."""
        place = self.counts[letter] = self.counts.get(letter, -1) + 1
        value = self.kb.size(f"{letter}{place}")
        self.sizes[value] = number
        return value

    def unique(self, name: str) -> str:
        """``name``, then ``name1``, ``name2``...: a kernel's loops and buffers are told by name."""
        place = self.counts[name] = self.counts.get(name, -1) + 1
        return f"{name}{place}" if place else name

    def extent(self, axis: Axis) -> Value:
        """The number of iterations of ``axis``; the sweeps of a row program share one."""
        inside = axis.reduced or axis in self.plan.inner
        key = ("inside", axis.size) if inside and self.family == "rows" else axis
        if key not in self.extents:
            self.extents[key] = self.argument("n", axis.size)
        return self.extents[key]

    def number(self, value: int, role) -> Value:
        """An integer of the model in index arithmetic: -1, 0, 1 as such, others at launch."""
        if value in (-1, 0, 1):
            return self.kb.index(value)
        if (role, value) not in self.extents:
            self.extents[role, value] = self.argument("c", value)
        return self.extents[role, value]

    # -- loops and scopes ------------------------------------------------------------------------

    @contextmanager
    def loops(self, axes: Sequence[Axis], kind: str):
        """Nested loops over ``axes``, outermost first, with a scope for shared values each."""
        if not axes:
            yield
            return
        axis = axes[0]
        with self.kb.loop(self.names[axis], 0, self.extent(axis), loop=kind) as iv:
            with self.bound({axis: iv}), self.loops(axes[1:], kind):
                yield

    @contextmanager
    def bound(self, axes: dict[Axis, Value]):
        """A scope in which ``axes`` have these index values."""
        self.axes.update(axes)
        self.scopes.append({})
        yield
        self.scopes.pop()
        for axis in axes:
            del self.axes[axis]

    def _find(self, key):
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def hoist(self, nodes: Sequence[Node]) -> None:
        """Emit now, in this scope, the parts of ``nodes`` that no inner loop changes."""
        open_ = set(self.axes)

        def visit(node: Node) -> None:
            if self._find(node) is not None:
                return
            if node.axes <= open_ and node.kind != "number":
                self.emit(node)
            elif node.heavy is None:
                for child in node.inputs:
                    visit(child)

        for node in nodes:
            visit(node)

    # -- phases ----------------------------------------------------------------------------------

    def phase(self, phase: Phase) -> None:
        self.reuse = phase.reuse
        if phase.heavy is not None:
            self.kept_now = phase
            self.hoist([n for n in phase.roots])
            self.scopes[-1][phase.heavy] = self.heavy(phase.heavy)
            return
        self.kept_now = phase
        self.hoist(phase.roots)
        with self.loops(self.plan.inner, "parallel"):
            for store in phase.stores:
                self.store(store)

    def store(self, store: Store) -> None:
        value = self.emit(store.node)
        target, indices = self.buffer(store.value, store.address, ("result", store.output))
        self.kb.store(value, target, *indices)

    def keep(self, phase: Phase) -> None:
        """In the innermost loop of a phase: store what later phases read, and its outputs."""
        for value, node in phase.keep.items():
            scratch, axis = self.kept[value]
            self.kb.store(self.emit(node), scratch, self.axes[axis])
        for store in phase.stores:
            self.store(store)

    def _allocate(self, phase: Phase) -> None:
        rows = set(self.plan.rows)
        for value, node in phase.keep.items():
            (axis,) = (a for a in node.axes if a not in rows)
            extent = self.extent(axis)
            memory = self.kb.alloc((extent.name,), node.dtype, extent, name=self.unique("row"))
            self.kept[value] = (memory, axis)

    # -- nodes -----------------------------------------------------------------------------------

    def emit(self, node: Node) -> Value:
        found = self._find(node)
        if found is None:
            found = self._emit(node)
            self.scopes[-1][node] = found
        return found

    def _emit(self, node: Node) -> Value:
        kb = self.kb
        kb.origin = node.op.origin if node.op is not None else kb.origin
        if node in getattr(self, "reuse", ()):
            scratch, _ = self.kept[self.reuse[node]]
            (axis,) = (a for a in node.axes if a not in self.plan.rows)
            return kb.load(scratch, self.axes[axis])
        if node.kind == "load":
            source, indices = self.buffer(node.value, node.address)
            return kb.load(source, *indices)
        if node.kind == "number":
            return self.constant(node.number, node.dtype)
        if node.kind == "position":
            return self.position(node)
        if node.kind == "choose":
            return self.choose(node)
        if node.kind == "heavy":
            return self.heavy(node)
        return self.compute(node)

    def constant(self, number, kind: DType) -> Value:
        if scalars.is_narrow(kind):
            return self.kb.cast(self.kb.number(float(number), "f32"), kind)
        return self.kb.number(number.item() if hasattr(number, "item") else number, kind)

    def position(self, node: Node) -> Value:
        made = self.kb.cast(self.index(node.address), "i64")
        return self.kb.cast(made, node.dtype)

    def choose(self, node: Node) -> Value:
        inside, outside = (self.emit(n) for n in node.inputs)
        return self.kb.select(self.condition(node.conditions), inside, outside)

    def condition(self, conditions) -> Value:
        """One i1 of conditions ``low <= expression < high``; bounds that always hold are left out."""
        kb, made = self.kb, None
        for number, (expression, low, high) in enumerate(conditions):
            a, b = expression.range
            value = self.index(expression)
            tests = []
            if a < low:
                tests.append(kb.ge(value, self.number(low, ("low", number))))
            if b >= high:
                tests.append(kb.lt(value, self.number(high, ("high", number))))
            for test in tests:
                made = test if made is None else kb.and_(made, test)
        return kb.number(True, "i1") if made is None else made

    def compute(self, node: Node) -> Value:
        kb, name = self.kb, node.function
        operands = [self.emit(n) for n in node.inputs]
        if name == "cast":
            saturate = True if node.op is None else node.op.get("saturate", True)
            return self.cast(operands[0], node.dtype, saturate)
        if name == "bitcast":
            return kb.op("bitcast", operands[0], dtype=node.dtype)
        if name == "select":
            return kb.select(*operands)
        source = node.inputs[0].dtype
        if scalars.is_narrow(source):
            operands = [kb.cast(v, "f32") for v in operands]
        if name == "pow" and source.is_integer:
            name = "ipow"
        made = kb.op(name, *operands)
        return kb.cast(made, node.dtype) if made.type is not node.dtype else made

    def cast(self, value: Value, to: DType, saturate: bool = True) -> Value:
        if value.type is to:
            return value
        small = to.is_float and to.bits <= 8
        return self.kb.op("cast", value, dtype=to, **({"saturate": saturate} if small else {}))

    # -- indices and buffers ---------------------------------------------------------------------

    def index(self, e: Lin) -> Value:
        """An index expression as a value."""
        key = ("index", e.key)
        found = self._find(key)
        if found is None:
            kb, found = self.kb, None
            for number, (atom, c) in enumerate(e.terms):
                part = self.atom(atom)
                if c == -1:
                    found = kb.sub(0 if found is None else found, part)
                    continue
                if c != 1:
                    part = kb.mul(part, self.number(c, ("coefficient", number)))
                found = part if found is None else kb.add(found, part)
            rest = self.number(abs(e.constant), "offset")
            if found is None:
                found = rest if e.constant >= 0 else kb.sub(0, rest)
            elif e.constant:
                found = kb.add(found, rest) if e.constant > 0 else kb.sub(found, rest)
            self.scopes[-1][key] = found
        return found

    def atom(self, atom) -> Value:
        kb = self.kb
        if isinstance(atom, Axis):
            return self.axes[atom]
        if isinstance(atom, Clamped):
            low, high = self.number(atom.low, "low"), self.number(atom.high, "high")
            return kb.min(kb.max(self.index(atom.of), low), high)
        if isinstance(atom, Data):
            value = self.plan.puller.data_values[atom.value]
            node = self.plan.puller.pull(value, atom.index)
            raw = kb.cast(self.emit(node), INDEX)
            low, high = self.number(atom.low, "low"), self.number(atom.high, "high")
            return kb.min(kb.max(raw, low), high)
        name = "floordiv" if isinstance(atom, Quotient) else "mod"
        return kb.op(name, self.index(atom.of), self.number(atom.by, "divisor"))

    def buffer(self, value: Value, address: Lin, argument=None) -> tuple[Value, list[Value]]:
        """The buffer argument that reads ``value`` along ``address``, and the indices into it.

        Its dimensions are the terms of the address, the largest stride first.
        """
        terms = sorted(address.terms, key=lambda t: (-abs(t[1]), t[0].key))
        offset, dims = address.constant, []
        for atom, c in terms:
            low, high = atom.range
            index = self.atom(atom)
            if low < 0:
                offset += c * low
                index = self.kb.sub(index, self.number(low, "low"))
            size = atom.size if isinstance(atom, Axis) else high - low + 1
            dims.append((atom, c, size, index))
        pattern = tuple((self._shape_key(a, n), c) for a, c, n, _ in dims)
        key = (value, argument, pattern, offset)
        if key not in self.buffers:
            self.buffers[key] = self._declare(value, dims, offset, argument)
        return self.buffers[key], [index for *_, index in dims]

    def _shape_key(self, atom, size: int):
        """Axes of one size in one role share a view: a row's sweeps read one buffer argument."""
        if isinstance(atom, Axis):
            return ("axis", atom.number if atom in self.plan.rows else -1, size)
        return ("opaque", size)

    def _declare(self, value: Value, dims, offset: int, argument) -> Value:
        shape, strides = [], []
        number = sum(1 for v in self.arguments if v in self.kb.arguments)
        for atom, c, size, _ in dims:
            if isinstance(atom, Axis):
                shape.append(self.extent(atom).name)
            else:
                shape.append(self.argument("e", size).name)
            strides.append(c if c in (0, 1) else self.argument("s", c).name)
        start = 0 if offset == 0 else self.argument("o", offset).name
        letter = "y" if argument is not None else "x"
        made = self.kb.buffer(f"{letter}{number}", shape, value.type.dtype, strides, start)
        if argument is None:
            argument = ("operand", self.block.arguments.index(value))
        self.arguments[made] = argument
        return made

    # -- heavy nodes -----------------------------------------------------------------------------

    def heavy(self, node: Node) -> Value:
        self.kb.origin = node.op.origin if node.op is not None else self.kb.origin
        return getattr(self, f"_{node.heavy.form}")(node)

    def element(self, node: Node, k: Value, term: int = 0) -> Value:
        """The heavy node's term at ``k`` (in a scope of its own, which the caller opened)."""
        return self.emit(node.heavy.terms[term])

    def _phase_of(self, node: Node) -> Phase:
        for phase in self.plan.phases:
            if phase.heavy is node:
                return phase
        return Phase(node)

    def _lanes(self, node: Node) -> Value:
        heavy, axis = node.heavy, node.heavy.axes[0]
        phase = self._phase_of(node)
        self._allocate(phase)

        def body(k: Value) -> Value:
            with self.bound({axis: k}):
                made = self.emit(heavy.terms[0])
                self.keep(phase)
                return made

        return self._lane_levels(heavy, axis.size, self.extent(axis), body)

    def _lane_levels(self, heavy, size: int, count: Value, element) -> Value:
        """Sum of ``element`` over [0, count): 32 lanes up to 4096 terms, else chunks of 4096 whose
        sums are added by the same rule.  ``size`` is ``count`` here and now: it decides how many
        levels the kernel has."""
        kb = self.kb
        if size <= LANE_CHUNK:
            return self._lane_sum(heavy, kb.index(0), count, element)
        size = -(-size // LANE_CHUNK)
        chunks = self.argument("chunks", size)
        sums = kb.alloc((chunks.name,), heavy.dtype, chunks, name=self.unique("sums"))
        with kb.loop(self.unique("chunk"), 0, chunks) as c:
            start = kb.mul(c, LANE_CHUNK)
            end = kb.min(kb.add(start, LANE_CHUNK), count)
            kb.store(self._lane_sum(heavy, start, end, element), sums, c)
        return self._lane_levels(heavy, size, chunks, lambda k: kb.load(sums, k))

    def _lane_sum(self, heavy, lower, upper, element) -> Value:
        kb, op = self.kb, _COMBINE[heavy.kind]
        lanes = kb.alloc((LANES,), heavy.dtype, space="register", name=self.unique("lanes"))
        with kb.loop(self.unique("start"), 0, LANES, loop="vector") as lane:
            kb.store(identity(kb, heavy.kind, heavy.dtype), lanes, lane)
        with kb.loop(self.unique("k"), lower, upper, LANES) as k:
            width = kb.min(kb.sub(upper, k), LANES)
            with kb.loop(self.unique("lane"), 0, width, loop="vector") as lane:
                term = element(kb.add(k, lane))
                kb.store(kb.op(op, kb.load(lanes, lane), term), lanes, lane)
        for half in (16, 8, 4, 2, 1):
            with kb.loop(self.unique("tree"), 0, half, loop="vector") as lane:
                pair = kb.load(lanes, lane), kb.load(lanes, kb.add(lane, half))
                kb.store(kb.op(op, *pair), lanes, lane)
        return kb.load(lanes, 0)

    def _sequence(self, node: Node) -> Value:
        kb, heavy, (axis,) = self.kb, node.heavy, node.heavy.axes
        phase, op = self._phase_of(node), _COMBINE[node.heavy.kind]
        self._allocate(phase)
        start, size = identity(kb, heavy.kind, heavy.dtype), self.extent(axis)
        with kb.loop(self.unique("chunk"), 0, size, CHUNK, init=[start]) as (chunk, total):
            end = kb.min(kb.add(chunk, CHUNK), size)
            with kb.loop(self.unique("k"), chunk, end, init=[start]) as (k, acc), self.bound({axis: k}):
                kb.carry(kb.op(op, acc, self.emit(heavy.terms[0])))
                self.keep(phase)
            kb.carry(kb.op(op, total, kb.results[0]))
        return kb.results[0]

    def _arg(self, node: Node) -> Value:
        kb, heavy, (axis,) = self.kb, node.heavy, node.heavy.axes
        term = heavy.terms[0]
        kind = "max" if heavy.kind == "argmax" else "min"
        init = [identity(kb, kind, term.dtype), kb.number(0, heavy.dtype)]
        with kb.loop(self.unique("k"), 0, self.extent(axis), init=init) as (k, best, place):
            with self.bound({axis: k}):
                x = self.emit(term)
                here = kb.cast(kb.cast(k, "i64"), heavy.dtype)
                extreme = kb.op(kind, best, x)  # the contract's order: -0 < +0, NaN wins
                better = kb.ne(self.pattern(extreme), self.pattern(best))
                kb.carry(extreme, kb.select(better, here, place))
        return kb.results[1]

    def pattern(self, value: Value) -> Value:
        """A value's bits as an integer (integers as they are)."""
        if not value.type.is_float:
            return value
        return self.kb.op("bitcast", value, dtype=dtype(f"i{value.type.bits}"))

    def _contraction(self, node: Node) -> Value:
        kb, heavy, (axis,) = self.kb, node.heavy, node.heavy.axes
        zero, size = kb.number(0, heavy.dtype), self.extent(axis)
        with kb.loop(self.unique("chunk"), 0, size, CHUNK, init=[zero]) as (chunk, total):
            end = kb.min(kb.add(chunk, CHUNK), size)
            with kb.loop(self.unique("k"), chunk, end, init=[zero]) as (k, acc), self.bound({axis: k}):
                kb.carry(multiply_add(kb, *(self.emit(t) for t in heavy.terms), acc))
            kb.carry(add_chunk(kb, chunk, total, kb.results[0]))
        return kb.results[0]

    def _convolution(self, node: Node) -> Value:
        """Channel blocks of 32, then taps row-major, then the channel in its block; a chunk is
        ``blocks`` channel blocks."""
        kb, heavy = self.kb, node.heavy
        channel, taps = heavy.axes[0], heavy.axes[1:]
        zero, size = kb.number(0, heavy.dtype), self.extent(channel)
        step = self.number(32 * heavy.facts["blocks"], "chunk")
        with kb.loop(self.unique("chunk"), 0, size, step, init=[zero]) as (chunk, total):
            end = kb.min(kb.add(chunk, step), size)
            with kb.loop(self.unique("block"), chunk, end, 32, init=[zero]) as (block, acc):
                stop = kb.min(kb.add(block, 32), size)
                kb.carry(self._taps(node, taps, block, stop, acc))
            kb.carry(add_chunk(kb, chunk, total, kb.results[0]))
        return kb.results[0]

    def _taps(self, node: Node, taps, block, stop, acc) -> Value:
        kb, heavy = self.kb, node.heavy
        if taps:
            with kb.loop(self.unique("tap"), 0, self.extent(taps[0]), init=[acc]) as (tap, inner):
                with self.bound({taps[0]: tap}):
                    kb.carry(self._taps(node, taps[1:], block, stop, inner))
            return kb.results[0]
        hit = self.condition(heavy.conditions) if heavy.conditions else None
        with kb.loop(self.unique("c"), block, stop, init=[acc]) as (c, inner), self.bound({heavy.axes[0]: c}):
            made = multiply_add(kb, *(self.emit(t) for t in heavy.terms), inner)
            kb.carry(made if hit is None else kb.select(hit, made, inner))
        return kb.results[0]

    def _window(self, node: Node) -> Value:
        start = identity(self.kb, "max" if node.heavy.kind == "max" else "sum", node.heavy.dtype)
        return self._positions(node, node.heavy.axes, start)

    def _positions(self, node: Node, taps, acc) -> Value:
        kb, heavy = self.kb, node.heavy
        if not taps:
            made = kb.op(heavy.kind, acc, self.emit(heavy.terms[0]))
            if not heavy.conditions:
                return made
            return kb.select(self.condition(heavy.conditions), made, acc)
        with kb.loop(self.unique("tap"), 0, self.extent(taps[0]), init=[acc]) as (tap, inner):
            with self.bound({taps[0]: tap}):
                kb.carry(self._positions(node, taps[1:], inner))
        return kb.results[0]


_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}


def identity(kb: KernelBuilder, kind: str, t: DType) -> Value:
    """What a reduction of no terms gives."""
    if kind in ("sum", "or"):
        return kb.number(0, t)
    if kind == "prod":
        return kb.number(1, t)
    if kind == "and":
        return kb.number(t.kind == "bool" or (-1 if t.kind == "int" else 2**t.bits - 1), t)
    if t.is_float:
        return kb.number(float("-inf") if kind == "max" else float("inf"), t)
    if t.kind == "bool":
        return kb.number(kind == "min", t)
    low, high = (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1) if t.kind == "int" else (0, 2**t.bits - 1)
    return kb.number(low if kind == "max" else high, t)


def multiply_add(kb: KernelBuilder, a: Value, b: Value, acc: Value) -> Value:
    """One term of a product: fma on floats, multiply and add (wrapping) on integers."""
    if a.type.is_float:
        return kb.fma(a, b, acc)
    return kb.add(kb.mul(a, b), acc)


def add_chunk(kb: KernelBuilder, chunk: Value, total: Value, part: Value) -> Value:
    """``total`` with the next chunk's sum: chunk 0's sum is taken as it is (it may be -0)."""
    if not part.type.is_float:
        return kb.add(total, part)
    return kb.select(kb.eq(chunk, 0), part, kb.add(total, part))
