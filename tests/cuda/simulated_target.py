"""The CUDA target on a simulated GPU: whole models run through the runtime without a GPU."""

from __future__ import annotations

from core_compiler.runtime.cuda import CudaDevice
from core_compiler.targets.cuda import ARCHITECTURE, CUDA, kernel_cache
from tests.cuda.simulated_driver import SimulatedDriver


class SimulatedCUDA(CUDA):
    """Everything the CUDA target's but the GPU."""

    def available(self) -> str | None:
        return None

    def device(self, **options):
        return CudaDevice(kernel_cache(ARCHITECTURE), driver=SimulatedDriver())
