"""Executables on the CPU device: right results on any number of threads, refusals by name."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from core_compiler.ir.weights import array_digest
from core_compiler.runtime import memory
from core_compiler.runtime.cpu import CpuDevice
from core_compiler.runtime.kernel_cache import MissingKernel
from core_compiler.runtime.program import (
    BUILTIN,
    Argument,
    Constant,
    KernelRef,
    Launch,
    Program,
    Ref,
)
from core_compiler.runtime.team import native
from core_compiler.support.errors import InternalError, UserError
from tests.runtime.toy_kernels import THROUGH_SCRATCH, kernel

N = 1000
COPY = KernelRef("copy", BUILTIN, "cw_copy")


def chain(kernels, length=5, size=N, flops=10**7, **changes) -> tuple[Program, dict, np.ndarray]:
    """x -> ((x * c + 1) * c + 1)..., ping-pong through two arena halves; with its constant.

    ``flops`` of a launch: as many as all threads share.
    """
    (compiled,) = kernels.compile([kernel("fused")])
    c = np.linspace(-1, 1, size, dtype=np.float32)
    places = [
        Ref("input"),
        *(Ref("arena", 0, 4096 * (i % 2)) for i in range(length - 1)),
        Ref("output"),
    ]
    launches = tuple(
        Launch(
            f"step{i}",
            "fused",
            (places[i], Ref("constant"), places[i + 1]),
            (),
            size,
            max_threads=i % 3,
            flops=flops,
            bytes=12 * size,
        )
        for i in range(length)
    )
    program = Program(
        "chain",
        (Argument("x", "f32", (size,)),),
        (Argument("y", "f32", (size,)),),
        (compiled.ref,),
        launches,
        8192,
        (Constant(array_digest(c), "f32", (size,)),),
        **changes,
    )
    return program, {array_digest(c): c}, c


def expected(x, c, length=5):
    for _ in range(length):
        x = (x * c).astype(np.float32) + np.float32(1)
    return x


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 63, 1000])
def test_bits_do_not_depend_on_threads(kernels, threads, size):
    program, constants, c = chain(kernels, size=size)
    executable = CpuDevice(threads, kernels).load(program, constants)
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    for _ in range(3):
        (y,) = executable(x)
        assert y.tobytes() == expected(x, c).tobytes()


def test_a_program_survives_json_and_runs_the_same(kernels):
    program, constants, c = chain(kernels, facts={"identity": "abc"})
    again = Program.from_json(program.to_json())
    assert again == program
    x = np.arange(N, dtype=np.float32)
    (y,) = CpuDevice(2, kernels).load(again, constants)(x)
    assert y.tobytes() == expected(x, c).tobytes()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 99}', '{"version": 1, "name": 3}'])
def test_a_damaged_program_is_refused(text):
    with pytest.raises(UserError, match="compile the model again"):
        Program.from_json(text)


def test_references_outside_their_buffer_are_refused(kernels):
    program, _constants, _ = chain(kernels)
    bad = Launch("bad", "fused", (Ref("arena", 0, 9000),))
    with pytest.raises(InternalError, match="bad reads out of bounds"):
        Program("p", (), (), program.kernels, (bad,), 8192).check()


def test_many_python_threads_one_executable_and_two(kernels):
    program, constants, c = chain(kernels)
    shared = [
        CpuDevice(2, kernels).load(program, constants),
        CpuDevice(1, kernels).load(program, constants),
    ]
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
        want = expected(x, c).tobytes()
        for i in range(60):
            (y,) = shared[(seed + i) % 2](x)
            if y.tobytes() != want:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_every_item_of_every_launch_runs_once(kernels, threads):
    """In-place x = x * 1 + 1 a few hundred times: an item run twice or skipped, or a launch that
    starts before the one before it is done, changes the count.  More threads than processors."""
    (compiled,) = kernels.compile([kernel("fused")])
    size, length, one = 97, 300, np.ones(97, np.float32)
    counts = Ref("output")
    launches = tuple(
        Launch(
            f"l{i}", "fused", (counts, Ref("constant"), counts), (), size, max_threads=i // 3 % 4
        )
        for i in range(length)
    )
    arguments = (Argument("x", "f32", (size,)),), (Argument("y", "f32", (size,), alias=0),)
    constant = Constant(array_digest(one), "f32", (size,))
    program = Program("p", *arguments, (compiled.ref,), launches, 0, (constant,))
    executable = CpuDevice(threads, kernels).load(program, {constant.digest: one})
    for _ in range(100):
        assert (executable(np.zeros(size, np.float32))[0] == length).all()


def test_scratch_is_each_threads_own(kernels):
    (compiled,) = kernels.compile([kernel("through", THROUGH_SCRATCH)])
    size = 10_000
    launch = Launch("s", "through", (Ref("input"), Ref("output")), (), size, scratch_bytes=4 * size)
    program = Program(
        "p",
        (Argument("x", "f32", (size,)),),
        (Argument("y", "f32", (size,)),),
        (compiled.ref,),
        (launch,),
    )
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    executable = CpuDevice(4, kernels).load(program, {})
    for _ in range(20):
        assert np.array_equal(executable(x)[0], x)


def test_prepacked_constants_are_made_once_at_load(kernels):
    program, constants, c = chain(kernels, length=1)
    size = 4 * N
    pack = Launch("pack", "copy", (Ref("packed"), Ref("constant")), (size,), 1)
    step = Launch("step", "fused", (Ref("input"), Ref("packed"), Ref("output")), (), N)
    program = Program(
        "p",
        program.inputs,
        program.outputs,
        (*program.kernels, COPY),
        (step,),
        0,
        program.constants,
        (size,),
        (pack,),
    )
    executable = CpuDevice(2, kernels).load(program, constants)
    x = np.ones(N, np.float32)
    assert executable(x)[0].tobytes() == expected(x, c, 1).tobytes()


def test_a_donated_input_is_copied_not_written(kernels):
    """The output takes over input 0's memory: kernels see its value, callers keep theirs."""
    (compiled,) = kernels.compile([kernel("fused")])
    launch = Launch("l", "fused", (Ref("input"), Ref("input"), Ref("output")), (), N)
    program = Program(
        "p",
        (Argument("x", "f32", (N,)),),
        (Argument("y", "f32", (N,), alias=0),),
        (compiled.ref,),
        (launch,),
    )
    x = np.arange(N, dtype=np.float32)
    executable = CpuDevice(2, kernels).load(program, {})
    (y,) = executable(x)
    assert np.array_equal(x, np.arange(N)) and np.array_equal(y, x * x + 1)
    run = executable.bind(x)
    for _ in range(2):
        run()
        assert np.array_equal(x, np.arange(N)) and run.outputs[0].tobytes() == y.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_bound_run_keeps_its_addresses_while_others_run(kernels, threads):
    program, constants, c = chain(kernels)
    executable = CpuDevice(threads, kernels).load(program, constants)
    x, z = np.ones(N, np.float32), np.full(N, 7, np.float32)
    run, other = executable.bind(x), executable.bind(z)
    executable(x)
    for turn in range(3):
        x[:] = turn
        other()
        run()
        executable.profile([z], repeats=1)
        assert run.outputs[0].tobytes() == expected(x, c).tobytes()
        assert other.outputs[0].tobytes() == expected(z, c).tobytes()


