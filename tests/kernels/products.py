"""Products for the schedule tests: groups of ops, data, and two ways to run a scheduled kernel."""

from __future__ import annotations

import functools
import itertools

import numpy as np

import core_compiler.ops  # noqa: F401  (declares the ops)
from core_compiler.codegen.cpu import compile_source, generate
from core_compiler.ir import Block, Op, Value, tensor
from core_compiler.kernel_ir.abi import (
    buffer_arguments,
    callees,
    index_arguments,
    scratch_bytes,
    work_items,
)
from core_compiler.kernel_ir.interpreter import interpret
from core_compiler.kernel_ir.verifier import verify
from core_compiler.lowering.lower import lower_group
from core_compiler.ops.builder import Builder
from core_compiler.runtime.loader import load_object
from core_compiler.scheduling.schedules.contraction import Tiles
from core_compiler.scheduling.schedules.steps import LaunchPlan

NHWC = (0, 2, 3, 1)
#: Tiny tiles for the interpreter: every kind of edge within a few rows and columns.
TINY = Tiles(rows=3, vectors=2, width=4, row_length=300, partial=(2, 1))


def f32(*shape, order=None):
    return tensor(shape, "f32", order)


def group(types, build, order=None) -> Op:
    values = [Value(t, f"x{i}") for i, t in enumerate(types)]
    builder = Builder()
    out = build(builder, *values)
    result = Value(out.type.with_(order=order))
    ops = (*builder.ops[:-1], builder.ops[-1].with_(results=(result,)))
    block = Block(tuple(values), ops, (result,))
    return Op("core.group", [Value(t) for t in types], (Value(result.type),), {}, (block,))


def linear(m, k, n, epilogue="bias", dtype="f32") -> Op:
    """[m, k] x [k, n] of ``dtype``, then + bias, gelu(+ bias) or + bias + residual.

    ``none``: the product alone; ``causal``: it, and -infinity above the diagonal.
    """

    def build(b, x, w, bias, *rest):
        y = b.matmul(x, w)
        if epilogue == "none":
            return y
        if epilogue == "causal":
            rows, columns = (b.iota(shape=(m, n), dtype="i32", axis=axis) for axis in (0, 1))
            return b.select(b.le(columns, rows), y, b.scalar_like(float("-inf"), y))
        y = b.add(y, b.broadcast(bias, shape=(m, n), dims=(1,)))
        if epilogue == "gelu":
            return b.gelu(y, approximate="none")
        return b.add(y, rest[0]) if rest else y

    shapes = [(m, k), (k, n), (n,), *([(m, n)] if epilogue == "residual" else [])]
    return group([tensor(shape, dtype) for shape in shapes], build)


def byte_product(m, k, n, x="ui8", w="i8") -> Op:
    """[m, k] x [k, n] of bytes, summed in i32."""

    def build(b, x, w):
        return b.matmul(*(b.cast(v, dtype="i32") for v in (x, w)))

    return group([tensor((m, k), x), tensor((k, n), w)], build)


