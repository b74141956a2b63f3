"""``flex_attention``: attention whose scores a function of the model changes, as plain tensor ops.

Torch traces it as an op with graphs as arguments, or computes it by nested ``vmap``, which an
export does not represent. Score and mask functions work element by element, so that applied to all
scores at once, with positions that broadcast, they give the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def flex_attention_on_tensors() -> Iterator[None]:
    """Make calls of ``flex_attention`` exportable in this context."""
    try:
        from torch.nn.attention import flex_attention as module
    except ImportError:  # an older torch has none
        yield
        return
    names = ("flex_attention_hop", "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG")
    if not all(hasattr(module, name) for name in names):
        yield
        return
    before = [getattr(module, name) for name in names]
    for name, value in zip(names, (_attention, True), strict=True):
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(module, name, value)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: tuple,
    scale: float,
    kernel_options: Any,
    score_mod_other_buffers: tuple = (),
    mask_mod_other_buffers: tuple = (),
) -> tuple[Any, Any, Any]:
    """Return the output, and logarithms (base 2) of the sums and the largest scores.

    The formula is torch's own (``math_attention``): scores in f32 (f64 for f64), masked ones -inf,
    rows without a score 0.
    """
    import torch

    groups = query.size(1) // key.size(1)
    key, value = (t.repeat_interleave(groups, dim=1) if groups > 1 else t for t in (key, value))
    key, value = (t.expand(query.size(0), *t.size()[1:]) for t in (key, value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * scale
    places = [
        torch.arange(size).view([-1 if axis == i else 1 for i in range(4)])
        for axis, size in enumerate(scores.shape)
    ]
    changed = score_mod(scores, *places, *score_mod_other_buffers)
    kept = block_mask[-1](*places, *mask_mod_other_buffers)
    lowest = torch.full((), -math.inf, dtype=wide)
    changed = torch.where(kept, changed, lowest).expand(scores.shape)
    empty = torch.all(changed == -math.inf, dim=-1)
    sums = torch.where(empty, lowest, changed.logsumexp(dim=-1))
    largest = changed.max(dim=-1)[0]
    weights = torch._safe_softmax(changed, dim=-1)
    made = weights.to(query.dtype) @ value.to(query.dtype)
    return made, sums / math.log(2), largest / math.log(2)
