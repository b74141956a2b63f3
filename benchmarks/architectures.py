"""Architectures of ``transformers`` and Keras applications, compiled with every rewrite checked,
beside their own framework.

    python -m benchmarks.architectures [NAME...] [--keras] [-o tests/results/architectures.json]

Each model has random weights (none is 0 or 1), is compiled with ``check=True``, and computes the
same inputs as the framework.  Of each row: whether it compiled, else the message; ``nodes``, the
import beside the framework's nodes, on adversarial values too; ``error``, the largest |difference|
/ largest |value| over the outputs; ``spread``, that of the framework's own f32 outputs against its
f64 ones; the rewrites' checks; the ``verdict`` on the outputs, which may be ``within`` beyond any
fixed bound where a model is ill-conditioned.  The exit code is 1 where a model does not compile, a
check fails, or a verdict is neither ``equal`` nor ``within``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import core_compiler as cc
from core_compiler.debug.check import summary
from core_compiler.debug.framework import compare
from core_compiler.debug.verdict import worst
from core_compiler.debug.whole import judge_results
from core_compiler.frontends.open import Opened, open_model
from core_compiler.frontends.pytorch.caches import register_caches

#: From this error on the framework's own spread is measured too.
CLOSE = 1e-6
RESULTS = Path(__file__).parents[1] / "tests" / "results"

_WIDTHS = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_TEXT = {**_WIDTHS, "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GROUPED = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8}
_BOTH = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 99,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_T5 = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
_PATCHES = {"image_size": 32, "patch_size": 8, **_WIDTHS}
_STAGES = {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]}


def _ids(length: int = 16) -> Any:
    import torch

    return torch.randint(3, 99, (1, length), generator=torch.Generator().manual_seed(0))


def _drawn(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _text() -> dict[str, Any]:
    return {"input_ids": _ids()}


def _two_texts() -> dict[str, Any]:
    return {"input_ids": _ids(), "decoder_input_ids": _ids(8)}


def _image(size: int = 32) -> dict[str, Any]:
    return {"pixel_values": _drawn(1, 3, size, size)}


def _text_and_image() -> dict[str, Any]:
    return {"input_ids": _ids(), "pixel_values": _drawn(1, 3, 32, 32)}


#: Name -> the class of the model, what its configuration is given, and its inputs.
ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any], Callable[[], dict[str, Any]]]] = {
    # encoders
    "bert": ("BertModel", _TEXT, _text),
    "roberta": ("RobertaModel", _TEXT, _text),
    "distilbert": ("DistilBertModel", {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4,
                                       "vocab_size": 99}, _text),
    "albert": ("AlbertModel", {"embedding_size": 16, **_TEXT}, _text),
    "electra": ("ElectraModel", {"embedding_size": 32, **_TEXT}, _text),
    "deberta-v2": ("DebertaV2Model", _TEXT, _text),
    "deberta-v2-relative": ("DebertaV2Model", {"relative_attention": True, "position_buckets": 8,
                            "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", **_TEXT},
                            _text),
    "mobilebert": ("MobileBertModel", {"embedding_size": 16, "intra_bottleneck_size": 16, **_TEXT,
                                       "true_hidden_size": 16}, _text),
    "modernbert": ("ModernBertModel", {**_TEXT, "cls_token_id": 1, "sep_token_id": 2,
                                       "reference_compile": False}, _text),
    "xlnet": ("XLNetModel", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64,
                             "vocab_size": 99}, _text),
    "fnet": ("FNetModel", {k: v for k, v in _TEXT.items() if k != "num_attention_heads"}, _text),
    # decoders
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99}, _text),
    "gpt_neo": ("GPTNeoForCausalLM", {"hidden_size": 32, "num_layers": 2, "num_heads": 4,
                "attention_types": [[["global", "local"], 1]], "window_size": 8, "vocab_size": 99},
                _text),
    "gptj": ("GPTJForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4,
                                 "vocab_size": 99}, _text),
    "gpt_neox": ("GPTNeoXForCausalLM", _TEXT, _text),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4,
                                              "vocab_size": 99}, _text),
    "codegen": ("CodeGenForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4,
                                       "vocab_size": 99}, _text),
    "opt": ("OPTForCausalLM", {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "vocab_size": 99,
                               "word_embed_proj_dim": 32}, _text),
    "bloom": ("BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99},
              _text),
    "mpt": ("MptForCausalLM", {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 99},
            _text),
    "falcon": ("FalconForCausalLM", _TEXT, _text),
    "falcon-alibi": ("FalconForCausalLM", {"alibi": True, **_TEXT}, _text),
    "llama": ("LlamaForCausalLM", _GROUPED, _text),
    "mistral": ("MistralForCausalLM", {"sliding_window": 8, **_GROUPED}, _text),
    "qwen2": ("Qwen2ForCausalLM", _GROUPED, _text),
    "qwen3": ("Qwen3ForCausalLM", _GROUPED, _text),
    "gemma": ("GemmaForCausalLM", _GROUPED, _text),
    "gemma2": ("Gemma2ForCausalLM", {"sliding_window": 8, **_GROUPED}, _text),
    "gemma3": ("Gemma3ForCausalLM", {"sliding_window": 8, **_GROUPED}, _text),
    "phi": ("PhiForCausalLM", _TEXT, _text),
    "phi3": ("Phi3ForCausalLM", _TEXT, _text),
    "stablelm": ("StableLmForCausalLM", {"num_key_value_heads": 4, **_TEXT}, _text),
    "cohere": ("CohereForCausalLM", _TEXT, _text),
    "olmo2": ("Olmo2ForCausalLM", _TEXT, _text),
    "smollm3": ("SmolLM3ForCausalLM", _GROUPED, _text),
    "xglm": ("XGLMForCausalLM", {"d_model": 32, "ffn_dim": 64, "num_layers": 2,
                                 "attention_heads": 4, "vocab_size": 99}, _text),
    # mixtures of experts
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4, **_GROUPED}, _text),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {"num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, **_GROUPED},
                  _text),
    "llama4": ("Llama4ForCausalLM", {"num_local_experts": 4, "intermediate_size_mlp": 64,
                                     **_GROUPED}, _text),
    # states
    "mamba": ("MambaForCausalLM", {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2,
                                   "vocab_size": 99, "use_cache": False}, _text),
    "mamba2": ("Mamba2ForCausalLM", {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2,
                                     "vocab_size": 99, "num_heads": 8, "head_dim": 8, "expand": 2,
                                     "n_groups": 1, "chunk_size": 8, "use_cache": False}, _text),
    "rwkv": ("RwkvForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99},
             _text),
    "rwkv-model": ("RwkvModel", {"hidden_size": 32, "num_hidden_layers": 3, "vocab_size": 99,
                                 "rescale_every": 2}, _text),
    # both
    "t5": ("T5ForConditionalGeneration", _T5, _two_texts),
    "mt5": ("MT5Model", _T5, _two_texts),
    "bart": ("BartModel", _BOTH, _two_texts),
    "mbart": ("MBartModel", _BOTH, _two_texts),
    "pegasus": ("PegasusModel", _BOTH, _two_texts),
    "marian": ("MarianModel", _BOTH, _two_texts),
    "m2m_100": ("M2M100Model", _BOTH, _two_texts),
    # vision
    "vit": ("ViTModel", _PATCHES, _image),
    "deit": ("DeiTModel", _PATCHES, _image),
    "beit": ("BeitModel", {"use_relative_position_bias": True, **_PATCHES}, _image),
    "dinov2": ("Dinov2Model", _PATCHES, _image),
    "swin": ("SwinModel", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
                           "num_heads": [2, 4], "window_size": 4}, _image),
    "swinv2": ("Swinv2Model", {"image_size": 32, "patch_size": 2, "embed_dim": 16,
                               "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}, _image),
    "convnext": ("ConvNextModel", {"image_size": 32, **_STAGES}, _image),
    "convnextv2": ("ConvNextV2Model", {"image_size": 32, **_STAGES}, _image),
    "resnet": ("ResNetModel", {"embedding_size": 16, **_STAGES}, _image),
    "regnet": ("RegNetModel", {"embedding_size": 16, "groups_width": 8, **_STAGES}, _image),
    "mobilenet_v2": ("MobileNetV2Model", {"image_size": 32, "depth_multiplier": 0.35}, _image),
    "segformer": ("SegformerModel", {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1],
                                     "num_attention_heads": [1, 2, 2, 4]}, lambda: _image(64)),
    "clip-vision": ("CLIPVisionModel", _PATCHES, _image),
    "clip": ("CLIPModel", {"text_config": {**_TEXT, "eos_token_id": 98}, "vision_config": _PATCHES,
                           "projection_dim": 16}, _text_and_image),
    "siglip": ("SiglipModel", {"text_config": _TEXT, "vision_config": _PATCHES}, _text_and_image),
    # audio
    "whisper": ("WhisperModel", {**_BOTH, "num_mel_bins": 8, "max_source_positions": 20},
                lambda: {"input_features": _drawn(1, 8, 40), "decoder_input_ids": _ids(6)}),
    "wav2vec2": ("Wav2Vec2Model", {"conv_dim": [16, 16], "conv_stride": [5, 2],
                                   "conv_kernel": [10, 3], "num_conv_pos_embeddings": 16,
                                   "num_conv_pos_embedding_groups": 2, **_WIDTHS},
                 lambda: {"input_values": _drawn(1, 400)}),
    "hubert": ("HubertModel", {"conv_dim": [16, 16], "conv_stride": [5, 2],
                               "conv_kernel": [10, 3], "num_conv_pos_embeddings": 16,
                               "num_conv_pos_embedding_groups": 2, **_WIDTHS},
               lambda: {"input_values": _drawn(1, 400)}),
    "ast": ("ASTModel", {"max_length": 32, "num_mel_bins": 32, "patch_size": 8, **_WIDTHS},
            lambda: {"input_values": _drawn(1, 32, 32)}),
}  # fmt: skip


def build(name: str) -> tuple[Any, dict[str, Any]]:
    """An architecture in evaluation mode, its parameters shaken, and its inputs by name."""
    import torch
    import transformers

    register_caches()  # a cache among the results has leaves
    kind_name, given, make = ARCHITECTURES[name]
    kind = getattr(transformers, kind_name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**given)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model, make()


def of_torch(name: str) -> dict[str, Any]:
    """One row: an architecture of ``transformers``."""
    import torch

    model, inputs = build(name)
    first = str(next(iter(inputs)))

    def leaves(made: Any) -> list[np.ndarray]:
        found = torch.utils._pytree.tree_leaves(made)
        return [x.detach().numpy().copy() for x in found if isinstance(x, torch.Tensor)]

    with torch.no_grad():
        want = leaves(model(**inputs))

    def opened() -> Opened:
        model, _ = build(name)  # what a call writes is not there yet
        if len(inputs) == 1 and first == model.main_input_name:
            return open_model(model, tuple(inputs.values()))
        with torch.no_grad():
            program = torch.export.export(model, (), inputs, strict=False)
        return open_model(program, tuple(inputs.values()))

    def wide() -> list[np.ndarray]:
        model, _ = build(name)
        as_f64 = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
        with torch.no_grad():
            return leaves(model.double()(**as_f64))

    return _row(name, opened, [x.numpy() for x in inputs.values()], want, wide)


# -- Keras -------------------------------------------------------------------------------------

#: Applications that take no image of 64x64, and the smallest that they take.
SIZES = {
    "InceptionV3": 75,
    "InceptionResNetV2": 75,
    "Xception": 71,
    "NASNetLarge": 331,
    "NASNetMobile": 224,
}


#: Applications that keep the variables which Keras draws: with others an ulp of the image moves
#: Keras's own result by 0.7 of the largest value, and nothing can be compared.
AS_DRAWN = frozenset({"EfficientNetV2L", "EfficientNetV2M"})


def applications() -> dict[str, Callable[..., Any]]:
    """The models of ``keras.applications`` by name."""
    import keras

    return {
        n: f for n, f in sorted(vars(keras.applications).items()) if n[:1].isupper() and callable(f)
    }


def of_keras(name: str) -> dict[str, Any]:
    """One row: a model of ``keras.applications`` with its smallest images."""
    import keras

    keras.utils.set_random_seed(0)
    size = SIZES.get(name, 64)
    model = applications()[name](
        weights=None, input_shape=(size, size, 3), include_top=False, pooling="avg"
    )
    draw = np.random.default_rng(0)
    # Statistics and scales of normalisations that matter.
    for variable in model.variables if name not in AS_DRAWN else ():
        last = variable.path.rpartition("/")[2]
        drawn = draw.standard_normal(variable.shape).astype(np.float32)
        if last in ("gamma", "moving_variance", "variance"):
            variable.assign(1 + 0.1 * np.abs(drawn))
        elif last in ("beta", "moving_mean", "mean", "bias"):
            variable.assign(0.1 * drawn)
    image = draw.standard_normal((1, size, size, 3)).astype(np.float32)
    if "preprocessing" not in " ".join(layer.name for layer in model.layers) and any(
        layer.name.startswith(("rescaling", "normalization")) for layer in model.layers
    ):
        image = (image * 64 + 128).clip(0, 255).astype(np.float32)
    want = [np.asarray(keras.ops.convert_to_numpy(model(image, training=False)))]
    return _row(name, lambda: open_model(model, (image,)), [image], want, None)


# -- rows --------------------------------------------------------------------------------------


def verdict(made: cc.Compilation, found: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str:
    """The verdict on the outputs, as ``workbench run --against`` says it."""
    module = made.stages[0].module
    return worst(j.verdict for j in judge_results(module, made.inputs, found, want, list))


def error(found: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """The largest |difference| / largest |value| over the outputs; infinite where they differ in
    shape or in what is not finite."""
    worst = 0.0
    for a, b in zip(found, want, strict=True):
        if a.shape != b.shape:
            return float("inf")
        if not b.size:
            continue
        x, y = (np.asarray(each, np.float64) for each in (a, b))
        with np.errstate(invalid="ignore"):
            difference = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        difference = np.where(np.isfinite(difference), difference, np.inf)
        largest = float(np.max(np.abs(y), where=np.isfinite(y), initial=0.0))
        most = float(difference.max())
        worst = max(worst, most and (most / largest if largest else float("inf")))
    return worst


def nodes(opened: Opened, inputs: Sequence[np.ndarray]) -> dict[str, Any]:
    """The import beside the framework, node by node, on the inputs and on adversarial values, as
    ``workbench compile --against`` compares it."""
    found = opened.imported
    assert found.nodes is not None
    arrays = [*(np.array(a) for a in inputs), *found.state]
    comparison = compare(found.module, arrays, found.nodes, len(inputs))
    beyond = comparison.beyond
    return {
        "verdict": comparison.verdict,
        **comparison.counts,
        "left_out": comparison.left_out,
        "tried": comparison.tried,
        "beyond": "" if beyond is None else f"{beyond.node}: {beyond.judgement.note}",
    }


def _row(
    name: str,
    opened: Callable[[], Opened],
    inputs: Sequence[np.ndarray],
    want: Sequence[np.ndarray],
    wide: Callable[[], list[np.ndarray]] | None,
) -> dict[str, Any]:
    began = time.perf_counter()
    row: dict[str, Any] = {
        "name": name,
        "compiles": False,
        "error": None,
        "spread": None,
        "outputs": len(want),
        "message": "",
    }
    try:
        model = opened()
        made = cc.compile(model.imported, tuple(inputs), check=True)
        found = made(*inputs)
        found = found if isinstance(found, list | tuple) else (found,)
        row["compiles"] = True
        row["error"] = error(found, want)
        row["checks"] = summary(made.checks)
        row["verdict"] = verdict(made, found, want)
        row["nodes"] = nodes(model, inputs)
    except cc.UserError as problem:
        row["message"] = str(problem)
    except Exception as problem:  # a fault of the compiler's own: a row like any other
        row["message"] = f"{type(problem).__name__}: {problem}"[:600]
    row["seconds"] = round(time.perf_counter() - began, 1)
    if wide is not None and row["error"] is not None and row["error"] > CLOSE:
        try:
            row["spread"] = error([x.astype(np.float64) for x in want], wide())
        except Exception as problem:  # the framework's own: code that is written for f32 only
            row["spread_message"] = f"{type(problem).__name__}: {problem}"[:200]
    return row


def is_correct(row: Mapping[str, Any]) -> bool:
    """Whether a model compiled, its checks passed, and its nodes and outputs are the
    framework's."""
    if row["error"] is None or row.get("checks", {}).get("failed"):
        return False
    found = row.get("verdict"), row.get("nodes", {}).get("verdict")
    return all(verdict in ("equal", "within") for verdict in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--keras", action="store_true", help="Keras applications, on JAX")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.keras:
        os.environ.setdefault("KERAS_BACKEND", "jax")
    every, run = (applications(), of_keras) if given.keras else (ARCHITECTURES, of_torch)
    rows: dict[str, dict[str, Any]] = {}
    if given.output and given.output.exists():  # rows of others that ran before are kept
        rows = {row["name"]: row for row in json.loads(given.output.read_text())["rows"]}
    for name in given.names or every:
        try:
            row = run(name)
        except Exception as problem:  # the framework cannot build or run it
            row = {
                "name": name,
                "compiles": False,
                "error": None,
                "spread": None,
                "seconds": 0.0,
                "message": f"not run: {type(problem).__name__}: {problem}"[:300],
            }
        rows[name] = row
        outcome = row["message"] if row["error"] is None else f"{row['error']:.2e}"
        print(
            f"{'ok  ' if is_correct(row) else 'FAIL'} {name:22} {row['seconds']:6.1f} s  {outcome}",
            row.get("verdict", ""),
            row.get("checks", ""),
            flush=True,
        )
        if given.output:
            libraries = ("keras", "jax") if given.keras else ("torch", "transformers")
            kept = [rows[n] for n in every if n in rows]
            found = {"versions": {n: version(n) for n in libraries}, "rows": kept}
            given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{sum(map(is_correct, rows.values()))} of {len(rows)}")
    return int(not all(map(is_correct, rows.values())))


if __name__ == "__main__":
    sys.exit(main())
