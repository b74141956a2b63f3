"""The runtime interface: the operations of every target's device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from core_compiler.runtime.budget import TimeBudget
from core_compiler.runtime.limits import Limits
from core_compiler.runtime.program import Argument, Program, Ref
from core_compiler.runtime.samples import Samples
from core_compiler.runtime.team import aligned
from core_compiler.support.arrays import data_address, numbers
from core_compiler.support.errors import InternalError, UserError

#: Yields the pairs (source, target) of each round of exchanges, and returns the outputs.
Parts = Generator[list[tuple[np.ndarray, np.ndarray]], None, tuple[np.ndarray, ...]]


@dataclass(frozen=True, slots=True)
class Event:
    """A point in a device's time, in nanoseconds; differences are durations."""

    nanoseconds: int

    def __sub__(self, other: Event) -> int:
        return self.nanoseconds - other.nanoseconds


class Buffer:
    """A block of ``size`` bytes of a device's memory at ``address``."""

    def __init__(self, address: int, size: int, owner: object = None):
        self.address, self.size, self.owner = address, size, owner


class Watcher(Protocol):
    """The interface of a watcher, which reads or changes memory between launches."""

    @property
    def writes(self) -> bool:
        """Return whether it changes the memory that it sees."""

    def stops(self, first: int, last: int) -> Sequence[int]:
        """Return the launches from ``first`` up to ``last`` after which it is called, in order."""

    def after_launch(self, launch: int, memory: Callable[[Ref, int], np.ndarray]) -> None:
        """Handle the end of a launch; ``memory(ref, size)`` returns bytes from a reference on."""


class DeviceArray(ABC):
    """An array that stays on a device between calls (:meth:`Executable.keep_on_device`).

    NumPy reads a copy of it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @abstractmethod
    def __array__(self, dtype=None, copy=None) -> np.ndarray: ...

    @abstractmethod
    def write(self, array: np.ndarray) -> None:
        """Set it to an array of its shape and dtype."""


class LoopLimitExceeded(InternalError):
    """A loop exceeded the caller's limit on iterations."""


