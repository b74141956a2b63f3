"""Loss scaling: the factor moves, and updates are left out, as with torch.amp.GradScaler."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import core_compiler as cc
from core_compiler.ir import Block, Value, tensor
from core_compiler.ops import Builder
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.fit import fit
from core_compiler.training.optimisers import optimizers
from core_compiler.training.optimisers.loss_scale import GROWTH, SCALE, SKIPPED, Dynamic, Static
from tests.examples import examples
from tests.training.helpers import Reference, joint_of
from tests.training.test_step import Pictures, _made, _pictures


def _line():
    torch.manual_seed(5)
    return torch.nn.Linear(8, 3)


def _batch(number: int, size: float = 1.0):
    torch.manual_seed(number)
    return size * torch.randn(6, 8), torch.randn(6, 3)


#: How large the inputs of each iteration are: the first ones overflow, so does one in between.
SIZES = [300.0] * 4 + [1.0] * 8 + [1000.0] * 2 + [1.0] * 6


def _of_torch(
    scaler: torch.amp.GradScaler, clip: float, make
) -> tuple[list[float], torch.nn.Module]:
    model, found = _line(), []
    optimizer = make(model.parameters())
    for number, size in enumerate(SIZES):
        x, y = _batch(number, size)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            out = model(x)
        scaler.scale(functional.mse_loss(out.float(), y)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
    return found, model


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (optimizers.Adam(1e-3), lambda p: torch.optim.Adam(p, 1e-3)),
        # Its first update is another, and the first iterations make none.
        (
            optimizers.SGD(0.05, momentum=0.9, dampening=0.5),
            lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, dampening=0.5),
        ),
    ],
)
def test_the_factor_moves_as_in_torch(ours, theirs):
    scale = Dynamic(initial=65536.0, interval=3)
    wanted, model = _of_torch(torch.amp.GradScaler("cpu", growth_interval=3), 1.0, theirs)
    training = Training("mse", ours, clip_norm=1.0, precision="f16", loss_scale=scale)
    step = Reference(_line(), _batch(0)[:1], training)
    found, still = [], 0
    for number, size in enumerate(SIZES):
        before = {n: step[n].tobytes() for n in step.places}
        skipped = int(step[SKIPPED])
        step(*(t.numpy() for t in _batch(number, size)))
        found.append(float(step[SCALE]))
        changed = {n for n in before if step[n].tobytes() != before[n]}
        if int(step[SKIPPED]) > skipped:  # Adam's state too is what it was
            still += 1
            assert changed <= {SCALE, GROWTH, SKIPPED, "iteration"}
        else:
            assert {
                "weight",
                "iteration",
                *(n for n in before if n.startswith("weight.")),
                *ours.scalars,
            } <= changed
    assert found == wanted
    assert still == sum(b < a for a, b in zip([65536.0, *wanted], wanted, strict=False)) >= 4
    assert any(b > a for a, b in itertools.pairwise(wanted))
    assert int(step["iteration"]) == len(SIZES)
    for name, held in model.state_dict().items():
        np.testing.assert_allclose(step[name], held.numpy(), rtol=2e-3, atol=1e-5)


@settings(max_examples=examples(60))
@given(st.lists(st.booleans(), max_size=12), st.integers(1, 4), st.floats(0.5, 2.0**127, width=32))
def test_any_run_of_good_and_bad_iterations_is_torchs(run, interval, initial):
    """The next state by the reference, against torch's own update on f32 and i32 tensors."""
    made = Dynamic(float(initial), interval=interval)
    names = list(made.state)
    held = tuple(Value(tensor((), a.dtype), n) for n, a in made.state.items())
    finite = Value(tensor((), "i1"), "finite")
    b = Builder()
    nexts = made.advance(b, dict(zip(names, held, strict=True)), finite)
    block = Block((*held, finite), tuple(b.ops), tuple(nexts[n] for n in names))
    state = list(made.state.values())
    scale, growth = torch.tensor(initial), torch.tensor(0, dtype=torch.int32)
    for good in run:
        state = list(evaluate_block(block, [*map(np.asarray, state), np.asarray(good)]))
        torch._amp_update_scale_(scale, growth, torch.tensor(float(not good)), 2.0, 0.5, interval)
        assert state[names.index(SCALE)].tobytes() == scale.numpy().tobytes()
        assert int(state[names.index(GROWTH)]) == int(growth)
    assert int(state[names.index(SKIPPED)]) == run.count(False)


