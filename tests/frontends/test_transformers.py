"""Architectures of `transformers` at small widths: imported, compiled, and equal to torch.

Encoders, decoders, encoder-decoders, vision, audio, mixtures of experts, state spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
import transformers as t

import core_compiler as cc

#: The largest difference, of the largest value of the result.
CLOSE = 1e-5
_WIDTHS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
           "num_attention_heads": 4}  # fmt: skip
_TEXT = {**_WIDTHS, "vocab_size": 99}
_DECODER = {**_TEXT, "use_cache": False}
_BOTH = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99,
    "use_cache": False,
}  # fmt: skip


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


#: Name -> the model's class, what its configuration is given, and its inputs.
MODELS: Mapping[str, tuple[type, Mapping, Callable[[], dict]]] = {
    # encoders
    "bert": (t.BertModel, _TEXT, _text),
    "roberta": (t.RobertaModel, _TEXT, _text),
    "electra": (t.ElectraModel, {"embedding_size": 32, **_TEXT}, _text),
    "deberta-v2": (t.DebertaV2Model, _TEXT, _text),
    "fnet": (t.FNetModel, {k: v for k, v in _TEXT.items() if k != "num_attention_heads"}, _text),
    "distilbert": (t.DistilBertModel, {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4,
                                       "vocab_size": 99}, _text),
    # decoders
    "gpt2": (t.GPT2LMHeadModel, {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99,
                                 "use_cache": False}, _text),
    "llama": (t.LlamaForCausalLM, {"num_key_value_heads": 2, **_DECODER}, _text),
    "qwen2": (t.Qwen2ForCausalLM, {"num_key_value_heads": 2, **_DECODER}, _text),
    "gemma": (t.GemmaForCausalLM, {"num_key_value_heads": 2, "head_dim": 8, **_DECODER}, _text),
    "opt": (t.OPTForCausalLM, {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "vocab_size": 99,
                               "word_embed_proj_dim": 32, "use_cache": False}, _text),
    "llama4": (t.Llama4ForCausalLM, {"num_key_value_heads": 2, "head_dim": 8,
                                     "num_local_experts": 4,
                                     "intermediate_size_mlp": 64, **_DECODER}, _text),
    # both
    "t5": (t.T5ForConditionalGeneration, {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2,
                                          "num_heads": 4, "vocab_size": 99, "use_cache": False},
           _two_texts),
    "bart": (t.BartModel, _BOTH, _two_texts),
    # vision
    "vit": (t.ViTModel, {"image_size": 32, "patch_size": 8, **_WIDTHS}, _image),
    "swin": (t.SwinModel, {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
                           "num_heads": [2, 4], "window_size": 4}, _image),
    "convnext": (t.ConvNextModel, {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1],
                                   "image_size": 32}, _image),
    "clip-vision": (t.CLIPVisionModel, {"image_size": 32, "patch_size": 8, **_WIDTHS}, _image),
    # audio
    "whisper": (t.WhisperModel, {**_BOTH, "num_mel_bins": 8, "max_source_positions": 20,
                                 "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                                 "decoder_start_token_id": 1},
                lambda: {"input_features": _drawn(1, 8, 40), "decoder_input_ids": _ids(6)}),
    "wav2vec2": (t.Wav2Vec2Model, {"conv_dim": [16, 16], "conv_stride": [5, 2],
                                   "conv_kernel": [10, 3], "num_conv_pos_embeddings": 16,
                                   "num_conv_pos_embedding_groups": 2, **_WIDTHS},
                 lambda: {"input_values": _drawn(1, 400)}),
    # experts, states
    "mixtral": (t.MixtralForCausalLM, {"num_key_value_heads": 2, "num_local_experts": 4,
                                       **_DECODER}, _text),
    "mamba": (t.MambaForCausalLM, {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2,
                                   "vocab_size": 99, "use_cache": False}, _text),
    "mamba2": (t.Mamba2ForCausalLM, {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2,
                                     "vocab_size": 99, "num_heads": 8, "head_dim": 8, "expand": 2,
                                     "n_groups": 1, "chunk_size": 8, "use_cache": False}, _text),
    "rwkv": (t.RwkvForCausalLM, {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99,
                                 "use_cache": False}, _text),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_architecture_computes_what_torch_computes(name: str) -> None:
    kind, given, make = MODELS[name]
    torch.manual_seed(0)
    model = kind(kind.config_class(**given)).eval()
    inputs = make()
    with torch.no_grad():
        want = model(**inputs)[0].numpy()
        program = torch.export.export(model, (), inputs, strict=False)
    made = cc.compile(program, tuple(inputs.values()))
    found = made(*(x.numpy() for x in inputs.values()))[0]
    assert np.abs(found - want).max() <= CLOSE * np.abs(want).max()
