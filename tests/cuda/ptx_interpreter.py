"""Runs PTX on a machine without a GPU: all threads of a block in lockstep, registers as NumPy rows.

Threads that branch apart are run from the lowest place on until they meet again.  Arithmetic is
exact: one IEEE rounding an instruction, a true fma.  What is not known raises; so do reads and
writes outside a buffer, and barriers that only a part of a block reaches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numba
import numpy as np

from core_compiler.kernels.primitives import PRIMITIVES
from tests.cuda.ptx import Instruction, Kernel, read

_WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_KIND = {"f": "f", "s": "i", "u": "u", "b": "u"}
#: Where the first buffer lies: no small number is an address.
_FIRST = 1 << 40
#: Where each thread's own memory lies.
_LOCAL = 1 << 50


class Fault(Exception):
    """The program did something undefined; the message names the instruction."""


def launch(ptx: str, grid: int, threads: int, arguments: Sequence[np.ndarray | int]) -> None:
    """Run the entry of ``ptx`` on a grid of ``grid`` blocks of ``threads``; arrays are buffers in
    global memory (written in place), numbers are 64-bit parameters."""
    kernel = read(ptx)
    memory = _Global()
    values = [memory.add(a) if isinstance(a, np.ndarray) else int(a) for a in arguments]
    program = _Program(kernel)
    for block in range(grid):
        _Block(program, memory, values, block, grid, threads).run()


class _Global:
    """Buffers far apart, so that an access outside of one hits none."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.buffers: list[np.ndarray] = []
        self._next = _FIRST

    def add(self, array: np.ndarray) -> int:
        if not array.flags.c_contiguous:
            raise ValueError("buffers are contiguous")
        start, self._next = self._next, self._next + array.nbytes // 4096 * 4096 + 2 * 4096
        self.starts.append(start)
        self.buffers.append(array.reshape(-1).view(np.uint8))
        return start

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


