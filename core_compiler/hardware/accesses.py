"""Loops and memory accesses of a GPU kernel for the sizes of one launch.

Everything here follows from the scheduled kernel IR: how often each sequential loop iterates, and
how the 32 lanes of a warp spread over 32-byte sectors of global memory and banks of shared memory.
The indices of the middle block are evaluated, as blocks at the edges clamp theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from core_compiler.hardware.occupancy import WARP
from core_compiler.ir import Block, BufferType, Function, Op, Value, VectorType
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments, parallel_nest
from core_compiler.kernel_ir.ops import access, definition, lane_axis
from core_compiler.kernel_ir.views import Constant, For, View, loop_kind

#: Bytes of a sector, the unit in which caches fetch, and of a line, the unit of their tags; a row
#: of the banks of shared memory is as long.
SECTOR, LINE = 32, 128
#: Bytes of a warp's data that are assumed to stay in the first cache.
CACHED = 32 << 10


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store: ``space`` (``global`` or ``shared``), and whether it ``loads``.

    ``argument``: the position of its buffer among the kernel's, None for memory of the kernel.
    ``sectors`` of a warp's request, and the ``cycles`` that it occupies the multiprocessor's
    memory: one for each line of 128 bytes, or for each access to the most used bank.
    ``missing``: the share of requests that leave the multiprocessor, by loop, and among the copies
    of an unrolled loop (``unrolled``); the rest finds its sector in the first cache.
    """

    space: str
    loads: bool
    argument: int | None
    sectors: int
    cycles: int
    missing: Mapping[Op, float]
    unrolled: float = 1.0

    def misses(self) -> float:
        return self.unrolled * prod(self.missing.values())


