"""Groups, their reference, and three ways to execute their kernels: plain, scheduled, compiled."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import ml_dtypes
import numpy as np

from core_compiler.codegen.cpu.source import generate
from core_compiler.ir import Block, Function, Op, Value, tensor
from core_compiler.kernel_ir.abi import scratch_bytes, work_items
from core_compiler.kernel_ir.interpreter import interpret
from core_compiler.kernel_ir.verifier import verify
from core_compiler.lowering.lower import lower_group
from core_compiler.lowering.lowered import Lowered
from core_compiler.ops import Builder, evaluate_block
from core_compiler.runtime import loader


def group(build, *arrays, orders=()) -> Op:
    """A ``core.group`` of what ``build(b, *values)`` makes, over operands like ``arrays``."""
    orders = (*orders, *[None] * (len(arrays) - len(orders)))
    values = [
        Value(tensor(a.shape, a.dtype, order), f"x{n}")
        for n, (a, order) in enumerate(zip(arrays, orders, strict=True))
    ]
    builder = Builder()
    outputs = build(builder, *values)
    outputs = (outputs,) if isinstance(outputs, Value) else tuple(outputs)
    block = Block(tuple(values), tuple(builder.ops), outputs)
    return Op("core.group", values, [Value(v.type) for v in outputs], {}, (block,))


def reference(op: Op, arrays) -> list[np.ndarray]:
    return [np.asarray(a) for a in evaluate_block(op.regions[0], arrays)]


def in_memory(array: np.ndarray, order) -> np.ndarray:
    """The elements as a buffer of this order holds them."""
    return np.ascontiguousarray(array if order is None else np.transpose(array, order))


def from_memory(memory: np.ndarray, type_) -> np.ndarray:
    if type_.order is None:
        return memory.reshape(type_.shape)
    packed = memory.reshape([type_.shape[a] for a in type_.order])
    return np.transpose(packed, np.argsort(type_.order))


def group_buffers(op: Op, lowered: Lowered, arrays):
    operands = [in_memory(a, v.type.order) for a, v in zip(arrays, op.operands, strict=True)]
    results = [np.zeros(v.type.elements, v.type.dtype.numpy) for v in op.results]
    for result, operand in lowered.over:
        results[result][:] = operands[operand].reshape(-1)
    given = [(operands if kind == "operand" else results)[n] for kind, n in lowered.buffers]
    return given, results


def interpreted(op: Op, arrays, function: Function | None = None, **options) -> list[np.ndarray]:
    """The results of the group's kernel (or of ``function``, a schedule of it), interpreted."""
    lowered = lower_group(op)
    function = lowered.function if function is None else function
    verify(function)
    buffers, results = group_buffers(op, lowered, arrays)
    interpret(function, buffers, lowered.sizes, **options)
    return [from_memory(r, v.type) for r, v in zip(results, op.results, strict=True)]


@lru_cache(maxsize=128)
def _code(text: str):
    from core_compiler.codegen.cpu import compile_source

    made = compile_source(text)
    return loader.load_object(made.object, (made.symbol,))


def compiled(op: Op, arrays, function: Function | None = None, slices: int = 1) -> list[np.ndarray]:
    """The same, compiled and run on ``slices`` slices of the work items."""
    lowered = lower_group(op)
    function = lowered.function if function is None else function
    code = _code(generate(function).text)
    kernel = code.function("kernel", None, *[ctypes.c_int64] * 4)
    buffers, results = group_buffers(op, lowered, arrays)
    block = np.array([b.ctypes.data for b in buffers] + list(lowered.sizes), np.int64)
    items = work_items(function, lowered.sizes)
    scratch = np.full(scratch_bytes(function, lowered.sizes) + 64, 0x7F, np.uint8)
    aligned = (scratch.ctypes.data + 63) // 64 * 64
    for number in range(slices):
        low, high = items * number // slices, items * (number + 1) // slices
        kernel(block.ctypes.data, low, high, aligned)
    return [from_memory(r, v.type) for r, v in zip(results, op.results, strict=True)]


def bits(array: np.ndarray) -> bytes:
    """The array's bytes with every NaN canonical (the contract's digests do the same)."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind == "f" or array.dtype.name in ml_dtypes.__dict__:
        wide = array.astype(np.float64)
        if np.isnan(wide).any():
            array = np.where(np.isnan(wide), np.array(np.nan).astype(array.dtype), array)
    return array.tobytes()


def assert_same_bits(made, wanted, what: str = "") -> None:
    assert len(made) == len(wanted)
    for number, (a, b) in enumerate(zip(made, wanted, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, (what, number)
        assert bits(a) == bits(b), f"{what} result {number}: {a.ravel()[:6]} {b.ravel()[:6]}"


def normal(*shape, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, shape, kind=np.int64) -> np.ndarray:
    return np.random.default_rng(7).integers(low, high, shape).astype(kind)


def few_rows(rows: int, count: int, often: int) -> np.ndarray:
    """Indices [count, 1] of rows, one of them ``often``, some outside."""
    made = integers(-3, rows + 3, (count, 1))
    made[np.random.default_rng(8).permutation(count)[:often]] = 7
    return made
