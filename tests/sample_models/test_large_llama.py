"""The Llama that is not in the catalogue: its published size, and its steps."""

from __future__ import annotations

import torch

from sample_models.decoders import _llama, _sizes_1b, llama_1b, llama_1b_decode

SMALL = {"width": 0.25, "depth": 2, "dtype": "float32"}


def test_it_has_the_published_number_of_parameters() -> None:
    """1.24 billion, the embedding shared with the head (the model card of Llama 3.2 1B)."""
    with torch.device("meta"):
        network = _llama(_sizes_1b(1.0, None), "bfloat16")
    assert sum(p.numel() for p in network.parameters()) == 1_235_814_400
    assert network.lm_head.weight is network.model.embed_tokens.weight
    assert {p.dtype for p in network.parameters()} == {torch.bfloat16}


def test_steps_continue_a_prompt() -> None:
    """The caches of a prompt's call, then one token: the logits of the whole prompt's last row."""
    whole, (ids,) = llama_1b(**SMALL, sequence=5)
    step, _ = llama_1b_decode(**SMALL)
    with torch.no_grad():
        wanted = whole(ids)
        keys = values = torch.zeros(1, 2, 2, 0, 64)
        for position in range(5):
            logits, keys, values = step(ids[:, position : position + 1], keys, values)
            assert (logits[:, 0] - wanted[:, position]).abs().max() < 1e-4
    assert keys.shape == values.shape == (1, 2, 2, 5, 64)
