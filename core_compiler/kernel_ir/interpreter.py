"""The interpreter of kernels on NumPy buffers, bit for bit as the numerics contract specifies.

It is the oracle for schedules and code generators, with which it shares no code generation. A
kernel is translated to plain Python over NumPy scalars and vectors (f32 arithmetic of NumPy rounds
once); fma, conversions and elementary functions call the contract's scalar functions. It checks the
bounds of every access, reads of scratch and of outputs before they are written, stores of two
iterations of a parallel loop to one element, and ``unrolled`` loops without constant bounds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from core_compiler.ir import Block, BufferType, Function, Op, Value, VectorType
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.ops import (
    CONCURRENT,
    access,
    count_operand,
    definition,
    element,
    lane_axis,
    substitute_operands,
)
from core_compiler.kernel_ir.views import (
    Call,
    Constant,
    Extract,
    For,
    Invoke,
    Shuffle,
    View,
    loop_kind,
)
from core_compiler.support.arrays import strided
from core_compiler.support.errors import InternalError


class KernelFault(InternalError):
    """Raised for undefined behaviour of a kernel: out of bounds, unwritten data, a race."""


def interpret(
    function: Function,
    buffers: Sequence[np.ndarray],
    sizes: Sequence[int],
    reverse: bool = False,
    functions: Mapping[str, Function] | None = None,
) -> None:
    """Run ``function``; buffers that it stores to are modified in place.

    ``buffers``: one array for each buffer argument, in order: the memory that the argument's
    strides and offset address, from its first element on (any shape, contiguous). ``sizes``: the
    index arguments. ``reverse`` runs the iterations of parallel loops backwards, which must not
    change a bit. ``functions`` are the kernels that ``kernel.invoke`` names. Raise
    :class:`KernelFault` with the op at fault.
    """
    functions = functions or {}
    source, lines, constants = _translated(function)
    arguments = [v for v in function.arguments if isinstance(v.type, BufferType)]
    indices = [v for v in function.arguments if v.type is INDEX]
    if len(buffers) != len(arguments) or len(sizes) != len(indices):
        raise InternalError(f"{function.name} takes {len(arguments)} buffers, {len(indices)} sizes")
    named = {str(v.name): int(s) for v, s in zip(indices, sizes, strict=True)}
    stored = stored_buffers(function, functions)
    views = [
        _Memory(_view(a, v.type, named), v in stored)
        for v, a in zip(arguments, buffers, strict=True)
    ]
    state = _State(reverse, functions)
    try:
        with np.errstate(all="ignore"):
            _code(source)(views, [int(s) for s in sizes], state, constants)
    except (IndexError, ZeroDivisionError, KernelFault) as error:
        trace, line = error.__traceback__, None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<kernel interpreter>":
                line = trace.tb_lineno
            trace = trace.tb_next
        at = "" if (op := lines.get(line)) is None else f"{op}: "
        raise KernelFault(f"{function.name}: {at}{error}") from None


def stored_buffers(function: Function, functions: Mapping[str, Function]) -> set[Value]:
    """Return the buffers that a kernel, or one that it invokes, stores to."""
    stored, whole = set(), {}
    for op in function.body.walk():
        if op.kind == "kernel.view":
            whole[op.result] = op.operands[0]
        elif op.kind == "kernel.store":
            stored.add(whole.get(access(op)[0], access(op)[0]))
        elif op.kind == "kernel.invoke":
            callee = functions[Invoke.of(op).callee]
            theirs = stored_buffers(callee, functions)
            pairs = zip(op.operands, callee.arguments, strict=True)
            stored.update(whole.get(mine, mine) for mine, own in pairs if own in theirs)
    return stored


class _State:
    """The current iteration of the outermost parallel loop, and the order of iterations."""

    def __init__(self, reverse: bool, functions: Mapping[str, Function]):
        self.iteration, self.reverse, self.depth = 0, reverse, 0
        self.functions = functions

    def invoke(self, callee: str, buffers: list, sizes: list) -> None:
        function = self.functions.get(callee)
        if function is None:
            raise KernelFault(f"unknown kernel {callee!r}")
        source, _, constants = _translated(function)
        _code(source)(buffers, sizes, self, constants)

    def parallel(self, lower: int, upper: int, step: int):
        span = range(lower, upper, step)
        outermost = self.depth == 0
        self.depth += 1
        for i in reversed(span) if self.reverse else span:
            if outermost:
                self.iteration += 1
            yield i
        self.depth -= 1


def _first(where: tuple, bad: Any) -> tuple[int, ...]:
    """Return the indices of the first ``bad`` element of those that ``where`` selects."""
    inside = iter(np.argwhere(bad)[0] if np.ndim(bad) else ())
    return tuple(
        i.start + int(next(inside)) * (i.step or 1) if isinstance(i, slice) else int(i)
        for i in where
    )


def _merged(array: np.ndarray, count: int) -> np.ndarray:
    """Return a view whose last axis is the last ``count`` axes of ``array``, which are dense."""
    kept = array.ndim - count
    for axis in range(kept, array.ndim - 1):
        if array.strides[axis] != array.strides[axis + 1] * array.shape[axis + 1]:
            raise KernelFault(f"axes {axis} and {axis + 1} of {array.shape} are not dense")
    shape = (*array.shape[:kept], prod(array.shape[kept:]))
    return np.lib.stride_tricks.as_strided(array, shape, (*array.strides[:kept], array.strides[-1]))


class _Memory:
    """A buffer's elements; ``owner`` of each: -1 unwritten, else the iteration that wrote it."""

    def __init__(self, data: np.ndarray, tracked: bool, shared: bool = True):
        self.data, self.shared = data, shared
        self.owner: Any = np.full(data.shape, -1, np.int64) if tracked else None

    def part(self, starts: tuple, dropped: tuple, merged: int) -> _Memory:
        """Return the elements from ``starts`` on, without the axes ``dropped``.

        The last ``merged`` axes become one. The owners are shared.
        """
        self.place(starts)
        key = tuple(s if axis in dropped else slice(s, None) for axis, s in enumerate(starts))
        view = _Memory(_merged(self.data[key], merged), tracked=False, shared=self.shared)
        view.owner = None if self.owner is None else _merged(self.owner[key], merged)
        return view

    def place(self, indices: tuple) -> tuple:
        for i, n in zip(indices, self.data.shape, strict=True):
            if i < 0 or i >= n:
                raise KernelFault(f"index {indices} is outside the shape {self.data.shape}")
        return indices

    def _readable(self, where, state) -> None:
        owner = self.owner[where]
        if (owner == state.iteration).all():
            return
        if np.any(unwritten := owner == -1):
            raise KernelFault(f"reads element {_first(where, unwritten)}, which was never written")
        # Stores before the parallel loop (iteration 0) are visible; scratch does not persist.
        if np.any(others := (owner != state.iteration) & (owner != 0)):
            raise KernelFault(
                f"reads element {_first(where, others)}, written by another parallel iteration"
            )

    def check_read(self, state, *where) -> None:
        """Check a read of an element of another iteration: unwritten, or a race."""
        self._readable(where, state)

    def check_write(self, state, *where) -> None:
        self._claim(where, state)

    def _claim(self, where, state) -> None:
        owner = self.owner[where]
        if (owner == state.iteration).all():
            return
        others = (owner != -1) & (owner != state.iteration) & (owner != 0)
        if self.shared and np.any(others):
            raise KernelFault(f"two parallel iterations store to element {_first(where, others)}")
        self.owner[where] = state.iteration

    def _lanes(self, indices, axis, width, count):
        lanes = width if count is None else min(max(count, 0), width)
        if lanes == 0:
            return None
        self.place(indices)
        end = indices[axis] + lanes
        if end > self.data.shape[axis]:
            last = (*indices[:axis], end - 1, *indices[axis + 1 :])
            raise KernelFault(f"index {last} is outside the shape {self.data.shape}")
        return (*indices[:axis], slice(indices[axis], end), *indices[axis + 1 :])

    def load_vector(self, state, axis, width, count, *indices) -> np.ndarray:
        where = self._lanes(indices, axis, width, count)
        if where is None:
            return np.zeros(width, self.data.dtype)
        if self.owner is not None:
            self._readable(where, state)
        part = self.data[where]
        if len(part) == width:
            return part.copy()
        vector = np.zeros(width, self.data.dtype)
        vector[: len(part)] = part
        return vector

    def store_vector(self, state, axis, count, value, *indices) -> None:
        where = self._lanes(indices, axis, len(value), count)
        if where is not None:
            if self.owner is not None:
                self._claim(where, state)
            self.data[where] = value[: where[axis].stop - where[axis].start]


