"""The calls that reach the driver, through NVIDIA's own bindings, into a library that stands in
libcuda's place: types, order, contexts of threads, what a failed call says.

The stand-in (fake_libcuda.c) computes nothing; what kernels compute is tested in the interpreter
of PTX.  Each test runs in a process of its own: bindings find the driver once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from core_compiler.runtime.cuda_driver import Driver

pytest.importorskip("cuda.bindings", reason="the driver is called through cuda-bindings")
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc) for the stand-in")


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_libcuda.c")
    built = folder / "libcuda.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(built), str(source)], check=True)
    return folder


def run(folder: Path, text: str, **settings: object) -> str:
    """What a Python program prints, with the stand-in as the machine's driver."""
    given = {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        env={**os.environ, **given, "LD_LIBRARY_PATH": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_gpu_is_described_by_its_attributes(driver_folder):
    said = run(
        driver_folder,
        "from core_compiler.runtime.cuda_driver import gpu; g = gpu();"
        "print(g.name, g.architecture, g.processors, g.memory, g.shared, g.cache, g.cuda);"
        "print(g.bandwidth, g.flops)",
    )
    assert said.splitlines() == [
        "Fake H100 sm_90 132 1073741824 232448 52428800 13.0",
        # 2 x 2.619 GHz x 5120 bit / 8, and 2 x 128 lanes x 132 processors x 1.98 GHz
        "3352320000000.0 66908160000000",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"init": 100}, "the NVIDIA driver cannot start (CUDA_ERROR_NO_DEVICE)"),
        ({"version": 12080}, "the NVIDIA driver supports CUDA 12.8, expected 13.0 or newer"),
        ({"devices": 0}, "the NVIDIA driver finds no GPU"),
        ({}, "None"),
    ],
    ids=["broken", "old", "none", "good"],
)
def test_what_is_missing(driver_folder, settings, said):
    text = "from core_compiler.runtime.cuda_driver import missing; print(missing())"
    assert run(driver_folder, text, **settings).strip() == said


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("state", "why"),
    [
        (46, "it is in exclusive mode and another process uses it"),
        (2, "its memory is full"),
        (999, "it cannot be used"),
    ],
    ids=["busy", "full", "other"],
)
def test_a_gpu_that_gives_no_context_is_compiled_for_and_said_when_executing(
    driver_folder, state, why
):
    said = run(
        driver_folder,
        """
from core_compiler.support.errors import UserError
from core_compiler.runtime.cuda_driver import gpu
from core_compiler.targets.cuda import CUDA

target = CUDA()
print(target._architecture({}), gpu().processors, target.machine.name)
try:
    target.device()
except UserError as error:
    print(error.exit_code, error)
""",
        retain=state,
    )
    compiled, refused = said.splitlines()[:2]
    assert compiled.startswith("sm_90 132 ")
    assert refused.startswith("3 ") and f"Fake H100: cannot execute: {why}" in refused


def test_memory_copies_launches_and_events(driver_folder, tmp_path):
    """Also from a thread that has not touched the GPU before."""
    log = tmp_path / "log"
    run(
        driver_folder,
        """
import threading
import numpy as np
from core_compiler.runtime.cuda_driver import Driver, DriverError
driver = Driver()
here = driver.visit()
here.__enter__()
before = driver.free_bytes()
data = np.arange(1000, dtype=np.float32)
a, b = driver.allocate(data.nbytes), driver.allocate(data.nbytes)
assert before - driver.free_bytes() == 2 * data.nbytes
kernel = driver.function(b"\\x7fELF and more", "copy_kernel")
start, end = driver.event(), driver.event()

def work():
    here = driver.visit()
    here.__enter__()
    driver.upload(a, data)
    driver.record(start)
    driver.launch(kernel, 7, 256, driver.arguments([b, a, data.nbytes]))
    driver.record(end)
    back = np.zeros_like(data)
    driver.download(back, b)
    driver.wait()
    assert np.array_equal(back, data)
    driver.move(a, b + 2000, 2000)
    driver.download(back, a)
    driver.wait()
    assert np.array_equal(back[:500], data[500:])
    assert driver.nanoseconds(start, end) == 250_000
    done.append(True)

done = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert done
driver.release(a)
driver.release(b)
assert driver.free_bytes() == before

def refused(call, state):
    try:
        call()
    except DriverError as error:
        assert (error.call, error.state) == state, error
    else:
        raise AssertionError(state)

refused(lambda: driver.allocate(1 << 40), ("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY"))
refused(lambda: driver.launch(kernel, 1, 2048, driver.arguments([b, a, 0])),
        ("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE"))
refused(lambda: driver.function(b"no cubin", "x"), ("cuModuleLoadData", "CUDA_ERROR_INVALID_IMAGE"))
refused(lambda: driver.function(b"\\x7fELF", "absent"),
        ("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND"))
refused(lambda: driver.nanoseconds(start, driver.event()),
        ("cuEventElapsedTime", "CUDA_ERROR_NOT_READY"))
""",
        log=log,
    )
    name, grid, threads, _ = log.read_text().split()
    assert (name, grid, threads) == ("copy_kernel", "7", "256")


