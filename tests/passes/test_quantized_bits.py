"""Quantised models have the same bits everywhere: reference, CPU and the interpreter of PTX."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.debug.evaluate import Evaluator
from core_compiler.numerics.reference.digest import digest
from sample_models.catalogue import build
from tests.cuda.simulated_target import SimulatedCUDA
from tests.passes.quantised import MODELS, compiled
from tests.slow import slow_but

QUICK = ("decoder",)
#: Shrunken so that the interpreter of PTX ends within a minute.
CATALOGUE = {
    "digits-cnn": {"width": 0.25},
    "mobilenet-v2": {"width": 0.0625, "depth": 1, "image": 32},
    "bert-base": {"width": 0.125, "depth": 1, "sequence": 16},
}


def _meaning(made):
    return [s for s in made.stages if s.step is None or s.step.half == "meaning"][-1].module


def _arrays(results) -> list[np.ndarray]:
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("name", slow_but(QUICK, MODELS))
def test_threads_widths_and_tiles_change_no_bit(name):
    made, _, samples = compiled(name, check=False)
    module = _meaning(made)
    wanted = digest(Evaluator(module.weights).block(module.main.body, list(samples[1])))
    assert digest(_arrays(made(*samples[1]))) == wanted
    kernels = set()
    for width, tiles in ((16, "default"), (8, "small")):
        for threads in (1, 2):
            how = {"threads": threads, "options": {"vector_width": width, "tiles": tiles}}
            again, _, _ = compiled(name, check=False, how=how)
            assert digest(_arrays(again(*samples[1]))) == wanted, (width, tiles, threads)
        program = again.facts["program"][0]
        kernels.add(tuple(sorted(kernel.key for kernel in program.kernels)))
    assert len(kernels) == 2, "each way must be other machine code, or nothing was shown"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*MODELS, *CATALOGUE])
def test_the_gpu_has_the_cpus_bits(name):
    if name in CATALOGUE:
        built = build(name, **CATALOGUE[name])
        model, inputs = built.module, [np.asarray(x) for x in built.example_inputs]
        found = [
            cc.compile(model, inputs, target=target, quantize=cc.Quantization())
            for target in ("cpu", SimulatedCUDA())
        ]
    else:
        found = [
            compiled(name, check=False, how={"target": target})
            for target in ("cpu", SimulatedCUDA())
        ]
        inputs = found[0][2][1]
        found = [each[0] for each in found]
    on_cpu, on_gpu = found
    assert on_gpu.identity == on_cpu.identity
    assert digest(_arrays(on_gpu(*inputs))) == digest(_arrays(on_cpu(*inputs)))