def test_strided_and_misaligned_inputs_are_read_rightly(kernels):
    program, constants, c = chain(kernels)
    executable = CpuDevice(1, kernels).load(program, constants)
    wide = np.random.default_rng(0).standard_normal(2 * N).astype(np.float32)
    odd = np.frombuffer(b"\0" + wide.tobytes(), np.uint8)[1 : 4 * N + 1].view(np.float32)
    assert not odd.flags.aligned
    for x in (wide[::2], wide[::-2], odd):
        assert executable(x)[0].tobytes() == expected(np.array(x), c).tobytes()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "chain: expected 1 inputs .x., got 0"),
        ([np.zeros(N, np.float64)], "chain, input 'x': expected .*1000 f32, got float64"),
        ([np.zeros((N, 1), np.float32)], "chain, input 'x': expected .*1000 f32, got shape 1000x1"),
    ],
)
def test_wrong_inputs_are_refused_by_name(kernels, arrays, message):
    program, constants, _ = chain(kernels)
    executable = CpuDevice(1, kernels).load(program, constants)
    with pytest.raises(UserError, match=message) as refused:
        executable(*arrays)
    assert refused.value.exit_code == 2


def test_too_large_is_refused_before_it_is_tried(kernels, monkeypatch):
    _program, _constants, _ = chain(kernels)
    huge = Program("huge", (), (), (), (), arena_bytes=1 << 50)
    monkeypatch.setattr(np, "empty", lambda *a, **k: pytest.fail("it was allocated"))
    with pytest.raises(
        UserError, match=r"huge: needs 1024.0 TiB of memory, .* available"
    ) as refused:
        CpuDevice(1, kernels).load(huge, {})
    assert refused.value.exit_code == 3
    with pytest.raises(UserError, match="needs"):
        CpuDevice(1, kernels).allocate(memory.available_bytes() * 2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("state", "message"),
    [
        (0x1F80 | 0x8000, "flushes subnormal"),
        (0x1F80 | 0x0040, "flushes subnormal"),
        (0x1F80 | 0x2000, "round to nearest"),
    ],
)
def test_a_thread_that_flushes_to_zero_is_refused(kernels, threads, state, message):
    import platform

    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip(f"MXCSR values are for x86-64, this is {platform.machine()}")
    program, constants, c = chain(kernels)
    executable = CpuDevice(threads, kernels).load(program, constants)
    set_state = native().function("cw_set_state", None, ctypes.c_int64)
    x = np.full(N, 1e-39, np.float32)
    set_state(state)
    try:
        with pytest.raises(UserError, match=message):
            executable(x)
    finally:
        set_state(0x1F80)
    assert executable(x)[0].tobytes() == expected(x, c).tobytes()


