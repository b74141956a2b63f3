"""Training steps of models whose parts have different dtypes, and of models under autocast.

Every pass of training is run on them and each of its rewrites checked; the gradients are torch's,
as far as the narrowest dtype on the way rounds.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from core_compiler.debug.check import Checker
from core_compiler.debug.evaluate import Evaluator
from core_compiler.driver.legality import levels
from core_compiler.ir.verifier import verify
from core_compiler.passes.base import PassContext
from core_compiler.passes.simplify_loops import SimplifyLoops
from core_compiler.training.config import Training
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers import optimizers
from core_compiler.training.passes import Differentiate, pipeline
from tests.training.helpers import joint_of

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
#: What rounding to nearest is off by.
ROUNDING = {BF16: 2.0**-8, F16: 2.0**-11, F32: 2.0**-24, F64: 2.0**-53}


class Picture(torch.nn.Module):
    """A convolution, a normalisation and a layer, each of a dtype."""

    def __init__(self, conv=F32, norm=F32, layer=F32):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1).to(conv)
        self.norm = torch.nn.BatchNorm2d(4).to(norm)
        self.layer = torch.nn.Linear(4, 3).to(layer)
        self.dtypes = conv, layer

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x.to(self.dtypes[0])))).mean((2, 3))
        return self.layer(x.to(self.dtypes[1]))


class Autocast(torch.nn.Module):
    """A model under ``torch.autocast``."""

    def __init__(self, inner, narrow):
        super().__init__()
        self.inner, self.narrow = inner, narrow

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.narrow):
            return self.inner(x)


#: name -> (model, the narrowest dtype of its values)
MODELS = {
    "autocast bf16": (lambda: Autocast(Picture(), BF16), BF16),
    "autocast f16": (lambda: Autocast(Picture(), F16), F16),
    "bf16, f32 norm": (lambda: Picture(BF16, F32, BF16), BF16),
    "f16, f32 norm": (lambda: Picture(F16, F32, F16), F16),
    "bf16": (lambda: Picture(BF16, BF16, BF16), BF16),
    "f32, f64 layer": (lambda: Picture(F32, F32, F64), F32),
    "f64, bf16 layer": (lambda: Picture(F64, F64, BF16), BF16),
}
TRAININGS = {
    "sgd": Training(optimizer=optimizers.SGD(0.1)),
    "adamw, clipped": Training(optimizer=optimizers.AdamW(1e-2), clip_norm=1.0),
    "bf16": Training(precision="bf16"),
    "f16, scaled": Training(precision="f16"),
    "shards": Training(shards=2),
}


def _step(name: str, training: Training):
    torch.manual_seed(0)
    model, narrowest = MODELS[name][0](), MODELS[name][1]
    x, targets = torch.randn(4, 2, 6, 6), torch.tensor([0, 2, 1, 1])
    joint = joint_of(model, (x,), training)
    given = {"targets": targets.numpy(), "shard": np.int64(0)}
    rows, first = joint.roles.arguments, len(joint.roles.arguments) - len(joint.state)
    batch = [x.numpy(), *(given[row[1]] for row in rows[1:first])]
    return model, narrowest, joint, [*batch, *map(np.asarray, joint.state)], (x, targets)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("model", MODELS)
def test_every_pass_of_training_is_right(model, training):
    training = TRAININGS[training]
    _, _, joint, arrays, _ = _step(model, training)
    module, checker = joint.module, Checker(joint.module, arrays)
    for pass_ in (SimplifyLoops(), *pipeline(training)):
        context = PassContext()
        after = pass_.run(module, context)
        assert not [d for d in verify(after, levels()) if d.severity == "error"], pass_.name()
        for record in checker.stage(
            context.rewrites, pass_.exact, module, after, pass_.changes_semantics
        ):
            assert record.verdict != "failed", f"{pass_.name()}: {record.note}"
        if pass_.changes_semantics and context.rewrites:  # as a compile does (stage_checks.py)
            checker = Checker(after, arrays)
        module = after


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_torchs_in_the_dtypes_of_the_parameters(name):
    training = TRAININGS["sgd"]
    model, narrowest, joint, arrays, (x, targets) = _step(name, training)
    module = Differentiate().run(joint.module, PassContext())
    rows = Roles.of(module.main)
    made = Evaluator(module.weights).block(module.main.body, arrays)
    model.train()
    loss = functional.cross_entropy(model(x), targets)
    loss.backward()
    theirs = {n.replace("inner.", ""): p for n, p in model.named_parameters()}
    compared = 0
    for place, result in rows.gradients().items():
        ours = made[result]
        wanted = theirs[rows.arguments[place][1].replace("inner.", "")]
        assert ours.dtype.name == str(wanted.dtype).removeprefix("torch.")
        grad = wanted.grad.to(F64).numpy()
        # Some ten values are rounded one after the other on the way there and back; a bias in front
        # of a normalisation has a gradient of 0 but for rounding, so the scale is that of all.
        scale = max(float(p.grad.abs().max()) for p in theirs.values())
        assert np.abs(ours.astype(np.float64) - grad).max() <= 10 * ROUNDING[narrowest] * scale
        compared += 1
    assert compared == len(theirs) == 6
