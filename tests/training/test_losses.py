"""Losses against torch.nn.functional: values and gradients of the logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from core_compiler.ir import Block, Function, Module, Value, tensor
from core_compiler.ops import Builder, evaluate_block
from core_compiler.support.errors import UserError
from core_compiler.training.graph import losses
from core_compiler.training.graph.autodiff import pullback


def _logits(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def _classes(count, *shape, ignored=0):
    made = torch.randint(0, count, shape, generator=torch.Generator().manual_seed(6))
    made.view(-1)[:ignored] = -100
    return made


def _shares(*shape):
    return torch.softmax(_logits(*shape) * 2, -1)


CASES = {
    "cross entropy": (losses.CrossEntropy(), functional.cross_entropy,
                      _logits(6, 5), _classes(5, 6)),
    "smoothed, some ignored": (
        losses.CrossEntropy(label_smoothing=0.1),
        lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1),
        _logits(6, 5), _classes(5, 6, ignored=2)),
    "of tokens": (
        losses.CrossEntropy(),
        lambda x, y: functional.cross_entropy(x.flatten(0, 1), y.flatten()),
        _logits(2, 3, 7), _classes(7, 2, 3)),
    "of pixels": (losses.CrossEntropy(axis=1), functional.cross_entropy,
                  _logits(2, 4, 3, 5), _classes(4, 2, 3, 5)),
    "mse": (losses.MeanSquaredError(), functional.mse_loss, _logits(4, 6), _shares(4, 6)),
    "l1": (losses.L1(), functional.l1_loss, _logits(4, 6), _shares(4, 6)),
    "huber": (losses.Huber(0.7), lambda x, y: functional.huber_loss(x, y, delta=0.7),
              _logits(4, 6) * 2, _shares(4, 6)),
    "bce": (losses.BCEWithLogits(), functional.binary_cross_entropy_with_logits,
            _logits(4, 6) * 3, _shares(4, 6)),
    "kl": (losses.KLDivergence(), lambda x, y: functional.kl_div(x, y, reduction="batchmean"),
           torch.log_softmax(_logits(4, 6), -1), _shares(4, 6)),
    "kl of elements": (losses.KLDivergence(batch=False), functional.kl_div,
                       torch.log_softmax(_logits(4, 6), -1), _shares(4, 6)),
}  # fmt: skip


def _module(loss, output, target) -> Module:
    x, y = (
        Value(tensor(tuple(t.shape), t.numpy().dtype), n) for t, n in ((output, "x"), (target, "y"))
    )
    assert loss.target(x.type) == y.type
    b = Builder()
    made = b.div(*loss.totals(b, x, y))
    return Module({"main": Function("main", Block((x, y), tuple(b.ops), (made,)))})


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name):
    ours, theirs, output, target = CASES[name]
    module = _module(ours, output, target)
    arrays = [output.numpy(), target.numpy()]
    varied = output.clone().requires_grad_()
    wanted = theirs(varied, target)
    (found,) = evaluate_block(module.main.body, arrays)
    assert float(found) == pytest.approx(wanted.item(), rel=2e-6)
    wanted.backward()
    slope, *_ = evaluate_block(pullback(module).main.body, [*arrays, np.float32(1)])
    np.testing.assert_allclose(slope, varied.grad.numpy(), rtol=2e-5, atol=1e-7)


def test_the_target_of_a_kl_of_zero_counts_for_nothing():
    x, y = torch.log_softmax(_logits(2, 3), -1), torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    (found,) = evaluate_block(
        _module(losses.KLDivergence(), x, y).main.body, [x.numpy(), y.numpy()]
    )
    assert float(found) == pytest.approx(functional.kl_div(x, y, reduction="batchmean").item())


@pytest.mark.parametrize(
    ("loss", "shape", "message"),
    [
        (losses.CrossEntropy(), (4,), "no class axis -1"),
        (losses.CrossEntropy(axis=3), (4, 5), "no class axis 3"),
        (losses.Own(), (4,), "the model's own loss takes no targets"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(loss, shape, message):
    with pytest.raises(UserError, match=message):
        loss.target(tensor(shape, "f32"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.Huber(0), "loss: invalid value 0 for delta; pass a finite number above 0"),
        (lambda: losses.Huber(-1), "invalid value -1 for delta"),
        (lambda: losses.Huber(float("nan")), "invalid value nan for delta"),
        (lambda: losses.CrossEntropy(label_smoothing=2), "2 for label_smoothing; .*from 0 to 1"),
        (lambda: losses.CrossEntropy(label_smoothing=-0.1), "value -0.1 for label_smoothing"),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
