"""Profiles: statistics of raw samples, and the share of a limit nobody passes by definition."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace

import numpy as np
import pytest

from core_compiler.hardware.host import detect
from core_compiler.runtime.budget import TimeBudget
from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.runtime.cpu import CpuDevice
from core_compiler.runtime.limits import MOST, Limits, doubt, kernels, limits, measure
from core_compiler.runtime.peers import Comparison, compare, onnxruntime, torch_eager
from core_compiler.runtime.profiler import Timing, profile, summarise
from core_compiler.runtime.program import KernelRef, Launch, Program
from core_compiler.runtime.samples import Samples
from core_compiler.support.errors import UserError

ROOF = Limits(2, 1e12, ((1 << 10, 4e11), (1 << 20, 1e11)), ((1 << 10, 3e11), (1 << 20, 2e11)))


def test_the_lower_roof_counts():
    assert ROOF.bandwidth(1 << 10) == 4e11  # reading is faster here
    assert ROOF.bandwidth(1 << 20) == 2e11  # copying there
    assert ROOF.bandwidth(1) == 4e11 and ROOF.bandwidth(1 << 30) == 2e11
    assert 2e11 < ROOF.bandwidth(1 << 15) < 4e11
    assert ROOF.least_seconds(1e9, 1024) == 1e-3  # arithmetic
    assert ROOF.least_seconds(10, 1 << 20) == (1 << 20) / 2e11  # bytes
    assert ROOF.percent(2e-3, 1e9, 1024) == pytest.approx(50)
    assert ROOF.peak_flops(64) == 0.5e12 and ROOF.peak_flops(16) == 1e12


def samples() -> Samples:
    launches = tuple(
        Launch(f"l{i}", k, (), flops=1_000_000, bytes=1024) for i, k in enumerate("aba")
    )
    program = Program("p", (), (), tuple(KernelRef(n, n, n) for n in "ab"), launches)
    times = np.zeros((4, 3, 2, 2), np.int64)
    for repeat in range(4):
        for i in range(3):
            start = 10_000 * i + 1_000_000 * (repeat + 1)
            times[repeat, i, 0] = start, start + 1000 * (repeat + 1)
            if i != 1:  # the second launch has one thread
                times[repeat, i, 1] = start + 100, start + 600
    return Samples(program, times, 2)


def test_durations_span_all_threads_and_idle_ones_do_not_count():
    s = samples()
    assert s.durations.tolist() == [[1000 * (r + 1)] * 3 for r in range(4)]
    assert s.totals.tolist() == [20_000 + 1000 * (r + 1) for r in range(4)]
    assert s.imbalance[1] == 0.5 and 0 < s.imbalance[0] < 0.5


def test_kernels_gather_their_launches():
    made = summarise(samples(), ROOF)
    assert [(k.name, k.count, k.total_us, k.median_us) for k in made.kernels] == [
        ("a", 2, 5.0, 2.5),
        ("b", 1, 2.5, 2.5),
    ]
    assert made.kernels[0].gflops == pytest.approx(400)
    assert made.kernels[0].percent_of_limit == pytest.approx(40)
    assert made.launches[0].timing.samples_us == (1.0, 2.0, 3.0, 4.0)
    assert made.launches[0].timing.min_us == 1 and made.launches[0].timing.p95_us == pytest.approx(
        3.85
    )
    assert made.launches[0].gbytes_per_s == pytest.approx(1024 / 2.5e-6 / 1e9)
    assert json.loads(json.dumps(made.to_json()))["kernels"][0]["name"] == "a"


def test_limits_are_measured_once_a_machine(folder: CacheFolder, monkeypatch):
    calls = []

    def slow(threads):
        calls.append(threads)
        return measure(threads, (1 << 14, 1 << 16))

    monkeypatch.setattr("core_compiler.runtime.limits.measure", slow)
    first = limits(1, folder)
    assert limits(1, folder) == first and calls == [1]
    again = limits(1, folder, again=True)
    assert calls == [1, 1] and limits(1, folder) == again
    assert again.flops >= first.flops, "the best counts"
    assert first.flops > 1e8 and all(rate > 1e7 for _, rate in (*first.read, *first.copy))


def test_limits_that_a_launch_passes_are_measured_again_the_next_time(folder, monkeypatch):
    """As on a machine that is busy at first, then less, then more again."""
    rates = iter([1.0, 3.0, 2.0, *[4.0] * MOST])

    def measured(threads):
        rate = next(rates)
        return Limits(threads, rate, ((1, rate), (2, 1.0)), ((1, 1.0), (2, rate)))

    monkeypatch.setattr("core_compiler.runtime.limits.measure", measured)
    doubt(1, folder)
    assert limits(1, folder).flops == 1, "nothing was kept that could be doubted"
    best = Limits(1, 3.0, ((1, 3.0), (2, 1.0)), ((1, 1.0), (2, 3.0)))
    for _ in range(2):
        doubt(1, folder)
        assert limits(1, folder) == limits(1, folder) == best
    for _ in range(2 * MOST):
        doubt(1, folder)
        limits(1, folder)
    assert len([*rates]) == 3, "it is given up: something else is wrong"


class Quick(CpuDevice):
    """Says that the machine can do next to nothing, and hears what is said of that."""

    doubted = 0

    def limits(self) -> Limits:
        return replace(ROOF, flops=1.0, read=((1, 1.0), (2, 1.0)), copy=((1, 1.0), (2, 1.0)))

    def doubt_limits(self) -> None:
        self.doubted += 1


def test_a_launch_that_passes_the_limits_of_its_device_is_told_to_it(kernels):
    from tests.runtime.test_cpu import chain

    program, constants, _ = chain(kernels)
    device = Quick(1, kernels)
    for roof, times in ((ROOF, 0), (None, 1)):
        made = profile(device.load(program, constants), repeats=2, warmup=0, roof=roof)
        assert device.doubted == times
    assert max(x.percent_of_limit for x in made.launches) > 1000, "and the profile keeps it"
    described = replace(ROOF, read=((1, 1.0),))
    assert not described.passed(1000), "its bytes may come from a cache"


def test_measuring_kernels_keep_their_loads_and_multiply_adds():
    """What would be optimised away would measure nothing: count in the assembly."""
    import llvmlite.binding as llvm

    from core_compiler.runtime import loader
    from core_compiler.runtime.limits import CHAINS

    module = llvm.parse_assembly(kernels(detect()))
    assembly = loader._target_machine(3).emit_assembly(module)
    fused = [line for line in assembly.splitlines() if "fmadd" in line or "fmla" in line]
    assert len(fused) >= CHAINS or "call" in assembly  # without the instruction, fma is a call


def test_an_executable_is_profiled_against_given_limits(kernels):
    from tests.runtime.test_cpu import chain

    program, constants, _ = chain(kernels)
    made = profile(CpuDevice(2, kernels).load(program, constants), repeats=5, warmup=1, roof=ROOF)
    assert len(made.launches) == 5 and all(len(x.timing.samples_us) == 5 for x in made.launches)
    assert made.kernels[0].count == 5 and made.threads == 2
    assert made.total.median_us >= max(x.timing.min_us for x in made.launches)


def test_contenders_take_turns():
    log = []
    made = compare(
        lambda: log.append("ours"), {"peer": lambda: log.append("peer")}, rounds=2, runs=1, warmup=0
    )
    turns = [(name, len(list(runs))) for name, runs in itertools.groupby(log)]
    assert [name for name, _ in turns] == ["ours", "peer"] * 2
    assert all(count >= 2 for _, count in turns), "untimed runs, then the timed one"
    assert len(made.ours.samples_us) == len(made.peers["peer"].samples_us) == 2


def test_ratios_above_one_mean_ours_is_faster():
    made = Comparison(Timing((1000.0,)), {"slow": Timing((3000.0,)), "fast": Timing((500.0,))})
    assert made.to_json() == {
        "ours_ms": 1.0,
        "peers": {"slow": 3.0, "fast": 0.5},
        "ratios": {"slow": 3.0, "fast": 0.5},
    }


def test_peers_compute_what_they_are_asked_to(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(torch_eager(torch.nn.ReLU(), (x - 3,), 1)().numpy(), np.maximum(x - 3, 0))
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 3])],
        [onnx.helper.make_tensor_value_info("y", 1, [2, 3])],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8
    )
    onnx.save(model, tmp_path / "m.onnx")
    (y,) = onnxruntime(tmp_path / "m.onnx", {"x": x - 3}, 1)()
    assert np.array_equal(y, np.maximum(x - 3, 0))


# -- the time that measurements may take --


def test_a_budget_ends_after_fewer_repeats_and_at_least_one(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    told: list[tuple[int, int]] = []

    def repeats(seconds: float, each: float, wanted: int = 20) -> int:
        told.clear()
        budget, done = TimeBudget(seconds, lambda *at: told.append(at)), 0
        while budget.allows_repeat(done, wanted):
            clock[0] += each
            done += 1
        assert told == [(i, wanted) for i in range(done)]
        return done

    assert repeats(60, 1) == 20  # all fit
    assert repeats(60, 7) == 8  # a ninth would not
    assert repeats(60, 600) == 1  # the first is always made
    budget = TimeBudget(60)
    clock[0] += 20
    assert not budget.allows_warmup(1, 3) and budget.left == 40
    with pytest.raises(UserError, match="above 0"):
        TimeBudget(float("nan"))


def test_a_profile_says_how_many_repeats_its_time_allowed():
    class Slow:
        """An executable whose runs take 20 ms."""

        device = None

        def profile(self, arrays, *, repeats, warmup, budget):
            done = 0
            while budget.allows_repeat(done, repeats):
                done += 1
                time.sleep(0.02)
            whole = samples()
            times = np.repeat(whole.times[:1], repeats, axis=0)
            return replace(whole, times=times).first(done)

    made = profile(Slow(), repeats=50, roof=ROOF, budget=TimeBudget(0.1))
    said = made.repeats
    assert 1 <= said["repeats"] < said["repeats_wanted"] == 50 and said["ended_by_budget"]
    assert len(made.to_json()["launches"][0]["samples_us"]) == said["repeats"]
    whole = summarise(samples(), ROOF).repeats
    assert whole == {"repeats": 4, "repeats_wanted": 4, "ended_by_budget": False}


def test_contenders_that_take_long_get_one_round():
    calls = dict.fromkeys(("ours", "theirs"), 0)

    def slow(name: str) -> None:
        calls[name] += 1
        time.sleep(0.05)

    made = compare(
        lambda: slow("ours"),
        {"theirs": lambda: slow("theirs")},
        rounds=50,
        budget=TimeBudget(0.1),
    )
    assert (made.rounds, made.rounds_wanted) == (1, 50)
    assert len(made.ours.samples_us) >= 1 and len(made.peers["theirs"].samples_us) >= 1
    assert all(count <= 6 for count in calls.values())
