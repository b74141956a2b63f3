"""NVIDIA's driver: memory, modules, launches, events of one GPU.

The CUDA device accesses a GPU only through these few functions, so that the tests can replace the
driver by an interpreter of PTX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.runtime.compile_worker import OBJECT
from core_compiler.support.errors import CANNOT_HERE, InternalError, UserError


@dataclass(frozen=True, slots=True)
class GPU:
    """The properties of a GPU.

    Compute ``capability``, ``processors`` (streaming multiprocessors), ``memory`` in bytes,
    ``clock`` and ``memory_clock`` in Hz, ``bus`` in bits, maximum ``shared`` bytes per block,
    ``cache`` bytes of the second level; the driver's CUDA version.
    """

    name: str
    capability: tuple[int, int]
    processors: int
    memory: int
    clock: int
    memory_clock: int
    bus: int
    shared: int
    cache: int
    cuda: str

    @property
    def bandwidth(self) -> float:
        """Bytes per second between the chip and its memory, which moves data twice per cycle."""
        return 2 * self.memory_clock * self.bus / 8

    @property
    def flops(self) -> float:
        """The f32 operations per second, an fma being two.

        A processor has 128 lanes (64 before compute capability 8.6).
        """
        lanes = 64 if self.capability < (8, 6) else 128
        return 2 * lanes * self.processors * self.clock

    @property
    def architecture(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


#: The oldest CUDA version of a driver that loads the output of CUDA 13's ptxas: any 13 does (CUDA
#: compatibility, "minor version compatibility").
OLDEST_DRIVER = (13, 0)


#: Reasons why a GPU has no context (CUDA Driver API, CUresult).
_NO_CONTEXT = {
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "it is in exclusive mode and another process uses it, or all "
    "computing is prohibited on it",
    "CUDA_ERROR_OUT_OF_MEMORY": "its memory is full",
}


class DriverError(InternalError):
    """A call of the driver failed: its name and its result."""

    def __init__(self, call: str, state: str):
        super().__init__(f"{call}: {state}")
        self.call, self.state = call, state


@functools.cache
def missing(ordinal: int = 0) -> str | None:
    """Return what this machine lacks to execute on GPU ``ordinal``, or None."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return "the package cuda-bindings is not installed (pip install 'compiler-workbench[cuda]')"
    try:
        (state,) = driver.cuInit(0)
    except Exception:  # the loader's own kinds of error if there is no libcuda
        return "NVIDIA driver (libcuda.so.1) not found on this machine"
    if state.value:
        return f"the NVIDIA driver cannot start ({state.name})"
    _, number = driver.cuDriverGetVersion()
    if (supported := (number // 1000, number % 1000 // 10)) < OLDEST_DRIVER:
        versions = [".".join(map(str, v)) for v in (supported, OLDEST_DRIVER)]
        return f"the NVIDIA driver supports CUDA {versions[0]}, expected {versions[1]} or newer"
    _, count = driver.cuDeviceGetCount()
    if ordinal >= count:
        return "the NVIDIA driver finds no GPU" if not count else f"GPU {ordinal} not found"
    return None


@functools.cache
def gpu(ordinal: int = 0) -> GPU | None:
    """Return the properties of GPU ``ordinal``, or None if it does not exist.

    No context is needed: a GPU that is busy or full reports them too.
    """
    if missing(ordinal):
        return None
    from cuda.bindings import driver

    return _described(driver, _call_driver(driver, "cuDeviceGet", ordinal))


def _call_driver(cuda, name: str, *arguments):
    """Call the driver; DriverError names the call and its result."""
    state, *results = getattr(cuda, name)(*arguments)
    if state.value:
        raise DriverError(name, state.name)
    return results[0] if len(results) == 1 else results


def _described(cuda, device) -> GPU:
    def number(name: str) -> int:
        kind = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return _call_driver(cuda, "cuDeviceGetAttribute", kind, device)

    name = _call_driver(cuda, "cuDeviceGetName", 128, device)
    version = _call_driver(cuda, "cuDriverGetVersion")
    return GPU(
        name.split(b"\0")[0].decode(),
        (number("COMPUTE_CAPABILITY_MAJOR"), number("COMPUTE_CAPABILITY_MINOR")),
        number("MULTIPROCESSOR_COUNT"),
        _call_driver(cuda, "cuDeviceTotalMem", device),
        1000 * number("CLOCK_RATE"),
        1000 * number("MEMORY_CLOCK_RATE"),
        number("GLOBAL_MEMORY_BUS_WIDTH"),
        number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        number("L2_CACHE_SIZE"),
        f"{version // 1000}.{version % 1000 // 10}",
    )


class Driver:
    """GPU ``ordinal`` with its primary context and a stream of its own.

    Other libraries of the process share the context.  Raises UserError (exit code 3) if there is no
    GPU. Modules and the stream are freed with it; the context stays with the process.
    """

    #: The file of a kernel's cache entry that :meth:`function` takes.
    image = OBJECT

    def __init__(self, ordinal: int = 0):
        reason = missing(ordinal)
        if reason:
            raise UserError(
                f"cannot execute: {reason}", "target cuda", "choose -t cpu", CANNOT_HERE
            )
        from cuda.bindings import driver

        self._cuda = driver
        self._device = self._call("cuDeviceGet", ordinal)
        self.gpu = _described(driver, self._device)
        try:
            self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        except DriverError as error:
            why = _NO_CONTEXT.get(error.state, "it cannot be used")
            raise UserError(
                f"cannot execute: {why} ({error})",
                self.gpu.name,
                "wait until it is free, or choose -t cpu",
                CANNOT_HERE,
            ) from None
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._modules: list = []
        with self.visit():
            self._stream = self._call("cuStreamCreate", flags)

    def _call(self, name: str, *arguments):
        return _call_driver(self._cuda, name, *arguments)

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Make the GPU current in this thread, then restore the previous context.

        Other parts of the process may use another GPU.  All methods below except :meth:`arguments`
        need it.
        """
        self._call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent")

    def __del__(self) -> None:
        try:
            with self.visit():
                self.wait()
                for module in self._modules:
                    self._call("cuModuleUnload", module)
                self._call("cuStreamDestroy", self._stream)
        except Exception:  # it was not created, or the process ends, and its context with it
            pass

    # -- memory ------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        free, _ = self._call("cuMemGetInfo")
        return int(free)

    def allocate(self, size: int) -> int:
        return int(self._call("cuMemAlloc", size))

    def release(self, address: int) -> None:
        self._call("cuMemFree", address)

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy a contiguous host array to device memory, after all earlier launches."""
        if array.nbytes:
            host_address = array.ctypes.data
            self._call("cuMemcpyHtoDAsync", address, host_address, array.nbytes, self._stream)

    def download(self, array: np.ndarray, address: int) -> None:
        """Copy device memory to a contiguous host array; complete after :meth:`wait`."""
        if array.nbytes:
            host_address = array.ctypes.data
            self._call("cuMemcpyDtoHAsync", host_address, address, array.nbytes, self._stream)

    def move(self, to: int, source: int, size: int, stream=None) -> None:
        if size:
            self._call("cuMemcpyDtoDAsync", to, source, size, stream or self._stream)

    # -- code --------------------------------------------------------------------------------------

    def function(self, image: bytes, symbol: str):
        """Return a kernel of a module (cubin); the module stays loaded with this driver."""
        module = self._call("cuModuleLoadData", image)
        self._modules.append(module)
        return self._call("cuModuleGetFunction", module, symbol.encode())

    def arguments(self, values: Sequence[int]) -> np.ndarray:
        """Return 64-bit kernel arguments, each behind its address, as :meth:`launch` takes them.

        Negative ones, as strides and paddings may be, are in two's complement.
        """
        made = np.zeros(2 * len(values), np.uint64)
        made[: len(values)] = [v & 0xFFFF_FFFF_FFFF_FFFF for v in values]
        made[len(values) :] = made.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
        return made

    def launch(self, function, grid: int, threads: int, arguments: np.ndarray, stream=None) -> None:
        """Start a kernel on the stream; a ``stream`` that is being recorded keeps it instead."""
        table, where = arguments.ctypes.data + 4 * arguments.size, stream or self._stream
        self._call("cuLaunchKernel", function, grid, 1, 1, threads, 1, 1, 0, where, table, 0)

    # -- graphs ------------------------------------------------------------------------------------

    def graph(self, record: Callable[[Any], None]) -> Any:
        """Return the launches and moves that ``record(stream)`` makes as one graph.

        Return None if the driver cannot record them.  The stream is the recording's own: others go
        on using the driver's.
        """
        flags = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        stream = self._call("cuStreamCreate", flags)
        try:
            self._call("cuStreamBeginCapture", stream, mode)
            try:
                record(stream)
            finally:
                recorded = self._call("cuStreamEndCapture", stream)
            try:
                return self._call("cuGraphInstantiate", recorded, 0)
            finally:
                self._call("cuGraphDestroy", recorded)
        except (DriverError, RuntimeError):  # bindings raise the latter for unknown functions
            return None
        finally:
            self._call("cuStreamDestroy", stream)

    def replay(self, graph: Any) -> None:
        """Start all launches of a graph on the stream."""
        self._call("cuGraphLaunch", graph, self._stream)

    def destroy_graph(self, graph: Any) -> None:
        self._call("cuGraphExecDestroy", graph)

    # -- time --------------------------------------------------------------------------------------

    def event(self):
        return self._call("cuEventCreate", self._cuda.CUevent_flags.CU_EVENT_DEFAULT)

    def destroy_event(self, event) -> None:
        """Free an event."""
        self._call("cuEventDestroy", event)

    def record(self, event) -> None:
        self._call("cuEventRecord", event, self._stream)

    def nanoseconds(self, start, end) -> int:
        """Return the time between two completed events; the driver counts half microseconds."""
        return round(1e6 * self._call("cuEventElapsedTime", start, end))

    def wait(self) -> None:
        """Wait for everything that was started; InternalError if a kernel failed."""
        self._call("cuStreamSynchronize", self._stream)
