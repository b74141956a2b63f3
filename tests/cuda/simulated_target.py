"""The CUDA target on a simulated GPU: whole models run through the runtime without a GPU.

With ``WORKBENCH_TEST_GPU=1`` the same tests run on this machine's GPU instead.
"""

from __future__ import annotations

import os

import pytest

from core_compiler.runtime.cuda import CudaDevice
from core_compiler.runtime.cuda_driver import Driver
from core_compiler.targets.cuda import CUDA, kernel_cache
from tests.cuda.simulated_driver import SimulatedDriver

#: Whether tests use the GPU of this machine in the place of the PTX interpreter.
ON_A_GPU = os.environ.get("WORKBENCH_TEST_GPU") == "1"
#: For tests that look into the simulated GPU.
simulated_only = pytest.mark.skipif(ON_A_GPU, reason="looks into the simulated GPU")


class SimulatedCUDA(CUDA):
    """The CUDA target with everything but the GPU, which has ``capability``."""

    def __init__(self, capability: tuple[int, int] = (9, 0)):
        self.driver = real_driver(capability) if ON_A_GPU else SimulatedDriver(capability)

    def available(self) -> str | None:
        return None

    def device(self, **options):
        return CudaDevice(kernel_cache(self.driver.gpu.architecture), driver=self.driver)


def real_driver(capability: tuple[int, int]) -> Driver:
    """The driver of this machine's GPU; the test is skipped where the GPU's compute capability is
    not ``capability``."""
    made = Driver()
    if made.gpu.capability != tuple(capability):
        pytest.skip(f"{made.gpu.name} does not have compute capability {capability}")
    return made