#: Records copies from a to b and on to c, and replays them with other data.
GRAPH = """
import ctypes
import numpy as np
from core_compiler.runtime.cuda_driver import Driver
driver = Driver()
here = driver.visit()
here.__enter__()
data = np.arange(1000, dtype=np.float32)
a, b, c = (driver.allocate(data.nbytes) for _ in range(3))
kernel = driver.function(b"\\x7fELF and more", "copy_kernel")
streams = ctypes.CDLL("libcuda.so.1").fake_streams

def record(stream):
    arguments = driver.arguments([b, a, data.nbytes])
    driver.launch(kernel, 7, 256, arguments, stream)
    arguments[:] = 0  # a graph keeps the arguments as they were
    driver.move(c, b, data.nbytes, stream)

graph = driver.graph(record)
assert streams() == 1
"""


def test_recorded_launches_are_replayed(driver_folder, tmp_path):
    log = tmp_path / "log"
    run(
        driver_folder,
        f"""{GRAPH}
for offset in (0, 5):
    driver.upload(a, data + offset)
    driver.replay(graph)
    back = np.zeros_like(data)
    driver.download(back, c)
    driver.wait()
    assert np.array_equal(back, data + offset)
driver.destroy_graph(graph)
assert ctypes.CDLL("libcuda.so.1").fake_graphs() == 0
""",
        log=log,
    )
    assert [line.split()[:3] for line in log.read_text().splitlines()] == [
        ["copy_kernel", "7", "256"]
    ] * 2


def test_a_driver_without_graphs_records_none(driver_folder):
    run(driver_folder, f"{GRAPH}assert graph is None", capture=801)  # CUDA_ERROR_NOT_SUPPORTED


def test_modules_and_the_stream_are_given_back(driver_folder):
    """Also where another thread drops the last user, which has no context of its own."""
    run(
        driver_folder,
        """
import ctypes
import threading
from core_compiler.runtime.cuda import CudaDevice

library = ctypes.CDLL("libcuda.so.1")

def alive():
    return library.fake_streams(), library.fake_modules()

devices = [CudaDevice(None) for _ in range(3)]
for device in devices:
    with device.driver.visit():
        device.driver.function(b"\\x7fELF and more", "one")
        device.driver.function(b"\\x7fELF and more", "two")
del device
assert alive() == (3, 6)
buffer = devices[0].allocate(40)
del devices[:2]
assert alive() == (2, 4)
del buffer
assert alive() == (1, 2)
thread = threading.Thread(target=devices.clear)
thread.start()
thread.join()
assert alive() == (0, 0)
last = CudaDevice(None)  # the process ends with it
""",
    )


