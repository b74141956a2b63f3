"""Overlays of the graph: how large values and the gradients of parameters are, against torch."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.record.recorder import Recorder
from core_compiler.training.optimisers import optimizers
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import graph

torch = pytest.importorskip("torch", reason="its gradients are compared with")

VALUES, GRADIENTS = "largest |value|", "largest |gradient| of a parameter"


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """A recorded training step, with its model and batch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
    x = np.random.default_rng(0).standard_normal((8, 24)).astype(np.float32)
    y = np.arange(8) % 5
    path = tmp_path_factory.mktemp("step") / "step.run"
    how = cc.Training(loss="cross_entropy", optimizer=optimizers.SGD(0.1))
    recorder = Recorder(path)
    recorder.begin({"model": "two layers"})
    cc.compile(model, (x, y), training=how, check=True, observer=recorder)
    recorder.end("finished")
    run = Run(path)
    yield run, model, torch.from_numpy(x), torch.from_numpy(y)
    run.close()


def overlays(run: Run, stage: int) -> dict[str, dict[int, float]]:
    """Overlay -> op -> its figure, of the ops that have one."""
    shown = graph.data((run,), ViewState(stage=stage))
    keys = shown["ops"]["key"].tolist()
    return {
        each["name"]: {k: v for k, v in zip(keys, each["values"].tolist(), strict=True) if v == v}
        for each in shown["overlays"]
    }


@pytest.mark.slow
def test_the_gradients_of_parameters_are_torchs_at_every_stage(step):
    run, model, x, y = step
    torch.nn.functional.cross_entropy(model(x), y).backward()
    wanted = sorted(float(p.grad.abs().max()) for p in model.parameters())
    stages = {s.pass_name: s.index for s in run.stages()}
    assert GRADIENTS not in overlays(run, 0)
    for name in ("differentiate", "eliminate_dead_code#2", "order_launches", "bufferize"):
        shown = overlays(run, stages[name])[GRADIENTS]
        np.testing.assert_allclose(sorted(set(shown.values())), wanted, rtol=1e-5)


@pytest.mark.slow
def test_values_are_the_networks(step):
    run, model, x, _ = step
    with torch.no_grad():
        hidden = model[0](x)
        wanted = {"core.relu": torch.relu(hidden), "core.linear": model(x)}
    found = overlays(run, 0)[VALUES]
    for kind, made in wanted.items():
        (*_, last) = [k for k in found if run.recording.op(k).kind == kind]
        np.testing.assert_allclose(found[last], float(made.abs().max()), rtol=1e-5)
    # Later stages have what leaves their kernels.
    later = overlays(run, len(run.stages()) - 1)[VALUES].values()
    assert any(abs(v - found[last]) <= 1e-5 * v for v in later)