def _view(array: np.ndarray, kind: BufferType, named: dict[str, int]) -> np.ndarray:
    """Return the strided view of ``array``'s memory for a buffer type, after checking its span."""
    if array.dtype != kind.dtype.numpy:
        raise InternalError(f"expected a buffer of {kind.dtype}, got {array.dtype}")
    flat = array.reshape(-1)
    shape, strides = (
        [named[d] if isinstance(d, str) else d for d in part] for part in (kind.shape, kind.strides)
    )
    offset = named[kind.offset] if isinstance(kind.offset, str) else kind.offset
    if not flat.size:  # nothing to read: the loops over it have no iterations
        return np.zeros(shape, array.dtype)
    if 0 not in shape:
        ends = [(d - 1) * s for d, s in zip(shape, strides, strict=True)]
        low = offset + sum(min(e, 0) for e in ends)
        high = offset + sum(max(e, 0) for e in ends)
        if low < 0 or high >= flat.size:
            raise KernelFault(f"{kind} spans [{low}, {high}] of {flat.size} elements")
    return strided(flat[offset:] if 0 not in shape else flat[:0], shape, strides)


# -- scalar meaning --------------------------------------------------------------------------------

#: Ops that NumPy's numbers compute by the same expression as Python's integers.
_OPERATORS = frozenset({"add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"})