class Executable(ABC):
    """A loaded program: a callable from arrays for ``program.inputs`` to arrays for the outputs.

    The order is that of ``program.inputs`` and ``program.outputs``; calls from several threads are
    safe. ``out``: for some outputs, by number, arrays of the caller's (of an earlier call) that may
    be written instead of new ones; or the :class:`DeviceArray` input whose next content they are.
    """

    program: Program
    device: Device
    #: Called with launches that have ended; None has no overhead.
    watch: Watcher | None = None
    #: Maximum number of evaluations of data-dependent loop conditions in a run (the CPU's), after
    #: which it raises :class:`LoopLimitExceeded`.
    loop_evaluations: int | None = None

    @abstractmethod
    def __call__(
        self, *arrays: np.ndarray, out: Mapping[int, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]: ...

    def bind(self, *arrays) -> BoundRun:
        """Return a run on these arrays, to be repeated."""
        return BoundRun(self, arrays)

    def keep_on_device(self, number: int, array: np.ndarray) -> np.ndarray | DeviceArray:
        """Return the object to pass as input ``number`` from now on, to avoid repeated transfers.

        On a device that shares the host's memory, it is the array itself.
        """
        return array

    def parts(
        self, arrays: Sequence, out: Mapping[int, np.ndarray] | None = None, whole: bool = True
    ) -> Parts:
        """Run as one shard of several, from one round of exchanges to the next.

        The caller does each exchange on the pairs (source, target) that are yielded; the outputs
        are returned. ``whole``: continue after the last round, where all shards compute the same.
        """
        raise UserError(
            f"{self.device.name} does not support shards",
            "shards",
            "train on the target cpu, or with one shard",
        )

    @abstractmethod
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


class BoundRun:
    """A run of a loaded program on fixed arrays: a callable without arguments.

    A call reads ``inputs`` in place and overwrites ``outputs`` (zeros before the first).  Raises
    UserError for arrays that cannot be read in place; otherwise as a call of the program.
    """

    def __init__(self, executable: Executable, arrays: Sequence):
        program = executable.program
        self._executable = executable
        self.inputs = tuple(check_in_place(program, arrays))
        self.outputs = tuple(map(_zeros, program.outputs))

    def __call__(self) -> None:
        results = self._executable(*self.inputs, out=dict(enumerate(self.outputs)))
        for output, result in zip(self.outputs, results, strict=True):
            if result is not output:
                output[...] = result


def _zeros(argument: Argument) -> np.ndarray:
    made = aligned(argument.bytes)
    made[:] = 0
    return made.view(argument.numpy).reshape(argument.shape)


class Device(ABC):
    """A device: ``allocate / copy / load / launch / record / synchronize``.

    ``name`` is the target's.
    """

    name: str

    @abstractmethod
    def allocate(self, size: int, what: str = "buffer") -> Buffer:
        """Allocate ``size`` bytes, 64-byte aligned; UserError (exit code 3) if unavailable."""

    @abstractmethod
    def copy(self, to: Buffer | np.ndarray, source: Buffer | np.ndarray) -> None:
        """Copy between host arrays and device buffers of equal size, in any combination."""

    @abstractmethod
    def load(
        self,
        program: Program,
        constants: Mapping[str, np.ndarray],
        like: Executable | None = None,
    ) -> Executable:
        """Bind a program: code, memory, constants (by digest), prepacking.

        ``like``: a loaded program of the same model at another size, whose constants the new one
        may share.
        """

    @abstractmethod
    def limits(self) -> Limits:
        """Return the roofs that times are compared with."""

    def doubt_limits(self) -> None:  # noqa: B027  (roofs that follow from a description stay)
        """Record that a launch exceeded :meth:`limits`: measured limits are measured again."""

    def launch(self, executable: Executable, arrays: Sequence[np.ndarray]):
        """Start an execution; devices with a queue return before it is done."""
        return executable(*arrays)

    def record(self) -> Event:
        """Return an event after everything launched so far."""
        self.synchronize()
        return Event(time.perf_counter_ns())

    def synchronize(self) -> None:  # noqa: B027  (a device that never queues has nothing to do)
        """Wait until everything launched is done."""


def check_inputs(program: Program, arrays: Sequence) -> list[np.ndarray]:
    """Return the arrays as row-major NumPy arrays; UserError names the first that does not fit.

    Dtypes must match exactly: a silent cast would hide a caller's mistake and change bits.
    """
    check_count(program, arrays)
    return [check_input(a, x, program.name) for a, x in zip(program.inputs, arrays, strict=True)]


def check_in_place(program: Program, arrays: Sequence) -> list[np.ndarray]:
    """Return the arrays as :func:`check_inputs` does; UserError for one that it has to copy."""
    read = [check_inputs(program, arrays) for _ in range(2)]
    for argument, first, second in zip(program.inputs, *read, strict=True):
        need_same_memory(first, second, f"{program.name}, input {argument.name!r}")
    return read[0]


def need_same_memory(first: np.ndarray, second: np.ndarray, where: str) -> None:
    """Raise UserError if an input that was read twice is in two places, of which one is a copy."""
    if first.nbytes and data_address(first) != data_address(second):
        raise UserError(
            "cannot be read in place: expected a row-major array or a CPU tensor",
            where,
            "bind np.ascontiguousarray(x), and write the next contents into that",
        )


def check_count(program: Program, arrays: Sequence) -> None:
    """Raise UserError unless there is one array per input."""
    if len(arrays) != len(program.inputs):
        names = ", ".join(a.name for a in program.inputs)
        raise UserError(
            f"expected {len(program.inputs)} inputs ({names}), got {len(arrays)}",
            program.name,
            "pass one array for each input",
        )


def check_input(argument: Argument, given, name: str) -> np.ndarray:
    """Check one array for an input of the program ``name``, as :func:`check_inputs` does."""
    array = given
    if type(given) is not np.ndarray:
        try:
            array = numbers(given)
        except ValueError as error:
            where = _input(argument, name)
            raise UserError(str(error), where, "pass a dense array of numbers") from None
    if array.dtype != argument.numpy:
        raise UserError(
            f"expected {argument}, got {array.dtype}",
            _input(argument, name),
            f"convert it, for example with .astype({argument.numpy.name!r})",
        )
    if array.shape != argument.shape:
        got = "x".join(map(str, array.shape)) or "scalar"
        raise UserError(
            f"expected {argument}, got shape {got}",
            _input(argument, name),
            "pass that shape, or compile for this one",
        )
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def _input(argument: Argument, name: str) -> str:
    return f"{name}, input {argument.name!r}"
