"""Core ops of ATen that graphs of training hold, distances, bags and random tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from core_compiler.frontends.pytorch import import_exported
from tests.examples import examples
from tests.frontends.programs import agrees, execute, exported

aten = torch.ops.aten


def _drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.integers(0, 1),
)
def test_the_gradients_of_a_convolution(
    spatial, kernel, stride, padding, dilation, groups, transposed, extra
):
    channels, outputs = 2 * groups, groups * 2
    size = (7, 6, 5)[:spatial]
    extra = extra if transposed and extra < max(stride, dilation) else 0
    held = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    x, w = _drawn(2, channels, *size), _drawn(*held, *(kernel,) * spatial, seed=1)
    settings_ = (
        [stride] * spatial,
        [padding] * spatial,
        [dilation] * spatial,
        transposed,
        [extra] * spatial,
        groups,
    )
    try:
        made = aten.convolution(x, w, None, *settings_)
    except RuntimeError:  # no output is left
        reject()
    assume(0 not in made.shape)
    grad = _drawn(*made.shape, seed=2)

    def function(g, x, w):
        return aten.convolution_backward(g, x, w, [outputs], *settings_, [True, True, True])

    agrees(function, grad, x, w)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("ceil", [True, False])
@pytest.mark.parametrize(("window", "stride", "pad"), [(3, 2, 1), (2, 2, 0), (3, 4, 0), (2, 3, 1)])
def test_the_gradient_of_average_pooling(window, stride, pad, ceil, padded):
    x = _drawn(2, 3, 9, 8)
    shape = aten.avg_pool2d(x, [window], [stride], [pad], ceil, padded).shape
    agrees(
        lambda g, x: aten.avg_pool2d_backward(
            g, x, [window, window], [stride, stride], [pad, pad], ceil, padded, None
        ),
        _drawn(*shape, seed=1),
        x,
    )


def test_the_gradient_of_average_pooling_with_a_divisor_and_without_a_batch():
    x = _drawn(3, 8, 8)
    agrees(
        lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [], [0, 0], False, True, 7),
        _drawn(3, 4, 4, seed=1),
        x,
    )


@pytest.mark.parametrize("made", [(1, 1), (3, 4), (5, 2), (9, 8)])
def test_the_gradient_of_adaptive_pooling(made):
    agrees(
        lambda g, x: aten._adaptive_avg_pool2d_backward(g, x),
        _drawn(2, 3, *made, seed=1),
        _drawn(2, 3, 9, 8),
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, 0.5, float("inf")])
def test_distances(p):
    agrees(
        lambda x, y: aten._cdist_forward(x, y, p, None), _drawn(2, 5, 3), _drawn(2, 4, 3, seed=1)
    )
    agrees(lambda x: aten._pdist_forward(x, p), _drawn(6, 3))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("more", [{}, {"padding_idx": 2}, {"include_last_offset": True}])
def test_bags(mode, more):
    bags = torch.nn.EmbeddingBag(6, 4, mode=mode, dtype=torch.float64, **more)
    indices = torch.tensor([0, 2, 5, 2, 2, 1, 0])
    offsets = torch.tensor([0, 3, 3, 5] + [7] * ("include_last_offset" in more))
    table = bags.weight.detach()
    agrees(
        lambda w, i, o: torch.nn.functional.embedding_bag(i, w, o, mode=mode, **more),
        table,
        indices,
        offsets,
    )


def test_a_permutation_is_one_and_random_numbers_are_drawn_once():
    def function(x):
        return torch.randperm(50), torch.rand(50, 4) + 0 * x, torch.rand(50, 4) + 0 * x

    imported = import_exported(exported(function, _drawn(1, 1)))
    order, one, other = execute(imported, _drawn(1, 1))
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))
    assert ((one >= 0) & (one < 1)).all()
    assert abs(float(one.mean()) - 0.5) < 0.1
    assert not torch.equal(one, other)


def test_rows_by_groups_each_with_a_matrix_of_its_own():
    """Empty groups, and rows behind the last group, which give zeros."""
    x, w = _drawn(9, 4), _drawn(3, 4, 5, seed=1)

    @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
    def grouped(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        made, start = torch.zeros(len(x), w.shape[2], dtype=x.dtype), 0
        for i, end in enumerate(offs.tolist()):
            made[start:end], start = x[start:end] @ w[i], end
        return made

    grouped.register_fake(lambda x, w, offs: x.new_empty(x.shape[0], w.shape[2]))
    for ends in ([2, 2, 9], [0, 4, 7]):
        agrees(grouped, x, w, torch.tensor(ends, dtype=torch.int32))


@pytest.mark.parametrize(("low", "high"), [(0, 7), (-1.5, 1.5)])
def test_a_histogram(low, high):
    x = torch.cat([_drawn(40).float(), torch.arange(-2.0, 9.0)])
    agrees(lambda x: torch.histc(x, bins=8, min=low, max=high), x)