@functools.cache
def _contract(name: str):
    """Return a contract function over NumPy scalars and vectors: ``f(out dtype, *arguments)``."""
    import numba

    from core_compiler.numerics.functions import NAMESPACE

    target = NAMESPACE[name]
    arity = _arity(name)
    args = ", ".join(f"a{i}" for i in range(arity))
    items = ", ".join(f"a{i}[j]" for i in range(arity))
    text = (
        f"def scalar({args}):\n    return target({args})\n"
        f"def lanes(out, {args}):\n"
        f"    for j in range(out.shape[0]):\n        out[j] = target({items})\n"
    )
    made: dict = {"target": target}
    exec(text, made)
    scalar, lanes = (numba.njit(error_model="numpy")(made[n]) for n in ("scalar", "lanes"))

    def call(dtype, *arguments):
        width = next((len(a) for a in arguments if isinstance(a, np.ndarray)), 0)
        if not width:
            return dtype(scalar(*arguments))
        out = np.empty(width, dtype)
        lanes(out, *(_spread(a, width) for a in arguments))
        return out

    call.scalar = scalar  # type: ignore[attr-defined]  # read where one number is computed
    return call


def _spread(argument: Any, width: int) -> np.ndarray:
    """Return a vector as it is, or a number in all lanes."""
    if isinstance(argument, np.ndarray) and argument.shape == (width,):
        return np.ascontiguousarray(argument)
    return np.full(width, argument)


def _arity(name: str) -> int:
    stem = name.rsplit("_", 1)[0]
    if stem in ("fma", "select", "dot4"):
        return 3
    if stem in (
        "maximum", "minimum", "fmod", "remainder", "floor_div", "floor_mod", "pow", "atan2", "div",
        "rem", "shl", "shr", "copysign", "add", "sub", "mul", "and", "or", "xor",
    ):  # fmt: skip
        return 2
    return 1