def byte_convolution(c, o, k, stride, size, *, groups=1, order=NHWC) -> Op:
    """A convolution of unsigned images with signed weights, summed in i32."""
    pad = (k // 2,) * 2

    def build(b, x, w):
        return b.conv(
            *(b.cast(v, dtype="i32") for v in (x, w)),
            strides=(stride, stride),
            low=pad,
            high=pad,
            dilations=(1, 1),
            groups=groups,
        )

    types = [tensor((1, c, size, size), "ui8", order), tensor((o, c // groups, k, k), "i8")]
    return group(types, build, order)


def heads(m, n, k, count, dtype="f32") -> Op:
    """Attention scores over transposed views: b lies with its terms next to each other."""

    def build(b, q, key):
        q = b.transpose(b.reshape(q, shape=(1, m, count, k)), permutation=(0, 2, 1, 3))
        key = b.transpose(b.reshape(key, shape=(1, n, count, k)), permutation=(0, 2, 3, 1))
        return b.matmul(q, key)

    return group([tensor((1, rows, count * k), dtype) for rows in (m, n)], build)


def convolution(
    c,
    o,
    k,
    stride,
    size,
    *,
    n=1,
    groups=1,
    residual=False,
    order=NHWC,
    pad=None,
    dtype="f32",
) -> Op:
    pad = k // 2 if pad is None else pad
    out = (size + 2 * pad - k) // stride + 1
    shape = (n, o, out, out)

    def build(b, x, w, bias, *rest):
        y = b.conv(
            x,
            w,
            strides=(stride, stride),
            low=(pad, pad),
            high=(pad, pad),
            dilations=(1, 1),
            groups=groups,
        )
        y = b.add(y, b.broadcast(bias, shape=shape, dims=(1,)))
        y = b.add(y, rest[0]) if rest else y
        return b.max(y, b.expand(b.constant(0.0, dtype), shape))

    extra = [tensor(shape, dtype, order)] if residual else []
    x, w = tensor((n, c, size, size), dtype, order), tensor((o, c // groups, k, k), dtype)
    return group([x, w, tensor((o,), dtype), *extra], build, order)


def weights(c, o, k, stride, size, *, n=1, groups=1, order=NHWC) -> Op:
    """The gradient of a convolution's weights."""
    pad = k // 2
    out = (size + 2 * pad - k) // stride + 1

    def build(b, x, dy):
        return b.conv_weight_gradient(
            x,
            dy,
            kernel=(k, k),
            strides=(stride, stride),
            low=(pad, pad),
            high=(pad, pad),
            dilations=(1, 1),
            groups=groups,
        )

    return group([f32(n, c, size, size, order=order), f32(n, o, out, out, order=order)], build)


def columns(m, k, n) -> Op:
    """[k, m] x [k, n] over k: the gradient of a linear layer's weights."""
    return group(
        [f32(k, m), f32(k, n)], lambda b, x, y: b.contract(x, y, contract_a=(0,), contract_b=(0,))
    )


class _NoPlan(LaunchPlan):
    """The plan of a schedule that packs nothing and adds no arguments."""

    def __init__(self):
        self.pack = {}

    def more_sizes(self, sizes, threads):
        return []


def plan_of(scheduled) -> LaunchPlan:
    return scheduled.launch or _NoPlan()


class Case:
    """A lowered group with data; results come as bytes."""

    def __init__(self, op: Op):
        self.lowered = lower_group(op)
        self.kernel, self.sizes = self.lowered.function, self.lowered.sizes
        random = np.random.default_rng(7)
        self.data = []
        for kind, number in self.lowered.buffers:
            t = (op.operands if kind == "operand" else op.results)[number].type
            self.data.append(_filled(random, t) if kind == "operand" else _unwritten(t))
        self.outputs = [i for i, (kind, _) in enumerate(self.lowered.buffers) if kind == "result"]

    def meaning(self) -> bytes:
        """What the unscheduled kernel computes, by the interpreter."""
        return self.interpreted(self.kernel, {}, self.sizes, self.data)

    def interpreted(self, function, functions, sizes, buffers) -> bytes:
        buffers = [b.copy() if i in self.outputs else b for i, b in enumerate(buffers)]
        interpret(function, buffers, sizes, functions=functions)
        return b"".join(buffers[i].tobytes() for i in self.outputs)

    def packed(self, scheduled) -> list:
        """The buffers with constants laid out as the schedule asks, by the interpreter."""
        buffers, plan = list(self.data), plan_of(scheduled)
        for place, pack in plan.pack.items():
            verify(pack)
            kind = plan.packed_dtype(place).numpy
            made = np.zeros(plan.packed_elements(self.sizes), kind)
            sizes = plan.pack_arguments(place, self.sizes)
            interpret(pack, [self.data[place], made], sizes)
            buffers[place] = made
        return buffers

    def each_step(self, scheduled):
        """(step's name, its result) of every step of the kernel itself."""
        buffers = self.packed(scheduled)
        sizes = [*self.sizes, *plan_of(scheduled).more_sizes(self.sizes, 1)]
        known = {}
        for step in scheduled.steps:
            verify(step.function)
            if step.kernel != self.kernel.name:
                known[step.kernel] = step.function
                continue
            function = step.function
            is_packed = any(v.type.shape[:1] == ("b_panels",) for v in buffer_arguments(function))
            taken = sizes[: len(index_arguments(function))]
            given = buffers if is_packed else self.data
            yield step.name, self.interpreted(function, known, taken, given)

    def compiled(self, scheduled, slices=1, threads=2) -> bytes:
        """Machine code over ``slices`` of the work items, the last slice first."""
        function, cores, plan = scheduled.function, scheduled.cores, plan_of(scheduled)
        sizes = [*self.sizes, *plan.more_sizes(self.sizes, threads)]
        buffers = [aligned(b) for b in self.data]
        for place, pack in plan.pack.items():
            kind = plan.packed_dtype(place).numpy
            made = aligned(np.zeros(plan.packed_elements(self.sizes), kind))
            given = plan.pack_arguments(place, self.sizes)
            launch(pack, {}, [buffers[place], made], given)
            buffers[place] = made
        launch(function, cores, buffers, sizes, slices)
        return b"".join(buffers[i].tobytes() for i in self.outputs)


def _filled(random, kind) -> np.ndarray:
    """All values of a byte, or normally distributed numbers."""
    dtype = kind.dtype.numpy
    if kind.dtype.is_integer:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return random.integers(low, high, kind.elements, dtype, endpoint=True)
    return random.standard_normal(kind.elements).astype(np.float32).astype(dtype)


def _unwritten(kind) -> np.ndarray:
    return np.full(kind.elements, 77 if kind.dtype.is_integer else np.nan, kind.dtype.numpy)


def aligned(array: np.ndarray) -> np.ndarray:
    block = np.zeros(array.size + 64 // array.itemsize, array.dtype)
    start = (-block.ctypes.data % 64) // array.itemsize
    block[start : start + array.size] = array
    return block[start : start + array.size]


def launch(function, functions, buffers, sizes, slices=1) -> None:
    words = [b.ctypes.data for b in buffers] + [int(s) for s in sizes]
    words += [code(functions[name])[0] for name in callees(function)]
    arguments = np.array(words, np.int64)
    scratch = np.full(scratch_bytes(function, sizes, functions) + 64, 0xFF, np.uint8)  # NaNs
    base = -(-scratch.ctypes.data // 64) * 64
    items = work_items(function, sizes)
    cuts = [items * i // slices for i in range(slices + 1)]
    for low, high in reversed(list(itertools.pairwise(cuts))):
        code(function)[1](arguments.ctypes.data, low, high, base)


@functools.cache
def _loaded(text: str, name: str):
    import ctypes

    made = compile_source(text, name)
    loaded = load_object(made.object, (made.symbol,))
    call = loaded.function(made.symbol, None, *[ctypes.c_int64] * 4)
    return loaded[made.symbol], call


def code(function):
    source = generate(function)
    return _loaded(source.text, function.name)
