"""The CPU device: one arena, one team of threads, one native call per run."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir.types import dtype as find_dtype
from core_compiler.runtime import memory
from core_compiler.runtime.budget import TimeBudget
from core_compiler.runtime.device import (
    BoundRun,
    Buffer,
    Device,
    Executable,
    LoopLimitExceeded,
    Parts,
    check_count,
    check_input,
)
from core_compiler.runtime.driver import RECORD
from core_compiler.runtime.kernel_cache import KernelCache
from core_compiler.runtime.limits import Limits, doubt, limits
from core_compiler.runtime.packing import constants_of, identities, missing, pack
from core_compiler.runtime.program import (
    Constant,
    Exchange,
    Launch,
    Program,
    Ref,
    scratch_stride,
)
from core_compiler.runtime.results import NewArray
from core_compiler.runtime.samples import Iterations, Samples
from core_compiler.runtime.team import Call, aligned, default_threads, team
from core_compiler.support.arrays import data_address, dense_tensor
from core_compiler.support.errors import InternalError, UserError


class CpuDevice(Device):
    """This machine's processors.

    ``threads``: the number that work on a launch (default: all this process may use).  Bits do not
    depend on it. ``kernels``: the source of compiled kernels (default: the user's cache folder).
    """

    name = "cpu"
    #: A program of little work uses as many threads, too: for checks of code on several.
    spreads = False

    def __init__(self, threads: int | None = None, kernels: KernelCache | None = None):
        threads = default_threads() if threads is None else threads
        if threads < 1:
            raise UserError(f"expected 1 or more threads, got {threads}", "cpu", "pass 1 or more")
        self.threads = threads
        self.kernels = KernelCache() if kernels is None else kernels

    @override
    def allocate(self, size: int, what: str = "buffer") -> Buffer:
        memory.require(size, what)
        block = aligned(size)
        return Buffer(block.ctypes.data, size, block)

    @override
    def copy(self, to, source) -> None:
        to, source = _bytes_of(to), _bytes_of(source)
        if to.size != source.size:
            raise UserError(
                f"cannot copy {source.size} bytes to {to.size} bytes", "copy", "use equal sizes"
            )
        to[:] = source

    @override
    def limits(self) -> Limits:
        return limits(self.threads)

    @override
    def doubt_limits(self) -> None:
        doubt(self.threads)

    @override
    def load(
        self,
        program: Program,
        constants: Mapping[str, np.ndarray],
        like: Executable | None = None,
    ) -> CpuExecutable:
        """Load a program.

        Raises UserError with exit code 3 (before allocating) if memory is too small, and
        :class:`~core_compiler.runtime.kernel_cache.MissingKernel` if a kernel is not cached.
        """
        return CpuExecutable(program, constants, self, like)


class CpuExecutable(Executable):
    """A program bound to addresses.  Thread-safe: one call runs at a time (one arena)."""

    def __init__(
        self,
        program: Program,
        constants: Mapping[str, np.ndarray],
        device: CpuDevice,
        like: Executable | None = None,
    ):
        program.check()
        self.device: CpuDevice
        self.program, self.device = program, device
        shared = like if isinstance(like, CpuExecutable) else None
        names = identities(program)
        known = {} if shared is None else shared._shared(names)
        self._check_memory(known, is_first=shared is None)
        self._forms = [(a.numpy, a.shape) for a in program.inputs]
        self._new = [NewArray(a) for a in program.outputs]
        self._aliases = [(i, a.alias) for i, a in enumerate(program.outputs) if a.alias >= 0]
        self._code = device.kernels.load(program.kernels)
        threads = device.threads if device.spreads else useful_threads(program, device.threads)
        self._team = team(threads)
        self._lock: threading.Lock
        self._arena: Buffer
        if shared is not None and shared._arena.size >= program.arena_bytes:
            # One of the two runs at a time, in memory whose pages exist already.
            self._lock, self._arena = shared._lock, shared._arena
        else:
            self._lock = threading.Lock()
            self._arena = device.allocate(program.arena_bytes, "arena")
        flags = [x.flag for x in program.loops if x.flag is not None]
        read = (*flags, *(x.source for x in program.exchanges))
        refs = (*(r for launch in program.launches for r in launch.buffers), *read)
        used = {r.index for r in refs if r.space == "constant"}
        packers = [program.prepack[number] for number in missing(program, known)]
        needed = used.union(*map(constants_of, packers))
        held = {} if shared is None else shared._held

        def read_constant(c: Constant) -> np.ndarray:
            known = held.get(c)
            return _constant(constants, c) if known is None else known

        raw = [read_constant(c) if i in needed else None for i, c in enumerate(program.constants)]
        self._packed = [
            known[i] if i in known else device.allocate(size, "packed constants")
            for i, size in enumerate(program.packed)
        ]
        if packers:
            packing, members = self._bind(packers, raw, device.threads), team(device.threads)
            pack(packers, raw, lambda number: packing.run(members, number, number + 1))
        #: The constants that launches read in their own layout; None: only a packed one is read.
        self._raw: list[np.ndarray | None]
        self._raw = [array if i in used else None for i, array in enumerate(raw)]
        #: What a program with the same constants may share.
        self._held: dict[Constant, np.ndarray | None]
        self._held = dict(zip(program.constants, self._raw, strict=True))
        self._packed_by_identity = dict(zip(names, self._packed, strict=True))
        self._read: dict[int, Any]
        self._read = {r.index: self._raw[r.index] for r in read if r.space == "constant"}
        self._launches: _Bound
        scratch = None if shared is None or shared._lock is not self._lock else shared._launches
        self._launches = self._bind(program.launches, self._raw, self._team.threads, scratch)

    def _shared(self, names: Sequence[Hashable | None]) -> dict[int, Buffer]:
        """Return those of the packed buffers ``names`` that this program has, by their numbers."""
        found = self._packed_by_identity
        return {i: found[x] for i, x in enumerate(names) if x is not None and x in found}

    def _check_memory(self, known: Collection[int], is_first: bool) -> None:
        """Raise UserError if there is too little memory for what loading allocates."""
        program = self.program
        needed = program.memory_bytes(self.device.threads, constants=is_first)
        if not is_first:
            needed += sum(size for i, size in enumerate(program.packed) if i not in known)
        memory.require(needed, f"program {program.name}")

    @override
    def __call__(
        self, *arrays, out: Mapping[int, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Run on arrays, or anything NumPy reads without a copy (CPU tensors); return new arrays.

        An input is written only if the caller passes it as the output that reuses its memory; else
        such an output gets a copy of it.
        """
        outputs, buffers = self._prepare(arrays, out or {})
        with self._lock:
            self._run(buffers)
        return outputs

    @override
    def parts(
        self, arrays: Sequence, out: Mapping[int, np.ndarray] | None = None, whole: bool = True
    ) -> Parts:
        outputs, buffers = self._prepare(arrays, out or {})
        at = 0
        with self._lock:
            for exchanges in self.program.rounds():
                self._run(buffers, first=at, last=exchanges[0].launch)
                yield [
                    (self._array(x.source, x, buffers), self._array(x.target, x, buffers))
                    for x in exchanges
                ]
                for exchange in exchanges:
                    self._notify_watcher(exchange.launch, buffers)
                at = exchanges[-1].launch + 1
            if whole:
                self._run(buffers, first=at)
        return outputs

    @override
    def bind(self, *arrays) -> BoundRun:
        return _CpuBoundRun(self, arrays)

    def _notify_watcher(self, launch: int, buffers: Sequence[np.ndarray]) -> None:
        if self.watch is not None:
            self.watch.after_launch(launch, lambda ref, size: self._bytes_at(ref, buffers)[:size])

    def _array(self, ref: Ref, exchange: Exchange, buffers: Sequence[np.ndarray]) -> np.ndarray:
        kind = find_dtype(exchange.dtype)
        found = self._bytes_at(ref, buffers)[: exchange.elements * kind.bytes]
        return found.view(kind.numpy)

    @property
    def arena(self) -> np.ndarray:
        """Return the temporaries' bytes as the last run left them (a view)."""
        return _bytes_of(self._arena)[: self.program.arena_bytes]

    @override
    def profile(
        self,
        arrays: Sequence | None = None,
        *,
        repeats=20,
        warmup=3,
        budget: TimeBudget | None = None,
    ) -> Samples:
        """Time every launch ``repeats`` times after ``warmup`` runs, fewer if over ``budget``.

        ``arrays`` default to seeded random ones (integers: zeros, which are valid indices).
        """
        if repeats < 1 or warmup < 0:
            raise UserError(
                f"cannot time {repeats} repeats after {warmup} warm-up runs",
                "profile",
                "pass 1 or more repeats",
            )
        arrays = example_inputs(self.program) if arrays is None else arrays
        shape = (len(self.program.launches), self._team.threads, 2)
        times = np.zeros((repeats, *shape), np.int64)
        loops = Iterations(repeats, shape[0]) if self.program.loops else None
        budget, done = budget or TimeBudget(), 0
        for number in range(warmup):
            if budget.allows_warmup(number, warmup):
                self(*arrays)
        while budget.allows_repeat(done, repeats):
            _, buffers = self._prepare(arrays)
            with self._lock:
                on_run = None if loops is None else partial(loops.add, done)
                self._run(buffers, times[done], on_run)
            done += 1
        return Samples(self.program, times, self._team.threads, loops).first(done)

    def _run(
        self,
        buffers: Sequence[np.ndarray],
        times: np.ndarray | None = None,
        on_run: Callable[[int, np.ndarray], None] | None = None,
        first: int = 0,
        last: int | None = None,
        launches: _Bound | None = None,
    ) -> None:
        """Run the program.

        ``times``: those of the last run of each launch; ``on_run`` is called with those of every
        run. ``launches``: the program's, if they have the addresses of ``buffers`` already.
        """
        if launches is None:
            launches = self._launches
            launches.set_addresses(buffers)
        if not self.program.loops and self.watch is None:
            last = len(self.program.launches) if last is None else last
            launches.run(self._team, first, last, times)
            return

        remaining_tests = self.loop_evaluations

        def holds(flag: Ref) -> bool:
            nonlocal remaining_tests
            if remaining_tests is not None:
                remaining_tests -= 1
                if remaining_tests < 0:
                    raise LoopLimitExceeded(
                        f"a loop has not ended after {self.loop_evaluations} iterations in total"
                    )
            return bool(self._bytes_at(flag, buffers)[0])

        def run(start: int, end: int, trips: int) -> None:
            is_watched = self.watch is not None and self.watch.stops(start, end)
            if trips > 1 and times is None and not is_watched:
                launches.repeat(self._team, start, end, trips)
                return
            for _ in range(trips):
                once(start, end)

        def once(start: int, end: int) -> None:
            if times is not None:
                times[start:end] = 0  # a thread that is idle now may have had a part before
            for stop in self.watch.stops(start, end) if self.watch is not None else ():
                launches.run(self._team, start, stop + 1, times)
                self._notify_watcher(stop, buffers)
                start = stop + 1
            launches.run(self._team, start, end, times)
            if times is not None and on_run is not None:
                on_run(start, times[start:end])

        self.program.execute(run, holds, first, last)

    def _bytes_at(self, ref: Ref, buffers: Sequence[np.ndarray]) -> np.ndarray:
        """Return a buffer's bytes; for constants, those that the host reads."""
        if ref.space == "arena":
            return self.arena[ref.offset :]
        if ref.space == "constant":
            return _bytes_of(self._read[ref.index])[ref.offset :]
        return _bytes_of(buffers[_external(self.program, ref)])[ref.offset :]

    def _prepare(self, arrays, out: Mapping[int, np.ndarray] = MappingProxyType({})):
        inputs = self._checked(arrays)
        outputs = tuple(
            out[i] if i in out and _can_hold_output(out[i], argument) else new.array()
            for i, (argument, new) in enumerate(zip(self.program.outputs, self._new, strict=True))
        )
        for taken, output in self._aliased(inputs, outputs):
            if taken.ctypes.data != output.ctypes.data:
                output[...] = taken.reshape(output.shape)
        return outputs, (*inputs, *outputs)

    def _checked(self, arrays: Sequence) -> list[np.ndarray]:
        """Return the inputs as row-major arrays of their dtypes and shapes; see check_input."""
        check_count(self.program, arrays)
        made = []
        for number, (given, (dtype, shape)) in enumerate(zip(arrays, self._forms, strict=True)):
            array = given if type(given) is np.ndarray else dense_tensor(given)
            # What most callers pass is accepted here: of a call of 5 us, each 0.3 count.
            if (
                array is None
                or not (array.dtype is dtype or array.dtype == dtype)
                or array.shape != shape
                or not ((flags := array.flags).c_contiguous and flags.aligned)
            ):
                array = check_input(self.program.inputs[number], given, self.program.name)
            made.append(array)
        return made

    def _aliased(self, inputs, outputs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Put outputs in place of the inputs whose memory they reuse; yield what they replace."""
        for index, alias in self._aliases:
            taken, inputs[alias] = inputs[alias], outputs[index]
            yield taken, outputs[index]

    def _bind(
        self,
        launches: Sequence[Launch],
        constants: Sequence[np.ndarray | None],
        threads: int,
        like: _Bound | None = None,
    ) -> _Bound:
        addresses = {
            "arena": [self._arena.address],
            "constant": [None if c is None else c.ctypes.data for c in constants],
            "packed": [p.address for p in self._packed],
        }
        memory = partial(self.device.allocate, what="scratch memory")
        return _Bound(
            self.program, launches, self._code, addresses, memory, constants, threads, like
        )


class _CpuBoundRun(BoundRun):
    """A run whose launches have addresses of their own, so that none is set before a call."""

    def __init__(self, executable: CpuExecutable, arrays: Sequence):
        super().__init__(executable, arrays)
        self._executable: CpuExecutable
        inputs = list(self.inputs)
        self._replaced = list(executable._aliased(inputs, self.outputs))
        self._buffers = (*inputs, *self.outputs)
        self._launches = executable._launches.at(self._buffers)

    @override
    def __call__(self) -> None:
        executable = self._executable
        with executable._lock:
            for taken, output in self._replaced:
                output[...] = taken.reshape(output.shape)
            executable._run(self._buffers, launches=self._launches)


#: Work that one thread does in the time that it takes to wake another: flops and bytes a second
#: that any processor of the last ten years reaches, and seconds.
_FLOPS, _BYTES, _WAKING = 2e10, 1e10, 2e-5


def useful_threads(program: Program, threads: int) -> int:
    """Return 1 if a program ends on one thread before another has woken, else ``threads``."""
    if program.loops:
        return threads
    least = sum(max(n.flops / _FLOPS, n.bytes / _BYTES) for n in program.launches)
    return 1 if least < _WAKING else threads


#: Maximum number of parts of a program whose calls are kept.
PREPARED = 64
#: Maximum number of launches of a loop that one native call runs.
REPEATED = 4096


class _Bound:
    """Launch records and argument blocks in memory; addresses of inputs and outputs change."""

    def __init__(
        self, program, launches, code, addresses, allocate, keep, threads: int, like: _Bound | None
    ):
        self._keep = keep
        words = [len(n.buffers) + len(n.indices) + len(n.callees) for n in launches]
        starts = np.concatenate(([0], np.cumsum(words))).astype(np.int64)
        self._arguments = np.zeros(int(starts[-1]) + 1, np.int64)
        patches: list[tuple[int, int, int]] = []  # (word, which input or output, offset)
        for launch, start in zip(launches, starts[:-1], strict=True):
            for word, ref in enumerate(launch.buffers, int(start)):
                if ref.space in addresses:
                    self._arguments[word] = addresses[ref.space][ref.index] + ref.offset
                else:
                    patches.append((word, _external(program, ref), ref.offset))
            end = int(start) + len(launch.buffers)
            values = (*launch.indices, *(code[name] for name in launch.callees))
            self._arguments[end : end + len(values)] = values
        self._patches, self._memory = patches, self._arguments.data
        self._prepared: dict[tuple[int, int], Call] = {}
        self._records = self._make_records(launches, code, starts, threads)
        self._repeated: dict[tuple[int, int], np.ndarray] = {}
        self._stride = scratch_stride(launches)
        self._scratch: Buffer
        if like is not None and like._scratch.size >= self._stride * threads:
            self._scratch = like._scratch
        else:
            self._scratch = allocate(self._stride * threads)

    def _make_records(self, launches, code, starts, threads) -> np.ndarray:
        records = np.zeros((len(launches), len(RECORD)), np.int64)
        is_serial = [launch.max_threads == 1 or launch.work_items <= 1 for launch in launches]
        for i, launch in enumerate(launches):
            # Two launches that only the first thread runs need no rendezvous between them.
            needs_barrier = threads > 1 and not (
                is_serial[i] and i + 1 < len(launches) and is_serial[i + 1]
            )
            limit = 1 if is_serial[i] else min(launch.max_threads or threads, launch.work_items)
            arguments = self._arguments.ctypes.data + 8 * int(starts[i])
            records[i] = (code[launch.kernel], arguments, launch.work_items, limit, needs_barrier)
        return records

    def set_addresses(self, buffers: Sequence[np.ndarray]) -> None:
        """Set the addresses of the inputs and outputs of the next run."""
        bases = [data_address(buffer) for buffer in buffers]
        words = self._memory
        for word, which, offset in self._patches:
            words[word] = bases[which] + offset

    def at(self, buffers: Sequence[np.ndarray]) -> _Bound:
        """Return the same launches with argument blocks of their own, for these buffers."""
        made = copy.copy(self)
        made._arguments = self._arguments.copy()
        made._memory = made._arguments.data
        made._records = self._records.copy()
        moved = made._arguments.ctypes.data - self._arguments.ctypes.data
        made._records[:, RECORD.index("arguments")] += moved
        made._prepared, made._repeated = {}, {}
        made.set_addresses(buffers)
        return made

    def run(self, team, start: int, end: int, times: np.ndarray | None = None) -> None:
        """Run the launches from ``start`` up to ``end``; ``times`` has a row for every launch."""
        if times is None and (prepared := self._prepared.get((start, end))) is not None:
            team.call(prepared)
            return
        call = team.prepare(
            self._records[start:].ctypes.data,
            end - start,
            self._scratch.address,
            self._stride,
            0 if times is None else times[start:].ctypes.data,
        )
        if times is None and len(self._prepared) < PREPARED:
            self._prepared[start, end] = call
        team.call(call)

    def repeat(self, team, start: int, end: int, trips: int) -> None:
        """Run the launches from ``start`` up to ``end``, ``trips`` times.

        Their records one after another form a program of their own, so that the host is not
        involved in each iteration.
        """
        count = end - start
        most = min(trips, max(1, REPEATED // max(count, 1)))
        if (start, end) not in self._repeated:
            made = np.tile(self._records[start:end], (most, 1))
            # The last launch is followed by the first one, for which its record was not made.
            made[count - 1 :: count, RECORD.index("wait")] = team.threads > 1
            self._repeated[start, end] = made
        records = self._repeated[start, end].ctypes.data
        while trips and count:
            now = min(trips, most)
            team.run(records, now * count, self._scratch.address, self._stride)
            trips -= now


def example_inputs(program: Program, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return seeded random inputs for timing: normal floats, zero integers."""
    random = np.random.default_rng(seed)

    def one(argument):
        if argument.numpy.kind in "iub":
            return np.zeros(argument.shape, argument.numpy)
        return random.standard_normal(argument.shape).astype(argument.numpy)

    return tuple(map(one, program.inputs))


def _external(program: Program, ref: Ref) -> int:
    """Return the index of an input or output among ``(*inputs, *outputs)``."""
    if ref.space == "input":
        return ref.index
    if ref.space == "output":
        return len(program.inputs) + ref.index
    raise InternalError(f"unknown space {ref.space}")


def _can_hold_output(array: np.ndarray, argument) -> bool:
    """Return whether an array can hold an output: shape, dtype, and memory layout."""
    fits = array.shape == argument.shape and array.dtype == argument.numpy
    return (
        fits
        and array.flags.c_contiguous
        and array.flags.writeable
        and (array.ctypes.data % 64 == 0)
    )


def _constant(constants: Mapping[str, np.ndarray], constant) -> np.ndarray:
    """Return the constant's bytes, row-major and 64-byte aligned; a view if they already are."""
    array = np.ascontiguousarray(constants[constant.digest])
    if array.nbytes != constant.bytes:
        raise InternalError(f"constant {constant.digest[:12]} has {array.nbytes} bytes")
    if array.ctypes.data % 64:
        copy = aligned(array.nbytes)
        copy[:] = array.reshape(-1).view(np.uint8)
        return copy
    return array


def _bytes_of(what: Buffer | np.ndarray) -> np.ndarray:
    if isinstance(what, Buffer):
        return np.asarray(what.owner)
    if not what.flags.c_contiguous:
        raise UserError("the array is not contiguous", "copy", "pass a contiguous array")
    return what.reshape(-1).view(np.uint8)