def test_team_threads_keep_subnormals_though_made_by_a_thread_that_flushes(kernels):
    """A thread inherits its creator's control register; the team sets its own."""
    import platform

    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip(f"MXCSR values are for x86-64, this is {platform.machine()}")
    program, constants, _c = chain(kernels, length=1)
    set_state = native().function("cw_set_state", None, ctypes.c_int64)
    set_state(0x1F80 | 0x8040)
    try:
        device = CpuDevice(7, kernels)  # no other test makes a team of seven
        executable = device.load(program, {k: np.full(N, 1e38, np.float32) for k in constants})
    finally:
        set_state(0x1F80)
    x = np.full(N, 1e-40, np.float32)
    want = expected(x, np.float32(1e38), 1)
    assert want[0] > 1  # a flushed input would give exactly 1
    assert executable(x)[0].tobytes() == want.tobytes()


def test_profile_gives_raw_samples_of_every_launch(kernels):
    program, constants, _ = chain(kernels)
    samples = CpuDevice(2, kernels).load(program, constants).profile(repeats=7, warmup=1)
    assert samples.times.shape == (7, 5, 2, 2)
    assert samples.durations.shape == (7, 5) and (samples.durations > 0).all()
    assert (samples.totals >= samples.durations.sum(axis=1) * 0.99).all()
    # launches follow one another: none starts before the one before it has ended everywhere
    starts = np.where(samples.times[..., 0] == 0, 2**62, samples.times[..., 0]).min(axis=2)
    ends = samples.times[..., 1].max(axis=2)
    assert (starts[:, 1:] >= ends[:, :-1]).all()


def test_little_work_wakes_no_other_thread(kernels, monkeypatch):
    monkeypatch.setattr(CpuDevice, "spreads", False)
    program, constants, c = chain(kernels, flops=100)
    executable = CpuDevice(2, kernels).load(program, constants)
    assert executable.profile(repeats=1).times.shape == (1, 5, 1, 2)
    x = np.ones(N, np.float32)
    assert executable(x)[0].tobytes() == expected(x, c).tobytes()


def test_a_missing_kernel_says_compile_again(kernels):
    _program, _constants, _ = chain(kernels)
    lost = Program("p", (), (), (KernelRef("gone", "0" * 64, "gone"),), ())
    with pytest.raises(MissingKernel, match="kernel gone: is not in the kernel cache"):
        CpuDevice(1, kernels).load(lost, {})


def test_copy_moves_between_host_and_device(kernels):
    device = CpuDevice(1, kernels)
    x = np.arange(10, dtype=np.int64)
    buffer, back = device.allocate(80), np.zeros_like(x)
    assert buffer.address % 64 == 0
    before = device.record()
    device.copy(buffer, x)
    device.copy(back, buffer)
    assert np.array_equal(x, back) and device.record() - before > 0
    with pytest.raises(UserError, match="cannot copy 80 bytes to 8"):
        device.copy(np.zeros(1), buffer)