class KernelWork:
    """The loops and accesses of a kernel with given index arguments."""

    def __init__(self, function: Function, sizes: Sequence[int]):
        self.function = function
        self.defs = {v: op for op in function.body.walk() for v in op.results}
        self._sizes = dict(zip(index_arguments(function), map(int, sizes), strict=True))
        self._named = {v.name: n for v, n in self._sizes.items()}
        self._buffers = {v: n for n, v in enumerate(buffer_arguments(function))}
        #: Loop index -> its loop; op -> the sequential loops around it, outermost first (unrolled
        #: ones are straight code).
        self._loop_of: dict[Value, Op] = {}
        #: Values that loops carry, and their results -> where they start.
        self._starts: dict[Value, Value] = {}
        self.around: dict[Op, tuple[Op, ...]] = {}
        self._threads: dict[Op, tuple[Op, ...]] = {}
        self._unrolled: dict[Op, tuple[Op, ...]] = {}
        self._visit(function.body, (), (), ())
        self._held = _held_indices(function)
        self._middle = self._middle_block()
        self._trips: dict[Op, float] = {}
        #: Loaded values that all lanes share: as parts of addresses they are 0.
        self._shared: dict[Value, int] = {}
        self._shared = {
            op.result: 0
            for op in function.body.walk()
            if op.kind == "kernel.load" and self._is_shared(op)
        }

    def _visit(
        self,
        block: Block,
        around: tuple[Op, ...],
        nest: tuple[Op, ...],
        unrolled: tuple[Op, ...],
    ) -> None:
        for op in block.ops:
            self.around[op], self._threads[op], self._unrolled[op] = around, nest, unrolled
            kind = loop_kind(op)
            inner = (*around, op) if kind == "sequential" else around
            copies = (*unrolled, op) if kind == "unrolled" else unrolled
            for region in op.regions:
                if kind is not None:
                    self._loop_of[region.arguments[0]] = op
                    init = For.of(op).init
                    self._starts.update(zip(region.arguments[1:], init, strict=True))
                    self._starts.update(zip(op.results, init, strict=True))
                threads = (*nest, op) if kind == "thread" else nest
                self._visit(region, inner, threads, copies)

    def untaken(self) -> set[Op]:
        """Return the ops of branches that the first thread of the middle block does not take."""
        found: set[Op] = set()
        for op in self.function.body.walk():
            if op.kind == "kernel.if":
                taken = self.evaluate(op.operands[0], self._lane(op, 0))
                for number, region in enumerate(op.regions if taken is not None else ()):
                    if number == bool(taken):
                        found.update(each for top in region.ops for each in top.walk())
        return found

    def _middle_block(self) -> dict[Value, int]:
        found: dict[Value, int] = {}
        for loop in parallel_nest(self.function):
            lower, count, step = self._bounds(loop, found)
            found[For.of(loop).index] = lower + step * (count // 2)
        return found

    def _bounds(self, loop: Op, at: Mapping[Value, int]) -> tuple[int, int, int]:
        """Return the lower bound, the number of iterations and the step; unknown ones are 0."""
        known: dict[Value, int | None] = dict(at)
        lower, upper, step = (self.evaluate(v, known) for v in For.of(loop).bounds)
        lower, step = lower or 0, step or 1
        return lower, max(0, -(-((upper or 0) - lower) // step)), step

    def evaluate(self, value: Value, known: dict[Value, int | None]) -> int | None:
        """Return an index, or None if it depends on data; ``known`` remembers what was found.

        One that a loop carries is that of the first iteration.
        """
        if value in known:
            return known[value]
        if value.type is INDEX and value in self._starts:
            return self.evaluate(self._starts[value], known)
        if value in self._sizes:
            return self._sizes[value]
        op = self.defs.get(value)
        if op is None:
            loop = self._loop_of.get(value)
            found = None if loop is None else self.evaluate(For.of(loop).lower, known)
        elif op.kind == "kernel.constant":
            number = Constant.of(op).value
            found = int(number) if isinstance(number, int) else None
        elif op.kind == "kernel.cast":
            found = self.evaluate(op.operands[0], known)
        elif op in self._held:
            found = self._held_index(op, known)
        else:
            evaluate = definition(op).on_indices
            parts = [self.evaluate(v, known) for v in op.operands] if evaluate else [None]
            found = None
            if evaluate and None not in parts:
                try:
                    found = evaluate(*parts)
                except (ArithmeticError, ValueError):  # in a branch that is not taken
                    found = None
        known[value] = found
        return found

    def _held_index(self, load: Op, known: Mapping[Value, int | None]) -> int | None:
        """Return an index that a thread holds in a register, which one store has written."""
        store = self._held[load]
        at = dict(known)
        for inner, outer in zip(access(store)[1], access(load)[1], strict=True):
            at[inner] = self.evaluate(outer, at)
        return self.evaluate(store.operands[0], at)

    def trips(self, loop: Op) -> float:
        """Return how often a loop iterates each time it is entered, on average.

        The loop around it ends with a shorter iteration: a partial chunk of a long sum.
        """
        if loop not in self._trips:
            _, first, _ = self._bounds(loop, self._middle)
            found = float(first)
            around = self.around[loop]
            if around:
                outer = self.trips(around[-1])
                _, last, _ = self._bounds(loop, self._last_iterations(around))
                if outer >= 1:
                    found = ((outer - 1) * first + last) / outer
            self._trips[loop] = found
        return self._trips[loop]

    def _last_iterations(self, loops: Sequence[Op]) -> dict[Value, int]:
        at = dict(self._middle)
        for loop in loops:
            lower, count, step = self._bounds(loop, at)
            at[For.of(loop).index] = lower + step * max(count - 1, 0)
        return at

    def executions(self, op: Op) -> float:
        """Return how often a thread executes an op."""
        return prod(map(self.trips, self.around[op]))

    # -- accesses ----------------------------------------------------------------------------------

    def accesses(self) -> dict[Op, Access]:
        """Return every load and store of global or shared memory.

        A load of what a load or store of the block has brought into the first cache misses nothing.
        """
        found: dict[Op, Access] = {}
        seen: set[tuple] = set()
        for op in self.function.body.walk():
            each = self._access(op)
            if each is None:
                continue
            found[op] = each
            two = [self._address(op, self._lane(op, n)) for n in (0, 1)]
            if each.space != "global" or None in two:
                continue
            key = (self._root(access(op)[0]), *two)
            stays = self.executions(op) * each.sectors * SECTOR < CACHED
            if each.loads and stays and key in seen:
                found[op] = replace(each, unrolled=0.0)
            seen.add(key)
        return found

    def _access(self, op: Op) -> Access | None:
        if op.kind not in ("kernel.load", "kernel.store"):
            return None
        memory, _ = access(op)
        root = self._root(memory)
        space = "shared" if root.type.space == "shared" else "global"
        if root.type.space == "register":
            return None
        lanes = [self._address(op, self._lane(op, n)) for n in range(WARP)]
        width = _bytes(op)
        if space == "shared":
            return Access(space, op.kind == "kernel.load", None, 0, _bank_cycles(lanes, width), {})
        # Data that decides addresses is assumed to spread them: a line for each lane.
        starts = [n * LINE if a is None else a for n, a in enumerate(lanes)]
        sectors, rows = (
            {p for a in starts for p in range(a // unit, (a + width - 1) // unit + 1)}
            for unit in (SECTOR, LINE)
        )
        missing = {loop: self._missing(op, loop, lanes[0]) for loop in self.around[op]}
        loads, argument = op.kind == "kernel.load", self._buffers.get(root)
        unrolled = prod(self._missing(op, loop, lanes[0]) for loop in self._unrolled[op])
        return Access(space, loads, argument, len(sectors), len(rows), missing, unrolled)

    def _lane(self, op: Op, lane: int) -> dict[Value, int | None]:
        """Return the indices of a lane of the first warp; threads number the last loop fastest."""
        at: dict[Value, int | None] = dict(self._middle)
        rest = lane
        for loop in reversed(self._threads[op]):
            _, count, _ = self._bounds(loop, self._middle)
            at[For.of(loop).index] = rest % max(count, 1)
            rest //= max(count, 1)
        return at

    def _missing(self, op: Op, loop: Op, start: int | None) -> float:
        """Return the share of a loop's iterations that need a sector that the one before did not.

        Neighbouring iterations share a sector if their addresses are less than one apart.
        """
        lower, count, step = self._bounds(loop, self._middle)
        if count < 2 or start is None:
            return 1.0
        moved = self._address(op, {**self._lane(op, 0), For.of(loop).index: lower + step})
        if moved is None:
            return 1.0
        return min(1.0, max(abs(moved - start) / SECTOR, 1 / count))

    def _is_shared(self, load: Op) -> bool:
        first, second = (self._address(load, self._lane(load, n)) for n in (0, 1))
        return first is not None and first == second

    def _root(self, memory: Value) -> Value:
        while (op := self.defs.get(memory)) is not None and op.kind == "kernel.view":
            memory = View.of(op).buffer
        return memory

    def _address(self, op: Op, known: dict[Value, int | None]) -> int | None:
        """Return the byte at which an access starts in its buffer; None if data decides."""
        memory, where = access(op)
        known = {**self._shared, **known}
        found = self._offset(memory, where, known)
        while (defining := self.defs.get(memory)) is not None and defining.kind == "kernel.view":
            memory, starts = View.of(defining).buffer, View.of(defining).starts
            start = self._offset(memory, starts, known)
            found = None if found is None or start is None else found + start
        if found is None:
            return None
        return (found + self._number(memory.type.offset)) * memory.type.dtype.bytes

    def _offset(
        self, memory: Value, where: Sequence[Value], known: dict[Value, int | None]
    ) -> int | None:
        """Return the elements from a buffer's start to a position in it."""
        total = 0
        for value, stride in zip(where, memory.type.strides, strict=True):
            index = self.evaluate(value, known)
            if index is None:
                return None
            total += index * self._number(stride)
        return total

    def _number(self, size: int | str) -> int:
        return self._named.get(size, 0) if isinstance(size, str) else int(size)


def _held_indices(function: Function) -> dict[Op, Op]:
    """Return the loads of indices from registers, each with the only store to these."""
    touching: dict[Value, list[Op]] = {}
    for op in function.body.walk():
        if op.kind in ("kernel.load", "kernel.store") and access(op)[0].type.space == "register":
            touching.setdefault(access(op)[0], []).append(op)
    found: dict[Op, Op] = {}
    for memory, ops in touching.items():
        stores = [op for op in ops if op.kind == "kernel.store"]
        if memory.type.dtype.is_integer and len(stores) == 1:
            found.update((op, stores[0]) for op in ops if op is not stores[0])
    return found


def _bytes(op: Op) -> int:
    """Return the bytes that one lane of the warp accesses (a vector's, if it is contiguous)."""
    value = op.operands[0] if op.kind == "kernel.store" else op.result
    memory, _ = access(op)
    assert isinstance(memory.type, BufferType)
    wide = isinstance(value.type, VectorType) and memory.type.strides[lane_axis(op)] == 1
    return memory.type.dtype.bytes * (value.type.width if wide else 1)


def _bank_cycles(lanes: Sequence[int | None], width: int) -> int:
    """Return the cycles of a warp's request to shared memory: its most used bank decides.

    Lanes that read the same word share it.  A request wider than a word takes a cycle per 128
    bytes, at least.
    """
    known = [a for a in lanes if a is not None]
    if len(known) < len(lanes):
        return max(1, width // 4)
    words = {a // 4 + n for a in known for n in range(max(1, width // 4))}
    banks = [0] * (LINE // 4)
    for word in words:
        banks[word % len(banks)] += 1
    return max(banks)
