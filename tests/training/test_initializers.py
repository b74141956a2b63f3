"""What parameters are at first: torch's distributions, our bits."""

from __future__ import annotations

import hashlib
import math
from statistics import NormalDist

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph import initializers as ours
from core_compiler.training.graph.initializers import INITIALIZERS, STREAM, RandomNumbers
from tests.examples import examples
from tests.training.helpers import joint_of

F32 = np.dtype(np.float32)
SHAPE = (96, 40, 3, 3)
#: SHA-256, its first 16 digits, of ``values((6, 5, 2), f32, seed=3, ordinal=2)``.
BITS = {
    "zeros": "2dfba633817046c7",
    "ones": "bbed51f708d62699",
    "uniform": "abe4ba55e6faeb46",
    "normal": "ed9f407c0aa88828",
    "trunc_normal": "7672629eb253b81f",
    "xavier_uniform": "9c892190c97102da",
    "xavier_normal": "5acd13b9fe177bec",
    "kaiming_uniform": "14485b28f38185ee",
    "kaiming_normal": "8223c9c8ef37ff36",
    "orthogonal": "491b43586bbf1b88",
}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_bits_stay(name):
    made = INITIALIZERS[name].values((6, 5, 2), F32, seed=3, ordinal=2)
    assert made.dtype == F32 and made.shape == (6, 5, 2)
    assert hashlib.sha256(made.tobytes()).hexdigest()[:16] == BITS[name]


def test_a_parameter_has_numbers_of_its_own():
    made = [
        ours.Uniform().values((64,), F32, seed, ordinal) for seed in (0, 1) for ordinal in (0, 1)
    ]
    assert len({m.tobytes() for m in made}) == 4
    assert np.array_equal(made[0][:8], ours.Uniform().values((8,), F32))  # by position alone


# -- distributions --


def _distance(sample: np.ndarray, share) -> float:
    """Kolmogorov and Smirnov's: how far the sample's distribution is from ``share`` (a function of
    a number: what part lies below), at most."""
    x = np.sort(sample.reshape(-1).astype(np.float64))
    below = np.array([share(v) for v in x])
    steps = np.arange(len(x) + 1) / len(x)
    return float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))


def _uniform(bound: float):
    return lambda v: min(max((v + bound) / (2 * bound), 0.0), 1.0)


def _normal(std: float):
    return NormalDist(0.0, std).cdf


def _truncated(mean: float, std: float, low: float, high: float):
    law = NormalDist(mean, std)
    first, last = law.cdf(low), law.cdf(high)
    return lambda v: (min(max(law.cdf(v), first), last) - first) / (last - first)


