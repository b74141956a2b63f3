"""Complex numbers inside torch programs, whose inputs and results are real: equal to torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.debug.bits import same_bits
from core_compiler.debug.evaluate import Evaluator
from core_compiler.frontends.pytorch import import_module
from core_compiler.frontends.spectra import circle
from core_compiler.support.errors import UserError

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
Y = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
#: The largest difference, of the largest value of the result.
CLOSE = 1e-6


def _z(x):
    return torch.view_as_complex(x.reshape(4, 3, 2))


CASES: dict[str, Callable] = {
    "rotary": lambda x, y: torch.view_as_real(_z(x) * torch.polar(y.abs(), y)).flatten(1),
    "parts": lambda x, y: _z(x).real - _z(x).imag,
    "made of parts": lambda x, y: torch.view_as_real(torch.complex(y, y + 1)),
    "conjugate": lambda x, y: (_z(x).conj() * _z(x)).real + _z(x).conj().imag,
    "length": lambda x, y: _z(x).abs() + (0 * _z(x)).abs(),
    "angle": lambda x, y: _z(x).angle(),
    "sums": lambda x, y: torch.view_as_real(2 - _z(x) + y - 3j + torch.add(_z(x), y, alpha=2)),
    "products with numbers": lambda x, y: torch.view_as_real(_z(x) * 2j * y * 0.5 / 3),
    "quotients": lambda x, y: torch.view_as_real(_z(x) / (_z(x) + 4) + y / (2 + _z(x))),
    "exp": lambda x, y: torch.view_as_real(torch.exp(_z(x))),
    "matmul": lambda x, y: torch.view_as_real(_z(x) @ _z(x).T),
    "moved": lambda x, y: torch.view_as_real(torch.cat([_z(x), y + 0j])[1:, None].transpose(0, 2)),
    "reduced": lambda x, y: torch.view_as_real(_z(x).sum(0) + _z(x).mean(0)),
    "fft": lambda x, y: torch.view_as_real(torch.fft.fft(x) + torch.fft.ifft(_z(x), n=6)),
    "rfft": lambda x, y: torch.view_as_real(torch.fft.rfft(x, norm="ortho")),
    "irfft": lambda x, y: torch.fft.irfft(torch.fft.rfft(x) * 2.0, n=5),
    "irfft of an odd length": lambda x, y: torch.fft.irfft(torch.fft.rfft(y), n=3),
    "fft2": lambda x, y: torch.view_as_real(torch.fft.fft2(x, norm="forward")),
    "irfft2": lambda x, y: torch.fft.irfft2(torch.fft.rfft2(x), s=(4, 6)),
    "hfft": lambda x, y: torch.fft.hfft(_z(x)) + torch.fft.ihfft(x).imag.sum(),
    "stft": lambda x, y: torch.view_as_real(
        torch.stft(x.flatten(), 8, 4, window=torch.hann_window(8), return_complex=True)
    ),
    # Of integers and numbers the imaginary part is 0.
    "integers": lambda x, y: torch.view_as_real(_n(y).to(torch.complex64) + (y > 0)),
    "integers joined": lambda x, y: torch.view_as_real(
        torch.cat([_z(x), _n(y)]) + torch.stack([_n(y), _z(x)]).reshape(8, 3)
    ),
    "integers chosen": lambda x, y: torch.view_as_real(
        torch.where(y > 0, _z(x), _n(y))
        + torch.where(y > 1, _z(x), 2)
        + _z(x).masked_fill(y > 0, 3)
    ),
    "products of integers": lambda x, y: torch.view_as_real(
        _z(x) @ _n(y).T.to(torch.complex64) + (_z(x) * _n(y)).sum()
    ),
    "padded": lambda x, y: torch.view_as_real(torch.nn.functional.pad(_z(x), (1, 2), value=4)),
    "irfft of integers": lambda x, y: torch.fft.irfft2(_n(x)) + torch.fft.hfft(_n(y)).sum(),
}


def _n(y):
    return (y * 5).to(torch.int64)


class _Of(torch.nn.Module):
    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_torch_computes(name: str) -> None:
    model = _Of(CASES[name])
    want = model(X, Y).numpy()
    imported = import_module(model, (X, Y))
    (found,) = Evaluator(imported.module.weights).block(
        imported.module.main.body, [X.numpy(), Y.numpy()]
    )
    assert found.dtype == want.dtype and found.shape == want.shape
    assert np.abs(found - want).max() <= CLOSE * np.abs(want).max()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 12, 60, 1000])
def test_the_circle_is_right_to_rounding_and_exact_at_its_quarters(count: int) -> None:
    turns = np.arange(-count, 3 * count)
    cos, sin = circle(turns, count)
    with mpmath.workdps(40):
        angles = [2 * mpmath.pi * int(t) / count for t in turns]
        for got, exact in ((cos, mpmath.cos), (sin, mpmath.sin)):
            off = [
                abs(float(exact(a) - mpmath.mpf(float(g))))
                for a, g in zip(angles, got, strict=True)
            ]
            assert max(off) <= 2.0**-52
            at_quarters = got[4 * turns % count == 0]
            assert set(at_quarters) <= {-1.0, 0.0, 1.0} and not np.signbit(got[got == 0]).any()


@pytest.mark.parametrize("size", [4, 7, 12, 16])
def test_the_phase_of_what_has_no_imaginary_part_is_torchs(size: int) -> None:
    """Negative bins have the phase pi, not -pi: nothing is left of the sines of whole turns."""
    for x in (
        torch.randn(3, size, generator=torch.Generator().manual_seed(size)),
        -torch.ones(3, size),
        torch.zeros(3, size),
    ):
        real = size // 2 if size % 2 == 0 else size
        model = _Of(lambda x, y, real=real: torch.fft.rfft(x).angle()[:, ::real])
        found = import_module(model, (x, Y))
        (got,) = Evaluator(found.module.weights).block(
            found.module.main.body, [x.numpy(), Y.numpy()]
        )
        assert np.array_equal(got, model(x, Y).numpy())


def test_quotients_neither_overflow_nor_vanish_on_the_way() -> None:
    z = torch.tensor([3 - 4j, 0j, -1 + 0j])[:, None]
    by = torch.tensor([1e30 + 1e30j, 1e-30 - 2e-30j, 0j, 1e-30 + 0j, -2j])
    model = _Of(
        lambda x, y: torch.view_as_real(torch.view_as_complex(x) / torch.view_as_complex(y))
    )
    x, y = torch.view_as_real(z), torch.view_as_real(by)
    found = import_module(model, (x, y))
    (got,) = Evaluator(found.module.weights).block(found.module.main.body, [x.numpy(), y.numpy()])
    want = model(x, y).numpy()
    np.testing.assert_allclose(got, want, rtol=4e-7, atol=0)
    assert not np.isnan(got[:, [0, 1, 3, 4]]).any() and np.isnan(want[1, 2]).all()


def test_a_complex_buffer_and_the_whole_path() -> None:
    class Rotary(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("turns", torch.polar(torch.ones(4, 3), Y))

        def forward(self, x):
            return torch.view_as_real(_z(x) * self.turns).flatten(1)

    want = Rotary()(X).numpy()
    (found,) = cc.compile(Rotary(), (X,), check=True)(X.numpy())
    assert np.abs(found - want).max() <= CLOSE * np.abs(want).max()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x, y: _z(x), "complex numbers; return torch.view_as_real of them"),
        (lambda x, y: _z(x).sqrt().real, "aten.sqrt.default (not implemented for complex numbers"),
        (lambda x, y: _z(x).to(torch.float32), "it drops the imaginary part"),
    ],
)
def test_what_has_no_form_is_said(function: Callable, said: str) -> None:
    with pytest.raises(UserError) as refused:
        import_module(_Of(function), (X, Y))
    assert said in refused.value.what


def test_what_reads_an_unsupported_result_is_not_listed_too() -> None:
    """The type of a complex square root is none of ours; its readers are not at fault."""
    with pytest.raises(UserError) as refused:
        import_module(_Of(lambda x, y: (_z(x).sqrt() * 2 + y).abs().exp()), (X, Y))
    assert refused.value.what.startswith("1 op is not supported: aten.sqrt.default")


class _Quotients(torch.nn.Module):
    def forward(self, a, pairs):
        b = torch.view_as_complex(pairs)
        made = (a * b, 2.0 * b, b * b.flip(0), b / a, a / b, b / 2.0, b / b.flip(0))
        return tuple(map(torch.view_as_real, made))


def test_products_and_quotients_of_special_values_are_those_of_torch():
    """Bit for bit: a real factor has an imaginary part of 0, which times an infinity is NaN."""
    special = (0.0, -0.0, 1.0, -2.0, float("inf"), float("-inf"), float("nan"), 3e38)
    numbers = torch.tensor(list(itertools.product(special, repeat=3)))
    given = numbers[:, 0].contiguous(), numbers[:, 1:].contiguous()
    model = _Quotients()
    compiled = cc.compile(model, given)
    for ours, theirs in zip(compiled(*(a.numpy() for a in given)), model(*given), strict=True):
        assert same_bits(theirs.numpy(), ours)
