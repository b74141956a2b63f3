"""What a training step holds: the order of launches, what is computed again, state in place."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.passes.find_lifetimes import lifetimes, live_peak
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.optimisers import optimizers
from core_compiler.training.passes.recompute import Recompute

#: Compiled steps and runs of them: all of it takes a minute.
pytestmark = pytest.mark.slow


class Deep(torch.nn.Module):
    """Convolutions with batch normalisation and dropout, then linear layers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8) for _ in range(4))
        self.last = torch.nn.Linear(8 * 36, 5)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + functional.gelu(norm(layer(x)))
        return self.last(functional.dropout(x, 0.3, self.training).flatten(1))


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 16)
        made = [torch.nn.TransformerEncoderLayer(16, 2, 24, 0.1, batch_first=True) for _ in "ab"]
        self.layers = torch.nn.Sequential(*made)
        self.head = torch.nn.Linear(16, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.layers(self.table(tokens)))


def _pictures(number: int = 0):
    random = np.random.default_rng(number)
    return random.standard_normal((8, 8, 6, 6)).astype(np.float32), random.integers(0, 5, 8)


def _words(number: int = 0):
    random = np.random.default_rng(number)
    return random.integers(0, 11, (4, 7)), random.integers(0, 11, (4, 7))


def _step(kind=Deep, batch=_pictures, edit=None, threads: int = 0, **training):
    torch.manual_seed(3)
    with torch.random.fork_rng():
        model = kind()
    how = Training(**{"optimizer": optimizers.SGD(0.05, momentum=0.9), **training})
    return cc.compile(model, batch(), training=how, threads=threads, edit=edit or PipelineEdit())


def _ran(step, batch=_pictures, count: int = 3):
    return [step(*batch(i)) for i in range(count)], step.digest


def _stage(step, label: str):
    return next(s for s in step.compilation.finish().stages if s.step and s.step.label == label)


@pytest.fixture(scope="module", params=["pictures", "words"])
def plain(request):
    """A run of a step as it is, with what makes it."""
    kind, batch = {"pictures": (Deep, _pictures), "words": (Words, _words)}[request.param]
    step = _step(kind, batch, clip_norm=None, optimizer="adamw", threads=1)
    return step, _ran(step, batch), kind, batch


def test_computing_again_changes_memory_and_no_bit(plain):
    _, ran, kind, batch = plain
    again = _step(kind, batch, optimizer="adamw", recompute=0.7, threads=2)
    assert _ran(again, batch) == ran
    choice = again.compilation.facts["recompute"]
    assert choice.fits and choice.plan.again
    second = [r for r in _stage(again, "recompute").rewrites if r.rule == "compute again"]
    assert sum(len(r.new) - 1 for r in second) >= len(choice.plan.again)
    for rewrite in second:
        for op in rewrite.new[:-1]:
            assert op.origin.rule == "computed again" and op.origin.parents


def test_a_program_without_a_backward_pass_is_refused():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU())
    edit = PipelineEdit(insert=(("after:outline_kernels", Recompute(0.5)),))
    with pytest.raises(UserError, match="recompute requires backward_pass, which no earlier pass"):
        cc.compile(model, (torch.randn(2, 4),), edit=edit)


def test_what_is_predicted_is_what_the_plan_of_memory_comes_to(plain):
    """The peak that the choice was made by, beside the live bytes of what came of it."""
    _, _, kind, batch = plain
    step = _step(kind, batch, optimizer="adamw", recompute=0.7)
    ops = step.compilation.finish().module.main.body.ops
    measured, _ = live_peak(lifetimes(ops))
    assert step.compilation.facts["recompute"].plan.peak == pytest.approx(measured, rel=0.1)


