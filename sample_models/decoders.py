"""Text decoders of `transformers`: GPT-2 (Radford et al., 2019) and Llamas.

A Llama (Touvron et al., 2023) has rotary positions, RMS norms, gated feed-forward layers, and
fewer key than query heads.  The large one is not in the catalogue, whose models are all executed
by the tests; `workbench compile sample_models.decoders:llama_1b` compiles it.

    from sample_models.decoders import gpt2, gpt2_decode, llama_4l, llama_1b, llama_1b_decode
    module, inputs = gpt2()

Architectures and module code are the library's; weights are seeded (`sample_models.seeded`) and
nothing is downloaded.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from sample_models import seeded

_HEAD_SIZE = 64


_M = TypeVar("_M", "Decoder", "DecodeStep")


class Decoder(nn.Module):
    """A causal language model as a function of its token ids.

    input_ids i64[batch, sequence] -> logits f32[batch, sequence, vocabulary].
    """

    input_names = ("input_ids",)
    output_names = ("logits",)
    #: The axis of each input that may have another length.
    growing: ClassVar = {"input_ids": 1}

    def __init__(self, network: nn.Module, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.network = network
        self.sequence = sequence
        self.vocabulary = vocabulary

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids=input_ids, use_cache=False).logits

    def make_inputs(self, batch: int, seed: int) -> tuple[torch.Tensor, ...]:
        """Return token ids without padding, the same for the same seed."""
        return (seeded.integers("ids", seed, (batch, self.sequence), 0, self.vocabulary),)


class DecodeStep(nn.Module):
    """A decoding step of a causal language model, given the keys and values of earlier tokens.

    input_ids i64[batch, 1], keys and values [batch, layers, heads, past, head size] -> logits
    [batch, 1, vocabulary], and the keys and values including the token's own, past + 1 long.
    """

    input_names = ("input_ids", "keys", "values")
    output_names = ("logits", "new_keys", "new_values")
    #: The axis of each input that may have another length.
    growing: ClassVar = {"keys": 3, "values": 3}

    def __init__(self, network: nn.Module, past: int, vocabulary: int) -> None:
        super().__init__()
        self.network = network
        self.past = past
        self.vocabulary = vocabulary

    def forward(
        self, input_ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for layer in range(keys.shape[1]):
            cache.update(keys[:, layer], values[:, layer], layer)
        output = self.network(input_ids=input_ids, past_key_values=cache, use_cache=True)
        layers = output.past_key_values.layers
        return (
            output.logits,
            torch.stack([layer.keys for layer in layers], dim=1),
            torch.stack([layer.values for layer in layers], dim=1),
        )

    def make_inputs(self, batch: int, seed: int) -> tuple[torch.Tensor, ...]:
        """Return a token and a cache of the size that the layers need, chosen by the seed."""
        config: Any = self.network.config
        dtype: Any = self.network.dtype
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        shape = (batch, config.num_hidden_layers, heads, self.past, _HEAD_SIZE)
        ids = seeded.integers("ids", seed, (batch, 1), 0, self.vocabulary)
        keys, values = (seeded.bell(name, seed, shape).to(dtype) for name in ("keys", "values"))
        return ids, keys, values


def _ready(module: _M, batch: int, seed: int) -> tuple[_M, tuple[torch.Tensor, ...]]:
    """Return the module with its weights, in evaluation mode, and its example inputs."""
    seeded.fill(module, seed)
    module.eval()
    return module, module.make_inputs(batch, seed)


def _gpt2(width: float, depth: int | None, positions: int, attention: str) -> tuple[Any, int]:
    """Return GPT-2 with a language-model head, and the size of its vocabulary."""
    from transformers.initialization import no_init_weights
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    heads = max(1, round(12 * width))
    sizes: dict[str, Any] = {
        "vocab_size": max(100, round(50257 * width)),
        "n_positions": max(1024, positions),
        "n_embd": heads * _HEAD_SIZE,
        "n_layer": 12 if depth is None else depth,
        "n_head": heads,
        "attn_implementation": attention,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    with no_init_weights():
        network = GPT2LMHeadModel(GPT2Config(**sizes))
    network.tie_weights()  # the head's weight is the embedding's
    return network, sizes["vocab_size"]


def gpt2(
    *,
    width: float = 1.0,
    depth: int | None = None,
    sequence: int = 64,
    batch: int = 1,
    seed: int = 0,
    attention: str = "sdpa",
) -> tuple[Decoder, tuple[torch.Tensor, ...]]:
    """Return GPT-2 (124M) in evaluation mode and its example inputs.

    width: factor on the heads (12, at least 1; a head keeps its 64 features), with them on the
    hidden size, and on the vocabulary (50,257, at least 100). depth: layers; None: 12. sequence:
    tokens per row. attention: "sdpa" keeps scaled dot product attention one op in the output of
    torch.export; "eager" decomposes it.
    """
    network, vocabulary = _gpt2(width, depth, sequence, attention)
    module = Decoder(network, sequence, vocabulary)
    return _ready(module, batch, seed)


def gpt2_decode(
    *,
    width: float = 1.0,
    depth: int | None = None,
    past: int = 64,
    batch: int = 1,
    seed: int = 0,
    attention: str = "sdpa",
) -> tuple[DecodeStep, tuple[torch.Tensor, ...]]:
    """Return one step of GPT-2: a token, given the keys and values of `past` tokens.

    The other arguments are those of `gpt2`.
    """
    network, vocabulary = _gpt2(width, depth, past + 1, attention)
    module = DecodeStep(network, past, vocabulary)
    return _ready(module, batch, seed)


def llama_4l(
    *,
    width: float = 1.0,
    depth: int | None = None,
    sequence: int = 64,
    batch: int = 1,
    seed: int = 0,
    attention: str = "sdpa",
) -> tuple[Decoder, tuple[torch.Tensor, ...]]:
    """Return a Llama of 4 layers in evaluation mode and its example inputs.

    width: factor on the query heads (8, in pairs of two groups; a head keeps its 64 features), on
    the hidden size with them, on the feed-forward (1,376) and the vocabulary (8,192, at least
    100); 2 key and value heads. depth: layers; None: 4. sequence: tokens per row. attention: as
    `gpt2`.
    """
    heads = 2 * max(1, round(4 * width))
    sizes: dict[str, Any] = {
        "vocab_size": max(100, round(8192 * width)),
        "hidden_size": heads * _HEAD_SIZE,
        "intermediate_size": max(32, round(1376 * width)),
        "num_hidden_layers": 4 if depth is None else depth,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "max_position_embeddings": max(512, sequence),
        "attn_implementation": attention,
    }
    return _ready(Decoder(_llama(sizes), sequence, sizes["vocab_size"]), batch, seed)


def llama_1b(
    *,
    width: float = 1.0,
    depth: int | None = None,
    sequence: int = 16,
    batch: int = 1,
    seed: int = 0,
    dtype: str = "bfloat16",
) -> tuple[Decoder, tuple[torch.Tensor, ...]]:
    """Return a Llama of the sizes of Llama 3.2 1B (1.24 billion parameters) and example inputs.

    width: factor on the query heads (32, in groups of four; a head keeps its 64 features), on the
    hidden size with them, on the feed-forward (8,192) and the vocabulary (128,256). depth: layers;
    None: 16. dtype: of the parameters, a name in torch. The weights are seeded as everywhere here.
    """
    network = _llama(_sizes_1b(width, depth), dtype)
    return _ready(Decoder(network, sequence, network.config.vocab_size), batch, seed)


def llama_1b_decode(
    *,
    width: float = 1.0,
    depth: int | None = None,
    past: int = 16,
    batch: int = 1,
    seed: int = 0,
    dtype: str = "bfloat16",
) -> tuple[DecodeStep, tuple[torch.Tensor, ...]]:
    """Return one step of `llama_1b`: a token, given the keys and values of `past` tokens."""
    network = _llama(_sizes_1b(width, depth), dtype)
    return _ready(DecodeStep(network, past, network.config.vocab_size), batch, seed)


def _sizes_1b(width: float, depth: int | None) -> dict[str, Any]:
    groups = max(1, round(8 * width))
    rotary = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    return {
        "vocab_size": max(100, round(128_256 * width)),
        "hidden_size": 4 * groups * _HEAD_SIZE,
        "intermediate_size": max(32, round(8192 * width)),
        "num_hidden_layers": 16 if depth is None else depth,
        "num_attention_heads": 4 * groups,
        "num_key_value_heads": groups,
        "head_dim": _HEAD_SIZE,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": rotary,
        "tie_word_embeddings": True,
        "attn_implementation": "sdpa",
    }


def _llama(sizes: dict[str, Any], dtype: str = "float32") -> Any:
    """Return a Llama with a language-model head and parameters of a dtype."""
    from transformers.initialization import no_init_weights
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))  # so that no f32 copy is made first
    try:
        with no_init_weights():
            network = LlamaForCausalLM(LlamaConfig(**sizes))
    finally:
        torch.set_default_dtype(before)
    network.tie_weights()
    return network
