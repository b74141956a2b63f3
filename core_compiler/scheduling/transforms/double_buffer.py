"""Double buffering: the copy of the next slab overlaps the arithmetic on the present one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core_compiler.ir import BufferType, Function, Op, Value, VectorType
from core_compiler.kernel_ir.ops import access, is_pure, lane_axis
from core_compiler.kernel_ir.views import Constant, For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    Hook,
    constant_of,
    expression,
    find_loop,
    need,
    private_buffer,
    producers,
    rebuild,
)

#: Bytes of an element that hardware can copy by itself.
COPIED_BYTES = (4, 8)


def double_buffer(
    function: Function, loops: Sequence[str], buffers: Sequence[str], asynchronous: bool
) -> Function:
    """Fill the private ``buffers`` for the next iteration of a nest during the present one.

    ``loops`` are sequential loops around each other, outermost first, of which the last one fills
    the buffers with nests of its own and then reads them. Each buffer gets a first dimension of 2.
    The first iteration's fills run before the nest. Each iteration starts the next one's, reads
    its own half, and flips the halves; which half it is, is a value that the loops carry.

    ``asynchronous``: stores of unchanged elements (or +0) are marked so, and run by themselves
    until the memory is read. Other fills are taken apart: loads to registers before the
    arithmetic, and the rest of the fill after it.

    For each iteration of a loop, those inside it must all run at least once, or never at all.
    """
    nest = _Nest.of(function, loops, buffers)
    hooks: dict[Op, Hook] = dict.fromkeys(nest.memories, _twice)
    waiting: dict[Op, Value] = {}  # load of a fill -> the registers that hold it in between

    def prologue(copier: Copier) -> None:
        for fill in nest.fills:
            if not (asynchronous and fill.is_copy):
                shape = [constant_of(For.of(o).upper, nest.defs) for o in fill.loops]
                need(None not in shape, f"{For.of(fill.loops[0]).name} has no constant extent")
                kind, name = fill.load.result.type, f"{fill.name}_next"
                made = copier.kb.alloc(shape, kind, space="register", name=name)
                waiting[fill.load] = made

    def first(copier: Copier, op: Op) -> None:
        """Replace the outermost loop: fill for its first iteration, then run it."""
        kb = copier.kb
        saved = dict(copier.env)
        inside = nest.start(copier, 0)
        with kb.branch(inside):
            for fill in nest.fills:
                nest.fill(copier, fill, 0, "_first", asynchronous and fill.is_copy)
        copier.env.clear()
        copier.env.update(saved)
        level(copier, 0, kb.index(0))

    def level(copier: Copier, depth: int, half: Value) -> Value:
        """Run the loop at ``depth``, from ``half`` on; return the half after it."""
        op, kb = nest.loops[depth], copier.kb
        low, high, step = (copier[v] for v in For.of(op).bounds)
        with kb.loop(For.of(op).name, low, high, step, init=[half]) as (index, mine):
            copier.env[op.regions[0].arguments[0]] = index
            if depth + 1 < len(nest.loops):
                following = nest.loops[depth + 1]
                after = mine
                for each in op.regions[0].ops:
                    if each is following:
                        after = level(copier, depth + 1, mine)
                    else:
                        copier.ops([each])
                kb.carry(after)
            else:
                iteration(copier, mine)
                kb.carry(kb.sub(1, mine))
        return kb.results[0]

    def iteration(copier: Copier, half: Value) -> None:
        kb, other = copier.kb, copier.kb.sub(1, half)
        own = dict(copier.env)

        def of_next(copy: Callable[[_Fill], None]) -> None:
            more = nest.advance(copier)
            with kb.branch(more):
                for fill in nest.fills:
                    copy(fill)
            copier.env.clear()
            copier.env.update(own)

        def begin(fill: _Fill) -> None:
            if fill.load in waiting:
                nest.keep(copier, fill, waiting[fill.load])
            else:
                nest.fill(copier, fill, other, "_next", True)

        def finish(fill: _Fill) -> None:
            if fill.load in waiting:
                nest.fill(copier, fill, other, "_next", False, waiting[fill.load])

        of_next(begin)
        nest.read(copier, half)
        if waiting:
            copier.env.update(own)
            of_next(finish)

    return rebuild(function, {**hooks, nest.loops[0]: first}, prologue)


def _reaches(op: Op, memories: set[Value]) -> bool:
    return op.kind in ("kernel.load", "kernel.store") and access(op)[0] in memories


def _stores(op: Op, memories: set[Value]) -> bool:
    return op.kind == "kernel.store" and access(op)[0] in memories


def _renamed(suffix: str) -> Hook:
    def hook(copier: Copier, op: Op) -> None:
        copier.loop(op, name=f"{For.of(op).name}{suffix}")

    return hook


def _twice(copier: Copier, op: Op) -> None:
    kind = op.result.type
    made = copier.kb.alloc((2, *kind.shape), kind.dtype, space=kind.space, name=op.result.name)
    copier.env[op.result] = made


@dataclass(frozen=True)
class _Fill:
    """A nest ``loops`` that fills a buffer: one ``load``, from it one ``store``."""

    loops: tuple[Op, ...]
    load: Op
    store: Op
    is_copy: bool

    @property
    def name(self) -> str:
        return access(self.store)[0].name or "slab"

    @staticmethod
    def of(nest: Op, defs: Mapping[Value, Op]) -> _Fill:
        inside = list(nest.walk())
        loops = tuple(o for o in inside if o.kind == "kernel.for")
        name = For.of(nest).name
        stores = [o for o in inside if o.kind == "kernel.store"]
        loads = [o for o in inside if o.kind == "kernel.load"]
        loads = [o for o in loads if access(o)[0].type.space != "register"]  # held indices
        need(len(stores) == len(loads) == 1, f"{name} does more than fill a buffer")
        need(all(o.kind != "kernel.if" for o in inside), f"{name} has branches")
        return _Fill(loops, loads[0], stores[0], is_copy(stores[0], defs))


def is_copy(store: Op, defs: Mapping[Value, Op]) -> bool:
    """Return whether a store is of an unchanged element, or of one that a condition makes +0."""
    value = store.operands[0]
    made = defs.get(value)
    if made is not None and made.kind == "kernel.select":
        zero = defs.get(made.operands[2])
        if zero is None or zero.kind != "kernel.constant" or str(Constant.of(zero).value) != "0.0":
            return False
        made = defs.get(made.operands[1])
    return (
        made is not None
        and made.kind == "kernel.load"
        and access(made)[0].type.space == "dram"
        and made.result.type.bytes in COPIED_BYTES
    )


@dataclass(frozen=True)
class _Nest:
    """The loops that are pipelined, and what the innermost one does."""

    function: Function
    loops: tuple[Op, ...]
    fills: tuple[_Fill, ...]
    memories: tuple[Op, ...]
    defs: Mapping[Value, Op]

    @staticmethod
    def of(function: Function, names: Sequence[str], buffers: Sequence[str]) -> _Nest:
        defs, loops = producers(function), tuple(find_loop(function, n) for n in names)
        memories = tuple(private_buffer(function, name) for name in buffers)
        for outer, inner in pairwise(loops):
            need(inner in outer.regions[0].ops, "the loops are not directly in each other")
        for op in loops:
            need(loop_kind(op) == "sequential", f"{For.of(op).name} is not sequential")
            need(not For.of(op).init, f"{For.of(op).name} carries values")
        own = {op.result for op in memories}
        touching = [
            o for o in loops[-1].regions[0].ops if any(_reaches(inner, own) for inner in o.walk())
        ]
        fills = [o for o in touching if any(_stores(inner, own) for inner in o.walk())]
        need(touching[: len(fills)] == fills, "a buffer is read before all are filled")
        need(all(o.kind == "kernel.for" for o in fills), "a buffer is filled outside of a loop")
        within = set(loops[-1].walk())
        outside = (o for o in function.body.walk() if o not in within)
        need(not any(_reaches(o, own) for o in outside), "a buffer is used outside of the loop")
        return _Nest(function, loops, tuple(_Fill.of(o, defs) for o in fills), memories, defs)

    def _emit(self, copier: Copier, values: Sequence[Value]) -> None:
        """Emit the index arithmetic of ``values`` again, from the indices of the nest."""
        whole = {v for o in self.loops[0].walk() if o is not self.loops[0] for v in o.results}
        stop = {v for v in self.defs if v not in whole}
        made = dict.fromkeys(o for v in values for o in expression(v, self.defs, stop))
        need(all(is_pure(o) for o in made), "an index depends on memory")
        for op in made:
            copier.copy(op)

    def start(self, copier: Copier, depth: int) -> Value:
        """Set the loops from ``depth`` on to their first iterations; return whether all exist."""
        kb, inside = copier.kb, None
        for op in self.loops[depth:]:
            self._emit(copier, op.operands[:2])
            low, high = copier[op.operands[0]], copier[op.operands[1]]
            copier.env[For.of(op).index] = low
            here = kb.lt(low, high)
            inside = here if inside is None else kb.and_(inside, here)
        assert inside is not None
        return inside

    def advance(self, copier: Copier) -> Value:
        """Set the loops to their next iteration together; return whether there is one.

        The outermost one may be set behind its end.
        """
        kb, loops = copier.kb, [For.of(op) for op in self.loops]
        moved: list[Value] = []
        ended: list[Value] = []  # whether the loop begins anew; both from the innermost one on
        for loop in reversed(loops):
            here, further = copier[loop.index], kb.add(copier[loop.index], copier[loop.step])
            moved.append(kb.select(ended[-1], further, here) if ended else further)
            ended.append(kb.ge(moved[-1], copier[loop.upper]))
        first, *inner = loops
        copier.env[first.index] = moved.pop()
        more = kb.lt(copier[first.index], copier[first.upper])
        ended.pop()
        for loop in inner:  # where it begins may depend on the loops around it
            self._emit(copier, [loop.lower])
            copier.env[loop.index] = kb.select(ended.pop(), copier[loop.lower], moved.pop())
        return more

    def fill(
        self,
        copier: Copier,
        fill: _Fill,
        half: Value | int,
        suffix: str,
        asynchronous: bool,
        held: Value | None = None,
    ) -> None:
        """Emit a fill of one half; what it loads is in the registers ``held`` if given."""

        def load(copier: Copier, op: Op) -> None:
            assert held is not None
            indices = [copier[For.of(o).index] for o in fill.loops]
            copier.env[op.result] = copier.kb.load(held, *indices)

        def store(copier: Copier, op: Op) -> None:
            memory, where = access(op)
            indices = [copier[v] for v in where]
            value = copier[op.operands[0]]
            copier.kb.store(value, copier[memory], half, *indices, asynchronous=asynchronous)

        hooks = {fill.store: store} if held is None else {fill.store: store, fill.load: load}
        self._copy(copier, fill, suffix, hooks)

    def keep(self, copier: Copier, fill: _Fill, held: Value) -> None:
        """Emit the loads of a fill alone, to registers."""

        def store(copier: Copier, op: Op) -> None:
            indices = [copier[For.of(o).index] for o in fill.loops]
            copier.kb.store(copier[fill.load.result], held, *indices)

        self._copy(copier, fill, "_ahead", {fill.store: store})

    def _copy(self, copier: Copier, fill: _Fill, suffix: str, hooks) -> None:
        inside = {v for o in fill.loops[0].walk() for v in o.results}
        inside |= {v for o in fill.loops[0].walk() for r in o.regions for v in r.arguments}
        used = (v for o in fill.loops[0].walk() for v in o.operands if v not in inside)
        self._emit(copier, [v for v in dict.fromkeys(used) if not isinstance(v.type, BufferType)])
        saved = dict(copier.hooks)
        named = {o: _renamed(suffix) for o in fill.loops}
        copier.hooks.update({**named, **hooks})
        copier.ops([fill.loops[0]])
        copier.hooks.clear()
        copier.hooks.update(saved)

    def read(self, copier: Copier, half: Value) -> None:
        """Emit what the innermost loop does besides the fills, with loads from one half."""
        mine = {op.result for op in self.memories}
        nests = {fill.loops[0] for fill in self.fills}

        def load(copier: Copier, op: Op) -> None:
            memory, where = access(op)
            indices = [copier[v] for v in where]
            axis, width = None, None
            if isinstance(op.result.type, VectorType):
                axis, width = lane_axis(op) + 1, op.result.type.width
            copier.env[op.result] = copier.kb.load(
                copier[memory], half, *indices, width=width, axis=axis, name=op.result.name
            )

        saved = dict(copier.hooks)
        body = self.loops[-1].regions[0]
        for op in (o for top in body.ops if top not in nests for o in top.walk()):
            if op.kind == "kernel.load" and access(op)[0] in mine:
                copier.hooks[op] = load
        copier.ops(o for o in body.ops if o not in nests)
        copier.hooks.clear()
        copier.hooks.update(saved)
