"""Each sample model by both frontends: every rewrite checks, and the results are the peers'."""

from __future__ import annotations

from itertools import product

import pytest

from core_compiler.debug.check import summary
from core_compiler.driver.compilation import Options
from sample_models import CATALOGUE
from tests.sample_models.narrow import NARROW
from tests.slow import slow_but
from workbench.commands.run_model import compare
from workbench.model import jobs, models, peers
from workbench.model.spec import read_spec

#: What the fast run takes; test-all takes every model by both frontends, narrow and at full size.
FAST = (("digits-mlp", "torch"), ("digits-mlp", "onnx"))
CASES = slow_but(FAST, product(CATALOGUE, ("torch", "onnx")))


def agrees(name: str, frontend: str, sizes: dict) -> None:
    model = models.load(read_spec(name, frontend, **sizes))
    made = jobs.compile(model, "cpu", Options(threads=2, check=True))
    verdicts = summary(made.checks)
    assert verdicts.pop("failed") == 0
    assert sum(verdicts.values()) > 0
    ours = made(*model.inputs)
    for framework in ("torch", "onnxruntime"):
        peer = peers.peer(model, framework, 2)
        found = compare(model, made, ours, peer, framework)
        assert found["verdict"] in ("equal", "within"), (framework, found["beyond"])
    values = peers.values(model, peers.FRAMEWORK_OF_FRONTEND[frontend])(lambda done, total: None)
    assert values.verdict in ("equal", "within"), values.beyond


@pytest.mark.slow
@pytest.mark.parametrize(("name", "frontend"), CASES)
def test_checks_are_clean_and_the_peers_agree(name, frontend):
    agrees(name, frontend, NARROW[name])


@pytest.mark.slow
@pytest.mark.parametrize("frontend", ["torch", "onnx"])
@pytest.mark.parametrize("name", [n for n in CATALOGUE if not n.startswith("digits")])
def test_at_full_size(name, frontend):
    agrees(name, frontend, {})