def _convert(value, source, target, saturate=True):
    """Convert a scalar or a vector as ``kernel.cast``; ``source``, ``target``: DTypes or INDEX."""
    if source is target:
        return value
    if source is INDEX:
        return _convert(np.int64(value), _I64, target, saturate)
    if target is INDEX:
        return int(_convert(value, source, _I64, saturate))
    if scalars.is_narrow_integer(source):
        return _convert(np.asarray(value).astype(np.int32)[()], _I32, target, saturate)
    if scalars.is_narrow_integer(target):
        return _narrow_integer(_convert(value, source, _I32, saturate), source, target)
    to = target.numpy.type
    if source.kind == "bool":
        return np.asarray(value).astype(to)[()]
    if target.kind == "bool":
        wide = _convert(value, source, _F32) if scalars.is_narrow(source) else value
        return wide != 0
    if scalars.is_narrow(source):
        return _convert(
            _canonical(np.asarray(value).astype(np.float32))[()], _F32, target, saturate
        )
    if scalars.is_narrow(target):
        return _narrowed(value, source, target, saturate)
    name = f"convert_{scalars.code_name(source)}_{scalars.code_name(target)}"
    return _contract(name)(to, value)


def _narrow_integer(value, source, target):
    """Return an i32 as an integer of less than a byte: former floats saturate, others wrap."""
    low, high = scalars.integer_range(target)
    if source is not INDEX and source.is_float:
        value = np.clip(value, low, high)
    return ((np.asarray(value) - low) % (high - low + 1) + low).astype(target.numpy)[()]


def _narrowed(value, source, target, saturate):
    if source.name == "f64":
        value = _contract("convert_f64_f32_odd")(np.float32, value)
    elif source.name != "f32":
        wide = _convert(value, source, _F64, saturate)
        value = _contract("convert_f64_f32_odd")(np.float32, wide)
    codes = [_narrow_code(np.float32(v), target, saturate) for v in np.atleast_1d(value)]
    unsigned = np.dtype(f"u{target.bytes}")
    made = np.array(codes, np.int64).astype(unsigned).view(target.numpy)
    return made if np.ndim(value) else made[0]


def _narrow_code(x: np.float32, target, saturate: bool) -> int:
    # f16 and bf16 overflow to infinity; only formats of at most 8 bits saturate.
    return _encoder(scalars.code_name(target))(x, bool(saturate and target.bits <= 8))


@functools.cache
def _encoder(name: str):
    import numba

    from core_compiler.numerics.functions import NAMESPACE

    encode = NAMESPACE[f"convert_f32_{name}"]

    @numba.njit
    def call(x, saturate):
        return encode(x, saturate)

    return call


def _canonical(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x)


def _integer_power(base, exponent):
    """Compute a wrapping power; a negative exponent yields the truncated quotient."""
    kind = np.asarray(base).dtype.type
    flat = np.broadcast_arrays(np.atleast_1d(base), np.atleast_1d(exponent))
    made = []
    for b, e in zip(*flat, strict=True):
        if e < 0:
            made.append(kind(1 if b == 1 else (1 - 2 * (int(e) & 1) if b == -1 else 0)))
            continue
        bits = 8 * np.dtype(kind).itemsize
        made.append(np.array(pow(int(b), int(e), 1 << bits), object).astype(np.uint64).astype(kind))
    powers = np.array(made, kind)
    return powers if np.ndim(base) else powers[0]


def _sign(x):
    return np.sign(x)


from core_compiler.ir import dtype as _dtype  # noqa: E402

_F32, _F64, _I32, _I64 = (_dtype(n) for n in ("f32", "f64", "i32", "i64"))


# -- translation to Python -------------------------------------------------------------------------


