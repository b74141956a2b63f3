"""Each kind of model at many sizes: the bits of a compile for the size, also by families."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.numerics.reference.digest import same_bits

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.slow


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, 2, 16).transpose(1, 2) for t in self.inside(x).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).reshape(b, n, 32))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.first(x)))).mean((2, 3)))


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return self.inner(x).mean((2, 3)), x.mean(), F.interpolate(x, scale_factor=2)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(6, 8, batch_first=True)

    def forward(self, x):
        return self.cells(x)[0]


class Moved(nn.Module):
    def forward(self, x):
        return x.reshape(-1) * 2, x.t() @ x, x @ x.t(), torch.cat([x, x + 1], 0), x.flip(0)


class Reduced(nn.Module):
    def forward(self, x):
        return x.mean(), x.var(0), x.softmax(0), x.argmax(0), x.topk(3, 0).values, x.sum(1)


class Scanned(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 1), torch.sort(x, 1).values, x.logsumexp(1)


class Numbers(nn.Module):
    def forward(self, x):
        count = x.shape[0]
        return x / count, x * count**0.5, torch.full((2,), count), torch.arange(count)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch, self.group = nn.BatchNorm1d(6), nn.GroupNorm(2, 6)

    def forward(self, x):
        return self.group(self.batch(x))


class Narrow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(24, 40).bfloat16()

    def forward(self, x):
        return self.inner(x.bfloat16()).float().softmax(-1)


#: The model, the shape of its input, the axis that varies, and whether there is a family.
CASES = {
    "attention, length": (Attention, (2, 20, 32), 1, True),
    "attention, batch": (Attention, (5, 20, 32), 0, True),
    "convolutions, batch": (Images, (5, 3, 20, 20), 0, True),
    # Resizing takes rows by a constant with their positions, another for each size.
    "convolution, height": (Wide, (2, 3, 20, 20), 2, False),
    "recurrent, batch": (Recurrent, (20, 9, 6), 0, True),
    "movement, rows": (Moved, (40, 12), 0, True),
    "reductions, rows": (Reduced, (30, 4), 0, True),
    "scans, columns": (Scanned, (7, 40), 1, True),
    "numbers, rows": (Numbers, (30, 4), 0, True),
    "norms, batch": (Normed, (30, 6, 11), 0, True),
    "bf16, batch": (Narrow, (9, 24), 0, True),
}


@pytest.mark.parametrize("name", CASES)
def test_it_has_the_bits_of_a_compile_for_the_size(name: str) -> None:
    model, shape, axis, has_family = CASES[name]
    torch.manual_seed(0)
    example = torch.randn(*shape)
    size = torch.export.Dim("size", min=4 if axis == 0 else 2, max=4096)
    program = torch.export.export(model().eval(), (example,), dynamic_shapes=({axis: size},))
    made = cc.compile(program)
    first = shape[axis]
    sizes = [*range(first + 1, first + 12), 2 * first + 3, 3 * first + 1, 4 * first + 5, 5 * first]
    draw = np.random.default_rng(0)
    for number in sizes:
        x = draw.standard_normal([*shape[:axis], number, *shape[axis + 1 :]]).astype(np.float32)
        expected = cc.compile(program, (x,))(x)
        for found, wanted in zip(made(x), expected, strict=True):
            assert same_bits(found, wanted), number
    how = [each.how for each in made.other_sizes.rebinds]
    assert ("family" in how) is has_family, made.other_sizes.reasons
