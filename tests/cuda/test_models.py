"""Models compiled for CUDA and executed on a simulated GPU: the CPU's bits, kernel by kernel."""

from __future__ import annotations

import json

import pytest

from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.kernels import check_kernels
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.numerics.reference.digest import digest
from tests.cuda.helpers import CAPABILITIES
from tests.cuda.lint import complaints_about_all
from tests.cuda.simulated_target import SimulatedCUDA
from tests.slow import slow_but
from workbench.model import models
from workbench.model.spec import read_spec

#: Shrunken so that the interpreter ends within a minute: products still have whole and edge tiles.
SHRUNKEN = {
    "digits-mlp": {"width": 0.25},
    "digits-cnn": {"width": 0.25},
    "resnet18": {"width": 0.0625, "depth": 1, "image": 32},
    "resnet50": {"width": 0.0625, "depth": 1, "image": 32},
    "mobilenet-v2": {"width": 0.0625, "depth": 1, "image": 32},
    "bert-base": {"width": 0.125, "depth": 1, "sequence": 16},
    "gpt2": {"width": 0.1, "depth": 1, "sequence": 16},
    "gpt2-decode": {"width": 0.1, "depth": 1, "past": 17},
    "vit-b16": {"width": 0.1, "depth": 1, "image": 32},
    "llama-4l": {"width": 0.5, "depth": 1, "sequence": 16},
}
QUICK = ("digits-mlp",)
NAMES = slow_but(QUICK, SHRUNKEN)


def _compiled(name: str, target, **options):
    model = models.load(read_spec(name, "torch", **SHRUNKEN[name]))
    made = compilation.start(model.imported.module, target, Options(target=options)).finish()
    return model, made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_model_has_the_cpus_bits(name):
    model, on_cpu = _compiled(name, "cpu")
    _, on_gpu = _compiled(name, SimulatedCUDA())
    assert digest(on_gpu(*model.inputs)) == digest(on_cpu(*model.inputs))
    assert on_gpu.identity == on_cpu.identity


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
@pytest.mark.parametrize("name", SHRUNKEN)
def test_every_kernel_has_the_bits_of_its_meaning(name, capability):
    target = SimulatedCUDA(capability)
    model, made = _compiled(name, target, architecture=target.driver.gpu.architecture)
    evaluator = Evaluator(made.module.weights)
    found = check_kernels(made.module, made.facts, target, model.inputs, evaluator)
    assert {k.record.verdict for k in found} == {"bitwise"}
    for compiled in made.facts["compiled"].values():
        facts = json.loads(compiled.text("facts.json"))
        assert facts["architecture"] == target.driver.gpu.architecture
        assert facts["spilled"] == facts["stack"] == 0
    assert complaints_about_all(made.facts["compiled"]) == []
