"""Numbers for a model that has none of its own: weights, inputs, the state of a training step."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import recorded_stage
from core_compiler.frontends import stand_ins
from core_compiler.ir import Module, Resource, WeightStore
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.support.errors import UserError
from core_compiler.targets.cpu import CPU
from core_compiler.training.config import Training
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers.loss_scale import Dynamic
from core_compiler.training.optimisers.optimizers import (
    SGD,
    Adam,
    AdamW,
    Lion,
    RMSprop,
    scalars_after,
)
from core_compiler.training.optimisers.schedules import Cosine, Warmup
from core_compiler.training.passes import lowered, pipeline
from core_compiler.training.run.recorded import training_of
from tests.passes.programs import program

WEIGHT = np.random.default_rng(3).standard_normal((400, 64)).astype(np.float32)


def without_weights(module: Module) -> Module:
    return module.with_(weights=WeightStore())


def run(module: Module, arrays) -> tuple[np.ndarray, ...]:
    return evaluate_block(module.main.body, arrays, module.weights)


def test_places_lie_inside_what_they_point_into():
    def build(b: Builder, tokens, rows, mask):
        words = b.take(b.constant(WEIGHT), b.reshape(tokens, shape=(12,)), axis=0)
        picked = b.take(words, b.select(mask, rows, rows), axis=0)
        return b.reduce_sum(picked, axes=(0,))

    module = program(build, "3x4xi64", "6xi64", "6xi1")
    tokens, rows, mask = stand_ins.inputs(module)
    assert 2 < tokens.max() < 400 and tokens.min() >= 0 and tokens.shape == (3, 4)
    assert 2 < rows.max() < 12 and rows.min() >= 0
    assert mask.dtype == bool
    assert [a.tobytes() for a in stand_ins.inputs(module)] == [
        a.tobytes() for a in (tokens, rows, mask)
    ]
    other = stand_ins.inputs(module, 1, like=[np.array([[6]])])[0]
    assert other.max() < 7 and other.tobytes() != tokens.tobytes()


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.sqrt(x),
        lambda b, x: b.rsqrt(
            b.add(
                b.broadcast(x, shape=(2, 50), dims=(1,)),
                b.constant(np.full((2, 50), 1e-5, np.float32)),
            )
        ),
        lambda b, x: b.log(b.mean(b.concat(x, x, axis=0), axes=(0,))),
        lambda b, x: b.pow(x, b.scalar_like(0.3, x)),
    ],
    ids=["root", "variance", "mean", "power"],
)
def test_nothing_negative_comes_under_a_root(build):
    module = program(build, "50xf32")
    (x,) = stand_ins.inputs(module)
    assert (x >= 0).all() and np.isfinite(run(module, [x])[0]).all()


def test_what_is_squared_may_be_negative():
    module = program(lambda b, x: b.sqrt(b.mul(x, x)), "50xf32")
    assert (stand_ins.inputs(module)[0] < 0).any()


def test_weights_keep_the_size_of_numbers_and_variances_are_positive():
    def build(b: Builder, x):
        variance, mean, scale, bias = (b.constant(WEIGHT[:, 0] * n) for n in (1, 2, 3, 4))
        y = b.batch_norm(x, scale, bias, mean, variance, epsilon=1e-5)
        y = b.reshape(y, shape=(2, 400))
        return b.matmul(y, b.constant(WEIGHT))

    module = without_weights(program(build, "2x400x1x1xf32"))
    held, count = stand_ins.fill_missing_weights(module, "the test")
    assert count == 5 == len(stand_ins.missing_weights(module)) and not stand_ins.missing_weights(
        held
    )
    assert held.main.outputs == module.main.outputs
    again, _ = stand_ins.fill_missing_weights(without_weights(module), "the test")
    digests = [
        [v.digest for op in m.walk() for v in op.attributes.values() if isinstance(v, Resource)]
        for m in (held, again, module)
    ]
    assert digests[0] == digests[1] and not set(digests[0]) & set(digests[2])
    (y,) = run(held, stand_ins.inputs(held))
    assert np.isfinite(y).all() and 0.05 < y.std() < 20


def test_more_weights_than_fit_are_refused(monkeypatch):
    module = without_weights(program(lambda b, x: b.matmul(x, b.constant(WEIGHT)), "2x400xf32"))
    monkeypatch.setattr(stand_ins, "MAX_GENERATED_ELEMENTS", WEIGHT.size - 1)
    with pytest.raises(UserError, match="more than 25,599 weights are not in the text"):
        stand_ins.fill_missing_weights(module, "the text")


# -- training --------------------------------------------------------------------------------------

TRAININGS = [
    Training(),
    Training(optimizer=AdamW(Warmup(5, Cosine(0.01, 100)), weight_decay=0.1), clip_norm=0.5),
    Training(loss="mse", optimizer=RMSprop(centered=True), shards=4, sync_batch_norm=False),
    Training(optimizer=SGD(0.1, momentum=0.9), precision="f16", loss_scale=Dynamic(1024.0)),
    Training(optimizer=Lion(), precision="bf16", loss_scale=8, recompute=0.5, freeze=("x",)),
]


@pytest.mark.parametrize("training", TRAININGS, ids=lambda t: type(t.optimizer).__name__)
def test_a_recorded_configuration_has_the_same_passes(training):
    again = training_of(training.facts())
    assert pipeline(again) == pipeline(training)
    target = CPU().pipeline({})
    assert lowered(target, again) == lowered(target, training)
    assert (again.seed, again.shards) == (training.seed, training.shards)


@pytest.mark.parametrize(
    "said",
    [
        "MyOptimizer(rate=0.1)",
        "SGD(rate=__import__('os').system('x'))",
        "SGD(0.1)",
        "SGD(",
        7,
        "SGD(rate=0.1).rate",
        "Cosine(value=1.0, iterations=3)" * 900,
        None,
    ],
)
def test_another_optimiser_is_not_run(said):
    with pytest.raises(UserError, match="unknown optimiser "):
        training_of({**Training().facts(), "optimizer": said})


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["adam", "rmsprop", "adagrad", "lion", "sgd"])
def test_the_state_of_a_step_is_one_that_it_may_come_to(name):
    torch = pytest.importorskip("torch")
    from tests.training.helpers import after_passes, joint_of

    made = {"rmsprop": RMSprop(centered=True), "sgd": SGD(momentum=0.9, dampening=0.5)}
    training = Training(optimizer=made.get(name, name))
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 5))
    module = joint_of(model, (torch.zeros(4, 6),), training).module
    arrays = recorded_stage.inputs(module, training=training)
    rows = Roles.of(module.main)
    targets = arrays[rows.number("batch", "targets")]
    assert targets.min() >= 0 and targets.max() < 5
    after = after_passes(module, training)
    out = evaluate_block(after.main.body, arrays, after.weights)
    for (role, of), array in zip(Roles.of(after.main).results, out, strict=True):
        assert np.isfinite(array).all(), (role, of)
        if role == "next" and rows.arguments[of][0] in ("parameter", "slot"):
            assert array.tobytes() != arrays[of].tobytes(), rows.arguments[of]


def test_numbers_of_the_optimiser_are_those_of_later_iterations():
    made = scalars_after(Adam(betas=(0.5, 0.25)), 3)
    assert made == {"beta1_power": 0.125, "beta2_power": 0.015625}
    assert scalars_after(SGD(), 3) == {}
