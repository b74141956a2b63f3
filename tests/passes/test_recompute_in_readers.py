"""Recompute in readers: what is as cheap to compute as to read is not stored."""

from __future__ import annotations

import numpy as np

from core_compiler.debug.bits import same_bits
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from tests.passes import specs
from tests.passes.programs import program

#: A batch of images, and numbers of each channel.
IMAGES, CHANNELS = "4x32x32x32xf32", "32xf32"
PASS = "recompute_in_readers"


def _normalised(b, x, scale):
    """Images less their mean, and over the root of their variance: the difference has two uses."""
    axes = (0, 2, 3)
    size = b.constant(4 * 32 * 32, "f32")
    mean = b.div(b.reduce_sum(x, axes=axes), b.broadcast(size, shape=(32,), dims=()))
    centred = b.sub(x, b.broadcast(mean, shape=(4, 32, 32, 32), dims=(1,)))
    variance = b.reduce_sum(b.mul(centred, centred), axes=axes)
    root = b.broadcast(b.mul(variance, scale), shape=(4, 32, 32, 32), dims=(1,))
    return b.div(centred, root)


def _made(build, *types):
    made = specs.reach(PASS, build, *types)
    return made, made.step()


def test_a_difference_from_the_mean_is_not_stored():
    def build(b, x, scale):
        return _normalised(b, b.exp(x), scale)

    made, stage = _made(build, IMAGES, CHANNELS)
    assert specs.rules_fired(stage.rewrites) == ["compute what was read", "a result nobody reads"]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)
    groups = [kind for kind in specs.kinds(made.module) if "sub" in kind]
    assert len(groups) == 2  # the variance and the quotient: each subtracts
    large = 4 * 32 * 32 * 32
    stored = [
        v for op in stage.module.main.body.ops for v in op.results if v.type.elements == large
    ]
    assert len(stored) == 2  # the exponential and the result


def test_what_is_computed_from_an_argument_is_stored():
    """An argument may be a parameter, which the step overwrites as soon as its last reader ran."""
    _, stage = _made(_normalised, IMAGES, CHANNELS)
    assert not stage.changed


def test_long_formulas_are_stored():
    def build(b, x, scale):
        e = b.exp(x)
        total = b.broadcast(b.reduce_sum(e, axes=(0, 2, 3)), shape=(4, 32, 32, 32), dims=(1,))
        return b.div(e, total)

    _, stage = _made(build, IMAGES, CHANNELS)
    assert not stage.changed


def test_two_operands_for_one_value_are_no_gain():
    """A sum of two images read twice: four images are read in place of two, and one written."""

    def build(b, x, y):
        total = b.add(b.exp(x), b.exp(y))
        reduced = [b.reduce_sum(total, axes=axes) for axes in ((0, 2, 3), (2, 3))]
        return b.mul(total, b.broadcast(reduced[0], shape=(4, 32, 32, 32), dims=(1,))), reduced[1]

    _, stage = _made(build, IMAGES, IMAGES)
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)
    assert "compute what was read" not in specs.rules_fired(stage.rewrites)


def test_small_values_are_stored():
    def build(b, x, scale):
        return _normalised_small(b, b.exp(x), scale)

    _, stage = _made(build, "4x8x8x8xf32", "8xf32")
    assert not stage.changed


def _normalised_small(b, x, scale):
    mean = b.reduce_sum(x, axes=(0, 2, 3))
    centred = b.sub(x, b.broadcast(mean, shape=(4, 8, 8, 8), dims=(1,)))
    variance = b.mul(b.reduce_sum(b.mul(centred, centred), axes=(0, 2, 3)), scale)
    return b.div(centred, b.broadcast(variance, shape=(4, 8, 8, 8), dims=(1,)))


def test_the_bits_are_those_of_the_reference():
    def build(b, x, scale):
        return _normalised(b, b.exp(x), scale)

    made = compilation.start(program(build, IMAGES, CHANNELS), "cpu", Options()).finish()
    random = np.random.default_rng(0)
    x = random.standard_normal((4, 32, 32, 32)).astype(np.float32)
    scale = random.uniform(1, 2, 32).astype(np.float32)
    (ours,) = made.executable(x, scale)
    (expected,) = specs.outputs(made.stages[0].module, [x, scale])
    assert same_bits(ours, expected)
