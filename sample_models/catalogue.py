"""The catalogue of sample models: their names, their sizes, and their builders.

A new model is one builder, `name(*, width, depth, batch, seed, ...) -> (module, example_inputs)`
whose module has `input_names`, `output_names` and `make_inputs(batch, seed)`, and one entry here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from core_compiler.support.errors import UserError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Input:
    """An input at default sizes."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SampleModel:
    """An entry of the catalogue; all figures are for default sizes: width 1, full depth, batch 1.

    parameters: trained values, without batch-norm statistics. flops: floating-point operations of
    the convolutions, linear layers and matrix products of one execution; a multiply-add counts as
    two. sizes: the builder's arguments besides width, depth, batch and seed, with their defaults.
    builder: "module:function".
    """

    name: str
    summary: str
    parameters: int
    flops: int
    inputs: tuple[Input, ...]
    builder: str
    depth: int | tuple[int, ...]
    sizes: Mapping[str, int | str]


@dataclass(frozen=True)
class Built:
    """A model ready to execute: `module(*example_inputs)`.

    module: in evaluation mode, f32, on the CPU; returns one tensor or a tuple of tensors in the
    order of `output_names`. make_inputs: seed -> inputs of the same shapes with other values,
    the same for the same seed.
    """

    module: torch.nn.Module
    example_inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    make_inputs: Callable[[int], tuple[torch.Tensor, ...]]


_ENTRIES = (
    SampleModel(
        name="resnet50",
        summary="image classifier, 53 convolutions in bottleneck blocks",
        parameters=25_557_032,
        flops=8_178_368_512,
        inputs=(Input("pixels", "f32", (1, 3, 224, 224)),),
        builder="sample_models.resnet:resnet50",
        depth=(3, 4, 6, 3),
        sizes=MappingProxyType({"image": 224}),
    ),
    SampleModel(
        name="resnet18",
        summary="image classifier, 20 convolutions in basic blocks",
        parameters=11_689_512,
        flops=3_628_146_688,
        inputs=(Input("pixels", "f32", (1, 3, 224, 224)),),
        builder="sample_models.resnet:resnet18",
        depth=(2, 2, 2, 2),
        sizes=MappingProxyType({"image": 224}),
    ),
    SampleModel(
        name="mobilenet-v2",
        summary="image classifier, 52 convolutions in inverted residuals, 17 of them depthwise",
        parameters=3_504_872,
        flops=601_548_544,
        inputs=(Input("pixels", "f32", (1, 3, 224, 224)),),
        builder="sample_models.mobilenet:mobilenet_v2",
        depth=(1, 2, 3, 4, 3, 3, 1),
        sizes=MappingProxyType({"image": 224}),
    ),
    SampleModel(
        name="bert-base",
        summary="text encoder, 12 transformer layers, padded two-sentence input",
        parameters=109_482_240,
        flops=22_348_431_360,
        inputs=(
            Input("input_ids", "i64", (1, 128)),
            Input("attention_mask", "i64", (1, 128)),
            Input("token_type_ids", "i64", (1, 128)),
        ),
        builder="sample_models.bert:bert_base",
        depth=12,
        sizes=MappingProxyType({"sequence": 128, "attention": "sdpa"}),
    ),
    SampleModel(
        name="gpt2",
        summary="text decoder, 12 causal transformer layers",
        parameters=124_439_808,
        flops=15_963_095_040,
        inputs=(Input("input_ids", "i64", (1, 64)),),
        builder="sample_models.decoders:gpt2",
        depth=12,
        sizes=MappingProxyType({"sequence": 64, "attention": "sdpa"}),
    ),
    SampleModel(
        name="gpt2-decode",
        summary="one token of gpt2, given the keys and values of 64 before it",
        parameters=124_439_808,
        flops=249_460_224,
        inputs=(
            Input("input_ids", "i64", (1, 1)),
            Input("keys", "f32", (1, 12, 12, 64, 64)),
            Input("values", "f32", (1, 12, 12, 64, 64)),
        ),
        builder="sample_models.decoders:gpt2_decode",
        depth=12,
        sizes=MappingProxyType({"past": 64, "attention": "sdpa"}),
    ),
    SampleModel(
        name="vit-b16",
        summary="image classifier, 12 transformer layers over 196 patches",
        parameters=86_567_656,
        flops=35_127_656_448,
        inputs=(Input("pixels", "f32", (1, 3, 224, 224)),),
        builder="sample_models.vit:vit_b16",
        depth=12,
        sizes=MappingProxyType({"image": 224, "attention": "sdpa"}),
    ),
    SampleModel(
        name="llama-4l",
        summary="text decoder of 4 layers: rotary positions, RMS norms, gated feed-forward",
        parameters=19_468_800,
        flops=1_988_100_096,
        inputs=(Input("input_ids", "i64", (1, 64)),),
        builder="sample_models.decoders:llama_4l",
        depth=4,
        sizes=MappingProxyType({"sequence": 64, "attention": "sdpa"}),
    ),
    SampleModel(
        name="digits-cnn",
        summary="8x8 digits, 3 convolutions, 2 with batch norm, trained when built",
        parameters=23_994,
        flops=756_992,
        inputs=(Input("pixels", "f32", (1, 1, 8, 8)),),
        builder="sample_models.digits:digits_cnn",
        depth=3,
        sizes=MappingProxyType({}),
    ),
    SampleModel(
        name="digits-mlp",
        summary="8x8 digits, 2 hidden layers with GELU, trained when built",
        parameters=26_122,
        flops=51_712,
        inputs=(Input("pixels", "f32", (1, 64)),),
        builder="sample_models.digits:digits_mlp",
        depth=2,
        sizes=MappingProxyType({}),
    ),
)

