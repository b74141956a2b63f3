"""Quantisation-aware training with torch's modules: losses, gradients and observers are torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao import quantization as eager
from torch.nn import functional as F

import core_compiler as cc
from core_compiler.driver.quantization_report import report
from core_compiler.support.errors import UserError
from core_compiler.training.optimisers.optimizers import SGD
from tests.frontends.programs import Program
from tests.slow import slow_but

# -- observers -------------------------------------------------------------------------------------

OBSERVED = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional
FORMS = [(a, b) for a in (False, True) for b in (False, True)]
INTEGERS = ((0, 255), (-128, 127), (-127, 127), (0, 127))


class _Observer(nn.Module):
    def __init__(self, per_row: bool, symmetric: bool, low: int, high: int):
        super().__init__()
        self.options = 0.01, low, high, 0 if per_row else -1, per_row, symmetric

    def forward(self, *given):
        return OBSERVED(*given, *self.options)


def _states(channels: int, middle: int):
    """Inputs with states of an observer: ranges of all sizes, of one sign, none yet; switches."""
    draw = torch.Generator().manual_seed(channels)
    for number, size in enumerate((1, 1e-3, 1e-5, 1e-42, 0, 1e4, 1, 1, 1, 1, 1)):
        x = torch.randn(5, 7, generator=draw) * size
        x = {6: x.abs(), 7: -x.abs()}.get(number, x)
        least, most = (torch.rand(channels, generator=draw) * n for n in (-size, size))
        if number in (6, 7, 8):
            least, most = torch.full_like(least, torch.inf), torch.full_like(least, -torch.inf)
        switches = (torch.tensor([number != off]).long() for off in (9, 10))
        scale = torch.rand(channels, generator=draw) + 0.01
        zero = torch.full((channels,), middle, dtype=torch.int32)
        yield x, *switches, least, most, scale, zero


@pytest.mark.parametrize(("per_row", "symmetric"), slow_but([(True, True)], FORMS))
@pytest.mark.parametrize(("low", "high"), slow_but([INTEGERS[0]], INTEGERS))
def test_observers_have_torchs_bits(low, high, per_row, symmetric):
    model = _Observer(per_row, symmetric, low, high).eval()
    made = None
    for number, given in enumerate(_states(5 if per_row else 1, (low + high) // 2)):
        made = cc.compile(model, given) if made is None else made
        names = ("result", "mask", "least", "most", "scale", "zero")
        for name, ours, wanted in zip(names, made(*given), model(*given), strict=True):
            assert np.asarray(ours).tobytes() == wanted.numpy().tobytes(), (number, name)


# -- training --------------------------------------------------------------------------------------


class _Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = (
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
        )
        self.last = nn.Linear(256, 5)

    def forward(self, x):
        return self.last(self.relu(self.norm(self.conv(x))).flatten(1))


PICTURES, CLASSES = (
    torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
    [0, 1, 2, 4],
)


def _fused():
    """Modules of torch.ao.quantization, a convolution with its norm and relu fused."""
    model = _Pictures().train()
    model.qconfig = eager.get_default_qat_qconfig("fbgemm")
    return eager.prepare_qat(eager.fuse_modules_qat(model, [["conv", "norm", "relu"]]))


def _pt2e():
    """A graph that torchao annotates."""
    pt2e = pytest.importorskip("torchao.quantization.pt2e", reason="needs torchao")
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    graph = torch.export.export(_Pictures().train(), (PICTURES,), strict=True).module()
    how = x86.get_default_x86_inductor_quantization_config(is_qat=True)
    graph = prepare_qat_pt2e(graph, x86.X86InductorQuantizer().set_global(how))
    pt2e.move_exported_model_to_train(graph)
    return graph


def _torchao():
    """Activations in rows of 8 bits, weights in groups of 4, of modules that torchao replaces."""
    torchao = pytest.importorskip("torchao.quantization", reason="needs torchao")
    qat = pytest.importorskip("torchao.quantization.qat", reason="needs torchao")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5))
    activations = qat.IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
    weights = qat.IntxFakeQuantizeConfig(torch.int4, group_size=32)
    config = qat.QATConfig(activation_config=activations, weight_config=weights, step="prepare")
    torchao.quantize_(model, config)
    return model


PREPARED = {"fused": _fused, "pt2e": _pt2e, "torchao": _torchao}


@pytest.mark.parametrize("name", slow_but(("fused",), PREPARED))
def test_steps_are_torchs(name):
    torch.manual_seed(0)
    model, classes = PREPARED[name](), torch.tensor(CLASSES)
    batch = PICTURES.numpy(), classes.numpy()
    training = cc.Training(loss="cross_entropy", optimizer=SGD(rate=0.1), keep_gradients=True)
    step = cc.compile(model, batch, training=training, check=True)
    assert step.compilation.finding is None
    ours = [step(*batch)]
    gradients = {name: np.array(a) for name, a in step.gradients.items()}
    ours += [step(*batch) for _ in range(2)]
    theirs, optimiser = [], torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(PICTURES), classes)
        loss.backward()
        theirs.append(loss.item())
        if number == 0:
            for name, parameter in model.named_parameters():
                wanted = parameter.grad.numpy()
                np.testing.assert_allclose(
                    gradients[name],
                    wanted,
                    rtol=0,
                    atol=1e-6 + 2e-5 * np.abs(wanted).max(),
                    err_msg=name,
                )
        optimiser.step()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.slow
def test_a_trained_graph_becomes_integers():
    """Trained by our step, converted by torchao, compiled to integers."""
    graph, batch = _pt2e(), (PICTURES.numpy(), np.array(CLASSES))
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    training = cc.Training(loss="cross_entropy", optimizer=SGD(rate=0.1))
    step = cc.compile(graph, batch, training=training)
    losses = [step(*batch) for _ in range(20)]
    assert losses[-1] < losses[0] / 10
    state = {name: torch.from_numpy(np.array(a)) for name, a in step.state_dict().items()}
    graph.load_state_dict(state)
    move_exported_model_to_eval(graph)
    converted = convert_pt2e(graph)
    made = cc.compile(converted, (PICTURES,), quantize=cc.Quantization(), check=True)
    assert made.finding is None
    assert report(made)["left_float"] == []
    wanted = converted(PICTURES).detach().numpy()
    assert np.abs(made(PICTURES)[0] - wanted).max() <= np.ptp(wanted) / 255  # its result: in floats


def test_observers_in_python_are_refused():
    model = _Pictures().train()
    activations = eager.FakeQuantize.with_args(observer=eager.MovingAverageMinMaxObserver)
    model.qconfig = eager.QConfig(activation=activations, weight=eager.default_weight_fake_quant)
    batch = PICTURES.numpy(), np.array(CLASSES)
    with pytest.raises(
        UserError, match=r"\(FakeQuantize\) observes ranges with conditions in Pyth"
    ):
        cc.compile(eager.prepare_qat(model), batch, training=cc.Training(loss="cross_entropy"))


# -- straight-through estimators -------------------------------------------------------------------


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class _Signs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return torch.copysign(torch.full_like(x, scale), x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone(), None


class _Limited(torch.autograd.Function):
    """Not straight through: large gradients are limited (Courbariaux et al., 2016)."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return F.hardtanh(gradient)


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class _Estimated(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of, self.weight = of, nn.Parameter(torch.linspace(-2, 2, 12).reshape(3, 4))

    def forward(self, x):
        return (self.of(x * self.weight) * x).square().sum()


ROWS = torch.linspace(-1, 3, 12).reshape(3, 4)
ESTIMATORS = {"rounded": _Rounded.apply, "signs": lambda x: _Signs.apply(x, 0.3)}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_gradient_goes_straight_through(name):
    model = _Estimated(ESTIMATORS[name])
    training = cc.Training(loss=None, keep_gradients=True)
    step = cc.compile(model, (ROWS.numpy(),), training=training, check=True)
    loss, wanted = step(ROWS.numpy()), model(ROWS)
    wanted.backward()
    assert step.compilation.finding is None
    assert loss == pytest.approx(wanted.item(), rel=1e-6)
    np.testing.assert_allclose(step.gradients["weight"], model.weight.grad.numpy(), rtol=1e-5)


def test_the_value_of_an_estimator_keeps_every_bit():
    """In a training step too, where it has been written with the gradient of its operand."""
    x = np.array([0.3, -0.3, -0.0, 0.0, 1e-40, 2.5, 3e38, np.inf, -np.inf, np.nan], np.float32)

    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(10))
            self.register_buffer("seen", torch.zeros(10))

        def forward(self, x):
            y = _Rounded.apply(x * self.weight)
            self.seen.copy_(y.detach())
            return torch.nan_to_num(y, 0.0, 0.0, 0.0).sum() * 1e-38

    step = cc.compile(Kept(), (x,), training=cc.Training(loss=None))
    step(x)
    assert np.asarray(step.state_dict()["seen"]).tobytes() == x.round().tobytes()


@pytest.mark.parametrize("of", [_Limited, _Masked])
def test_other_gradients_of_ones_own_are_refused(of):
    with pytest.raises(UserError, match=f"{of.__name__} defines its own backward pass"):
        cc.compile(_Estimated(of.apply), (ROWS.numpy(),), training=cc.Training(loss=None))


def test_inference_needs_no_gradient():
    made = cc.compile(Program(_Masked.apply).eval(), (ROWS,))
    np.testing.assert_array_equal(made(ROWS)[0], ROWS.sign().numpy())
