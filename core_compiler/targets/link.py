"""Linking: a planned module, its schedules and its machine code become a program of plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from core_compiler.hardware.costs import kernel_cost
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.attributes import Dense
from core_compiler.ir.target import LAUNCH, LOOP, REPEAT, Alloc, Input, Output, Repeat, Test
from core_compiler.ir.target import Constant as ConstantOp
from core_compiler.ir.target import Launch as LaunchOp
from core_compiler.ir.target import Loop as LoopOp
from core_compiler.ir.weights import array_digest
from core_compiler.kernel_ir.abi import LaunchNeeds, callees
from core_compiler.passes.outline_kernels import is_exchange
from core_compiler.runtime.driver import COPY_CHUNK
from core_compiler.runtime.program import (
    BUILTIN,
    Argument,
    Constant,
    Exchange,
    KernelRef,
    Launch,
    Loop,
    Program,
    Ref,
)
from core_compiler.support.errors import InternalError

#: The kernel that copies buffers.
COPY = "cw_copy"


class ModuleNeeds:
    """The needs of launches of a module's kernels by their sizes; each is computed once."""

    def __init__(self, module: Module, schedules: Mapping[str, Any], threads: int):
        self.functions = {**module.functions, **{n: s.function for n, s in schedules.items()}}
        self.schedules, self.threads = schedules, threads
        self._kernels: dict[str, tuple[LaunchNeeds, tuple[str, ...]]] = {}
        self._known: dict[tuple, tuple[int, int, tuple[str, ...]]] = {}

    def indices(self, kernel: str, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the index arguments of a scheduled kernel for the sizes of the unscheduled."""
        plan = self.schedules[kernel].launch
        return tuple(sizes) if plan is None else (*sizes, *plan.more_sizes(sizes, self.threads))

    def of(self, kernel: str, indices: Sequence[int]) -> tuple[int, int, tuple[str, ...]]:
        """Return the work items, the scratch bytes of a thread, and the kernels it invokes."""
        found = self._known.get((kernel, *indices))
        if found is None:
            if kernel not in self._kernels:
                function = self.functions[kernel]
                self._kernels[kernel] = LaunchNeeds(function, self.functions), callees(function)
            needs, invoked = self._kernels[kernel]
            found = needs.work_items(indices), needs.scratch_bytes(indices), invoked
            self._known[kernel, *indices] = found
        return found


def copy_items(size: int) -> int:
    """Return the work items of a copy of ``size`` bytes."""
    return max(1, -(-size // COPY_CHUNK))


class Linker:
    """A single walk over main; ``place`` maps a buffer value to the location of its bytes."""

    def __init__(self, module: Module, facts: Mapping[str, Any], name: str):
        self.module, self.facts, self.name = module, facts, name
        self.schedules = facts["schedules"]
        self.compiled = facts["compiled"]
        self.place: dict[Value, Ref] = {}
        self.constants: dict[str, tuple[int, Constant]] = {}
        self.arrays: dict[str, Any] = {}
        self.launches: list[Launch] = []
        self.launch_ops: list[Op] = []
        #: The fields of the ``Loop`` of each loop, by its number and in start order.
        self.loops: dict[int, list] = {}
        self.exchanges: list[Exchange] = []
        #: Output -> the input whose memory it reuses.
        self.takes: dict[int, int] = {}
        self.prepack: list[Launch] = []
        self.packed: dict[tuple, int] = {}
        self.packed_bytes: list[int] = []
        self.builtins: set[str] = set()
        self.arena = 0

    def link(self, threads: int) -> Program:
        """Return the program, its launches cut into work items for ``threads``."""
        self.needs = ModuleNeeds(self.module, self.schedules, threads)
        body = self.module.main.body
        for op in body.ops:
            getattr(self, "_" + op.kind.split(".")[1])(op)
        inputs = tuple(_argument(v, i, "input") for i, v in enumerate(body.arguments))
        outputs = tuple(
            _argument(v, i, "output", self.takes.get(i, -1)) for i, v in enumerate(body.outputs)
        )
        launches = (*self.prepack, *self.launches)
        used = dict.fromkeys(k for launch in launches for k in (launch.kernel, *launch.callees))
        kernels = tuple(
            KernelRef(k, BUILTIN, k) if k in self.builtins else self.compiled[k].ref for k in used
        )
        return Program(
            self.name,
            inputs,
            outputs,
            kernels,
            tuple(self.launches),
            self.arena,
            tuple(c for _, c in self.constants.values()),
            tuple(self.packed_bytes),
            tuple(self.prepack),
            tuple(Loop(*parts) for parts in self.loops.values()),
            tuple(self.exchanges),
            {"threads": threads},
        )

    # -- one method an op ------------------------------------------------------------------------

    def _input(self, op: Op) -> None:
        self.place[op.result] = Ref("input", Input.of(op).index)

    def _constant(self, op: Op) -> None:
        value = ConstantOp.of(op).value
        digest = array_digest(value.array()) if isinstance(value, Dense) else value.digest
        if digest not in self.constants:
            kind = value.type
            self.constants[digest] = (
                len(self.constants),
                Constant(digest, kind.dtype.name, tuple(map(int, kind.shape))),
            )
            self.arrays[digest] = (
                value.array() if isinstance(value, Dense) else self.module.weights[digest]
            )
        self.place[op.result] = Ref("constant", self.constants[digest][0])

    def _alloc(self, op: Op) -> None:
        given = Alloc.of(op)
        if given.output is not None:
            self.place[op.result] = Ref("output", given.output)
            return
        if given.offset is None or given.size is None:
            raise InternalError(f"{op.result} has no memory")
        self.arena = max(self.arena, given.offset + given.size)
        self.place[op.result] = Ref("arena", 0, given.offset)

    def _view(self, op: Op) -> None:
        self.place[op.result] = self.place[op.operands[0]]

    def _output(self, op: Op) -> None:
        result = Output.of(op)
        place = self.place[result.buffer]
        if place != Ref("output", result.index):
            raise InternalError(f"result {result.index} is at {place}")
        if result.takes is not None:
            self.takes[result.index] = result.takes

    def _loop(self, op: Op) -> None:
        loop, at = LoopOp.of(op), len(self.launches)
        self.loops[loop.loop] = [at, at, 0, None, loop.trips]

    def _test(self, op: Op) -> None:
        test = Test.of(op)
        self.loops[test.loop][1] = len(self.launches)
        self.loops[test.loop][3] = self.place[test.flag]

    def _repeat(self, op: Op) -> None:
        self.loops[Repeat.of(op).loop][2] = len(self.launches)

    def _copy(self, op: Op) -> None:
        source, to = op.operands
        size = to.type.bytes
        self.builtins.add(COPY)
        self.launches.append(
            Launch(
                "copy",
                COPY,
                (self.place[to], self.place[source]),
                (size,),
                copy_items(size),
                bytes=2 * size,
            )
        )
        self.launch_ops.append(op)

    def _launch(self, op: Op) -> None:
        launch = LaunchOp.of(op)
        if is_exchange(op):
            self._exchange(op)
        refs = [self.place[v] for v in launch.buffers]
        plan = self.schedules[launch.kernel].launch
        for place in plan.pack if plan is not None else ():
            refs[place] = self._packed(launch.kernel, place, launch.buffers[place], launch.sizes)
        indices = self.needs.indices(launch.kernel, launch.sizes)
        self.launches.append(self._launch_of(launch.kernel, refs, indices, *launch_cost(op)))
        self.launch_ops.append(op)

    def _exchange(self, op: Op) -> None:
        """Mark the next launch as one that the shards execute together."""
        source, target = op.operands
        if source.type.strides != target.type.strides:
            raise InternalError(f"{source.name} and {target.name} have different memory layouts")
        kind = source.type
        self.exchanges.append(
            Exchange(
                len(self.launches),
                self.place[source],
                self.place[target],
                kind.dtype.name,
                kind.bytes // kind.dtype.bytes,
            )
        )

    def _launch_of(self, name: str, refs, indices, flops=0, moved=0) -> Launch:
        items, scratch, invoked = self.needs.of(name, indices)
        return Launch(
            name, name, tuple(refs), tuple(indices), items, scratch, 0, flops, moved, invoked
        )

    def _packed(self, kernel: str, place: int, value: Value, sizes: Sequence[int]) -> Ref:
        """Return a constant's location in the layout a schedule wants; packed once and shared."""
        packer, plan = self.facts["packers"][kernel, place], self.schedules[kernel].launch
        given = plan.pack_arguments(place, sizes)
        raw = self.place[value]
        key = (packer, raw, *given)
        if key not in self.packed:
            self.packed[key] = len(self.packed)
            bytes_each = plan.packed_dtype(place).bytes
            self.packed_bytes.append(plan.packed_elements(sizes) * bytes_each)
            self.prepack.append(
                self._launch_of(packer, (raw, Ref("packed", self.packed[key])), given)
            )
        return Ref("packed", self.packed[key])


def launch_cost(op: Op) -> tuple[int, int]:
    """Return the flops of a launch, and its compulsory bytes."""
    launch = LaunchOp.of(op)
    return kernel_cost(op.regions[0], launch.read, launch.written)


def launch_runs(ops: Iterable[Op]) -> dict[Op, int]:
    """Return how often each launch runs in one execution.

    The trip counts of enclosing loops are multiplied (an unknown one counts as one).
    """
    around: list[int] = []
    found: dict[Op, int] = {}
    for op in ops:
        if op.kind == LOOP:
            trips = LoopOp.of(op).trips
            around.append(1 if trips is None else trips)
        elif op.kind == REPEAT:
            around.pop()
        elif op.kind == LAUNCH:
            found[op] = prod(around)
    return found


def _argument(value: Value, index: int, what: str, alias: int = -1) -> Argument:
    return Argument(value.name or f"{what}{index}", value.type.dtype.name, value.type.shape, alias)