CATALOGUE: Mapping[str, SampleModel] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def build(
    name: str,
    *,
    width: float = 1.0,
    depth: int | None = None,
    batch: int = 1,
    seed: int = 0,
    **sizes: Any,
) -> Built:
    """Build a model of the catalogue; equal arguments give equal bits on any machine.

    width scales channels or features; depth replaces the number of blocks or layers (None: as
    published); the builder documents both. sizes: see `SampleModel.sizes`. Raises UserError for an
    unknown name or size, or a size out of range.
    """
    entry = check_sizes(name, width=width, depth=depth, batch=batch, seed=seed, **sizes)
    module_name, _, function_name = entry.builder.partition(":")
    builder = getattr(importlib.import_module(module_name), function_name)
    module, inputs = builder(width=width, depth=depth, batch=batch, seed=seed, **sizes)
    return Built(
        module=module,
        example_inputs=inputs,
        input_names=module.input_names,
        output_names=module.output_names,
        make_inputs=functools.partial(module.make_inputs, batch),
    )


def check_sizes(
    name: str, *, width: float, depth: int | None, batch: int, seed: int, **sizes: Any
) -> SampleModel:
    """Return the entry `name` after all size checks that need no framework. Raises UserError."""
    if name not in CATALOGUE:
        raise UserError(
            f"unknown sample model {name!r}", "", f"choose one of {', '.join(CATALOGUE)}"
        )
    entry = CATALOGUE[name]
    for key in sizes:
        if key not in entry.sizes:
            known = ", ".join(["width", "depth", "batch", "seed", *entry.sizes])
            raise UserError(f"unknown size {key!r}", name, f"choose one of {known}")
    given = {"width": width, "depth": depth, "batch": batch, "seed": seed, **sizes}
    for key, (least, most) in _RANGES.items():
        value = given.get(key)
        if value is not None and not least <= value <= most:
            raise UserError(
                f"{key} {value} is out of range", name, f"pass a number from {least} to {most}"
            )
    if given.get("attention", "sdpa") not in _ATTENTION:
        raise UserError(
            f"unknown attention {given['attention']!r}",
            name,
            f"choose one of {', '.join(_ATTENTION)}",
        )
    return entry


# image: five halvings of 32 leave one pixel. sequence: BERT has 512 position embeddings.
_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "width": (0.01, 4),
        "depth": (1, 200),
        "batch": (1, 4096),
        "seed": (0, 2**63 - 1),
        "image": (32, 1024),
        "sequence": (1, 512),
        "past": (1, 8192),
    }
)
_ATTENTION = ("sdpa", "eager")
