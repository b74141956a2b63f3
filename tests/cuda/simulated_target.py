"""The CUDA target on a simulated GPU: whole models run through the runtime without a GPU."""

from __future__ import annotations

from core_compiler.runtime.cuda import CudaDevice
from core_compiler.targets.cuda import CUDA, kernel_cache
from tests.cuda.simulated_driver import SimulatedDriver


class SimulatedCUDA(CUDA):
    """The CUDA target with everything but the GPU, which has ``capability``."""

    def __init__(self, capability: tuple[int, int] = (9, 0)):
        self.driver = SimulatedDriver(capability)

    def available(self) -> str | None:
        return None

    def device(self, **options):
        return CudaDevice(kernel_cache(self.driver.gpu.architecture), driver=self.driver)
