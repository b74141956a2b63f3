"""Compiled programs shared by the tests of the session (kernels come from the run's one cache)."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from tests.passes.programs import inputs, program


def small_network(b, x):
    """A product with bias and activation, a normalisation, and something for each early pass."""
    random = np.random.default_rng(2)
    weight = b.constant(random.standard_normal((6, 8)).astype(np.float32))
    bias = b.constant(random.standard_normal(8).astype(np.float32))
    hidden = b.linear(b.mul(x, b.scalar_like(1, x)), weight, bias)
    hidden = b.add(hidden, b.mul(hidden, b.sigmoid(hidden)))
    return b.softmax(hidden, axis=1), b.neg(b.neg(b.transpose(hidden, permutation=(1, 0))))


@pytest.fixture(scope="session")
def network():
    return program(small_network, "5x6xf32")


@pytest.fixture(scope="session")
def arrays(network):
    return inputs(network)


@pytest.fixture
def started(network, arrays):
    """A compilation at stage 0."""
    return compilation.start(network, "cpu", Options(threads=1), arrays)


@pytest.fixture(scope="session")
def finished(network, arrays):
    """A checked compilation of all passes; tests may execute it and read it, not change it."""
    return compilation.start(network, "cpu", Options(check=True, threads=1), arrays).finish()
