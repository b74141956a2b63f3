"""A device that runs a program launch by launch in host memory: for simulated accelerators.

Kernels of the accelerator are Python callables, found by the key of their :class:`KernelRef`; all
others are the host's machine code, called one launch at a time on the calling thread.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from core_compiler.runtime.budget import TimeBudget
from core_compiler.runtime.cpu import CpuDevice, example_inputs
from core_compiler.runtime.device import Device, Executable, check_inputs
from core_compiler.runtime.limits import Limits, doubt, limits
from core_compiler.runtime.program import Launch, Program, Ref
from core_compiler.runtime.samples import Iterations, Samples
from core_compiler.runtime.team import aligned

#: ``run(memories, indices)``: for each buffer argument its bytes (from its first element on), then
#: the index arguments.
Run = Callable[[Sequence[np.ndarray], Sequence[int]], None]
_NATIVE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


class SteppedDevice(Device):
    """A device for simulated accelerators; ``kernels`` is the accelerator's code by cache key.

    ``host`` has the code of all others.
    """

    def __init__(self, name: str, kernels: Mapping[str, Run], host: CpuDevice):
        self.name, self.kernels, self.host = name, kernels, host

    @override
    def allocate(self, size: int, what: str = "buffer"):
        return self.host.allocate(size, what)

    @override
    def copy(self, to, source) -> None:
        self.host.copy(to, source)

    @override
    def limits(self) -> Limits:
        return limits(1)

    @override
    def doubt_limits(self) -> None:
        doubt(1)

    @override
    def load(
        self,
        program: Program,
        constants: Mapping[str, np.ndarray],
        like: Executable | None = None,
    ) -> SteppedExecutable:
        return SteppedExecutable(program, constants, self)


class SteppedExecutable(Executable):
    """A program whose launches run one after another; calls from several threads are serialised."""

    def __init__(
        self, program: Program, constants: Mapping[str, np.ndarray], device: SteppedDevice
    ):
        program.check()
        self.program, self.device = program, device
        own = {k.name: device.kernels[k.key] for k in program.kernels if k.key in device.kernels}
        rest = [k for k in program.kernels if k.name not in own]
        self._own, self._code = own, device.host.kernels.load(rest)
        self.arena = aligned(program.arena_bytes)
        self._lock = threading.Lock()
        self._memory = {
            "arena": [self.arena],
            "constant": [_aligned_bytes(constants[c.digest]) for c in program.constants],
            "packed": [aligned(size) for size in program.packed],
        }
        for launch in program.prepack:
            self._step(launch, {})

    @override
    def __call__(
        self, *arrays, out: Mapping[int, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return new arrays for arrays; inputs are never written."""
        return self._run(arrays, lambda number, side: None)

    @override
    def profile(
        self,
        arrays: Sequence | None = None,
        *,
        repeats=20,
        warmup=3,
        budget: TimeBudget | None = None,
    ) -> Samples:
        """Time every launch ``repeats`` times by the host's clock, fewer if over ``budget``."""
        arrays = example_inputs(self.program) if arrays is None else arrays
        times = np.zeros((repeats, len(self.program.launches), 1, 2), np.int64)
        budget, done = budget or TimeBudget(), 0
        for number in range(warmup):
            if budget.allows_warmup(number, warmup):
                self(*arrays)
        loops = Iterations(*times.shape[:2]) if self.program.loops else None
        for repeat, row in enumerate(times):
            if not budget.allows_repeat(repeat, repeats):
                break
            done = repeat + 1

            def stamp(number: int, side: int, row: np.ndarray = row, repeat: int = repeat) -> None:
                row[number, 0, side] = time.perf_counter_ns()
                if side and loops is not None:
                    loops.add(repeat, number, row[number : number + 1])

            self._run(arrays, stamp)
        return Samples(self.program, times, 1, loops).first(done)

    def _run(self, arrays, stamp: Callable[[int, int], None]) -> tuple[np.ndarray, ...]:
        """Run all launches; ``stamp(i, 0)`` is called before launch i, ``stamp(i, 1)`` after it."""
        inputs = check_inputs(self.program, arrays)
        outputs = tuple(
            aligned(a.bytes).view(a.numpy).reshape(a.shape) for a in self.program.outputs
        )
        for argument, output in zip(self.program.outputs, outputs, strict=True):
            if argument.alias >= 0:
                output[...] = inputs[argument.alias].reshape(output.shape)
                inputs[argument.alias] = output
        given = {"input": list(map(_bytes, inputs)), "output": list(map(_bytes, outputs))}

        def run(start: int, end: int, trips: int) -> None:
            for number in (n for _ in range(trips) for n in range(start, end)):
                stamp(number, 0)
                self._step(self.program.launches[number], given)
                stamp(number, 1)
                if self.watch is not None and self.watch.stops(number, number + 1):
                    self.watch.after_launch(
                        number, lambda ref, size: self._bytes_at(ref, given)[:size]
                    )

        with self._lock:
            self.program.execute(run, lambda flag: bool(self._bytes_at(flag, given)[0]))
        return outputs

    def _step(self, launch: Launch, given: Mapping[str, list[np.ndarray]]) -> None:
        memories = [self._bytes_at(ref, given) for ref in launch.buffers]
        run = self._own.get(launch.kernel)
        if run is not None:
            run(memories, launch.indices)
            return
        block = np.array(
            [
                *(m.ctypes.data for m in memories),
                *launch.indices,
                *(self._code[name] for name in launch.callees),
            ],
            np.int64,
        )
        scratch = aligned(max(launch.scratch_bytes, 64))
        kernel = _NATIVE(self._code[launch.kernel])
        kernel(block.ctypes.data, 0, launch.work_items, scratch.ctypes.data)

    def _bytes_at(self, ref: Ref, given: Mapping[str, list[np.ndarray]]) -> np.ndarray:
        blocks = self._memory[ref.space] if ref.space in self._memory else given[ref.space]
        return blocks[ref.index][ref.offset :]


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _aligned_bytes(array: np.ndarray) -> np.ndarray:
    made = aligned(array.nbytes)
    made[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return made
