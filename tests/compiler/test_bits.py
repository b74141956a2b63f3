"""Bits: one digest over threads, tilings and vector widths; a row of a batch is a batch of one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from core_compiler.debug.bits import same_bits
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.numerics.reference.digest import digest
from tests.passes.programs import program
from tests.sample_models.narrow import NARROW
from tests.slow import slow_but
from workbench.model import models
from workbench.model.spec import read_spec

WAYS = [(width, tiles) for width in (16, 8) for tiles in ("default", "small")]
SMALL = ("digits-mlp", "digits-cnn")


@lru_cache(maxsize=4)
def load(name: str, batch: int = 1):
    sizes = dict(NARROW[name]) | ({"batch": batch} if batch > 1 else {})
    return models.load(read_spec(name, "torch", **sizes))


def compiled(name: str, batch: int = 1, threads: int = 1, width: int = 16, tiles: str = "default"):
    options = Options(threads=threads, target={"vector_width": width, "tiles": tiles})
    return compilation.start(load(name, batch).imported.module, "cpu", options).finish()


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(SMALL[:1], NARROW))
def test_one_digest_over_threads_tilings_and_widths(name):
    one_digest(load(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NARROW if n not in SMALL])
def test_one_digest_at_full_size(name):
    one_digest(models.load(read_spec(name, "torch")))


def one_digest(model):
    """Compile a model in each way, execute it on one and two threads, compare digests."""
    digests, identities, programs = set(), set(), set()
    for width, tiles in WAYS:
        for threads in (1, 2):
            options = Options(threads=threads, target={"vector_width": width, "tiles": tiles})
            made = compilation.start(model.imported.module, "cpu", options).finish()
            digests.add(digest(made(*model.inputs)))
            identities.add(made.identity)
        programs.add(tuple(sorted(k.key for k in made.facts["program"][0].kernels)))
    assert len(digests) == 1
    assert len(identities) == 1
    assert len(programs) == len(WAYS), "each way must be other machine code, or nothing was shown"


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("digits-mlp",), NARROW))
def test_row_i_of_a_batch_is_the_batch_of_one(name):
    one, three = compiled(name), compiled(name, 3, 2)
    inputs = load(name, 3).inputs
    together = three(*inputs)
    for i in range(3):
        alone = one(*(np.ascontiguousarray(x[i : i + 1]) for x in inputs))
        for whole, row in zip(together, alone, strict=True):
            assert same_bits(np.ascontiguousarray(whole[i : i + 1]), row), i


def test_bounds_that_differ_in_the_sign_of_zero_stay_two():
    module = program(
        lambda b, x: [
            f(x, **{a: z}, **more)
            for f, a, more in ((b.clamp, "low", {"high": 6.0}), (b.leaky_relu, "slope", {}))
            for z in (0.0, -0.0)
        ],
        "3xf32",
    )
    x = np.array([-1, 2, 3], np.float32)
    results = compilation.start(module, "cpu").finish()(x)
    signs = [bool(np.signbit(y[0])) for y in results]
    assert signs == [False, True, True, False]  # as torch's are
    assert [y.tolist() for y in results] == [[0, 2, 3]] * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(SMALL[:1], NARROW))
def test_results_are_those_of_the_meaning_half(name):
    """Machine code against the references, on the module that the identity is of."""
    from tests.passes import specs

    made = compiled(name)
    sealed = [s.module for s in made.stages if s.step is None or s.step.pass_.half == "meaning"]
    want = specs.outputs(sealed[-1], load(name).inputs)
    for a, b in zip(made(*load(name).inputs), want, strict=True):
        assert same_bits(a, b)
