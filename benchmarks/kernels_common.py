"""One group of tensor ops, compiled alone and bound to arrays: what the kernel benchmarks time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

import core_compiler.ops  # noqa: F401  (declares the ops)
from core_compiler.codegen.cpu import generate
from core_compiler.ir import Block, Op, Value
from core_compiler.ir.weights import array_digest
from core_compiler.kernel_ir.abi import callees, scratch_bytes, work_items
from core_compiler.lowering.lower import lower_group
from core_compiler.ops.builder import Builder
from core_compiler.runtime.cpu import CpuDevice
from core_compiler.runtime.kernel_cache import KernelCache, KernelSource
from core_compiler.runtime.program import Argument, Constant, Launch, Program, Ref
from core_compiler.scheduling.schedules import convolution
from core_compiler.scheduling.schedules.contraction import AVX512, Tiles
from core_compiler.scheduling.schedules.product import longest_chunk


def group(types: Sequence, build: Callable, order=None) -> Op:
    """The ``core.group`` of what ``build(builder, *values)`` makes; ``order``: its layout."""
    values = [Value(t, f"x{i}") for i, t in enumerate(types)]
    builder = Builder()
    out = build(builder, *values)
    last = builder.ops[-1]
    result = Value(out.type.with_(order=order))
    ops = (*builder.ops[:-1], last.with_(results=(result,)))
    block = Block(tuple(values), ops, (result,))
    return Op("core.group", [Value(t) for t in types], (Value(result.type),), {}, (block,))


class Compiled:
    """A group as a program: ``run(*arrays)`` with the operands that are no constants.

    ``constants``: operand number -> array.  The operand that the product packs must be among them,
    or it is packed anew in each run.
    """

    def __init__(
        self, op: Op, constants: dict[int, np.ndarray], threads: int, tiles: Tiles = AVX512
    ):
        lowered = lower_group(op)
        kernel, sizes = lowered.function, lowered.sizes
        tiles = tiles.holding(longest_chunk(kernel, sizes))
        self.scheduled = convolution.schedule(kernel, tiles, packed=1 in constants)
        plan, function = self.scheduled.launch, self.scheduled.function
        cores = dict(self.scheduled.cores)
        kernels = {function.name: function, **cores, **{f.name: f for f in plan.pack.values()}}
        sources = [generate(f) for f in kernels.values()]
        cache = KernelCache()
        begin = time.perf_counter()
        self.compiled = cache.compile([KernelSource(s.name, s.text, s.symbol) for s in sources])
        self.compile_seconds = time.perf_counter() - begin
        inputs = [i for i in range(len(op.operands)) if i not in constants]
        constant_numbers = list(constants)
        prepack, packed, refs = [], [], []
        for position, (kind, number) in enumerate(lowered.buffers):
            if kind == "result":
                refs.append(Ref("output", number))
            elif number in constants and position in plan.pack:
                pack = plan.pack[position]
                given = plan.pack_arguments(position, sizes)
                where = (
                    Ref("constant", constant_numbers.index(number)),
                    Ref("packed", len(packed)),
                )
                prepack.append(Launch("pack", pack.name, where, given, work_items(pack, given)))
                packed.append(plan.packed_elements(sizes) * plan.packed_dtype(position).bytes)
                refs.append(where[1])
            elif number in constants:
                refs.append(Ref("constant", constant_numbers.index(number)))
            else:
                refs.append(Ref("input", inputs.index(number)))
        given = (*sizes, *plan.more_sizes(sizes, threads))
        launch = Launch(
            "launch",
            function.name,
            tuple(refs),
            given,
            work_items(function, given),
            scratch_bytes(function, given, cores),
            callees=callees(function),
        )
        shapes = [op.operands[i].type for i in inputs]
        program = Program(
            "benchmark",
            tuple(Argument(f"i{i}", "f32", t.shape) for i, t in enumerate(shapes)),
            (Argument("o", "f32", op.results[0].type.shape),),
            tuple(c.ref for c in self.compiled),
            (launch,),
            constants=tuple(Constant(array_digest(a), "f32", a.shape) for a in constants.values()),
            packed=tuple(packed),
            prepack=tuple(prepack),
        )
        arrays = {array_digest(a): a for a in constants.values()}
        self.items = launch.work_items
        self.run = CpuDevice(threads, cache).load(program, arrays)


def race(ours: Callable, theirs: Callable, seconds: float = 0.4) -> tuple[float, float]:
    """The least time of each, run in turns (a busy machine slows both)."""
    for _ in range(3):
        ours(), theirs()
    our_times, their_times = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(our_times) < 5:
        for call, times in ((ours, our_times), (theirs, their_times)):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return min(our_times), min(their_times)


def report(what: str, flops: float, mine: float, other: float, error: float) -> str:
    """One line of a benchmark's table."""
    rates = f"{flops / mine * 1e-9:7.1f} {flops / other * 1e-9:7.1f} GFLOP/s"
    return f"{what:34s} {rates}   ratio {other / mine:5.2f}   error {error:.1e}"
