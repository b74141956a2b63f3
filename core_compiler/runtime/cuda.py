"""The CUDA device: one block of memory, one stream, graphs of launches, events for times."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir.types import dtype
from core_compiler.runtime.budget import TimeBudget
from core_compiler.runtime.cpu import example_inputs
from core_compiler.runtime.cuda_driver import Driver, DriverError
from core_compiler.runtime.device import (
    Buffer,
    Device,
    DeviceArray,
    Executable,
    Parts,
    check_count,
    check_input,
    check_inputs,
)
from core_compiler.runtime.kernel_cache import KernelCache
from core_compiler.runtime.limits import Limits
from core_compiler.runtime.program import BUILTIN, KernelRef, Launch, Program, Ref
from core_compiler.runtime.samples import Iterations, Samples
from core_compiler.support.errors import CANNOT_HERE, InternalError, UserError

#: The driver's errors for a launch that it cannot do; any other error is of a kernel that was
#: started before and has failed in the meantime (CUDA Driver API, cuLaunchKernel).
_REFUSED = (
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "CUDA_ERROR_OUT_OF_MEMORY",
)
#: Alignment of everything in device memory, in bytes: vector loads need 16, whole lines 128.
ALIGN = 256


class CudaDevice(Device):
    """An NVIDIA GPU.

    ``kernels``: the source of compiled kernels; ``driver``: the access to the GPU (default:
    NVIDIA's, GPU ``ordinal``).
    """

    name = "cuda"

    def __init__(self, kernels: KernelCache, ordinal: int = 0, driver: Any = None):
        self.kernels = kernels
        self.driver = Driver(ordinal) if driver is None else driver
        self._functions: dict[str, Function] = {}

    @override
    def allocate(self, size: int, what: str = "buffer") -> Buffer:
        with self.driver.visit():
            self.require(size, what)
            try:
                memory = _Memory(self.driver, max(size, ALIGN))
            except DriverError as error:
                raise self._out_of_memory(
                    size, what, f"no free block is that large ({error})"
                ) from None
            return Buffer(memory.address, size, memory)

    def require(self, size: int, what: str) -> None:
        """Raise UserError (exit code 3) if ``size`` bytes are not free on the GPU."""
        if size > self.driver.free_bytes():
            raise self._out_of_memory(size, what)

    def _out_of_memory(self, size: int, what: str, why: str = "") -> UserError:
        needed, free = _mebibytes(size), _mebibytes(self.driver.free_bytes())
        problem = f"needs {needed} of GPU memory, {free} are free{f', but {why}' if why else ''}"
        return UserError(problem, what, "free GPU memory, or choose -t cpu", CANNOT_HERE)

    @override
    def copy(self, to: Buffer | np.ndarray, source: Buffer | np.ndarray) -> None:
        size, source_size = (b.size if isinstance(b, Buffer) else b.nbytes for b in (to, source))
        if size != source_size:
            raise UserError(
                f"cannot copy {source_size} bytes to {size} bytes", "copy", "use equal sizes"
            )
        if isinstance(to, np.ndarray) and not to.flags.c_contiguous:
            raise UserError("the array is not contiguous", "copy", "pass a contiguous array")
        with self.driver.visit():
            if isinstance(to, Buffer) and isinstance(source, Buffer):
                self.driver.move(to.address, source.address, size)
            elif isinstance(to, Buffer):
                source = np.ascontiguousarray(source)  # lives until the copy has ended
                self.driver.upload(to.address, source)
            elif isinstance(source, Buffer):
                self.driver.download(to, source.address)
            else:
                to[...] = source
            self.driver.wait()

    @override
    def load(
        self,
        program: Program,
        constants: Mapping[str, np.ndarray],
        like: Executable | None = None,
    ) -> CudaExecutable:
        """Load a program.

        Raises UserError with exit code 3 (before allocating) if the GPU's memory is too small, and
        :class:`~core_compiler.runtime.kernel_cache.MissingKernel` if a kernel is not cached.
        """
        with self.driver.visit():
            return CudaExecutable(program, constants, self)

    @override
    def limits(self) -> Limits:
        """Return the GPU's roofs from its clocks and widths."""
        gpu = self.driver.gpu
        curve = ((1, gpu.bandwidth),)
        return Limits(1, gpu.flops, curve, curve)

    def function(self, kernel: KernelRef) -> Function:
        """Return a kernel's code on the GPU; it stays loaded with this device."""
        if kernel.key not in self._functions:
            facts = self.kernels.facts(kernel)
            self._check_architecture(kernel, facts["architecture"])
            image = self.kernels.file(kernel, self.driver.image)
            code = self.driver.function(image, kernel.symbol)
            self._functions[kernel.key] = Function(
                code,
                facts["threads"],
                facts["arguments"],
                facts["registers"],
                facts["shared"],
                self._source_position(kernel),
            )
        return self._functions[kernel.key]

    def _source_position(self, kernel: KernelRef) -> str:
        """Return the position of a kernel's function in its generated source."""
        source = self.kernels.file(kernel, "source.py").decode().splitlines()
        line = next((n for n, text in enumerate(source, 1) if text.startswith("def ")), 1)
        return f"kernel {kernel.name}, source.py:{line}"

    def _check_architecture(self, kernel: KernelRef, architecture: str) -> None:
        gpu = self.driver.gpu
        if architecture != gpu.architecture:
            raise UserError(
                f"compiled for {architecture}, but the GPU is a {gpu.name} ({gpu.architecture})",
                f"kernel {kernel.name}",
                f"compile with architecture={gpu.architecture}",
                CANNOT_HERE,
            )

    @override
    def synchronize(self) -> None:
        with self.driver.visit():
            self.driver.wait()


@dataclass(frozen=True, slots=True)
class Function:
    """A loaded kernel.

    ``threads`` per block, the number of its ``arguments``, ``registers`` per thread, ``shared``
    bytes per block, and its ``source_position`` in the generated source.
    """

    code: Any
    threads: int
    arguments: int
    registers: int
    shared: int
    source_position: str


class _Memory:
    """A block of GPU memory that is freed with its last user."""

    def __init__(self, driver, size: int):
        self.driver, self.address = driver, driver.allocate(size)

    def __del__(self) -> None:
        try:
            with self.driver.visit():
                self.driver.release(self.address)
        except Exception:  # the process ends, and its context with it
            pass


class _Events:
    """Events of the driver, created once and freed with their last user."""

    def __init__(self, driver):
        self.driver, self._made = driver, list[Any]()

    def first(self, count: int) -> list[Any]:
        while len(self._made) < count:
            self._made.append(self.driver.event())
        return self._made[:count]

    def __del__(self) -> None:
        try:
            with self.driver.visit():
                for event in self._made:
                    self.driver.destroy_event(event)
        except Exception:  # the process ends, and its context with it
            pass


class _Graph:
    """Launches that the driver has recorded, freed with their last user; None if it cannot."""

    def __init__(self, driver, record: Callable[[Any], None]):
        self.driver, self.recorded = driver, driver.graph(record)

    def __del__(self) -> None:
        try:
            if self.recorded is not None:
                with self.driver.visit():
                    self.driver.destroy_graph(self.recorded)
        except Exception:  # the process ends, and its context with it
            pass


@dataclass(frozen=True, slots=True)
class _Bound:
    """A launch with its addresses: a kernel, or a copy ``(to, source, bytes)``."""

    function: Function | None
    grid: int
    arguments: Any


class CudaExecutable(Executable):
    """A program bound to addresses on a GPU. Thread-safe: one call runs at a time."""

    def __init__(self, program: Program, constants: Mapping[str, np.ndarray], device: CudaDevice):
        program.check()
        self.device: CudaDevice
        self.program, self.device, self._lock = program, device, threading.RLock()
        self._functions = {k.name: device.function(k) for k in program.kernels if k.key != BUILTIN}
        offsets, size = _lay_out(program)
        self._block = device.allocate(
            size, f"program {program.name} ({_describe_parts(offsets, size)})"
        )
        self._addresses = {
            name: [self._block.address + p for p in at] for name, at in offsets.items()
        }
        self._aliases = {a.alias: i for i, a in enumerate(program.outputs) if a.alias >= 0}
        for constant, address in zip(program.constants, self._addresses["constant"], strict=True):
            device.driver.upload(address, _constant(constants, constant))
        for launch in program.prepack:
            self._start(self._bind(launch))
        device.driver.wait()
        self._launches = [self._bind(launch) for launch in program.launches]
        self._events = _Events(device.driver)
        #: Stretches of launches that have run, and the graphs of those that have run twice.
        self._started: set[tuple[int, int]] = set()
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._held: dict[int, _Resident] = {}  # by input: what its memory holds

    @override
    def __call__(
        self, *arrays, out: Mapping[int, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Run on arrays, or anything NumPy reads without a copy (CPU tensors); return new arrays.

        They are copied to the GPU, all launches run, and the results are copied back.  Held arrays
        stay on the GPU.
        """
        out = out or {}
        with self._lock, self.device.driver.visit():
            self._upload(self._checked_inputs(arrays, out))
            self._run(self._launch, self._notify_watcher)
            return self._results(out)

    @override
    def keep_on_device(self, number: int, array: np.ndarray) -> DeviceArray:
        return _Resident(self, number, array)

    def _checked_inputs(
        self, arrays: Sequence, out: Mapping[int, Any]
    ) -> list[np.ndarray | _Resident]:
        """Return the inputs, checked.

        A held input is passed as a copy if an output that is not its own next content reuses its
        memory.
        """
        check_count(self.program, arrays)
        found: list[np.ndarray | _Resident] = []
        for number, (argument, array) in enumerate(zip(self.program.inputs, arrays, strict=True)):
            reusing_output = self._aliases.get(number)
            own = isinstance(array, _Resident) and array.slot == (self, number)
            if own and (reusing_output is None or out.get(reusing_output) is array):
                found.append(array)
            else:
                found.append(check_input(argument, array, self.program.name))
        return found

    @override
    def parts(
        self, arrays: Sequence, out: Mapping[int, np.ndarray] | None = None, whole: bool = True
    ) -> Parts:
        """Yield exchanges: shards' data is read from the GPU, their sums are written to it."""
        inputs, driver, at = check_inputs(self.program, arrays), self.device.driver, 0
        with self._lock:
            with driver.visit():
                self._upload(inputs)
            for exchanges in self.program.rounds():
                with driver.visit():
                    self._run(self._launch, self._notify_watcher, at, exchanges[0].launch)
                    targets = [np.empty(x.elements, dtype(x.dtype).numpy) for x in exchanges]
                    sources = [
                        self._read(x.source, target.nbytes).view(target.dtype)
                        for x, target in zip(exchanges, targets, strict=True)
                    ]
                yield list(zip(sources, targets, strict=True))
                with driver.visit():
                    for exchange, target in zip(exchanges, targets, strict=True):
                        driver.upload(self._address(exchange.target), target)
                    driver.wait()
                    at = exchanges[-1].launch + 1
                    self._notify_watcher(exchanges[0].launch, at)
            if not whole:
                return ()
            with driver.visit():
                self._run(self._launch, self._notify_watcher, at)
                return self._results()

    def _results(self, out: Mapping[int, Any] | None = None) -> tuple:
        """Return the outputs; one that stays held is moved to its input's memory if needed."""
        driver, made = self.device.driver, list[Any]()
        for number, (argument, address) in enumerate(
            zip(self.program.outputs, self._addresses["output"], strict=True)
        ):
            resident = (out or {}).get(number)
            if isinstance(resident, _Resident) and self._held.get(resident.number) is resident:
                if argument.alias != resident.number:
                    driver.move(
                        self._address(Ref("input", resident.number)), address, argument.bytes
                    )
                made.append(resident)
            else:
                made.append(np.empty(argument.shape, argument.numpy))
                driver.download(made[-1], address)
        driver.wait()
        return tuple(made)

    def _read(self, ref: Ref, size: int) -> np.ndarray:
        """Return bytes from a reference on, once all earlier launches have ended."""
        copy = np.empty(size, np.uint8)
        self.device.driver.download(copy, self._address(ref))
        self.device.driver.wait()
        return copy

    def _notify_watcher(self, start: int, end: int) -> None:
        """Call the watcher with copies; its changes to one are written back before the next."""
        if self.watch is None:
            return
        seen: list[tuple[Ref, np.ndarray]] = []
        writes = self.watch.writes

        def write_back() -> None:
            while seen:
                ref, copy = seen.pop()
                self.device.driver.upload(self._address(ref), copy)
                self.device.driver.wait()

        def memory(ref: Ref, size: int) -> np.ndarray:
            write_back()
            copy = self._read(ref, size)
            if writes:
                seen.append((ref, copy))
            return copy

        for number in self.watch.stops(start, end):
            self.watch.after_launch(number, memory)
            write_back()

    def _run(
        self,
        launch: Callable[[int], None],
        after: Callable[[int, int], None],
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Run the launches from ``first`` up to ``last`` (default: all) in order.

        ``after(start, end)`` is called for each stretch of them, which ends where a watcher stops.
        For a loop without a trip count, the host reads the flag and waits for it.
        """

        def run(start: int, end: int, trips: int) -> None:
            for _ in range(trips):
                once(start, end)

        def once(start: int, end: int) -> None:
            if launch == self._launch and self.watch is None:
                self._start_all(start, end)
                after(start, end)
                return
            stops = () if self.watch is None else self.watch.stops(start, end)
            for stop in (*stops, end - 1):
                for number in range(start, stop + 1):
                    launch(number)
                if start <= stop:
                    after(start, stop + 1)
                start = stop + 1

        def holds(flag: Ref) -> bool:
            return bool(self._read(flag, 1)[0])

        self.program.execute(run, holds, first, last)

    def _launch(self, number: int) -> None:
        self._start(self._launches[number])

    def _start_all(self, start: int, end: int) -> None:
        """Start a stretch of launches: one by one at first, which names one that fails, then as one
        graph, if the driver has graphs."""
        stretch = start, end

        def each(stream: Any = None) -> None:
            for launch in self._launches[start:end]:
                self._start(launch, stream)

        if stretch in self._started and stretch not in self._graphs:
            self._graphs[stretch] = _Graph(self.device.driver, each)
        self._started.add(stretch)
        graph = self._graphs.get(stretch)
        if graph is None or graph.recorded is None:
            each()
        else:
            self.device.driver.replay(graph.recorded)

    @property
    def arena(self) -> np.ndarray:
        """Return the temporaries' bytes as the last run left them (a copy)."""
        made = np.empty(self.program.arena_bytes, np.uint8)
        with self._lock, self.device.driver.visit():
            self.device.driver.download(made, self._addresses["arena"][0])
            self.device.driver.wait()
        return made

    @override
    def profile(
        self,
        arrays: Sequence | None = None,
        *,
        repeats=20,
        warmup=3,
        budget: TimeBudget | None = None,
    ) -> Samples:
        """Time every launch ``repeats`` times by events on the stream, after ``warmup`` runs.

        Fewer if ``budget`` is exceeded.  There is an event before and after each launch.  Each
        timed run is queued behind an untimed one, so that the host is ahead and launches follow one
        another without waiting for it (except for loops, whose flags it reads).
        """
        if repeats < 1 or warmup < 0:
            raise UserError(
                f"cannot time {repeats} repeats after {warmup} warm-up runs",
                "profile",
                "pass 1 or more repeats",
            )
        arrays = example_inputs(self.program) if arrays is None else arrays
        inputs, driver = check_inputs(self.program, arrays), self.device.driver
        budget, done = budget or TimeBudget(), 0
        times = np.zeros((repeats, len(self._launches), 1, 2), np.int64)
        loops = Iterations(*times.shape[:2]) if self.program.loops else None
        with self._lock, driver.visit():
            self._upload(inputs)
            origin, *events = self._events.first(1 + 2 * len(self._launches))

            def timed(number: int) -> None:
                driver.record(events[2 * number])
                self._launch(number)
                driver.record(events[2 * number + 1])

            def read(row: int, start: int, end: int) -> None:
                driver.wait()
                for number in range(start, end) if row >= 0 else ():
                    for side in (0, 1):
                        at = driver.nanoseconds(origin, events[2 * number + side])
                        times[row, number, 0, side] = 1 + at
                if row >= 0 and loops is not None:
                    loops.add(row, start, times[row, start:end])

            def run(row: int) -> None:
                self._run(self._launch, _do_nothing)
                driver.record(origin)
                self._run(timed, partial(read, row))

            for number in range(warmup):
                if budget.allows_warmup(number, warmup):
                    run(-1)
            while budget.allows_repeat(done, repeats):
                run(done)
                done += 1
        return Samples(self.program, times, 0, loops).first(done)

    def _upload(self, inputs: Sequence[np.ndarray | _Resident]) -> None:
        """Upload inputs that are not on the GPU; held arrays that they displace move to host."""
        driver = self.device.driver
        for number, given in enumerate(inputs):
            before = self._held.get(number)
            if before is given:
                continue
            if before is not None:
                before.host = self._download(before)
                del self._held[number]
            array = np.asarray(given)
            if isinstance(given, _Resident):
                given.host, self._held[number] = None, given
            driver.upload(self._address(Ref("input", number)), array)
        driver.wait()  # the held array was the last owner of the arrays

    def _download(self, held: _Resident) -> np.ndarray:
        made = np.empty(held.shape, held.dtype)
        with self.device.driver.visit():
            self.device.driver.download(made, self._address(Ref("input", held.number)))
            self.device.driver.wait()
        return made

    def _start(self, launch: _Bound, stream: Any = None) -> None:
        driver, where = self.device.driver, {} if stream is None else {"stream": stream}
        if launch.function is None:
            driver.move(*launch.arguments, **where)
        elif launch.grid:
            function = launch.function
            try:
                grid, threads = launch.grid, function.threads
                driver.launch(function.code, grid, threads, launch.arguments, **where)
            except DriverError as error:
                if error.state not in _REFUSED:
                    raise
                raise UserError(
                    f"cannot be launched ({error.state}): {launch.grid} blocks of "
                    f"{function.threads} threads, {function.registers} registers each, "
                    f"{function.shared} bytes of shared memory",
                    function.source_position,
                    "compile with the option tiles=small, or choose -t cpu",
                    CANNOT_HERE,
                ) from None

    def _address(self, ref: Ref) -> int:
        """Return the address of a reference; an input whose memory an output reuses is there."""
        if ref.space == "input" and ref.index in self._aliases:
            return self._addresses["output"][self._aliases[ref.index]] + ref.offset
        return self._addresses[ref.space][ref.index] + ref.offset

    def _bind(self, launch: Launch) -> _Bound:
        addresses = [self._address(ref) for ref in launch.buffers]
        if launch.kernel not in self._functions:
            if launch.kernel != "cw_copy":
                raise InternalError(f"{self.program.name}: a GPU does not support {launch.kernel}")
            return _Bound(None, 1, (*addresses, *launch.indices))
        function = self._functions[launch.kernel]
        values = [*addresses, *launch.indices]
        if function.arguments > len(values):
            values.append(self._addresses["scratch"][0])
        if function.arguments != len(values):
            wanted = f"{launch.kernel} takes {function.arguments}"
            raise InternalError(f"{launch.name}: {len(values)} arguments, {wanted}")
        return _Bound(function, launch.work_items, self.device.driver.arguments(values))


class _Resident(DeviceArray):
    """A held array, which is in an input's memory, or in the host's while another array is there.

    It stays in the host's memory until it is used again.
    """

    def __init__(self, executable: CudaExecutable, number: int, array: np.ndarray):
        self.executable, self.number = executable, number
        self.shape, self.dtype = array.shape, array.dtype
        self.host: np.ndarray | None = array

    @property
    def slot(self) -> tuple[CudaExecutable, int]:
        return self.executable, self.number

    @override
    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        with self.executable._lock:
            found = self.host.copy() if self.host is not None else self.executable._download(self)
        return found if dtype is None else found.astype(dtype)

    @override
    def write(self, array: np.ndarray) -> None:
        if self.host is None:
            del self.executable._held[self.number]
        self.host = array


def _do_nothing(start: int, end: int) -> None:
    """Do nothing after a stretch of launches."""


def _lay_out(program: Program) -> tuple[dict[str, list[int]], int]:
    """Return the offsets of the buffers of each space in one block, and the block's size.

    ``scratch`` is the largest need of a launch for all its blocks together.
    """
    sizes = program.space_sizes()
    every = (*program.prepack, *program.launches)
    sizes["scratch"] = [max((x.work_items * x.scratch_bytes for x in every), default=0)]
    offsets: dict[str, list[int]] = {}
    end = 0
    for space, parts in sizes.items():
        offsets[space] = []
        for size in parts:
            offsets[space].append(end)
            end += max(-(-size // ALIGN), 1) * ALIGN
    return offsets, end


#: The contents of a program's spaces, in words.
_SPACE_CONTENTS = {
    "arena": "temporaries",
    "constant": "weights",
    "packed": "packed weights",
    "input": "inputs",
    "output": "results",
    "scratch": "scratch",
}


def _describe_parts(offsets: Mapping[str, list[int]], size: int) -> str:
    """Return the parts of a block of memory as text, the largest first."""
    starts = [(at[0], space) for space, at in offsets.items() if at]
    ends = [*(start for start, _ in starts[1:]), size]
    parts = [
        (end - start, _SPACE_CONTENTS[space])
        for (start, space), end in zip(starts, ends, strict=True)
    ]
    named = sorted(parts, key=lambda part: -part[0])
    return ", ".join(
        f"{words} {_mebibytes(n)}" for n, words in named if n > ALIGN or len(named) < 2
    )


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size >= 10 << 20 else f"{size / 2**20:,.3f} MiB"


def _constant(constants: Mapping[str, np.ndarray], constant) -> np.ndarray:
    array = np.ascontiguousarray(constants[constant.digest])
    if array.nbytes != constant.bytes:
        raise InternalError(f"constant {constant.digest[:12]} has {array.nbytes} bytes")
    return array
