"""flex_attention: functions of scores and of positions, beside torch's own eager attention."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import core_compiler as cc

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")


def _alibi(score, b, head, query, key):
    return score + torch.exp2(-((head + 1) * 4.0)) * (key - query)


BIAS = torch.linspace(-1, 1, 4)
DOCUMENTS = torch.tensor([0] * 5 + [1] * 6)
#: The function of scores of each case.
SCORES = {
    "relative": lambda score, b, h, q, k: score + (q - k),
    "causal": lambda score, b, h, q, k: torch.where(q >= k, score, -float("inf")),
    "a bias a head": lambda score, b, h, q, k: score + BIAS[h],
    "alibi": _alibi,
    "soft cap": lambda score, b, h, q, k: 2 * torch.tanh(score / 2),
}
MASKS = {
    "causal": lambda b, h, q, k: q >= k,
    "documents": lambda b, h, q, k: (DOCUMENTS[q] == DOCUMENTS[k]) & (q >= k),
    "nothing for the first": lambda b, h, q, k: q + k > 3,
}


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _inputs(queries=4, keys=4, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = (2, queries, 11, 8), (2, keys, 11, 8), (2, keys, 11, 8)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def _agrees(attend, inputs, tolerance=1e-5):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that eager execution is slow
        expected = attend(*inputs)
        (got,) = cc.compile(Function(attend), tuple(inputs))(*inputs)
    expected = expected.float().numpy()
    error = np.abs(np.asarray(got).astype(np.float32) - expected).max()
    assert error <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", SCORES)
def test_functions_of_scores(name):
    _agrees(lambda q, k, v: flex.flex_attention(q, k, v, score_mod=SCORES[name]), _inputs())


@pytest.mark.parametrize("name", MASKS)
def test_block_masks(name):
    mask = flex.create_block_mask(MASKS[name], None, None, 11, 11, device="cpu")
    _agrees(lambda q, k, v: flex.flex_attention(q, k, v, block_mask=mask), _inputs())


def test_grouped_queries_and_a_scale():
    def attend(q, k, v):
        return flex.flex_attention(q, k, v, scale=0.2, enable_gqa=True)

    _agrees(attend, _inputs(4, 2))


def test_narrow_floats():
    _agrees(lambda q, k, v: flex.flex_attention(q, k, v), _inputs(dtype=torch.bfloat16), 2e-2)


def test_the_logarithms_of_the_sums():
    _agrees(lambda q, k, v: flex.flex_attention(q, k, v, return_lse=True)[1], _inputs())


def test_it_is_one_attention():
    """The pattern is recognised: a target may have a kernel for it."""
    attend = Function(lambda q, k, v: flex.flex_attention(q, k, v, score_mod=SCORES["causal"]))
    made = cc.compile(attend, tuple(_inputs()), finish=False)
    while made.stages[-1].name != "recompose":
        made.step()
    assert any(op.kind == "core.attention" for op in made.stages[-1].module.main.body.ops)


def test_an_export_leaves_torch_as_it_was():
    before = flex.flex_attention_hop
    cc.compile(Function(lambda q, k, v: flex.flex_attention(q, k, v)), tuple(_inputs()))
    assert flex.flex_attention_hop is before
