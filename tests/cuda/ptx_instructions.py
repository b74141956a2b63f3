"""What PTX's instructions do, each a function of a block and the threads that run it.

A maker per opcode reads the words behind the dot and answers the function, or None for a form that
it does not know.  Arithmetic is exact: one IEEE rounding an instruction, a true fma.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np

from core_compiler.numerics.primitives import PRIMITIVES
from tests.cuda.ptx import Instruction, Kernel

WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_KIND = {"f": "f", "s": "i", "u": "u", "b": "u"}


class Fault(Exception):
    """The program did something undefined; the message names the instruction."""


def dtype_of(kind: str) -> np.dtype:
    return np.dtype(f"{_KIND[kind[0]]}{int(kind[1:]) // 8}")


#: What an instruction does to a block (the interpreter's), for the threads it is active in.
Step = Callable[[Any, Any], None]


def decode(kernel: Kernel, instruction: Instruction) -> Step:
    name, *words = instruction.opcode
    maker = _MAKERS.get(name)
    if maker is None:
        return _refuse(instruction)
    made = maker(words, instruction.operands, kernel)
    return _refuse(instruction) if made is None else made


def _refuse(instruction: Instruction) -> Step:
    def step(block, on):
        raise Fault("this instruction is not known to the interpreter")

    return step


def _elementwise(kind: str, result: str | None, operands, function) -> Step:
    target, *sources = operands

    def step(block, on):
        values = [block.read(s, kind, on) for s in sources]
        made = function(*values)
        if result is not None:
            made = made.astype(dtype_of(result), copy=False)
        block.write(target, made, on)

    return step


_FMA32, _FMA64 = PRIMITIVES["fma_f32"], PRIMITIVES["fma_f64"]


@cache
def _compiled(kind: str):
    """x y + z, rounded once, compiled where it is first asked for."""
    primitive = {"float32": _FMA32, "float64": _FMA64}[kind]
    return numba.vectorize([f"{kind}({kind}, {kind}, {kind})"])(lambda a, b, c: primitive(a, b, c))


def _fma32(a, b, c):
    return _compiled("float32")(a, b, c)


def _fma64(a, b, c):
    return _compiled("float64")(a, b, c)


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
            kind, wide, operands, lambda a, b: a.astype(dtype_of(wide)) * b.astype(dtype_of(wide))
        )
    if how == ["hi"]:

        def high(a, b):
            product = a.astype(object) * b.astype(object)
            return (product >> bits).astype(dtype_of(kind))

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
        x, y = (block.read(s, kind, on).astype(dtype_of(wide)) for s in (a, b))
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
    sizes = [abs(v).view(f"u{v.dtype.itemsize}") for v in (a, b)]  # the least number's too
    size = (sizes[0] // sizes[1]).view(a.dtype)
    return np.where((a < 0) != (b < 0), -size, size).astype(a.dtype)


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
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


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
            block.write(target, np.ascontiguousarray(made).view(dtype_of(kind))[..., 0], on)

        return pack
    if target.startswith("{"):
        names = [p.strip() for p in target[1:-1].split(",")]
        small = f"u{int(kind[1:]) // len(names)}"

        def unpack(block, on):
            values = np.ascontiguousarray(block.read(source, kind, on)).view(dtype_of(small))
            for lane, name in enumerate(names):
                if name != "_":
                    block.write(name, values.reshape(-1, len(names))[:, lane], on)

        return unpack

    def step(block, on):
        block.write(target, block.read(source, kind, on), on)

    return step


_TO_INTEGRAL = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


def _saturated(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Whole floats as integers; beyond the range the nearest.  NaN is 0 where both are of 32 bits
    or fewer, else the top bit alone (PTX ISA 9.0, "cvt")."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    wide = values.astype(np.float64)
    inside = (wide > float(low)) & (wide < float(high))
    made = np.where(inside, wide, 0).astype(dtype)
    made = np.where(wide >= float(high), np.array(high, dtype), made)
    made = np.where(wide <= float(low), np.array(low, dtype), made)
    least = max(values.dtype.itemsize, dtype.itemsize) > 4
    nan = np.array(int(least) << (8 * dtype.itemsize - 1), f"u{dtype.itemsize}").view(dtype)
    return np.where(np.isnan(wide), nan, made)


def _cvt(words, operands, kernel):
    *how, result, source = words
    target, operand = operands
    to, of = dtype_of(result), dtype_of(source)
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


def _row_word(block, operand: str) -> np.dtype:
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
    space = words[0] if words[0] in ("global", "shared", "param", "local", "const") else "generic"
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
            block.write(target, np.full(count, value).astype(dtype_of(kind)), on)

        return parameter

    def step(block, on):
        # All addresses first: a load may overwrite the register that they came from.
        parts = list(block.accessed(space, address, size * len(names), on))
        for memory, places, some in parts:
            for lane, name in enumerate(names):
                rows = places[:, None] + np.arange(lane * size, (lane + 1) * size)
                made = np.ascontiguousarray(memory[rows]).view(dtype_of(kind))[:, 0]
                word = _row_word(block, name)
                if word.itemsize > size:
                    made = made.astype(f"{made.dtype.kind}{word.itemsize}")
                block.write(name, made, some)

    return step


def _st(words, operands, kernel):
    space, kind = _space(words)
    address, source = operands
    names, size = _lanes(source), int(kind[1:]) // 8

    def step(block, on):
        for memory, places, some in block.accessed(space, address, size * len(names), on):
            for lane, name in enumerate(names):
                values = np.ascontiguousarray(block.read(name, kind, some))
                rows = places[:, None] + np.arange(lane * size, (lane + 1) * size)
                memory[rows] = values.view(np.uint8).reshape(-1, size)

    return step


def _bfi(words, operands, kernel):
    """The low bits of the first operand put into the second, from a position on."""
    (kind,) = words
    target, bits, base, start, length = operands

    def step(block, on):
        x, y = block.read(bits, kind, on), block.read(base, kind, on)
        wide = x.dtype.itemsize * 8
        at, count = (block.read(v, "u32", on).astype(np.uint64) & 255 for v in (start, length))
        ones = np.where(count >= 64, np.uint64(2**64 - 1), (np.uint64(1) << (count & 63)) - 1)
        mask = np.where(at >= wide, 0, ones << (at & 63)).astype(x.dtype)
        moved = np.where(at >= wide, 0, x << (at & (wide - 1)).astype(x.dtype)).astype(x.dtype)
        block.write(target, (y & ~mask) | (moved & mask), on)

    return step


def _prmt(words, operands, kernel):
    """Four bytes picked from those of two words; a choice's top bit spreads the byte's sign."""
    if words != ["b32"]:
        return None
    target, low, high, choice = operands

    def step(block, on):
        parts = [block.read(v, "u32", on).astype(np.uint64) for v in (low, high, choice)]
        pool, made = parts[0] | parts[1] << np.uint64(32), np.zeros_like(parts[0])
        for place in range(4):
            pick = parts[2] >> np.uint64(4 * place) & np.uint64(15)
            byte = pool >> (pick & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            made |= np.where(pick & np.uint64(8), sign, byte) << np.uint64(8 * place)
        block.write(target, made.astype(np.uint32), on)

    return step


def _dot(words, operands, kernel):
    """``dp4a``: the products of four bytes each, and the third operand, summed; ``dp2a``: of two
    halves of the first word and the two lower (or upper) bytes of the second."""
    target, a, b, c = operands
    *part, first, second = words
    wide = "2" if part else "1"
    kinds = [np.dtype(("i" if k[0] == "s" else "u") + w) for k, w in ((first, wide), (second, "1"))]
    bytes_used = {"lo": slice(0, 2), "hi": slice(2, 4)}[part[0]] if part else slice(0, 4)

    def step(block, on):
        words_of = [np.ascontiguousarray(block.read(v, "u32", on)) for v in (a, b)]
        x, y = (w.view(kind).reshape(len(w), -1) for w, kind in zip(words_of, kinds, strict=True))
        products = x.astype(np.int64) * y[:, bytes_used].astype(np.int64)
        total = products.sum(axis=1) + block.read(c, "s32", on).astype(np.int64)
        block.write(target, total.astype(np.int32), on)

    return step


def _cp(words, operands, kernel):
    """``cp.async``: a copy to shared memory by itself, the end of a group of them, and waiting."""
    if words[:1] != ["async"]:
        return None
    what = words[1:]
    if what == ["commit_group"]:
        return lambda block, on: block.end_group(on)
    if what == ["wait_group"]:
        return lambda block, on: block.wait_for_groups(int(operands[0]), on)
    if what != ["ca", "shared", "global"]:
        return None
    target, source, size, *count = operands

    def step(block, on):
        bytes_ = block.read(count[0] if count else size, "u32", on)
        block.copy(target, source, int(size), bytes_, on)

    return step


def _control(words, operands, kernel):
    return lambda block, on: None


_MAKERS: dict[str, Callable] = {
    "abs": _abs, "add": _binary(np.add), "and": _logic(np.bitwise_and), "bar": _control,
    "bfi": _bfi, "bra": _control, "copysign": _copysign, "cp": _cp, "cvt": _cvt, "cvta": _cvta,
    "div": _div, "dp2a": _dot, "dp4a": _dot, "fma": _fma, "ld": _ld, "mad": _mad,
    "max": _extreme(np.maximum), "min": _extreme(np.minimum), "mov": _mov, "mul": _mul,
    "neg": _neg, "not": _not, "or": _logic(np.bitwise_or), "prmt": _prmt, "rcp": _rcp,
    "rem": _rem, "ret": _control, "selp": _selp, "setp": _setp, "shl": _shift(True),
    "shr": _shift(False), "sqrt": _sqrt, "st": _st, "sub": _binary(np.subtract),
    "xor": _logic(np.bitwise_xor),
}  # fmt: skip
