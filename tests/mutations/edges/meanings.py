"""Values and sizes at which the meanings of ops differ from nearly right ones."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.mutations.torch_models import corpus_model, drawn


@corpus_model
def rows_without_finite_values():
    """Softmax and sums of exponentials of rows of one infinity; queries that see no key; sure
    probabilities; targets that are left out."""
    x = torch.tensor(
        [
            [0.5, -1.0, 2.0],
            [-math.inf, -math.inf, -math.inf],
            [1.5, math.inf, 0.25],
            [-math.inf, 0.75, -2.0],
            [120.0, -3.0, 0.5],
        ]
    )
    seen = torch.tensor(
        [[True, False, True, True], [False, False, False, False], [False, True, True, False]]
    )
    shares = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.3, 1e-30])
    targets = torch.tensor([0.0, 1.0, 0.7, 0.2, 0.6, 0.4])
    classes = torch.tensor([2, -100, 0])

    def run(x, q, k, v, seen, shares, targets, scores, classes, weight):
        added = torch.where(seen, 0.5, -math.inf)
        return (
            torch.logsumexp(x, 1),
            torch.logsumexp(x, (0, 1)),
            torch.softmax(x, 1),
            torch.softmax(x[:1], 1),
            F.log_softmax(x[:1], 1),
            F.log_softmax(x[[0, 3, 4]], 1),
            torch._safe_softmax(x, 1),
            F.scaled_dot_product_attention(q, k, v, attn_mask=seen),
            F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=0.7),
            F.scaled_dot_product_attention(q, k[:, :3], v[:, :3], is_causal=True),
            F.binary_cross_entropy(shares, targets, reduction="none"),
            F.nll_loss(scores, classes, weight),
            F.nll_loss(scores, classes, reduction="none"),
            F.cross_entropy(scores, classes, weight, label_smoothing=0.3),
            F.cross_entropy(scores, classes, label_smoothing=0.3, reduction="sum"),
        )

    return run, (
        x,
        drawn(2, 3, 5),
        drawn(2, 4, 5),
        drawn(2, 4, 6),
        seen,
        shares,
        targets,
        drawn(3, 5),
        classes,
        drawn(5).abs() + 0.5,
    )