class _Program:
    """The instructions as functions of (block, active threads), cut where control flow can go."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.steps = [_decode(kernel, i) for i in kernel.code]
        jumps = [n for n, i in enumerate(kernel.code) if i.opcode[0] in ("bra", "ret", "bar")]
        self.starts = sorted({0, *kernel.labels.values(), *(n + 1 for n in jumps)})
        self.end = len(kernel.code)


class _Block:
    def __init__(self, program, memory, values, block: int, grid: int, threads: int):
        self.program, self.memory, self.threads = program, memory, threads
        kernel = program.kernel
        self.parameters = dict(zip(kernel.parameters, values, strict=True))
        self.shared = np.full(kernel.shared_bytes, 0xA5, np.uint8)
        self.local = np.full((threads, kernel.local_bytes), 0xA5, np.uint8)
        self.registers = {
            prefix: np.zeros((count, threads), _register_word(kind))
            for prefix, (kind, count) in kernel.registers.items()
        }
        self.special = {
            "%tid.x": np.arange(threads, dtype=np.uint32), "%ctaid.x": np.uint32(block),
            "%ntid.x": np.uint32(threads), "%nctaid.x": np.uint32(grid),
            "%laneid": np.arange(threads, dtype=np.uint32) % 32,
        }  # fmt: skip

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
        wanted = _dtype(kind)
        if raw.dtype.itemsize != wanted.itemsize:
            raw = raw.astype(_WORD[wanted.itemsize])
        return np.ascontiguousarray(raw).view(wanted)

    def write(self, operand: str, values: np.ndarray, on) -> None:
        row = self._row(operand)
        if row.dtype == bool:
            row[on] = values
            return
        values = np.ascontiguousarray(values)
        raw = values.view(_WORD[values.dtype.itemsize])
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

    def bytes_at(self, space: str, addresses: np.ndarray, size: int, on):
        """The memory that the addresses are of, and their places in it."""
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
        return self.shared, places


def _register(operand: str) -> tuple[str, int]:
    found = re.fullmatch(r"%([A-Za-z]+)(\d*)", operand)
    if found is None:
        raise Fault(f"no register is called {operand}")
    return found[1], int(found[2] or 0)


def _register_word(kind: str):
    return bool if kind == "pred" else _WORD[int(kind[1:]) // 8]


def _dtype(kind: str) -> np.dtype:
    return np.dtype(f"{_KIND[kind[0]]}{int(kind[1:]) // 8}")


def _address(operand: str) -> tuple[str, int]:
    found = re.fullmatch(r"\[([%$\w]+)(?:\+(-?\d+))?\]", operand)
    if found is None:
        raise Fault(f"unknown address {operand}")
    return found[1], int(found[2] or 0)


def _immediate(operand: str, kind: str, kernel: Kernel):
    if operand == kernel.local:
        return np.uint64(_LOCAL).astype(_dtype(kind))
    if operand in kernel.shared:
        return np.uint64(kernel.shared[operand]).astype(_dtype(kind))
    if kind == "pred":
        return bool(int(operand))
    dtype = _dtype(kind)
    if operand.startswith("0f"):
        return np.uint32(int(operand[2:], 16)).view(dtype if dtype.itemsize == 4 else np.float32)
    if operand.startswith("0d"):
        return np.uint64(int(operand[2:], 16)).view(dtype)
    return np.uint64(int(operand, 0) % 2**64).astype(_WORD[dtype.itemsize]).view(dtype)


# -- instructions ----------------------------------------------------------------------------------

_Step = Callable[[_Block, object], None]


def _decode(kernel: Kernel, instruction: Instruction) -> _Step:
    name, *words = instruction.opcode
    maker = _MAKERS.get(name)
    if maker is None:
        return _refuse(instruction)
    made = maker(words, instruction.operands, kernel)
    return _refuse(instruction) if made is None else made


def _refuse(instruction: Instruction) -> _Step:
    def step(block, on):
        raise Fault("this instruction is not known to the interpreter")

    return step


def _elementwise(kind: str, result: str | None, operands, function) -> _Step:
    target, *sources = operands

    def step(block, on):
        values = [block.read(s, kind, on) for s in sources]
        made = function(*values)
        if result is not None:
            made = made.astype(_dtype(result), copy=False)
        block.write(target, made, on)

    return step


_FMA32, _FMA64 = PRIMITIVES["fma_f32"], PRIMITIVES["fma_f64"]


@numba.vectorize(["float32(float32, float32, float32)"])
def _fma32(a, b, c):
    return _FMA32(a, b, c)


@numba.vectorize(["float64(float64, float64, float64)"])
def _fma64(a, b, c):
    return _FMA64(a, b, c)


def _is_float(kind: str) -> bool:
    return kind[0] == "f"


def _binary(function, rounded: bool = True):
    """Arithmetic of integers, and of floats where the instruction says how it rounds."""

    def make(words, operands, kernel):
        *how, kind = words
        if _is_float(kind):
            return _elementwise(kind, kind, operands, function) if how == ["rn"] else None
        return _elementwise(kind, kind, operands, function) if not how else None

    return make


def _mul(words, operands, kernel):
    *how, kind = words
    if _is_float(kind):
        return _elementwise(kind, kind, operands, np.multiply) if how == ["rn"] else None
    if how == ["lo"]:
        return _elementwise(kind, kind, operands, np.multiply)
    bits = int(kind[1:])
    if how == ["wide"]:
        wide = f"{kind[0]}{2 * bits}"
        return _elementwise(
            kind, wide, operands, lambda a, b: a.astype(_dtype(wide)) * b.astype(_dtype(wide))
        )
    if how == ["hi"]:

        def high(a, b):
            product = a.astype(object) * b.astype(object)
            return (product >> bits).astype(_dtype(kind))

        return _elementwise(kind, kind, operands, high)
    return None


def _mad(words, operands, kernel):
    *how, kind = words
    if _is_float(kind):
        return None
    if how == ["lo"]:
        return _elementwise(kind, kind, operands, lambda a, b, c: a * b + c)
    if how != ["wide"]:
        return None
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    target, a, b, c = operands

    def step(block, on):
        x, y = (block.read(s, kind, on).astype(_dtype(wide)) for s in (a, b))
        block.write(target, x * y + block.read(c, wide, on), on)

    return step


def _fma(words, operands, kernel):
    functions = {("rn", "f32"): _fma32, ("rn", "f64"): _fma64}
    function = functions.get(tuple(words))
    return None if function is None else _elementwise(words[-1], None, operands, function)


def _quotient(a, b):
    """Truncated; the remainder has the dividend's sign."""
    if np.any(b == 0):
        raise Fault("an integer division by zero")
    return np.where((a < 0) != (b < 0), -(abs(a) // abs(b)), abs(a) // abs(b)).astype(a.dtype)


def _div(words, operands, kernel):
    *how, kind = words
    if _is_float(kind):
        return _elementwise(kind, kind, operands, np.divide) if how == ["rn"] else None
    return _elementwise(kind, kind, operands, _quotient)


def _rem(words, operands, kernel):
    kind = words[-1]
    return _elementwise(kind, kind, operands, lambda a, b: a - _quotient(a, b) * b)


def _sqrt(words, operands, kernel):
    *how, kind = words
    return _elementwise(kind, kind, operands, np.sqrt) if how == ["rn"] else None


def _rcp(words, operands, kernel):
    *how, kind = words
    return _elementwise(kind, kind, operands, lambda x: 1 / x) if how == ["rn"] else None


def _copysign(words, operands, kernel):
    """The size of the second operand with the sign of the first."""
    return _elementwise(words[-1], words[-1], operands, lambda a, b: np.copysign(b, a))


def _extreme(function):
    """Of floats: the other operand where one is NaN, and -0 below +0."""

    def number(a, b):
        larger = function is np.maximum
        first = (a > b) == larger
        tie = (a == b) & (np.signbit(a) != larger)
        made = np.where((first & (a != b)) | tie | np.isnan(b), a, b)
        return np.where(np.isnan(a), b, made)

    def make(words, operands, kernel):
        *how, kind = words
        if how:
            return None
        return _elementwise(kind, kind, operands, number if _is_float(kind) else function)

    return make


def _neg(words, operands, kernel):
    kind = words[-1]
    if words[:-1]:
        return None
    return _elementwise(kind, kind, operands, np.negative)


def _abs(words, operands, kernel):
    return None if words[:-1] else _elementwise(words[-1], words[-1], operands, np.abs)


def _logic(function):
    def make(words, operands, kernel):
        (kind,) = words
        if kind != "pred":
            return _elementwise(kind, kind, operands, function)
        target, *sources = operands

        def step(block, on):
            block.write(target, function(*(block.read(s, "pred", on) for s in sources)), on)

        return step

    return make


def _not(words, operands, kernel):
    (kind,) = words
    if kind != "pred":
        return _elementwise(kind, kind, operands, np.invert)
    target, source = operands

    def step(block, on):
        block.write(target, ~block.read(source, "pred", on), on)

    return step


def _shift(left: bool):
    """Counts at or above the width give 0, or the sign of a signed right shift."""

    def make(words, operands, kernel):
        (kind,) = words
        bits = int(kind[1:])
        target, value, count = operands

        def step(block, on):
            x = block.read(value, kind, on)
            n = block.read(count, "u32", on).astype(np.int64)
            inside = np.minimum(n, bits - 1).astype(x.dtype)
            if left:
                made = np.where(n < bits, x << inside, 0)
            else:
                beyond = np.where(x < 0, -1, 0) if kind[0] == "s" else 0
                made = np.where(n < bits, x >> inside, beyond)
            block.write(target, made.astype(x.dtype), on)

        return step

    return make


_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater,
    "hs": np.greater_equal,
}  # fmt: skip


def _comparison(name: str, kind: str):
    """The test of ``setp``; on floats ``equ``, ``neu``, ... are true of a NaN too."""
    if not _is_float(kind):
        return _COMPARE.get(name)
    if name in ("nan", "num"):
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == (name == "nan")
    ordered = _COMPARE.get(name.removesuffix("u"))
    if ordered is None:
        return None
    if name.endswith("u"):
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    if name == "ne":
        return lambda a, b: ordered(a, b) & ~np.isnan(a) & ~np.isnan(b)
    return ordered


def _setp(words, operands, kernel):
    name, *how, kind = words
    test = _comparison(name, kind)
    if test is None or how not in ([], ["and"], ["or"], ["xor"]):
        return None
    target, a, b, *also = operands
    combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}

    def step(block, on):
        made = test(block.read(a, kind, on), block.read(b, kind, on))
        if also:
            made = combine[how[0]](made, block.read(also[0], "pred", on))
        block.write(target, made, on)

    return step


