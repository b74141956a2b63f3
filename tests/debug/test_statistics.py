"""Statistics of values: against NumPy in f64, and on a whole compile."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from core_compiler.debug.statistics import (
    BINS,
    SAMPLE,
    network_values,
    stage_statistics,
    statistics,
)
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir import Value, dtype, tensor
from core_compiler.ir.events import Observer
from tests.debug import faults
from tests.passes.programs import program

KINDS = st.sampled_from(
    [np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_]
)
ARRAYS = KINDS.flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def of(array):
    return statistics(Value(tensor(array.shape, dtype("f32"))), array, 3)


@given(ARRAYS)
def test_it_counts_what_numpy_counts(array):
    found = of(array)
    wide = array.astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    assert (found.nan, found.inf) == (np.isnan(wide).sum(), np.isinf(wide).sum())
    assert found.stage == 3
    if not finite.size:
        assert np.isnan([found.minimum, found.maximum, found.mean]).all()
        assert found.histogram == ((), ())
        return
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    with np.errstate(over="ignore"):
        mean = finite.mean()
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12, atol=1e-12 * abs(finite).max())
    assert sum(found.histogram[1]) in (0, finite.size)  # 0: its width is no number


@given(st.integers(0, 2**31), st.integers(1, 3 * SAMPLE))
def test_the_histogram_is_numpys_of_evenly_spaced_elements(seed, size):
    array = np.random.default_rng(seed).standard_normal(size)
    edges, counts = of(array).histogram
    step = (size // SAMPLE) | 1
    wanted, _ = np.histogram(array[::step], BINS, (array.min(), array.max()))
    if size == 1:
        assert counts == [1]
        return
    assert len(edges) == len(counts) + 1 == BINS + 1
    # Elements on an edge may be rounded to either side of it.
    assert sum(counts) == wanted.sum() and np.abs(np.cumsum(counts) - np.cumsum(wanted)).max() <= 1
    np.testing.assert_allclose([edges[0], edges[-1]], [array.min(), array.max()], rtol=1e-5)


def test_constants_and_what_follows_from_them_are_no_values_of_the_network():
    module = program(lambda b, x: b.add(b.exp(x), b.exp(b.scalar_like(1.0, x))), "2x3xf32")
    kinds = {v: op.kind for op in module.main.body.ops for v in op.results}
    assert [kinds.get(v, "input") for v in network_values(module)] == [
        "input",
        "core.exp",
        "core.add",
    ]


def test_values_beyond_the_bound_are_counted_not_looked_at(monkeypatch):
    module = program(lambda b, x: b.neg(b.exp(b.sin(x))), "4x5xf32")
    values = network_values(module)
    known = {v: np.ones((4, 5), np.float32) for v in values}
    assert len(stage_statistics(module, known, 0)[0]) == len(values) == 4
    monkeypatch.setattr("core_compiler.debug.statistics.MOST_ELEMENTS", 50)
    found, left = stage_statistics(module, known, 0)
    assert [s.value for s in found] == values[:2] and left == 2
    assert stage_statistics(module, {values[0]: known[values[0]]}, 0)[1] == 0
    known[values[1]] = np.ones((8, 10), np.float32)
    found, left = stage_statistics(module, known, 0)
    assert [s.value for s in found] == [values[0], values[2]] and left == 2, "small ones behind it"


class Told(Observer):
    def __init__(self):
        self.tensors_, self.facts = [], {}

    def tensors(self, tensors):
        self.tensors_ += tensors

    def figures(self, figures):
        self.facts.update(figures)


def compiled(options: Options) -> tuple[compilation.Compilation, Told]:
    """A compile until it has buffers, and what it told."""
    module, inputs = faults.network()
    told = Told()
    made = compilation.start(module, "cpu", options, inputs, told)
    while made.stages[-1].name != "bufferize":
        made.step()
    return made, told


def test_a_checked_compile_tells_them_at_the_import_and_before_buffers():
    made, told = compiled(Options(check=True))
    module, inputs = made.stages[0].module, made.inputs
    stages = {s.stage for s in told.tensors_}
    before_buffers = next(s.index for s in made.stages if s.module.main.level == "target") - 1
    assert stages == {0, before_buffers}
    x = next(s for s in told.tensors_ if s.value is module.main.arguments[0])
    assert x.maximum == inputs[0].max()
    outputs = [s for s in told.tensors_ if s.stage == 0 and s.value in module.main.outputs]
    assert len(outputs) == 2 and all(s.nan == s.inf == 0 for s in outputs)
    assert {f"statistics_seconds/{s}" for s in stages} <= told.facts.keys()


def test_a_compile_without_checks_looks_at_nothing():
    assert compiled(Options())[1].tensors_ == []
