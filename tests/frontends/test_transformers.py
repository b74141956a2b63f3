"""Architectures of `transformers` at small widths: imported, compiled, and equal to torch.

Encoders, decoders, encoder-decoders, vision, audio, mixtures of experts, state spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.debug.framework import compare
from core_compiler.frontends.pytorch import import_exported

#: The largest difference, of the largest value of the result.
CLOSE = 1e-5
_WIDTHS = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_TEXT = {**_WIDTHS, "vocab_size": 99}
_DECODER = {**_TEXT, "use_cache": False}
_BOTH = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 99,
    "use_cache": False,
}


def _ids(length: int = 16) -> torch.Tensor:
    return torch.randint(0, 99, (1, length), generator=torch.Generator().manual_seed(0))


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _text() -> dict[str, torch.Tensor]:
    return {"input_ids": _ids()}


def _two_texts() -> dict[str, torch.Tensor]:
    return {"input_ids": _ids(), "decoder_input_ids": _ids(8)}


def _image() -> dict[str, torch.Tensor]:
    return {"pixel_values": _drawn(1, 3, 32, 32)}


#: Name -> the class of the model, what its configuration is given, and its inputs.
MODELS: Mapping[str, tuple[str, Mapping, Callable[[], dict]]] = {
    # encoders
    "bert": ("BertModel", _TEXT, _text),
    "roberta": ("RobertaModel", _TEXT, _text),
    "electra": ("ElectraModel", {"embedding_size": 32, **_TEXT}, _text),
    "deberta-v2": ("DebertaV2Model", _TEXT, _text),
    "fnet": ("FNetModel", {k: v for k, v in _TEXT.items() if k != "num_attention_heads"}, _text),
    "distilbert": ("DistilBertModel", {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4,
                                       "vocab_size": 99}, _text),
    # decoders
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99,
                                 "use_cache": False}, _text),
    "llama": ("LlamaForCausalLM", {"num_key_value_heads": 2, **_DECODER}, _text),
    "qwen2": ("Qwen2ForCausalLM", {"num_key_value_heads": 2, **_DECODER}, _text),
    "gemma": ("GemmaForCausalLM", {"num_key_value_heads": 2, "head_dim": 8, **_DECODER}, _text),
    "opt": ("OPTForCausalLM", {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "vocab_size": 99,
                               "word_embed_proj_dim": 32, "use_cache": False}, _text),
    "llama4": ("Llama4ForCausalLM", {"num_key_value_heads": 2, "head_dim": 8,
                                     "num_local_experts": 4,
                                     "intermediate_size_mlp": 64, **_DECODER}, _text),
    # both
    "t5": ("T5ForConditionalGeneration", {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2,
                                          "num_heads": 4, "vocab_size": 99, "use_cache": False},
           _two_texts),
    "bart": ("BartModel", _BOTH, _two_texts),
    # vision
    "vit": ("ViTModel", {"image_size": 32, "patch_size": 8, **_WIDTHS}, _image),
    "swin": ("SwinModel", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
                           "num_heads": [2, 4], "window_size": 4}, _image),
    "convnext": ("ConvNextModel", {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1],
                                   "image_size": 32}, _image),
    "clip-vision": ("CLIPVisionModel", {"image_size": 32, "patch_size": 8, **_WIDTHS}, _image),
    # audio
    "whisper": ("WhisperModel", {**_BOTH, "num_mel_bins": 8, "max_source_positions": 20,
                                 "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                                 "decoder_start_token_id": 1},
                lambda: {"input_features": _drawn(1, 8, 40), "decoder_input_ids": _ids(6)}),
    "wav2vec2": ("Wav2Vec2Model", {"conv_dim": [16, 16], "conv_stride": [5, 2],
                                   "conv_kernel": [10, 3], "num_conv_pos_embeddings": 16,
                                   "num_conv_pos_embedding_groups": 2, **_WIDTHS},
                 lambda: {"input_values": _drawn(1, 400)}),
    # experts, states
    "mixtral": ("MixtralForCausalLM", {"num_key_value_heads": 2, "num_local_experts": 4,
                                       **_DECODER}, _text),
    "mamba": ("MambaForCausalLM", {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2,
                                   "vocab_size": 99, "use_cache": False}, _text),
    "mamba2": ("Mamba2ForCausalLM", {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2,
                                     "vocab_size": 99, "num_heads": 8, "head_dim": 8, "expand": 2,
                                     "n_groups": 1, "chunk_size": 8, "use_cache": False}, _text),
    "rwkv": ("RwkvForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99,
                                 "use_cache": False}, _text),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_architecture_computes_what_torch_computes(name: str) -> None:
    import transformers  # takes seconds, which those who only collect these tests need not spend

    architecture, given, make = MODELS[name]
    kind = getattr(transformers, architecture)
    torch.manual_seed(0)
    model = kind(kind.config_class(**given)).eval()
    inputs = make()
    with torch.no_grad():
        want = model(**inputs)[0].numpy()
        program = torch.export.export(model, (), inputs, strict=False)
    made = cc.compile(program, tuple(inputs.values()))
    found = made(*(x.numpy() for x in inputs.values()))[0]
    assert np.abs(found - want).max() <= CLOSE * np.abs(want).max()
    imported = import_exported(program)
    given = [x.numpy() for x in inputs.values()]
    assert imported.nodes is not None
    values = compare(imported.module, [*given, *imported.state], imported.nodes, len(given))
    assert values.verdict == "within", values.beyond


@pytest.mark.slow
def test_the_caches_of_an_encoder_decoder_are_results():
    import transformers

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            given = {**_BOTH, "use_cache": True, "encoder_layers": 1, "decoder_layers": 1}
            self.model = transformers.BartModel(transformers.BartConfig(**given))

        def forward(self, ids, more):
            return self.model(input_ids=ids, decoder_input_ids=more)

    torch.manual_seed(0)
    model, inputs = Both().eval(), (_ids(), _ids(8))
    found = cc.compile(model, inputs)(*(x.numpy() for x in inputs))
    with torch.no_grad():
        want = torch.utils._pytree.tree_leaves(model(*inputs))
    assert len(found) == len(want) == 6  # what the decoder says, four of the cache, the encoder's
    for ours, theirs in zip(found, want, strict=True):
        assert np.abs(ours - theirs.numpy()).max() <= CLOSE * np.abs(theirs.numpy()).max()
