"""Signs of NaN, each as its framework has them; arithmetic of unsigned integers, which wraps.

After pytorch/pytorch#53963, #58742 and reports of negated and subtracted `uint8`.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.training.optimisers.optimizers import SGD
from tests.frontends.onnx_models import one_node, onnxruntimes, ours
from tests.frontends.programs import Program, agrees, execute, exported, import_exported
from tests.trials.everywhere import everywhere, same

NAN = float("nan")
ODD = [NAN, -NAN, -2.0, 0.0, -0.0, 1e-45, float("inf"), -float("inf")]
SIGNS = (torch.sign, torch.sgn, lambda x: x.clone().sign_(), lambda x: x * x.sign())


@pytest.mark.parametrize("sign", SIGNS, ids=["sign", "sgn", "sign_", "x * sign"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_the_sign_of_nan_in_torch(sign, dtype):
    agrees(sign, torch.tensor(ODD, dtype=dtype))


def test_the_sign_of_either_zero_in_torch_is_plus_zero():
    (made,) = execute(import_exported(exported(torch.sign, torch.tensor(ODD))), torch.tensor(ODD))
    assert not torch.signbit(made[3:5]).any()


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "bool"])
def test_signs_of_integers(dtype):
    x = torch.tensor([0, 1, -7, 100]).to(getattr(torch, dtype))
    agrees(lambda x: torch.sign(x), x)


def test_the_sign_of_nan_by_every_road(tmp_path):
    x = torch.tensor(ODD)
    everywhere(Program(torch.sign), [x], [torch.sign(x)], tmp_path)


def test_the_gradient_of_a_sign_is_zero_at_nan():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.x = torch.nn.Parameter(torch.tensor(ODD[:6]))
            self.w = torch.nn.Parameter(torch.ones(6))

        def forward(self, y):
            known = torch.where(self.x.isnan(), 0.0, self.x)
            return (torch.sign(self.x) * self.w + known * y).sum()

    model, y = Model(), torch.arange(6.0)
    model(y).backward()
    training = cc.Training(loss="own", optimizer=SGD(0.1), keep_gradients=True)
    step = cc.compile(model, (y,), check=True, training=training)
    assert step(y) == model(y).item()
    for name, parameter in model.named_parameters():
        same([step.gradients[name]], [parameter.grad])


def test_the_sign_of_nan_in_onnx_and_jax_is_nan():
    import jax.numpy as jnp

    x = np.array([n for n in ODD if n != 1e-45], np.float32)  # JAX flushes it to zero
    proto = one_node("Sign", {"x": x}, outputs="y")
    same(ours(proto, {"x": x}), onnxruntimes(proto, {"x": x}))
    same(cc.compile(jnp.sign, (x,))(x), [jnp.sign(x)])


def test_unary_minus_wraps():
    x = torch.tensor([0, 1, 5, 200, 255], dtype=torch.uint8)
    agrees(lambda x: (-x, torch.neg(x), torch.negative(x), (-x).sum(), -x // 3), x)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unary_minus_wraps_in_jax(dtype):
    import jax.numpy as jnp

    x = np.array([0, 1, 5, 200, 2**16 - 1], dtype)
    made = cc.compile(lambda x: -x, (x,))(x)
    same(made, [np.asarray(jnp.negative(x))])


BINARY = {
    "sub": torch.sub,
    "rsub": torch.rsub,
    "sub with alpha": lambda x, y: torch.sub(x, y, alpha=3),
    "mul": torch.mul,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "shifts": lambda x, y: (x << 3, x >> 3),
    "not": lambda x, y: ~x ^ y,
    "minus one": lambda x, y: 1 - x,
    "plus a negative": lambda x, y: x + (-3),
    "mm": lambda x, y: torch.mm(x[:, None], y[None]),
    "addmm": lambda x, y: torch.addmm(x, x[:, None], y[None], alpha=3, beta=2),
    "baddbmm": lambda x, y: torch.baddbmm(x, x[None, :, None], y[None, None]),
    "addmv": lambda x, y: torch.addmv(x, torch.outer(x, y), y),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_narrow_integers_wrap(name, dtype):
    x = torch.tensor([0, 1, 5, 200, 255]).to(dtype)
    y = torch.tensor([3, 1, 7, 2, 255]).to(dtype)
    agrees(BINARY[name], x, y)


@pytest.mark.slow
def test_unsigned_by_every_road(tmp_path):
    x = torch.tensor([0, 1, 5, 200, 255], dtype=torch.uint8)
    y = torch.tensor([3, 1, 7, 2, 255], dtype=torch.uint8)

    def function(x, y):
        return -x, x - y, 3 - x, x // y, x % y, x * y, -(x.sum())

    everywhere(Program(function), [x, y], function(x, y), tmp_path)
