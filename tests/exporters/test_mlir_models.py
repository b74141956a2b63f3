"""The sample models in both dialects: accepted by MLIR, and run by IREE as our CPU runs them."""

from __future__ import annotations

from itertools import product

import pytest

from core_compiler.driver.compilation import Options
from core_compiler.exporters.mlir import write
from core_compiler.ops.evaluation import evaluate_block
from sample_models import CATALOGUE
from tests.exporters.iree import Loaded, compile_file, differing, refusal
from tests.sample_models.narrow import NARROW
from tests.slow import slow_but
from workbench.model import jobs, models
from workbench.model.spec import read_spec

DIALECTS = ("linalg", "tosa")
#: Largest difference, of the largest result: IREE sums in another order.
CLOSE = 2e-5
FAST = (("digits-mlp", "linalg"), ("digits-cnn", "tosa"))


def _agrees(model, dialect: str, want, folder) -> None:
    imported = model.imported
    path = folder / f"{dialect}.mlir"
    write(imported.module, path, dialect=dialect, inputs=imported.inputs, outputs=imported.outputs)
    assert refusal(path) == ""
    compiled, problem = compile_file(path, dialect)
    assert compiled is not None, problem
    types = [v.type for v in imported.module.main.outputs]
    got = Loaded(compiled)("main", model.inputs, types)
    assert [differing(g, w, CLOSE) for g, w in zip(got, want, strict=True)] == [""] * len(types)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dialect"), slow_but(FAST, product(CATALOGUE, DIALECTS)))
def test_a_narrow_model_runs_as_the_reference(name, dialect, tmp_path):
    model = models.load(read_spec(name, "torch", **NARROW[name]))
    module = model.imported.module
    want = evaluate_block(module.main.body, model.inputs, module.weights)
    _agrees(model, dialect, want, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_model_runs_as_on_our_cpu_at_full_size(name, dialect, tmp_path):
    model = models.load(read_spec(name, "torch"))
    want = jobs.compile(model, "cpu", Options(threads=2))(*model.inputs)
    _agrees(model, dialect, want, tmp_path)
