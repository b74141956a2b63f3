"""The emitter of a plan's kernel: loops, index arithmetic, buffers, scalar ops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager

from typing_extensions import override

from core_compiler.ir import DType, Value, dtype
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.product import ATTRIBUTE, Product
from core_compiler.lowering.element_expressions import Node
from core_compiler.lowering.planning import Phase, Plan, Store
from core_compiler.lowering.reduction_nests import ReductionNests
from core_compiler.ops import typed
from core_compiler.ops.affine import AffineExpr, Atom, Axis, Clamped, Data, Quotient

U64 = dtype("ui64")
#: The largest stride of a window that is a number in its kernel.
STRIDE = 4


class Emitter(ReductionNests):
    """Emits the kernel of a plan; ``family`` is the family of its schedule."""

    def __init__(self, plan: Plan, name: str, family: str):
        self.plan, self.family = plan, family
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
        #: The buffer that each load reads, and the loops of a product's sum.
        self.sources: dict[Node, Value] = {}
        self.sum_loops: list[str] = []
        self.names = self._axis_names()

    def write(self) -> tuple:
        """Return the function, and what a launch passes for each of its arguments."""
        with self.loops(self.plan.rows, "parallel"):
            for phase in self.plan.phases:
                self.phase(phase)
            for store in self.plan.row_stores:
                self.store(store)
        found = product(self)
        known = {} if found is None else {ATTRIBUTE: found.attribute}
        function = self.kb.function(family=self.family, **known)
        arguments = tuple(
            self.arguments[v] if v in self.arguments else ("size", self.sizes[v])
            for v in function.arguments
        )
        return function, arguments

    def _axis_names(self) -> dict[Axis, str]:
        """Return loop names: ``b m n`` for a product's axes, else ``i0 i1``, ``j0 j1``."""
        names: dict[Axis, str] = {}
        for node in self.plan.nests:
            if node.nest.form != "contraction":
                continue
            a, b = (t.axes for t in node.nest.terms)
            groups: dict[str, list[Axis]] = {"b": [], "m": [], "n": []}
            for axis in self.plan.rows:
                groups["n" if axis not in a else "m" if axis not in b else "b"].append(axis)
            for letter, axes in groups.items():
                for number, axis in enumerate(axes):
                    names[axis] = letter if len(axes) == 1 else f"{letter}{number}"
        for letter, loops in (("i", self.plan.rows), ("j", self.plan.inner)):
            for number, axis in enumerate(loops):
                names.setdefault(axis, f"{letter}{number}")
        return names

    # -- index arguments -------------------------------------------------------------------------

    @override
    def argument(self, letter: str, number: int) -> Value:
        """Return a new index argument ``letter`` with a number, which is ``number`` at launch."""
        index = self.counts[letter] = self.counts.get(letter, -1) + 1
        value = self.kb.size(f"{letter}{index}")
        self.sizes[value] = number
        return value

    @override
    def unique(self, name: str) -> str:
        """Return ``name``, ``name1``, ``name2``...: loops and buffers have unique names."""
        count = self.counts[name] = self.counts.get(name, -1) + 1
        return f"{name}{count}" if count else name

    @override
    def extent(self, axis: Axis) -> Value:
        """Return the trip count of ``axis``; the sweeps of a row program share one."""
        inside = axis.reduced or axis in self.plan.inner
        key = ("inside", axis.size) if inside and self.family == "rows" else axis
        if key not in self.extents:
            self.extents[key] = self.argument("n", axis.size)
        return self.extents[key]

    @override
    def number(self, value: int, role) -> Value:
        """Return a model integer for index arithmetic: -1, 0, 1 as constants, else an argument."""
        if value in (-1, 0, 1):
            return self.kb.index(value)
        if (role, value) not in self.extents:
            self.extents[role, value] = self.argument("c", value)
        return self.extents[role, value]

    # -- loops and scopes ------------------------------------------------------------------------

    @contextmanager
    def loops(self, axes: Sequence[Axis], kind: str):
        """Emit nested loops over ``axes``, outermost first, each with a scope for shared values."""
        if not axes:
            yield
            return
        axis = axes[0]
        with self.kb.loop(self.names[axis], 0, self.extent(axis), loop=kind) as iv:  # noqa: SIM117
            with self.bind({axis: iv}), self.loops(axes[1:], kind):
                yield

    @contextmanager
    @override
    def bind(self, axes: dict[Axis, Value]):
        """Open a scope in which ``axes`` have these index values."""
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
        """Emit the parts of ``nodes`` that no inner loop changes in this scope."""
        open_ = set(self.axes)

        def visit(node: Node) -> None:
            if self._find(node) is not None:
                return
            if node.axes <= open_ and node.kind != "number":
                self.emit(node)
            elif node.nest is None:
                for child in node.inputs:
                    visit(child)

        for node in nodes:
            visit(node)

    # -- phases ----------------------------------------------------------------------------------

    def phase(self, phase: Phase) -> None:
        self.reuse = phase.reuse
        if phase.nest is not None:
            self.current_phase = phase
            self.hoist(phase.roots)
            self.scopes[-1][phase.nest] = self.nest(phase.nest)
            return
        self.current_phase = phase
        self.hoist(phase.roots)
        with self.loops(self.plan.inner, "parallel"):
            for store in phase.stores:
                self.store(store)

    def store(self, store: Store) -> None:
        value = self.emit(store.node)
        target, indices = self.buffer(store.value, store.address, ("result", store.output))
        self.kb.store(value, target, *indices)

    @override
    def keep(self, phase: Phase) -> None:
        """Store outputs and values for later phases, in the innermost loop of a phase."""
        for value, node in phase.keep.items():
            scratch, axis = self.kept[value]
            self.kb.store(self.emit(node), scratch, self.axes[axis])
        for store in phase.stores:
            self.store(store)

    @override
    def _allocate(self, phase: Phase) -> None:
        rows = set(self.plan.rows)
        for value, node in phase.keep.items():
            (axis,) = (a for a in node.axes if a not in rows)
            extent = self.extent(axis)
            memory = self.kb.alloc((extent.name,), node.dtype, extent, name=self.unique("row"))
            self.kept[value] = (memory, axis)

    # -- nodes -----------------------------------------------------------------------------------

    @override
    def emit(self, node: Node) -> Value:
        found = self._find(node)
        if found is None:
            found = self._emit(node)
            self.scopes[-1][node] = found
        return found

    def _emit(self, node: Node) -> Value:
        kb = self.kb
        self._set_origin(node)
        if node in getattr(self, "reuse", ()):
            scratch, _ = self.kept[self.reuse[node]]
            (axis,) = (a for a in node.axes if a not in self.plan.rows)
            return kb.load(scratch, self.axes[axis])
        if node.kind == "load":
            source, indices = self.buffer(node.value, node.address)
            self.sources[node] = source
            return kb.load(source, *indices)
        if node.kind == "number":
            return self.constant(node.number, node.dtype)
        if node.kind == "position":
            return self.position(node)
        if node.kind == "choose":
            return self.choose(node)
        if node.kind == "nest":
            return self.nest(node)
        return self.compute(node)

    def _set_origin(self, node: Node) -> None:
        """Set the origin of emitted ops to the node's op, again after its operands."""
        self.kb.origin = node.op.origin if node.op is not None else self.kb.origin

    def constant(self, number, kind: DType) -> Value:
        return self.kb.number(number.item() if hasattr(number, "item") else number, kind)

    def position(self, node: Node) -> Value:
        made = self.kb.cast(self.index(node.address), "i64")
        return self.kb.cast(made, node.dtype)

    def choose(self, node: Node) -> Value:
        inside, outside = (self.emit(n) for n in node.inputs)
        self._set_origin(node)
        return self.kb.select(self.condition(node.conditions), inside, outside)

    @override
    def condition(self, conditions) -> Value:
        """Return one i1 of conditions ``low <= expression < high``, without redundant bounds."""
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
        self._set_origin(node)
        if name == "cast":
            # Others widen what they read and narrow what they make: they overflow as floats do.
            cast = typed.Cast.match(node.op)
            return self.cast(operands[0], node.dtype, cast is not None and cast.saturate)
        if name == "bitcast":
            return kb.op("bitcast", operands[0], dtype=node.dtype)
        if name == "select":
            return kb.select(*operands)
        source = node.inputs[0].dtype
        if scalars.is_narrow(source):
            operands = [kb.cast(v, "f32") for v in operands]
        if name == "pow" and source.is_integer:
            name = "ipow"
        made = name(kb, *operands) if callable(name) else kb.op(name, *operands)
        return kb.cast(made, node.dtype) if made.type is not node.dtype else made

    def cast(self, value: Value, to: DType, saturate: bool = True) -> Value:
        if value.type is to:
            return value
        small = to.is_float and to.bits <= 8
        return self.kb.op("cast", value, dtype=to, **({"saturate": saturate} if small else {}))

    # -- indices and buffers ---------------------------------------------------------------------

    def index(self, e: AffineExpr) -> Value:
        """Return an index expression as a value."""
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
            value = self.plan.inliner.data_values[atom.value]
            node = self.plan.inliner.inline(value, atom.index)
            low, high = self.number(atom.low, "low"), self.number(atom.high, "high")
            raw = self.emit(node)
            if raw.type is U64:  # as an index it would wrap
                raw = kb.min(raw, kb.cast(high, U64))
            return kb.min(kb.max(kb.cast(raw, INDEX), low), high)
        name = "floordiv" if isinstance(atom, Quotient) else "mod"
        # A window's stride is no size: its divisions, of each tap, are shifts and products.
        literal = self.family == "window" and atom.by <= STRIDE
        by = kb.index(atom.by) if literal else self.number(atom.by, "divisor")
        return kb.op(name, self.index(atom.of), by)

    def buffer(self, value: Value, address: AffineExpr, argument=None) -> tuple[Value, list[Value]]:
        """Return the buffer argument that reads ``value`` along ``address``, and its indices.

        Its dimensions are the terms of the address, the largest stride first.
        """
        offset, dims = address.constant, []
        for atom, c in dimensions(address):
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
        """Return the sharing key of a view's axis.

        Axes with the same size and role share a view: a row's sweeps read one buffer argument.
        """
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