FANS = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(SHAPE))
LAWS = {
    "uniform": (ours.Uniform(-2.0, 2.0), _uniform(2.0)),
    "normal": (ours.Normal(0.0, 0.3), _normal(0.3)),
    "truncated": (ours.TruncatedNormal(), _truncated(0, 1, -2, 2)),
    "truncated tail": (ours.TruncatedNormal(1.0, 0.5, 2.0, 3.0), _truncated(1, 0.5, 2, 3)),
    "xavier uniform": (ours.XavierUniform(1.5), _uniform(1.5 * math.sqrt(6 / sum(FANS)))),
    "xavier normal": (ours.XavierNormal(), _normal(math.sqrt(2 / sum(FANS)))),
    "kaiming uniform": (ours.KaimingUniform(math.sqrt(5)), _uniform(1 / math.sqrt(FANS[0]))),
    "kaiming normal": (
        ours.KaimingNormal(mode="fan_out", nonlinearity="relu"),
        _normal(math.sqrt(2 / FANS[1])),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_numbers_are_distributed_as_torchs(name):
    """Torch's documentation gives the bounds and deviations; 1.63 / sqrt(n) is the distance that
    one sample in a hundred exceeds."""
    how, share = LAWS[name]
    sample = how.values(SHAPE, F32, seed=11)
    assert _distance(sample, share) < 1.63 / math.sqrt(sample.size)


def test_the_distance_tells_another_deviation():
    sample = ours.Normal(0.0, 0.31).values(SHAPE, F32, seed=11)
    assert _distance(sample, _normal(0.3)) > 1.63 / math.sqrt(sample.size)


@pytest.mark.parametrize("shape", [(7, 5), (6, 4, 3), (8, 2, 3, 5)])
def test_inputs_and_outputs_are_counted_as_torch_does(shape):
    counted = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
    assert ours.XavierNormal().fans(shape) == counted


def test_inputs_and_outputs_of_keras_layers():
    how = ours.XavierNormal(input_axis=-2, output_axis=-1)
    assert how.fans((3, 3, 4, 8)) == (36, 72) and how.fans((10, 6)) == (10, 6)


@pytest.mark.parametrize("name", [*ours.GAINS, "leaky_relu"])
def test_gains_are_torchs(name):
    wanted = torch.nn.init.calculate_gain(name, 0.2 if name == "leaky_relu" else None)
    how = ours.KaimingNormal(0.2, nonlinearity=name)
    assert how.std((4, 9)) == pytest.approx(wanted / 3, rel=1e-15)


@pytest.mark.parametrize("shape", [(70, 40), (40, 70), (33, 33), (12, 5, 3)])
def test_orthogonal_weights_are_torchs_of_the_same_numbers(shape):
    """Torch: Q of the transposed matrix where it is wide, columns turned by the sign of R's."""
    drawn = torch.from_numpy(RandomNumbers(shape, 5, STREAM + 1).normal(0.0, 1.0)).flatten(1)
    wide = drawn.shape[0] < drawn.shape[1]
    q, r = torch.linalg.qr(drawn.T if wide else drawn)
    q = q * r.diagonal().sign()
    wanted = 2.0 * (q.T if wide else q).reshape(shape)
    made = ours.Orthogonal(2.0).values(shape, np.dtype(np.float64), 5, 1)
    np.testing.assert_allclose(made, wanted.numpy(), rtol=0, atol=1e-12)


@settings(max_examples=examples(200), deadline=None)
@given(st.floats(-1, 1))
def test_the_inverse_of_erf_is_torchs(y):
    made = ours.inverse_erf(np.array([y]))[0]
    wanted = torch.erfinv(torch.tensor(y, dtype=torch.float64)).item()
    if abs(y) == 1:  # torch: infinite
        assert 5 < made * y < 6
    else:  # what one bit of y, or of erf, comes to: much near 1
        bit = 2.0**-52 * abs(y) * math.sqrt(math.pi) / 2 * math.exp(wanted**2)
        assert abs(made - wanted) <= 2 * bit + 1e-15 * abs(wanted)


def test_narrow_dtypes_are_rounded_once():
    kind = np.dtype(ml_dtypes.bfloat16)
    wide = ours.Normal().values((50,), np.dtype(np.float64), 1)
    assert np.array_equal(ours.Normal().values((50,), kind, 1), wide.astype(kind))


# -- in a training step --


def _model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))


def _first(**options) -> dict[str, np.ndarray]:
    joint = joint_of(_model(), (torch.ones(2, 4),), Training(**options))
    first = len(joint.roles.numbers("batch"))
    return {
        name: joint.state[i - first]
        for i, (role, name, _) in enumerate(joint.roles.arguments)
        if role == "parameter"
    }


def test_parameters_are_initialised_by_name():
    made = _first(initialize={"2.bias": 0.5, "*.bias": "zeros", "0.weight": "xavier_uniform"})
    assert not made["0.bias"].any() and (made["2.bias"] == 0.5).all()
    bound = math.sqrt(6 / 10)
    assert 0.5 * bound < np.abs(made["0.weight"]).max() <= bound
    assert np.array_equal(made["2.weight"], _model()[2].weight.detach().numpy())


def test_the_seed_chooses_and_freezing_others_does_not():
    rows = {"2.weight": "normal"}
    one = _first(initialize=rows, seed=1)["2.weight"]
    assert not np.array_equal(one, _first(initialize=rows, seed=2)["2.weight"])
    assert np.array_equal(one, _first(initialize=rows, seed=1, freeze=("0.*",))["2.weight"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"3.*": "zeros"}, "no trained parameter matches '3.*'.*0.weight"),
        ({"*": "zeroes"}, "unknown initializer 'zeroes'.*zeros"),
        (
            {"*": "xavier_uniform"},
            "XavierUniform needs input.*0.bias, 2.bias;.*'ones'",
        ),
        ({"0.*": "orthogonal"}, "Orthogonal needs input.*in 0.bias;"),
        ({"2.weight": ours.KaimingNormal(input_axis=4)}, "the axes of KaimingNormal.*out of range"),
        ("zeros", "expected initialize to map names.*got 'zeros'"),
        ({"*": ours.TruncatedNormal(0.0, 1.0, 2.0, 1.0)}, "TruncatedNormal.*no values between"),
    ],
)
def test_what_does_not_fit_is_refused(rows, message):
    with pytest.raises(UserError, match=message):
        _first(initialize=rows)


def test_a_mode_that_nobody_knows_is_refused():
    with pytest.raises(UserError, match=r"unknown mode 'fan_inn'.*fan_in"):
        ours.KaimingNormal(mode="fan_inn")
