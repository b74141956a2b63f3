"""Runs PTX on a machine without a GPU: all threads of a block in lockstep, registers as NumPy rows.

Threads that branch apart are run from the lowest place on until they meet again.  Arithmetic is
exact: one IEEE rounding an instruction, a true fma.  What is not known raises; so do reads and
writes outside a buffer, and barriers that only a part of a block reaches.

An asynchronous copy takes place as late as it may, when its thread waits for its group.  Until then
an access to its bytes raises, and after that one by another thread until the next barrier.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.cuda.ptx import Instruction, Kernel, read
from tests.cuda.ptx_instructions import WORD, Fault, decode, dtype_of

#: Where the first buffer lies: no small number is an address.
_FIRST = 1 << 40
#: At least as much lies between two buffers.
_APART = 1 << 32
#: Where each thread's own memory lies.
_LOCAL = 1 << 50
#: Where constant memory lies.
_CONSTANT = 1 << 51
#: Who may access a byte of shared memory, if not the one thread whose copy has written it.
_EVERYONE, _NOBODY = -1, -2


def launch(ptx: str, grid: int, threads: int, arguments: Sequence[np.ndarray | int]) -> None:
    """Run the entry of ``ptx`` on a grid of ``grid`` blocks of ``threads``; arrays are buffers in
    global memory (written in place), numbers are 64-bit parameters."""
    memory = Memory()
    values = [memory.add(a) if isinstance(a, np.ndarray) else int(a) for a in arguments]
    Program(read(ptx)).run(grid, threads, values, memory)


class Memory:
    """Buffers far apart, so that an access outside of one hits none."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.buffers: list[np.ndarray] = []
        self._next = _FIRST

    def add(self, array: np.ndarray) -> int:
        if not array.flags.c_contiguous:
            raise ValueError("buffers are contiguous")
        start, self._next = self._next, self._next + array.nbytes // 4096 * 4096 + _APART
        self.starts.append(start)
        self.buffers.append(array.reshape(-1).view(np.uint8))
        return start

    def remove(self, address: int) -> None:
        number = self.starts.index(address)
        del self.starts[number], self.buffers[number]

    def by_buffer(self, addresses: np.ndarray) -> list[np.ndarray]:
        """Which of the addresses lie at or behind one buffer's start and before the next one's."""
        ends = np.searchsorted(self.starts, [addresses.min(), addresses.max()], "right")
        if ends[0] == ends[1]:
            return [np.ones(len(addresses), bool)]
        numbers = np.searchsorted(self.starts, addresses.astype(np.int64), "right")
        return [numbers == number for number in np.unique(numbers)]

    def find(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The buffer that all these addresses lie in, and their places in it."""
        number = int(np.searchsorted(self.starts, int(addresses[0]), "right")) - 1
        if number < 0:
            raise Fault(f"address {int(addresses[0]):#x} is in no buffer")
        buffer = self.buffers[number]
        places = addresses.astype(np.int64) - self.starts[number]
        if places.min() < 0 or places.max() + size > buffer.size:
            raise Fault(
                f"bytes {places.min()} to {places.max() + size} of a buffer of {buffer.size}"
            )
        if np.any(places % size):
            raise Fault(f"an access of {size} bytes is not aligned")
        return buffer, places


class Program:
    """The instructions as functions of (block, active threads), cut where control flow can go."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.steps = [decode(kernel, i) for i in kernel.code]
        jumps = [n for n, i in enumerate(kernel.code) if i.opcode[0] in ("bra", "ret", "bar")]
        self.starts = sorted({0, *kernel.labels.values(), *(n + 1 for n in jumps)})
        self.end = len(kernel.code)

    def run(self, grid: int, threads: int, values: Sequence[int], memory: Memory) -> None:
        """Run a grid of blocks, one after another, with 64-bit parameters."""
        for block in range(grid):
            _Block(self, memory, values, block, grid, threads).run()


class _Block:
    def __init__(self, program, memory, values, block: int, grid: int, threads: int):
        self.program, self.memory, self.threads = program, memory, threads
        kernel = program.kernel
        self.parameters = dict(zip(kernel.parameters, values, strict=True))
        self.shared = np.full(kernel.shared_bytes, 0xA5, np.uint8)
        self.visible = np.full(kernel.shared_bytes, _EVERYONE)
        self.copies: list[_Copies] = []
        self.groups = np.zeros(threads, np.int64)  # of copies, that each thread has ended
        self.local = np.full((threads, kernel.local_bytes), 0xA5, np.uint8)
        self.registers = {
            prefix: np.zeros((count, threads), _register_word(kind))
            for prefix, (kind, count) in kernel.registers.items()
        }
        self.special = {
            "%tid.x": np.arange(threads, dtype=np.uint32),
            "%ctaid.x": np.uint32(block),
            "%ntid.x": np.uint32(threads),
            "%nctaid.x": np.uint32(grid),
            "%laneid": np.arange(threads, dtype=np.uint32) % 32,
        }

    def run(self) -> None:
        """Each round runs the straight piece that begins at the lowest place any thread is at."""
        program, end = self.program, self.program.end
        place = np.zeros(self.threads, np.int64)
        waiting = np.zeros(self.threads, bool)
        pieces = dict(zip(program.starts, [*program.starts[1:], end], strict=True))
        while True:
            live = place < end
            if not live.any():
                return
            free = live & ~waiting
            if not free.any():
                if not np.array_equal(waiting, live):
                    raise Fault("a barrier that a part of the block reaches")
                waiting[:] = False
                self.visible[self.visible >= 0] = _EVERYONE
                continue
            at = int(place[free].min())
            here = free & (place == at)
            on = slice(None) if here.all() else np.flatnonzero(here)
            self._piece(at, pieces[at], on, place, waiting)

    def _piece(self, at: int, stop: int, on, place: np.ndarray, waiting: np.ndarray) -> None:
        code = self.program.kernel.code
        with np.errstate(all="ignore"):
            for number in range(at, stop):
                instruction = code[number]
                try:
                    some = self._guarded(instruction, on)
                    kind = instruction.opcode[0]
                    if kind == "bra":
                        place[on] = number + 1
                        place[some] = self.program.kernel.labels[instruction.operands[0]]
                        return
                    if kind == "ret":
                        place[on] = number + 1
                        place[some] = self.program.end
                        return
                    if kind == "bar":
                        if instruction.guard is not None:
                            raise Fault("a guarded barrier")
                        place[on], waiting[on] = number + 1, True
                        return
                    if not isinstance(some, np.ndarray) or some.size:
                        self.program.steps[number](self, some)
                except Fault as problem:
                    raise Fault(f"{instruction}: {problem}") from None
        place[on] = stop

    def _guarded(self, instruction: Instruction, on):
        if instruction.guard is None:
            return on
        register, wanted = instruction.guard
        held = self.read(register, "pred", on) == wanted
        if isinstance(on, slice):
            return on if held.all() else np.flatnonzero(held)
        return on[held]

    # -- operands ------------------------------------------------------------------------------

    def read(self, operand: str, kind: str, on) -> np.ndarray:
        """The operand's values for the threads ``on``, as numbers of PTX type ``kind``."""
        count = self.threads if isinstance(on, slice) else len(on)
        if operand in self.special:
            raw = np.broadcast_to(self.special[operand], self.threads)[on]
        elif operand.startswith("%"):
            raw = self._row(operand)[on]
        else:
            return np.full(count, _immediate(operand, kind, self.program.kernel))
        if kind == "pred":
            return raw
        wanted = dtype_of(kind)
        if raw.dtype.itemsize != wanted.itemsize:
            raw = raw.astype(WORD[wanted.itemsize])
        return np.ascontiguousarray(raw).view(wanted)

    def write(self, operand: str, values: np.ndarray, on) -> None:
        row = self._row(operand)
        if row.dtype == bool:
            row[on] = values
            return
        values = np.ascontiguousarray(values)
        raw = values.view(WORD[values.dtype.itemsize])
        row[on] = raw.astype(row.dtype)

    def _row(self, operand: str) -> np.ndarray:
        prefix, number = _register(operand)
        return self.registers[prefix][number]

    def place(self, operand: str, on) -> np.ndarray:
        """The addresses of ``[register + number]`` or ``[variable + number]``."""
        base, offset = _address(operand)
        if base.startswith("%"):
            return self.read(base, "u64", on) + np.uint64(offset % 2**64)
        start = self.program.kernel.shared[base] + offset
        count = self.threads if isinstance(on, slice) else len(on)
        return np.full(count, start, np.uint64)

    def accessed(self, space: str, operand: str, size: int, on):
        """(memory, places in it, threads) for what the threads ``on`` access: one for each buffer,
        as NVVM makes one load of two where a condition chooses between buffers."""
        addresses = self.place(operand, on)
        groups = self.memory.by_buffer(addresses) if space == "global" else [None]
        if len(groups) == 1:
            yield *self.bytes_at(space, addresses, size, on), on
            return
        threads = np.arange(self.threads)[on]
        for some in groups:
            yield *self.bytes_at(space, addresses[some], size, threads[some]), threads[some]

    def bytes_at(self, space: str, addresses: np.ndarray, size: int, on):
        """The memory that the addresses are of, and their places in it."""
        if space == "const" or (space == "generic" and int(addresses[0]) >= _CONSTANT):
            places = addresses.astype(np.int64) - _CONSTANT
            constants = np.frombuffer(self.program.kernel.constant_bytes, np.uint8)
            if places.min() < 0 or places.max() + size > constants.size:
                raise Fault(f"constant byte {places.max() + size} of {constants.size}")
            return constants, places
        if space == "local" or (space == "generic" and int(addresses[0]) >= _LOCAL):
            places = addresses.astype(np.int64) - _LOCAL
            if places.min() < 0 or places.max() + size > self.local.shape[1]:
                raise Fault(f"local byte {places.max() + size} of {self.local.shape[1]}")
            rows = np.arange(self.threads)[on] * self.local.shape[1]
            return self.local.reshape(-1), rows + places
        if space == "global":
            return self.memory.find(addresses, size)
        if space != "shared":
            raise Fault(f"{space} memory")
        places = addresses.astype(np.int64)
        if places.min() < 0 or places.max() + size > self.shared.size:
            raise Fault(f"shared byte {places.max() + size} of {self.shared.size}")
        if np.any(places % size):
            raise Fault(f"an access of {size} bytes is not aligned")
        if self.copies or self.visible.max(initial=_EVERYONE) >= 0:
            seen = self.visible[places[:, None] + np.arange(size)]
            if np.any(seen == _NOBODY):
                raise Fault("an asynchronous copy that no thread has waited for")
            own = np.arange(self.threads)[on][:, None]
            if np.any((seen >= 0) & (seen != own)):
                raise Fault("another thread's asynchronous copy, without a barrier")
        return self.shared, places

    # -- asynchronous copies -----------------------------------------------------------------------

    def copy(self, target: str, source: str, size: int, count: np.ndarray, on) -> None:
        """Start copies of ``count`` bytes (the rest of ``size`` is 0) from global to shared."""
        threads = np.arange(self.threads)[on]
        _, places = self.bytes_at("shared", self.place(target, on), size, on)
        data = np.zeros((len(threads), size), np.uint8)
        addresses, some = self.place(source, on), count > 0
        if some.any():
            for part in self.memory.by_buffer(addresses[some]):
                chosen = np.flatnonzero(some)[part]
                memory, at = self.memory.find(addresses[chosen], size)
                data[chosen] = memory[at[:, None] + np.arange(size)]
        data[np.arange(size) >= count[:, None]] = 0
        rows = places[:, None] + np.arange(size)
        self.visible[rows] = _NOBODY
        self.copies.append(_Copies(threads, self.groups[threads], rows, data))

    def end_group(self, on) -> None:
        self.groups[on] += 1

    def wait_for_groups(self, pending: int, on) -> None:
        """Let the copies take place that are not of the last ``pending`` groups of the threads."""
        waiting = np.zeros(self.threads, bool)
        waiting[on] = True
        left = []
        for each in self.copies:
            done = waiting[each.threads] & (each.groups < self.groups[each.threads] - pending)
            self.shared[each.rows[done]] = each.data[done]
            self.visible[each.rows[done]] = each.threads[done, None]
            if not done.all():
                left.append(each.only(~done))
        self.copies = left


@dataclass(frozen=True)
class _Copies:
    """Copies that threads have started in a group, to the bytes ``rows`` of shared memory."""

    threads: np.ndarray
    groups: np.ndarray
    rows: np.ndarray
    data: np.ndarray

    def only(self, chosen: np.ndarray) -> _Copies:
        return _Copies(
            *(part[chosen] for part in (self.threads, self.groups, self.rows, self.data))
        )


def _register(operand: str) -> tuple[str, int]:
    found = re.fullmatch(r"%([A-Za-z]+)(\d*)", operand)
    if found is None:
        raise Fault(f"no register is called {operand}")
    return found[1], int(found[2] or 0)


def _register_word(kind: str):
    return bool if kind == "pred" else WORD[int(kind[1:]) // 8]


def _address(operand: str) -> tuple[str, int]:
    found = re.fullmatch(r"\[([%$\w]+)(?:\+(-?\d+))?\]", operand)
    if found is None:
        raise Fault(f"unknown address {operand}")
    return found[1], int(found[2] or 0)


def _immediate(operand: str, kind: str, kernel: Kernel):
    if operand == kernel.local:
        return np.uint64(_LOCAL).astype(dtype_of(kind))
    if operand in kernel.constants:
        return np.uint64(_CONSTANT + kernel.constants[operand]).astype(dtype_of(kind))
    if operand in kernel.shared:
        return np.uint64(kernel.shared[operand]).astype(dtype_of(kind))
    if kind == "pred":
        return bool(int(operand))
    dtype = dtype_of(kind)
    if operand.startswith("0f"):
        return np.uint32(int(operand[2:], 16)).view(dtype if dtype.itemsize == 4 else np.float32)
    if operand.startswith("0d"):
        return np.uint64(int(operand[2:], 16)).view(dtype)
    return np.uint64(int(operand.rstrip("U"), 0) % 2**64).astype(WORD[dtype.itemsize]).view(dtype)