def _selp(words, operands, kernel):
    (kind,) = words
    target, yes, no, condition = operands

    def step(block, on):
        chosen = block.read(condition, "pred", on)
        block.write(
            target, np.where(chosen, block.read(yes, kind, on), block.read(no, kind, on)), on
        )

    return step


def _mov(words, operands, kernel):
    (kind,) = words
    target, source = operands
    if source.startswith("{"):
        parts = [p.strip() for p in source[1:-1].split(",")]
        small = f"u{int(kind[1:]) // len(parts)}"

        def pack(block, on):
            made = np.stack([block.read(p, small, on) for p in parts], axis=-1)
            block.write(target, np.ascontiguousarray(made).view(_dtype(kind))[..., 0], on)

        return pack
    if target.startswith("{"):
        names = [p.strip() for p in target[1:-1].split(",")]
        small = f"u{int(kind[1:]) // len(names)}"

        def unpack(block, on):
            values = np.ascontiguousarray(block.read(source, kind, on)).view(_dtype(small))
            for lane, name in enumerate(names):
                if name != "_":
                    block.write(name, values.reshape(-1, len(names))[:, lane], on)

        return unpack

    def step(block, on):
        block.write(target, block.read(source, kind, on), on)

    return step


_TO_INTEGRAL = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


def _saturated(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Whole floats as integers; beyond the range the nearest, NaN 0."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    wide = values.astype(np.float64)
    inside = (wide > float(low)) & (wide < float(high))
    made = np.where(inside, wide, 0).astype(dtype)
    made = np.where(wide >= float(high), np.array(high, dtype), made)
    made = np.where(wide <= float(low), np.array(low, dtype), made)
    return np.where(np.isnan(wide), np.array(0, dtype), made)


def _cvt(words, operands, kernel):
    *how, result, source = words
    target, operand = operands
    to, of = _dtype(result), _dtype(source)
    if any(h not in ("rn", *_TO_INTEGRAL) for h in how) or len(how) > 1:
        return None
    whole = _TO_INTEGRAL.get(how[0]) if how else None

    def step(block, on):
        values = block.read(operand, source, on)
        if to.kind == "f":
            made = values if whole is None else whole(values)
            made = made.astype(to)
        elif of.kind == "f":
            made = _saturated(whole(values), to)
        else:
            made = values.astype(to)
            word = _row_word(block, target)
            if word.itemsize > to.itemsize:  # a wider register holds the extended value
                signed = np.dtype(f"{to.kind}{word.itemsize}")
                made = made.astype(signed)
        block.write(target, made, on)

    if of.kind == "f" and to.kind != "f" and whole is None:
        return None
    return step


def _row_word(block: _Block, operand: str) -> np.dtype:
    return block._row(operand).dtype


def _cvta(words, operands, kernel):
    target, source = operands

    def step(block, on):
        block.write(target, block.read(source, words[-1], on), on)

    return step


def _lanes(operand: str) -> list[str]:
    if operand.startswith("{"):
        return [p.strip() for p in operand[1:-1].split(",")]
    return [operand]


def _space(words) -> tuple[str, str]:
    """(memory space, type) of a load or store."""
    space = words[0] if words[0] in ("global", "shared", "param", "local") else "generic"
    return space, words[-1]


def _ld(words, operands, kernel):
    space, kind = _space(words)
    target, address = operands
    names, size = _lanes(target), int(kind[1:]) // 8
    if space == "param":
        name = address[1:-1]

        def parameter(block, on):
            count = block.threads if isinstance(on, slice) else len(on)
            value = np.uint64(block.parameters[name] % 2**64)
            block.write(target, np.full(count, value).astype(_dtype(kind)), on)

        return parameter

    def step(block, on):
        whole = size * len(names)
        memory, places = block.bytes_at(space, block.place(address, on), whole, on)
        for lane, name in enumerate(names):
            rows = places[:, None] + np.arange(lane * size, (lane + 1) * size)
            made = np.ascontiguousarray(memory[rows]).view(_dtype(kind))[:, 0]
            word = _row_word(block, name)
            if word.itemsize > size:
                made = made.astype(f"{made.dtype.kind}{word.itemsize}")
            block.write(name, made, on)

    return step


def _st(words, operands, kernel):
    space, kind = _space(words)
    address, source = operands
    names, size = _lanes(source), int(kind[1:]) // 8

    def step(block, on):
        whole = size * len(names)
        memory, places = block.bytes_at(space, block.place(address, on), whole, on)
        for lane, name in enumerate(names):
            values = np.ascontiguousarray(block.read(name, kind, on))
            rows = places[:, None] + np.arange(lane * size, (lane + 1) * size)
            memory[rows] = values.view(np.uint8).reshape(-1, size)

    return step


def _control(words, operands, kernel):
    return lambda block, on: None


_MAKERS: dict[str, Callable] = {
    "abs": _abs, "add": _binary(np.add), "and": _logic(np.bitwise_and), "bar": _control,
    "bra": _control, "copysign": _copysign, "cvt": _cvt, "cvta": _cvta, "div": _div, "fma": _fma,
    "ld": _ld, "mad": _mad, "max": _extreme(np.maximum), "min": _extreme(np.minimum), "mov": _mov,
    "mul": _mul, "neg": _neg, "not": _not, "or": _logic(np.bitwise_or), "rcp": _rcp, "rem": _rem,
    "ret": _control, "selp": _selp, "setp": _setp, "shl": _shift(True), "shr": _shift(False),
    "sqrt": _sqrt, "st": _st, "sub": _binary(np.subtract), "xor": _logic(np.bitwise_xor),
}  # fmt: skip