@pytest.mark.slow
def test_a_factor_that_is_a_power_of_two_changes_no_bit_of_bf16():
    def weights(scale) -> list[bytes]:
        step = Reference(
            _made(Pictures),
            _pictures(0)[:1],
            Training(optimizer=optimizers.SGD(0.1), precision="bf16", loss_scale=scale),
        )
        for number in range(2):
            step(*(t.numpy() for t in _pictures(number)))
        return [step[n].tobytes() for n in step.places if n.endswith(("weight", "bias"))]

    assert weights(None) == weights(1024) == weights(Static(2.0**20))


class Faint(torch.nn.Module):
    """Gradients of some 1e-8: below half of the smallest number of f16."""

    def __init__(self):
        super().__init__()
        self.line = _line()

    def forward(self, x):
        return self.line(x) * 2.0**-24


def test_small_gradients_of_f16_are_lost_without_it():
    def moved(**how) -> float:
        step = Reference(Faint(), _batch(0)[:1], Training("mse", optimizers.SGD(1e7), **how))
        first = step["line.weight"]
        step(*(t.numpy() for t in _batch(0)))
        return float(np.abs(step["line.weight"] - first).max())

    assert moved(precision="f16", loss_scale=1) == 0
    wanted = moved()
    assert wanted > 0 and moved(precision="f16") == pytest.approx(wanted, rel=1e-2)


def test_f16_scales_and_the_others_do_not_unless_asked():
    assert Training(precision="f16").loss_scale == Dynamic()
    assert Training(precision="bf16").loss_scale is None
    assert Training().loss_scale is None
    assert Training(precision="bf16", loss_scale="dynamic").loss_scale == Dynamic(
        65536, 2, 0.5, 2000
    )
    joint = joint_of(_line(), _batch(0)[:1], Training("mse", precision="f16"))
    scalars = {name for role, name, _ in joint.roles.arguments if role == "scalar"}
    assert {SCALE, GROWTH, SKIPPED} <= scalars


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_factor(tmp_path):
    """Compiled: the state is in the digest and in the checkpoint."""
    x = np.concatenate([_batch(n, size)[0].numpy() for n, size in enumerate(SIZES)])
    y = np.concatenate([_batch(n)[1].numpy() for n in range(len(SIZES))])
    training = Training(
        "mse", optimizers.SGD(1e-6), precision="f16", loss_scale=Dynamic(2.0**24, interval=3)
    )
    step = cc.compile(_line(), (x[:6], y[:6]), training=training)
    first = step.whole_state()
    fit(step, (x, y), iterations=8, batch=6)
    wanted, factor = step.digest, step.whole_state()[SCALE]
    assert step.whole_state()[SKIPPED] > 0 and factor < 2.0**24
    step.load_state_dict(first)
    fit(step, (x, y), iterations=3, batch=6, folder=tmp_path)
    step.load_state_dict(first)
    fit(step, (x, y), iterations=8, batch=6, folder=tmp_path, resume=True)
    assert step.digest == wanted
    step.load_state_dict({SCALE: factor * np.float32(2)})
    assert step.digest != wanted


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_an_error_all_the_same():
    step = cc.compile(_line(), _batch(0), training=Training("mse", precision="f16"))
    x, y = _batch(0, 1e4)
    before = step.digest
    said = r"the loss of iteration 1 is nan: core\.cast .* is the first op"
    with np.errstate(all="ignore"), pytest.raises(UserError, match=said):
        step(100 * x.numpy(), y.numpy())
    assert step.digest == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"initial": 0.0}, "value 0.0 for initial"),
        ({"growth": 1.0}, "1.0 for growth.*above 1"),
        ({"backoff": 1.0}, "1.0 for backoff.*between 0 and 1"),
        ({"interval": 0}, "0 for interval"),
    ],
)
def test_constants_that_move_nothing_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        Dynamic(**given)