def dimensions(address: AffineExpr) -> list[tuple[Atom, int]]:
    """Return the dimensions of the view that reads along an address, the largest stride first."""
    return sorted(address.terms, key=lambda t: (-abs(t[1]), t[0].key))


def product(emitted: Emitter) -> Product | None:
    """Return the product of an emitted kernel, or None if there is none that can be tiled.

    Its factors are plain loads, possibly padded or widened, and each varies along the sum.
    """
    nests = [n for n in emitted.plan.nests if n.nest.form in ("contraction", "convolution")]
    if len(nests) != 1 or not emitted.sum_loops:
        return None
    (node,), rows, names = nests, emitted.plan.rows, emitted.names
    a, b = node.nest.terms
    load_a, load_b = _load(a), _load(b)
    if load_a is None or load_b is None:
        return None
    if any(factor.axes.isdisjoint(node.nest.axes) for factor in (a, b)):
        return None
    groups: dict[tuple[bool, bool], list[Axis]] = {}
    for axis in rows:
        groups.setdefault((axis in a.axes, axis in b.axes), []).append(axis)
    both = groups.get((True, True), [])
    if not groups.get((False, True)) and not both:  # a matrix times a vector
        a, b, load_a, load_b = b, a, load_b, load_a
        groups[False, True] = groups.pop((True, False), [])
    columns = groups.get((False, True), [])
    position = None
    if columns or both:  # the channels of a depthwise convolution are columns
        atoms = [atom for atom, _ in dimensions(load_b.address)]
        last = (columns or both)[-1]
        position = atoms.index(last) if last in atoms else None
    batch = [*both, *groups.get((False, False), [])]
    return Product(
        tuple(names[axis] for axis in batch),
        tuple(names[axis] for axis in groups.get((True, False), [])),
        tuple(names[axis] for axis in columns),
        emitted.sum_loops[0],
        tuple(emitted.sum_loops[1:]),
        str(emitted.sources[load_a].name),
        str(emitted.sources[load_b].name),
        position,
        shared=not any(axis in b.axes for axis in rows if axis not in columns[-1:]),
    )


def _load(factor: Node) -> Node | None:
    """Return the load of a factor (through its widening and the choice that pads it), or None."""
    if factor.function == "cast" and scalars.is_widened(factor.inputs[0].dtype, factor.dtype):
        return _load(factor.inputs[0])
    if factor.kind == "choose":
        loads = [found for n in factor.inputs if (found := _load(n)) is not None]
        return loads[0] if len(loads) == 1 else None
    return factor if factor.kind == "load" else None