class _Translator:
    """Writes one Python function, with one line per op that is recorded for messages."""

    def __init__(self, function: Function):
        self.function = function
        self.lines: list[str] = []
        self.ops: dict[int, Op] = {}
        self.names: dict[Value, str] = {}
        self.constants: list = []
        self.indent = 1
        self.functions: dict[str, str] = {}
        ops = list(function.body.walk())
        self.tracked = {access(op)[0] for op in ops if op.kind == "kernel.store"}
        self.tracked |= {op.result for op in ops if op.kind == "kernel.alloc"}

    def translate(self) -> str:
        self.lines.append("def run(buffers, sizes, state, constants):")
        arguments = self.function.arguments
        buffers = [v for v in arguments if isinstance(v.type, BufferType)]
        for group, values in (("buffers", buffers), ("sizes", arguments[len(buffers) :])):
            for number, value in enumerate(values):
                self.line(f"{self.name(value)} = {group}[{number}]")
        for value in buffers:
            self.open(value)
        self.block(self.function.body)
        self.line("return")
        head = list(self.functions.values())
        for number in range(len(self.constants)):
            head.append(f"    c{number} = constants[{number}]")
        self.ops = {line + len(head): op for line, op in self.ops.items()}
        return "\n".join([self.lines[0], *head, *self.lines[1:]])

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"v{len(self.names)}")

    def constant(self, value) -> str:
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"

    def open(self, buffer: Value) -> None:
        """Define local names for a buffer's elements and owners: scalar accesses are inlined."""
        name = self.name(buffer)
        self.line(f"{name}d, {name}o = {name}.data, {name}.owner")

    def checked(self, buffer: Value, indices, op: Op) -> str:
        """Emit the check that no index is negative, and return the indices.

        NumPy checks the upper bounds.
        """
        names = [self.name(i) for i in indices]
        if names:
            place = f"{self.name(buffer)}.place(({', '.join(names)},))"
            self.line(f"if {' | '.join(names)} < 0: {place}", op)
        return ", ".join(names) or "()"

    def line(self, text: str, op: Op | None = None) -> None:
        self.lines.append("    " * self.indent + text)
        if op is not None:
            self.ops[len(self.lines)] = op

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        special = getattr(self, "_" + op.kind.split(".")[1], None)
        if special is not None:
            special(op)
        else:
            self.line(f"{self.name(op.result)} = {self.scalar(op)}", op)

    # -- structure

    def _for(self, op: Op) -> None:
        (body,) = op.regions
        lower, upper, step = map(self.name, For.of(op).bounds)
        carried = [self.name(v) for v in body.arguments[1:]]
        for inner, init in zip(carried, For.of(op).init, strict=True):
            self.line(f"{inner} = {self.name(init)}")
        span = f"range({lower}, {upper}, {step})"
        if loop_kind(op) in CONCURRENT:
            span = f"state.parallel({lower}, {upper}, {step})"
        self.line(f"for {self.name(body.arguments[0])} in {span}:", op)
        self.indent += 1
        self.block(body)
        outputs = [self.name(v) for v in body.outputs]
        self.line(f"{', '.join(carried)} = {', '.join(outputs)}" if carried else "pass")
        self.indent -= 1
        for result, inner in zip(op.results, carried, strict=True):
            self.line(f"{self.name(result)} = {inner}")

    def _if(self, op: Op) -> None:
        for word, region in zip(
            (f"if {self.name(op.operands[0])}:", "else:"), op.regions, strict=True
        ):
            self.line(word, op)
            self.indent += 1
            self.block(region)
            for result, value in zip(op.results, region.outputs, strict=True):
                self.line(f"{self.name(result)} = {self.name(value)}")
            self.line("pass")
            self.indent -= 1

    # -- memory

    def _load(self, op: Op) -> None:
        buffer, indices = access(op)
        result, name = self.name(op.result), self.name(buffer)
        if not isinstance(op.result.type, VectorType):
            where = self.checked(buffer, indices, op)
            if buffer in self.tracked:
                self.line(f"if {name}o[{where}] != state.iteration: ", op)
                self.lines[-1] += f"{name}.check_read(state, {where})".replace(", ()", "")
            self.line(f"{result} = {name}d[{where}]", op)
            return
        where = "".join(f", {self.name(i)}" for i in indices)
        count = count_operand(op)
        count = "None" if count is None else self.name(count)
        head = f"state, {lane_axis(op)}, {op.result.type.width}, {count}"
        self.line(f"{result} = {name}.load_vector({head}{where})", op)

    def _store(self, op: Op) -> None:
        buffer, indices = access(op)
        value, name = self.name(op.operands[0]), self.name(buffer)
        if not isinstance(op.operands[0].type, VectorType):
            where = self.checked(buffer, indices, op)
            self.line(f"if {name}o[{where}] != state.iteration: ", op)
            self.lines[-1] += f"{name}.check_write(state, {where})".replace(", ()", "")
            self.line(f"{name}d[{where}] = {value}", op)
            return
        where = "".join(f", {self.name(i)}" for i in indices)
        count = count_operand(op)
        count = "None" if count is None else self.name(count)
        head = f"state, {lane_axis(op)}, {count}, {value}"
        self.line(f"{name}.store_vector({head}{where})", op)

    def _prefetch(self, op: Op) -> None:
        """Emit nothing: a hint has no effect."""

    def _alloc(self, op: Op) -> None:
        kind, sizes = op.result.type, iter(op.operands)
        shape = ", ".join(
            self.name(next(sizes)) if isinstance(d, str) else str(d) for d in kind.shape
        )
        dtype = self.constant(kind.dtype.numpy)
        self.line(
            f"{self.name(op.result)} = memory(empty(({shape}{',' if shape else ''}), {dtype}))", op
        )
        self.open(op.result)

    def _view(self, op: Op) -> None:
        memory, *starts = [self.name(v) for v in op.operands]
        where, view = ", ".join(starts), View.of(op)
        parts = f"({where},), {tuple(view.dropped)}, {view.merged}"
        self.line(f"{self.name(op.result)} = {memory}.part({parts})", op)
        self.open(op.result)

    def _invoke(self, op: Op) -> None:
        names = [self.name(v) for v in op.operands]
        cut = sum(isinstance(v.type, BufferType) for v in op.operands)
        buffers, sizes = ", ".join(names[:cut]), ", ".join(names[cut:])
        self.line(f"state.invoke({Invoke.of(op).callee!r}, [{buffers}], [{sizes}])", op)

    # -- values

    def _constant(self, op: Op) -> None:
        value, kind = Constant.of(op).value, op.result.type
        if kind is INDEX:
            self.line(f"{self.name(op.result)} = {int(value)}", op)
            return
        lane = element(kind).numpy
        made = (
            np.full(kind.width, value, lane) if isinstance(kind, VectorType) else lane.type(value)
        )
        self.line(f"{self.name(op.result)} = {self.constant(made)}", op)

    def _broadcast(self, op: Op) -> None:
        dtype = self.constant(op.result.type.dtype.numpy)
        text = f"full({op.result.type.width}, {self.name(op.operands[0])}, {dtype})"
        self.line(f"{self.name(op.result)} = {text}", op)

    def _lanes(self, op: Op) -> None:
        made = self.constant(np.arange(op.result.type.width))
        self.line(f"{self.name(op.result)} = {made}", op)

    def _extract(self, op: Op) -> None:
        self.line(
            f"{self.name(op.result)} = {self.name(op.operands[0])}[{Extract.of(op).lane}]", op
        )

    def _shuffle(self, op: Op) -> None:
        mask = self.constant(np.array(Shuffle.of(op).mask))
        v, w = map(self.name, op.operands)
        self.line(f"{self.name(op.result)} = concatenate(({v}, {w}))[{mask}]", op)

    def _cast(self, op: Op) -> None:
        source, target = element(op.operands[0].type), element(op.result.type)
        types = f"{self.constant(source)}, {self.constant(target)}, {op.get('saturate', True)}"
        self.line(f"{self.name(op.result)} = convert({self.name(op.operands[0])}, {types})", op)

    def _bitcast(self, op: Op) -> None:
        dtype = self.constant(element(op.result.type).numpy)
        whole = "" if type(op.result.type) is type(op.operands[0].type) else "[0]"
        self.line(f"{self.name(op.result)} = {self.name(op.operands[0])}.view({dtype}){whole}", op)

    def _call(self, op: Op) -> None:
        args = ", ".join(map(self.name, op.operands))
        dtype = self.constant(Call.of(op).dtype.numpy.type)
        self.line(f"{self.name(op.result)} = contract({Call.of(op).callee!r})({dtype}, {args})", op)

    def scalar(self, op: Op) -> str:
        """Return the Python expression of a scalar op, lane by lane on vectors."""
        name = op.kind.split(".")[1]
        arguments = [self.name(v) for v in op.operands]
        lane = element(op.operands[-1].type)
        vector = isinstance(op.result.type, VectorType)
        declared = definition(op)
        if lane is INDEX:
            return substitute_operands(declared.index, arguments)
        if name == "select":
            if vector:
                return "where({}, {}, {})".format(*arguments)
            return substitute_operands(declared.index, arguments)
        if lane.kind == "bool":
            return substitute_operands(_of_numpy(declared.logic), arguments)
        if name in _OPERATORS:
            return substitute_operands(declared.index, arguments)
        if lane.is_integer and name in _INTEGER_TEXT:
            return _INTEGER_TEXT[name].format(*arguments)
        if lane.is_float and name in _FLOAT_TEXT:
            return _FLOAT_TEXT[name].format(*arguments)
        symbol, dtype = scalars.symbol(name, lane), self.constant(lane.numpy.type)
        if vector:
            return f"{self.function_name(symbol)}({dtype}, {', '.join(arguments)})"
        return f"{dtype}({self.function_name(symbol, '.scalar')}({', '.join(arguments)}))"

    def function_name(self, symbol: str, part: str = "") -> str:
        """Return a local name for a contract function, bound before the kernel runs."""
        local = f"{symbol}{part.replace('.', '_')}"
        self.functions[local] = f"    {local} = contract({symbol!r}){part}"
        return local


