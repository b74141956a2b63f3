"""The CUDA device on a simulated GPU: memory, copies, refusals, times."""

from __future__ import annotations

import re
from unittest.mock import Mock

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.runtime import cuda_driver, profiler
from core_compiler.runtime.cuda import ALIGN, CudaDevice
from core_compiler.runtime.cuda_driver import DriverError
from core_compiler.support.errors import UserError
from core_compiler.targets.cuda import CUDA, kernel_cache
from tests.cuda.simulated_driver import SimulatedDriver
from tests.cuda.simulated_target import SimulatedCUDA, simulated_only
from tests.passes import loops
from tests.passes.programs import inputs, program
from tests.slow import slow_but


@pytest.fixture(scope="module")
def made():
    module = program(
        lambda b, x, y: [b.relu(b.add(x, y)), b.reduce_sum(x, axes=(1,))], "5x70xf32", "5x70xf32"
    )
    return compilation.start(module, SimulatedCUDA(), Options()).finish()


@pytest.mark.slow
def test_it_gives_what_the_cpu_gives(made):
    arrays = inputs(made.stages[0].module)
    on_cpu = compilation.start(made.stages[0].module, "cpu", Options()).finish()
    for a, b in zip(made(*arrays), on_cpu(*arrays), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("nested",), ("product", "nested")))
def test_a_loop_ends_when_a_byte_on_the_gpu_says_so(name):
    build, *types = loops.CASES[name]
    module = program(build, *types)
    found = compilation.start(module, SimulatedCUDA(), Options()).finish()
    on_cpu = compilation.start(module, "cpu", Options()).finish()
    for first in (0, 5, 9):
        arrays = loops.given_arrays(module, first)
        for a, b in zip(found(*arrays), on_cpu(*arrays), strict=True):
            assert a.tobytes() == b.tobytes()
    idle = found.executable.profile(arrays, repeats=2, warmup=0)  # 9: the body runs not even once
    outer = found.facts["program"][0].loops[0]
    assert outer.test < outer.end
    assert not np.any(idle.durations[:, outer.test : outer.end])
    assert np.all(idle.durations[:, outer.start : outer.test])


@simulated_only
@pytest.mark.parametrize("has_graphs", [True, False])
def test_the_launches_of_later_calls_are_one_graph(made, has_graphs):
    driver = SimulatedDriver()
    driver.has_graphs = has_graphs
    program, constants, _ = made.facts["program"]
    executable = CudaDevice(kernel_cache("sm_90"), driver=driver).load(program, constants)
    assert len(program.launches) == 2
    x, y = inputs(made.stages[0].module)
    for call in range(3):
        total, sums = executable(x + call, y)
        assert np.array_equal(total, np.maximum(x + call + y, 0))
        assert np.array_equal(sums, made.executable(x + call, y)[1])
        assert driver.replays == (call if has_graphs else 0)


@simulated_only
def test_a_watched_call_stops_between_launches(made):
    driver = SimulatedDriver()
    program, constants, _ = made.facts["program"]
    executable = CudaDevice(kernel_cache("sm_90"), driver=driver).load(program, constants)
    arrays = inputs(made.stages[0].module)
    for _ in range(2):
        executable(*arrays)
    watch = executable.watch = Mock(writes=False)
    watch.stops = lambda start, end: tuple(range(start, end))
    executable(*arrays)
    assert [call.args[0] for call in watch.after_launch.call_args_list] == [0, 1]
    assert driver.replays == 1


@simulated_only
def test_everything_lies_in_one_aligned_block(made):
    executable = made.executable
    assert len(executable.device.driver.memory.buffers) == 1
    addresses = [a for places in executable._addresses.values() for a in places]
    assert all(a % ALIGN == 0 for a in addresses)
    assert len(set(addresses)) == len(addresses)
    assert executable.arena.size == executable.program.arena_bytes


def test_memory_is_given_back():
    driver = SimulatedDriver()
    device = CudaDevice(kernel_cache("sm_90"), driver=driver)
    before = driver.free_bytes()
    buffer = device.allocate(1000)
    assert driver.free_bytes() < before
    data = np.arange(250, dtype=np.float32)
    back = np.zeros_like(data)
    device.copy(buffer, data)
    device.copy(back, buffer)
    assert np.array_equal(back, data)
    with pytest.raises(UserError, match="is not contiguous"):  # the driver knows of no strides
        device.copy(np.zeros((250, 2), np.float32)[:, 0], buffer)
    with pytest.raises(UserError, match="cannot copy 1000 bytes to 4"):
        device.copy(np.zeros(1, np.float32), buffer)
    del buffer
    assert driver.free_bytes() == before