@pytest.mark.slow
def test_a_program_is_loaded_launched_and_timed(driver_folder, tmp_path):
    """A compile finds the GPU's architecture by itself; every launch reaches the driver with its
    grid, its threads and addresses inside of the one block; threads may call it."""
    log = tmp_path / "log"
    said = run(
        driver_folder,
        """
import ctypes
import gc
import threading
import numpy as np
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.runtime import cuda_driver
from tests.passes.programs import inputs, program

module = program(lambda b, x, y: [b.relu(b.add(x, y)), b.reduce_sum(x, axes=(1,))],
                 "5x70xf32", "5x70xf32")
made = compilation.start(module, "cuda", Options()).finish()
arrays = inputs(module)
library = ctypes.CDLL("libcuda.so.1")
made.executable
assert library.fake_current() == -1  # nothing is
library.fake_work_on_another()
made.executable(*arrays)
assert library.fake_current() == 1
threads = [threading.Thread(target=made.executable, args=arrays) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
samples = made.executable.profile(arrays, repeats=2, warmup=1)
assert made.executable.arena.size == made.facts["program"][0].arena_bytes
assert library.fake_current() == 1
assert (np.diff(samples.times, axis=-1) > 0).all()
block = made.executable._block
for launch in made.facts["program"][0].launches:
    kernel = made.executable._functions[launch.kernel]
    print(block.address, block.size, launch.work_items, kernel.threads)
assert library.fake_streams() and library.fake_modules()
assert library.fake_events() == 1 + 2 * len(made.facts["program"][0].launches)
del made, samples, threads, thread, block, launch, kernel
gc.collect()
assert (library.fake_streams(), library.fake_modules(), library.fake_events()) == (0, 0, 0)
assert library.fake_current() == 1
""",
        log=log,
    )
    launches = [tuple(map(int, line.split())) for line in said.splitlines()]
    logged = [tuple(map(int, line.split()[1:])) for line in log.read_text().splitlines()]
    assert len(logged) == len(launches) * (3 + 2 * (2 + 1))  # a run before each timed one
    for (address, size, *shape), (grid, threads, first) in zip(launches, logged, strict=False):
        assert [grid, threads] == shape
        assert address <= first < address + size


def test_a_thread_that_has_not_touched_the_gpu_allocates_and_copies(driver_folder):
    run(
        driver_folder,
        """
import threading
import numpy as np
from core_compiler.runtime.cuda import CudaDevice

device, made = CudaDevice(None), []

def work():
    buffer = device.allocate(40)
    back = np.zeros(10, np.float32)
    device.copy(buffer, np.arange(10, dtype=np.float32))
    device.copy(back, buffer)
    made.append(back.tolist())

thread = threading.Thread(target=work)
thread.start()
thread.join()
assert made == [[*range(10)]]
""",
    )


def test_a_thread_keeps_the_gpu_that_it_works_on(driver_folder):
    run(
        driver_folder,
        """
import ctypes
import numpy as np
from core_compiler.runtime.cuda import CudaDevice

library = ctypes.CDLL("libcuda.so.1")

def kept():
    assert library.fake_current() == 1

library.fake_work_on_another()
device = CudaDevice(None)
kept()
buffer = device.allocate(40)
kept()
device.copy(buffer, np.arange(10, dtype=np.float32))
kept()
device.synchronize()
kept()
del buffer
kept()
del device
kept()
assert not library.fake_streams()
""",
    )


@pytest.mark.slow
def test_a_gpu_whose_memory_is_too_small_is_said(driver_folder):
    said = run(
        driver_folder,
        """
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.support.errors import UserError
from tests.passes.programs import inputs, program

module = program(lambda b, x: [b.exp(x)], "1024x1024xf32")
try:
    compilation.start(module, "cuda", Options()).finish()(*inputs(module))
except UserError as error:
    print(error.exit_code, error)
""",
        memory=1 << 20,
    )
    assert said.startswith("3 ") and "of GPU memory, 1.000 MiB are free" in said


def test_negative_arguments_are_twos_complements():
    """Strides and paddings may be negative: the driver takes 64-bit words."""
    packed = Driver.arguments(None, [1 << 40, -3, -(1 << 63)])  # type: ignore[arg-type]
    assert packed[:3].view(np.int64).tolist() == [1 << 40, -3, -(1 << 63)]
    assert packed[3:].tolist() == [packed.ctypes.data + 8 * i for i in range(3)]