def test_state_is_updated_where_it_lies(plain):
    step, _, _, batch = plain
    parts = [s for s in step.compilation.stages if s.step and s.step.label == "update_in_place"]
    assert len(parts) == 1 and parts[0].rewrites
    names = [n for n, v in step.named_state().items() if v.ndim > 1]
    before = {n: step.named_state()[n] for n in names}
    kept = {n: v.copy() for n, v in before.items()}
    step(*batch(7))
    for name in names:
        assert step.named_state()[name] is before[name], name
        assert before[name].tobytes() != kept[name].tobytes(), name


def test_it_gives_the_bits_of_two_sets_of_arrays(plain):
    _, ran, kind, batch = plain
    apart = _step(
        kind, batch, PipelineEdit(skip=("update_in_place", "order_launches")), optimizer="adamw"
    )
    assert _ran(apart, batch) == ran


@pytest.mark.parametrize("name", ["adam", "adagrad", "rmsprop", "lion"])
def test_every_optimizer_updates_in_place(name):
    step = _step(optimizer=name)
    apart = _step(optimizer=name, edit=PipelineEdit(skip=("update_in_place",)))
    assert _ran(step) == _ran(apart)
    taken = {a.alias for a in step._loaded(step.own_bound()).outputs if a.alias >= 0}
    wanted = set(step.roles.numbers("parameter", "slot"))
    assert wanted <= taken


def test_launches_that_let_memory_go_come_early():
    def wide():
        return torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(6)))

    def batch():
        random = np.random.default_rng(0)
        return tuple(random.standard_normal((64, 32)).astype(np.float32) for _ in "xy")

    step = _step(wide, batch, optimizer="adamw", loss="mse")
    skipped = PipelineEdit(skip=("order_launches",))
    late = _step(wide, batch, optimizer="adamw", loss="mse", edit=skipped)

    def peak(made) -> int:
        return live_peak(lifetimes(made.compilation.finish().module.main.body.ops))[0]

    assert peak(step) < 0.8 * peak(late)
    assert any(r.note.startswith("frees ") for r in _stage(step, "order_launches").rewrites)


def test_passes_can_be_stopped_after_some_rewrites():
    ran = _ran(_step(recompute=0.4))
    for label in ("order_launches", "recompute", "update_in_place"):
        step = _step(recompute=0.4, edit=PipelineEdit(limits={label: 1}))
        assert len(_stage(step, label).rewrites) == 1
        assert _ran(step) == ran


def test_shards_and_recomputation_together():
    wanted = _ran(_step(shards=2))
    step = _step(shards=2, recompute=0.7)
    assert _ran(step) == wanted
    outputs = step._loaded(step.own_bound()).outputs
    assert {a.alias for a in outputs} & set(step.roles.numbers("parameter"))


def test_a_loss_that_is_not_finite_leaves_all_as_it_was():
    step = _step()
    _ran(step)
    digest, iteration = step.digest, step.iteration
    x, y = _pictures()
    with pytest.raises(UserError, match="the loss of iteration 4 is"):
        step(np.full_like(x, np.inf), y)
    assert (step.digest, step.iteration) == (digest, iteration)


def test_an_interrupt_waits_for_the_iterations_end():
    step, other = _step(), _step()

    class Impatient:
        shard, writes = 0, False

        def stops(self, first, last):
            return range(first, last)

        def after_launch(self, launch, memory):
            if launch == 3:
                os.kill(os.getpid(), signal.SIGINT)

    step.watch = Impatient()
    with pytest.raises(KeyboardInterrupt):
        step(*_pictures())
    step.watch = None
    other(*_pictures())
    assert (step.iteration, step.digest) == (1, other.digest)


def test_a_budget_that_cannot_be_met_is_said_and_the_best_taken():
    step = _step(recompute=0.001)
    choice = step.compilation.facts["recompute"]
    assert not choice.fits and choice.plan.held < choice.baseline.held
    (note,) = [n for n in _stage(step, "recompute").diagnostics if n.severity == "warning"]
    assert note.message.startswith("no plan within")


@pytest.mark.parametrize("part", [0.0, 1.5, -1])
def test_a_part_that_is_none_is_refused(part):
    with pytest.raises(UserError, match="recompute"):
        Training(recompute=part)
