"""Predicted times: limits that hold for any kernel, and machines that have what they need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_compiler.hardware.gpu import NAMES, machine, nearest
from core_compiler.hardware.machine import shipped
from core_compiler.hardware.occupancy import resident_blocks
from core_compiler.hardware.pipes import FP32, INT
from core_compiler.hardware.prediction import (
    BOUNDS,
    GPUModel,
    LaunchShape,
    Prediction,
    WarpWork,
    total,
)

H200 = GPUModel.of(shipped("h200"))
COUNTS = st.floats(0, 1e6)
WORK = st.builds(
    WarpWork,
    st.floats(1, 1e7),
    st.fixed_dictionaries({FP32: COUNTS, INT: COUNTS, "memory": COUNTS}),
    COUNTS,
    COUNTS,
    COUNTS,
)
LAUNCHES = st.builds(
    LaunchShape,
    st.integers(1, 5000),
    st.sampled_from((32, 64, 256, 1024)),
    st.sampled_from((16, 32, 64)),
    st.sampled_from((0, 4096, 49152)),
    st.integers(0, 1 << 32),
    st.booleans(),
)


@given(WORK, LAUNCHES)
def test_a_launch_takes_the_launch_latency_and_what_bounds_it(work, launch):
    found = H200.predict(work, launch)
    assert found.us >= found.terms["launch"] == pytest.approx(1e6 * H200.launch)
    assert found.terms[found.bound] == max(found.terms.values())
    rest = max(us for name, us in found.terms.items() if name != "launch")
    assert found.us == pytest.approx(found.terms["launch"] + rest)
    assert found.terms.keys() <= BOUNDS.keys() and found.bound_by in BOUNDS.values()


@given(WORK, LAUNCHES, st.integers(1, 2000))
def test_more_blocks_are_never_faster(work, launch, more):
    larger = replace(launch, blocks=launch.blocks + more)
    assert H200.predict(work, larger).us >= H200.predict(work, launch).us


@given(WORK, LAUNCHES)
def test_more_bandwidth_is_never_slower(work, launch):
    wider = replace(H200, bandwidth=2 * H200.bandwidth)
    assert wider.predict(work, launch).us <= H200.predict(work, launch).us


@given(st.floats(1e3, 1e6), st.integers(1, 4))
def test_a_single_block_has_one_multiprocessor(fmas, schedulers):
    """Not the machine's peak: one warp on each of its schedulers does 32 FMAs a cycle at most."""
    launch = LaunchShape(1, 32 * schedulers, 32, 0)
    found = H200.predict(WarpWork(0.0, {FP32: fmas}), launch)
    machine_peak = fmas * 32 * schedulers / (132 * 128 * H200.clock) * 1e6
    assert found.us - found.terms["launch"] >= 131.9 * machine_peak
    assert found.us - found.terms["launch"] == pytest.approx(1e6 * fmas / H200.clock)


def test_a_tail_of_blocks_costs_a_round():
    """132 multiprocessors hold 32 blocks of one warp each: one block more is another round."""
    work = WarpWork(10_000.0, {FP32: 100.0})
    resident, _ = resident_blocks((9, 0), 32, 32, 0)
    full = LaunchShape(132 * resident, 32, 32, 0)
    one = H200.predict(work, full)
    two = H200.predict(work, replace(full, blocks=full.blocks + 1))
    assert (one.rounds, two.rounds) == (1, 2) and one.resident == resident
    start = 1e6 * H200.launch
    assert two.us - start == pytest.approx(2 * (one.us - start))


def test_without_blocks_nothing_is_launched():
    assert H200.predict(WarpWork(1e6, {}), LaunchShape(0, 32, 32, 0)).us == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_each_machine_predicts(name):
    model = GPUModel.of(shipped(name))
    assert model is not None and model.name == name
    found = model.predict(WarpWork(1000.0, {FP32: 500.0}), LaunchShape(1, 64, 32, 0))
    assert found.us == pytest.approx(1e6 * (model.launch + 1000 / model.clock))
    for figure in shipped(name).figures.values():
        assert figure.source != "estimate" or figure.note, "an estimate says of what"


#: NVIDIA's datasheets: TFLOP/s of f32 and f64 without tensor cores, TB/s.
PUBLISHED = {
    "h200": (67, 34, 4.8),
    "h100": (67, 34, 3.35),
    "a100": (19.5, 9.7, 2.039),
    "rtx4090": (82.6, 1.29, 1.008),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_machine_has_its_published_peaks(name):
    model = GPUModel.of(shipped(name))
    f32, f64, bandwidth = PUBLISHED[name]
    for pipe, tera in (("fp32", f32), ("fp64", f64)):
        peak = 2 * model.pipes.lanes[pipe] * model.processors * model.clock
        assert peak == pytest.approx(1e12 * tera, rel=0.02)
    assert model.bandwidth == pytest.approx(1e12 * bandwidth)


def test_latencies_beside_the_chip_do_not_follow_its_clock():
    slow, fast = (
        GPUModel.of(
            machine(f"GPU at {clock}", 132, clock, 1 << 37, 4.8e12, 232448, 50 << 20, (9, 0))
        )
        for clock in (990_000_000, 1_980_000_000)
    )
    assert fast.pipes.latency["l1"] == slow.pipes.latency["l1"]
    assert fast.pipes.latency["dram"] == pytest.approx(2 * slow.pipes.latency["dram"])


def test_a_detected_gpu_has_the_figures_of_the_nearest_machine():
    assert nearest("NVIDIA H100 80GB HBM3", (9, 0)) == "h100"
    assert nearest("NVIDIA GeForce RTX 4090", (8, 9)) == "rtx4090"
    assert nearest("NVIDIA A30", (8, 0)) == "a100"
    assert nearest("NVIDIA L40", (8, 9)) == "rtx4090"
    assert nearest("Tesla T4", (7, 5)) in NAMES
    found = machine("NVIDIA L40", 142, 2_490_000_000, 1 << 35, 8.64e11, 101376, 96 << 20, (8, 9))
    model = GPUModel.of(found)
    assert (model.capability, model.processors) == ((8, 9), 142)
    assert model.bandwidth == pytest.approx(8.64e11)


def test_a_machine_without_the_figures_predicts_nothing():
    assert GPUModel.of(shipped("cpu")) is None
    assert GPUModel.of(replace(shipped("h200"), figures={})) is None


def test_the_bound_of_several_launches_is_that_of_most_time():
    launches = [(Prediction(5.0, "launch"), 3), (Prediction(20.0, "latency"), 1)]
    assert total(launches) == (35.0, "dependent latency")
    assert total([]) == (0.0, "")