def test_too_little_memory_is_said_before_anything_is_allocated(made):
    driver = SimulatedDriver(free=100)
    device = CudaDevice(kernel_cache("sm_90"), driver=driver)
    program, arrays, _ = made.facts["program"]
    with pytest.raises(UserError, match="of GPU memory") as caught:
        device.load(program, arrays)
    assert caught.value.exit_code == 3
    assert not driver.memory.buffers
    assert "program model (" in caught.value.where and "inputs 0.003 MiB" in caught.value.where


def test_a_block_that_the_driver_does_not_find_is_said_too(made, monkeypatch):
    driver = SimulatedDriver()
    refused = DriverError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY")
    monkeypatch.setattr(driver, "allocate", Mock(side_effect=refused))
    program, arrays, _ = made.facts["program"]
    with pytest.raises(UserError, match=r"no free block is that large .cuMemAlloc: CUDA") as caught:
        CudaDevice(kernel_cache("sm_90"), driver=driver).load(program, arrays)
    assert "are free" in caught.value.what and caught.value.exit_code == 3


def test_a_launch_that_fails_names_kernel_line_and_shape(made, monkeypatch):
    driver = SimulatedDriver()
    program, arrays, _ = made.facts["program"]
    executable = CudaDevice(kernel_cache("sm_90"), driver=driver).load(program, arrays)
    refused = DriverError("cuLaunchKernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    monkeypatch.setattr(driver, "launch", Mock(side_effect=refused))
    with pytest.raises(UserError, match=r"LAUNCH_OUT_OF_RESOURCES.: \d+ blocks of") as caught:
        executable(*inputs(made.stages[0].module))
    assert re.fullmatch(r"kernel \w+, source.py:\d+", caught.value.where)
    assert "registers each" in caught.value.what and caught.value.exit_code == 3
    # A kernel that fails is told of by whatever is asked next: that launch is not to blame.
    failed = DriverError("cuLaunchKernel", "CUDA_ERROR_ILLEGAL_ADDRESS")
    monkeypatch.setattr(driver, "launch", Mock(side_effect=failed))
    with pytest.raises(DriverError, match="ILLEGAL_ADDRESS"):
        executable(*inputs(made.stages[0].module))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"cuInit": 100}, "cannot start"),
        ({"cuDriverGetVersion": 12040}, "supports CUDA 12.4, expected 13.0 or newer"),
        ({"cuDeviceGetCount": 0}, "finds no GPU"),
    ],
    ids=["broken", "old", "none"],
)
def test_what_a_driver_lacks(monkeypatch, answers, said):
    """A driver that starts, is new enough and has a GPU, but for one answer."""
    import cuda.bindings.driver  # noqa: F401  (so that the stand-in replaces it)

    given = {"cuInit": 0, "cuDriverGetVersion": 13000, "cuDeviceGetCount": 1} | answers
    state = Mock(value=given["cuInit"])
    monkeypatch.setattr(
        "cuda.bindings.driver",
        Mock(
            cuInit=lambda flags: (state,),
            cuDriverGetVersion=lambda: (state, given["cuDriverGetVersion"]),
            cuDeviceGetCount=lambda: (state, given["cuDeviceGetCount"]),
        ),
    )
    assert said in cuda_driver.missing.__wrapped__()


def test_code_for_another_gpu_is_refused_by_name(made):
    device = CudaDevice(kernel_cache("sm_90"), driver=SimulatedDriver((7, 5)))
    program, arrays, _ = made.facts["program"]
    with pytest.raises(UserError, match=r"for sm_90, but the GPU is a Simulated GPU .sm_75"):
        device.load(program, arrays)


def test_inputs_that_do_not_fit_are_refused(made):
    with pytest.raises(UserError, match="got float64"):
        made(np.zeros((5, 70)), np.zeros((5, 70), np.float32))


@simulated_only
def test_every_launch_is_timed(made):
    found = profiler.profile(made.executable, repeats=3, warmup=1)
    assert len(found.launches) == len(made.facts["program"][0].launches)
    for launch in found.launches:
        assert len(launch.timing.samples_us) == 3 and min(launch.timing.samples_us) > 0
    assert found.limits.peak_flops() == 4 * 128 * 2 * 1e9


def test_wrong_options_are_said_before_the_compile_starts():
    module = program(lambda b, x: [b.exp(x)], "3xf32")
    for options, message in (
        ({"architecture": "hopper"}, "invalid architecture"),
        ({"tiles": "huge"}, "unknown tiling"),
        ({"warps": 3}, "unknown option 'warps'"),
    ):
        with pytest.raises(UserError, match=message):
            compilation.start(module, CUDA(), Options(target=options))
