"""How many functions a model compiles: equal pieces of kernels are one function."""

from __future__ import annotations

import pytest

from core_compiler.codegen.cpu import generate
from core_compiler.driver.compilation import Options, start
from tests.slow import slow_but

pytest.importorskip("torch", reason="the sample models are torch modules")

MODELS = {
    "bert-base": ({"width": 0.2, "depth": 2, "sequence": 128}, 20),
    "resnet50": ({"width": 0.125, "image": 64}, 40),
}


def scheduled(name: str, options: dict):
    """The module as code generation gets it."""
    from core_compiler.frontends.pytorch import import_module
    from sample_models import build

    built = build(name, **options)
    imported = import_module(built.module, built.example_inputs)
    compilation = start(imported.module, "cpu", Options(verify=False))
    while compilation.next.label != "generate_code":
        compilation.step()
    return compilation


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("bert-base",), MODELS))
def test_functions_to_compile(name):
    options, most = MODELS[name]
    compilation = scheduled(name, options)
    kernels = [f for f in compilation.module.functions.values() if f.level == "kernel"]
    assert 10 < len(kernels) <= most, [f.name for f in kernels]
    texts = {generate(f.with_(name="kernel")).text for f in kernels}
    assert len(texts) == len(kernels), "two functions are the same code"
    tiles = {f.name.rsplit("_", 1)[1] for f in kernels if f.name.startswith("tile_")}
    assert len(tiles) == 1, "all products share one family of register tiles"
    launched = {op["kernel"] for op in compilation.module.main.body.ops if op.get("kernel")}
    called = {o["callee"] for f in kernels for o in f.body.walk() if o.kind == "kernel.invoke"}
    packers = set(compilation.facts["packers"].values())
    assert {f.name for f in kernels} == launched | called | packers, "none is compiled for nothing"
