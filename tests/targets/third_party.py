"""A target of somebody else: a machine that runs byte programs, beside a host.

It claims ``core.matmul`` of f32, turns its kernel (plain loops, whose order of accumulation is the
numerics contract's) into a byte program, and simulates that.  It imports nothing but what any
package may, and is found by its entry point (``test_third_party.py`` installs it).

A program is a row of 16-byte instructions, little-endian: ``opcode d a b`` as u16, ``c`` as i64.
Registers hold an integer or an f32; the first hold the index arguments of the launch.

    opcode   effect                          opcode   effect
    0 HALT                                   7 EQ     R[d] = R[a] == R[b]
    1 INT    R[d] = c                        8 SELECT R[d] = R[a] ? R[b] : R[c]
    2 FLOAT  R[d] = f32 with bits c          9 FMA    R[d] = R[a] * R[b] + R[c], rounded once
    3 MOVE   R[d] = R[a]                    10 ADDF   R[d] = R[a] + R[b], rounded to f32
    4 ADD    R[d] = R[a] + R[b]             11 LOAD   R[d] = buffer a [R[b]]
    5 MUL    R[d] = R[a] * R[b]             12 STORE  buffer a [R[b]] = R[d]
    6 MIN    R[d] = min(R[a], R[b])         13 UNTIL  jump to instruction c if R[a] >= R[b]
                                            14 JUMP   jump to instruction c
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass

import numpy as np

from core_compiler.ir import BufferType, Function, IndexType, Value, dtype
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments
from core_compiler.kernel_ir.ops import access
from core_compiler.runtime.program import KernelRef
from core_compiler.runtime.stepped import SteppedDevice
from core_compiler.support.errors import UserError
from core_compiler.targets.cpu import CPU
from core_compiler.targets.hosted import HostedTarget

NAMES = (
    "HALT",
    "INT",
    "FLOAT",
    "MOVE",
    "ADD",
    "MUL",
    "MIN",
    "EQ",
    "SELECT",
    "FMA",
    "ADDF",
    "LOAD",
    "STORE",
    "UNTIL",
    "JUMP",
)
CODE = {name: number for number, name in enumerate(NAMES)}
INSTRUCTION = struct.Struct("<HHHHq")
LEGAL = frozenset(
    f"kernel.{name}"
    for name in ("constant", "for", "load", "store", "fma", "add", "min", "mul", "eq", "select")
)


class Assembler:
    """One walk over a kernel: every value gets a register, every loop a backward jump."""

    def __init__(self, kernel: Function):
        self.registers: dict[Value, int] = {}
        self.buffers = {v: n for n, v in enumerate(buffer_arguments(kernel))}
        self.sizes = {v.name: v for v in index_arguments(kernel)}
        self.code: list[list[int]] = []
        for value in index_arguments(kernel):
            self.register(value)
        self.block(kernel.body)
        self.emit("HALT")

    def register(self, value: object) -> int:
        return self.registers.setdefault(value, len(self.registers))

    def emit(self, name: str, d=0, a=0, b=0, c=0) -> list[int]:
        self.code.append([CODE[name], d, a, b, c])
        return self.code[-1]

    def block(self, block) -> None:
        for op in block.ops:
            kind = op.kind.split(".")[1]
            if kind in ("for", "load", "store", "constant"):
                getattr(self, f"_{kind}")(op)
                continue
            whole = isinstance(op.operands[-1].type, IndexType)
            name = "ADDF" if kind == "add" and not whole else kind.upper()
            self.emit(name, self.register(op.result), *map(self.register, op.operands))

    def _constant(self, op) -> None:
        if isinstance(op.result.type, IndexType):
            self.emit("INT", self.register(op.result), c=op["value"])
        else:
            bits = int(np.float32(op["value"]).view(np.uint32))
            self.emit("FLOAT", self.register(op.result), c=bits)

    def _for(self, op) -> None:
        body = op.regions[0]
        counter, *carried = map(self.register, body.arguments)
        lower, upper, step, *initial = map(self.register, op.operands)
        for to, source in zip((counter, *carried), (lower, *initial), strict=True):
            self.emit("MOVE", to, source)
        top = len(self.code)
        leave = self.emit("UNTIL", 0, counter, upper)
        self.block(body)
        # Two moves, for the next carried values may be the old ones in another order.
        spare = [self.register((op, n)) for n in range(len(carried))]
        for to, value in zip(spare, body.outputs, strict=True):
            self.emit("MOVE", to, self.register(value))
        for to, source in zip(carried, spare, strict=True):
            self.emit("MOVE", to, source)
        self.emit("ADD", counter, counter, step)
        self.emit("JUMP", c=top)
        leave[4] = len(self.code)
        for value, source in zip(op.results, carried, strict=True):
            self.emit("MOVE", self.register(value), source)

    def _load(self, op) -> None:
        self.emit("LOAD", self.register(op.result), *self.address(op))

    def _store(self, op) -> None:
        self.emit("STORE", self.register(op.operands[0]), *self.address(op))

    def address(self, op) -> tuple[int, int]:
        """(buffer, register of the element): the sum of index times stride."""
        buffer, indices = access(op)
        kind: BufferType = buffer.type
        total, term = self.register((op, "address")), self.register((op, "term"))
        self.emit("INT", total, c=0)
        for index, stride in zip(indices, kind.strides, strict=True):
            if isinstance(stride, str):
                self.emit("MUL", term, self.register(index), self.register(self.sizes[stride]))
            else:
                self.emit("INT", term, c=stride)
                self.emit("MUL", term, self.register(index), term)
            self.emit("ADD", total, total, term)
        return self.buffers[buffer], total


def encode(kernel: Function) -> bytes:
    return b"".join(INSTRUCTION.pack(*row) for row in Assembler(kernel).code)


def disassemble(code: bytes) -> str:
    rows = enumerate(INSTRUCTION.iter_unpack(code))
    return "\n".join(f"{n:4} {NAMES[o]:6} {d:3} {a:3} {b:3} {c}" for n, (o, d, a, b, c) in rows)


def fma(a: float, b: float, c: float) -> float:
    """a * b + c of f32 numbers, rounded once to f32.

    The product is exact in f64; the sum is rounded to odd there, after which rounding to f32 is
    right (Boldo, Melquiond: "Emulation of a FMA and correctly rounded sums", 2008).
    """
    product = a * b
    total = product + c
    if math.isfinite(total):
        rest = total - product
        error = (product - (total - rest)) + (c - rest)
        if error and not struct.unpack("<q", struct.pack("<d", total))[0] & 1:
            total = math.nextafter(total, math.copysign(math.inf, error))
    return float(np.float32(total))


def simulate(code: bytes, memories, indices) -> int:
    """Run a program on buffers (bytes) and index arguments; the number of instructions executed."""
    with np.errstate(over="ignore"):
        return _simulate(list(INSTRUCTION.iter_unpack(code)), memories, indices)


def _simulate(rows, memories, indices) -> int:
    buffers = [m[: m.size // 4 * 4].view(np.float32) for m in memories]
    r: list = [*indices, *[0] * (1 << 16)]
    at = steps = 0
    while rows[at][0] != CODE["HALT"]:
        name, d, a, b, c = NAMES[rows[at][0]], *rows[at][1:]
        at, steps = at + 1, steps + 1
        match name:
            case "INT":
                r[d] = c
            case "FLOAT":
                r[d] = float(np.uint32(c).view(np.float32))
            case "MOVE":
                r[d] = r[a]
            case "ADD":
                r[d] = r[a] + r[b]
            case "MUL":
                r[d] = r[a] * r[b]
            case "MIN":
                r[d] = min(r[a], r[b])
            case "EQ":
                r[d] = r[a] == r[b]
            case "SELECT":
                r[d] = r[b] if r[a] else r[c]
            case "FMA":
                r[d] = fma(r[a], r[b], r[c])
            case "ADDF":
                r[d] = float(np.float32(r[a] + r[b]))
            case "LOAD":
                r[d] = float(buffers[a][r[b]])
            case "STORE":
                buffers[a][r[b]] = r[d]
            case "UNTIL":
                at = c if r[a] >= r[b] else at
            case "JUMP":
                at = c
    return steps


@dataclass(frozen=True)
class ByteCode:
    """An assembled kernel, as the compiler keeps it."""

    code: bytes
    ref: KernelRef
    seconds: float = 0.0
    cached: bool = False

    def text(self, file: str) -> str:
        return disassemble(self.code) if file == "kernel.s" else ""


class Bytes(HostedTarget):
    """A simulated machine that runs byte programs."""

    name = "bytes"
    summary = "simulated byte programs for products; the processor runs the rest"

    def __init__(self):
        self.host = CPU()
        self.loaded: dict[str, ByteCode] = {}

    def claims(self, op) -> bool:
        return op.kind == "core.matmul" and op.result.type.dtype is dtype("f32")

    def legal(self, level: str):
        return LEGAL if level == "kernel" else None

    def assemble(self, kernel: Function) -> ByteCode:
        code = encode(kernel)
        if len(code) >= 1 << 20:
            raise UserError("the program is too long", f"kernel {kernel.name}", "use -t cpu")
        key = hashlib.sha256(code).hexdigest()
        self.loaded[key] = ByteCode(code, KernelRef(kernel.name, key, self.name))
        return self.loaded[key]

    def device(self, threads: int = 0, **options) -> SteppedDevice:
        def run(code):
            return lambda memories, indices: simulate(code, memories, indices)

        kernels = {key: run(made.code) for key, made in self.loaded.items()}
        return SteppedDevice(self.name, kernels, self.host.device(threads=threads))