def _of_numpy(logic: str) -> str:
    """Return an expression on i1 for NumPy: the complement of Python's own bool is a number."""
    return re.sub(r"~([abc])", r"~asbool(\1)", logic.replace("~(", "~asbool("))


_INTEGER_TEXT = {
    "neg": "-{}",
    "abs": "abs({})",
    "sign": "sign({})",
    "bitnot": "~{}",
    "and": "{} & {}",
    "or": "{} | {}",
    "xor": "{} ^ {}",
    "ipow": "integer_power({}, {})",
}
_FLOAT_TEXT = {
    "div": "{} / {}",
    "neg": "-{}",
    "abs": "abs({})",
    "is_nan": "isnan({})",
    "is_inf": "isinf({})",
    "is_finite": "isfinite({})",
}

_GLOBALS = {
    "range": range,
    "abs": abs,
    "min": min,
    "max": max,
    "full": np.full,
    "where": np.where,
    "empty": np.empty,
    "concatenate": np.concatenate,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "asbool": np.bool_,
    "sign": _sign,
    "convert": _convert,
    "contract": _contract,
    "integer_power": _integer_power,
    "memory": lambda data: _Memory(data, tracked=True, shared=False),
    "__builtins__": {},
}


@functools.lru_cache(maxsize=64)
def _translated(function: Function):
    translator = _Translator(function)
    source = translator.translate()
    return source, translator.ops, translator.constants


@functools.lru_cache(maxsize=64)
def _code(source: str):
    made = dict(_GLOBALS)
    exec(compile(source, "<kernel interpreter>", "exec"), made)
    return made["run"]


def explain(function: Function) -> str:
    """Return the Python text that :func:`interpret` runs, for debugging."""
    return _translated(function)[0]
