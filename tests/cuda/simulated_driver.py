"""A GPU made of the PTX interpreter: what stands in for NVIDIA's driver in tests of the runtime.

Memory is host memory, functions are PTX, launches run at once.  It is slow: shrunken models only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from core_compiler.runtime.compile_worker import INTERMEDIATE
from core_compiler.runtime.cuda_driver import GPU
from tests.cuda.ptx import read
from tests.cuda.ptx_interpreter import Memory, Program


class SimulatedDriver:
    """``capability`` of the GPU; ``free`` bytes it says it has."""

    image = INTERMEDIATE

    def __init__(self, capability: tuple[int, int] = (9, 0), free: int = 1 << 32):
        self.gpu = GPU(
            "Simulated GPU", capability, 4, free, 10**9, 10**9, 256, 48 << 10, 1 << 20, "13.0"
        )
        self.left = free
        self.has_graphs, self.replays = True, 0
        self.memory = Memory()

    def visit(self) -> AbstractContextManager[None]:
        return nullcontext()

    def free_bytes(self) -> int:
        return self.left

    def allocate(self, size: int) -> int:
        self.left -= size
        return self.memory.add(np.full(size, 0xFF, np.uint8))

    def release(self, address: int) -> None:
        self.left += self._bytes(address, 0)[0].size
        self.memory.remove(address)

    def _bytes(self, address: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The block that an address lies in, and ``size`` bytes from there on."""
        block, places = self.memory.find(np.array([address], np.uint64), 1)
        start = int(places[0])
        assert start + size <= block.size, "a copy beyond a block's end"
        return block, block[start : start + size]

    def upload(self, address: int, array: np.ndarray) -> None:
        self._bytes(address, array.nbytes)[1][:] = array.reshape(-1).view(np.uint8)

    def download(self, array: np.ndarray, address: int) -> None:
        array.reshape(-1).view(np.uint8)[:] = self._bytes(address, array.nbytes)[1]

    def move(self, to: int, source: int, size: int, stream: list | None = None) -> None:
        if stream is not None:
            stream.append(lambda: self.move(to, source, size))
            return
        self._bytes(to, size)[1][:] = self._bytes(source, size)[1]

    def function(self, image: bytes, symbol: str) -> Program:
        kernel = read(image.decode())
        assert kernel.name == symbol
        return Program(kernel)

    def arguments(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def launch(
        self,
        function: Program,
        grid: int,
        threads: int,
        arguments: list[int],
        stream: list | None = None,
    ) -> None:
        if stream is not None:
            stream.append(lambda: self.launch(function, grid, threads, arguments))
            return
        function.run(grid, threads, arguments, self.memory)

    def graph(self, record: Callable[[list], None]) -> list | None:
        if not self.has_graphs:
            return None
        recorded: list[Callable[[], None]] = []
        record(recorded)
        return recorded

    def replay(self, graph: list[Callable[[], None]]) -> None:
        self.replays += 1
        for start in graph:
            start()

    def destroy_graph(self, graph: list) -> None:
        graph.clear()

    def event(self) -> list[int]:
        return [0]

    def destroy_event(self, event: list[int]) -> None:
        pass

    def record(self, event: list[int]) -> None:
        event[0] = time.perf_counter_ns()

    def nanoseconds(self, start: list[int], end: list[int]) -> int:
        return end[0] - start[0]

    def wait(self) -> None:
        pass
