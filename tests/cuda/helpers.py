"""Groups as CUDA kernels, run in the PTX interpreter (or on a GPU, see `simulated_target`)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from core_compiler.codegen.cuda import toolchain
from core_compiler.codegen.cuda.compile import lower
from core_compiler.codegen.cuda.source import generate
from core_compiler.ir import Op
from core_compiler.kernel_ir.abi import scratch_allocations, scratch_bytes, work_items
from core_compiler.kernel_ir.verifier import verify
from core_compiler.lowering.lower import lower_group
from core_compiler.scheduling.schedules import gpu
from tests.cuda.ptx_interpreter import launch
from tests.cuda.simulated_target import ON_A_GPU, real_driver
from tests.kernels.kernel_helpers import from_memory, group_buffers

#: The oldest architecture that NVVM knows, a data centre's and a workstation's of today.
CAPABILITIES = ((7, 5), (9, 0), (12, 0))


@lru_cache(maxsize=64)
def ptx_of(source: str, capability: tuple[int, int]) -> tuple[str, int]:
    ptx, shape = lower(source, capability, "kernel")
    return ptx, shape["threads"]


def on_gpu(
    op: Op, arrays, capability: tuple[int, int], tiles: str = "default"
) -> tuple[list[np.ndarray], str]:
    """The results of a group's CUDA kernel, and its PTX."""
    lowered = lower_group(op)
    sizes = [lowered.sizes]
    scheduled = gpu.schedule(lowered.function, sizes, tiles=tiles, capability=capability)
    function = scheduled.function
    verify(function)
    ptx, threads = ptx_of(generate(function).text, capability)
    buffers, results = group_buffers(op, lowered, arrays)
    grid = work_items(function, lowered.sizes)
    arguments = [*buffers, *lowered.sizes]
    if scratch_allocations(function):
        bytes_ = grid * scratch_bytes(function, lowered.sizes)
        arguments.append(np.full(bytes_, 0x7F, np.uint8))
    if ON_A_GPU:
        launch_on_gpu(ptx, grid, threads, arguments, capability)
    else:
        launch(ptx, grid, threads, arguments)
    return [from_memory(r, v.type) for r, v in zip(results, op.results, strict=True)], ptx


def launch_on_gpu(ptx: str, grid: int, threads: int, arguments, capability) -> None:
    """What `ptx_interpreter.launch` does, on the GPU of this machine."""
    driver = real_driver(capability)
    cubin = toolchain.assemble(ptx, f"sm_{capability[0]}{capability[1]}").cubin
    with driver.visit():
        places = {}
        for number, array in enumerate(arguments):
            if isinstance(array, np.ndarray):
                places[number] = driver.allocate(max(array.nbytes, 1))
                driver.upload(places[number], array)
        values = [places.get(n, a) for n, a in enumerate(arguments)]
        packed = driver.arguments([int(v) for v in values])
        if grid:
            driver.launch(driver.function(cubin, "kernel"), grid, threads, packed)
        driver.wait()
        for number, address in places.items():
            driver.download(arguments[number], address)
        driver.wait()
        for address in places.values():
            driver.release(address)
