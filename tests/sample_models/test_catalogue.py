"""Each sample model: what the catalogue says of it is true, and its bits are reproducible."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from core_compiler.support.errors import UserError
from sample_models import CATALOGUE, build
from sample_models.digits import TRAINING_IMAGES, digits
from tests.sample_models.narrow import NARROW, outputs
from tests.slow import slow_but

# Printed by a process of its own; must not depend on anything about that process.
DIGESTS = """
import hashlib, json, sys, torch
torch.set_num_threads(int(sys.argv[2]))
from sample_models import build
def digest(built):
    hasher = hashlib.sha256()
    for name, tensor in built.module.state_dict().items():
        hasher.update(name.encode() + tensor.numpy().tobytes())
    for tensor in (*built.example_inputs, *built.make_inputs(7)):
        hasher.update(tensor.numpy().tobytes())
    return hasher.hexdigest()
print(json.dumps({name: digest(build(name, **sizes))
                  for name, sizes in json.loads(sys.argv[1]).items()}))
"""


def digests(hash_seed: int, threads: int, instructions: str | None) -> dict[str, str]:
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    if instructions is not None:
        environment |= {"ATEN_CPU_CAPABILITY": instructions, "ONEDNN_MAX_CPU_ISA": "SSE41"}
        environment |= {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    command = [sys.executable, "-c", DIGESTS, json.dumps(NARROW), str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_same_bits_in_other_processes_threads_and_instruction_sets() -> None:
    first = digests(1, 1, None)
    assert list(first) == list(CATALOGUE)
    assert digests(2, 2, "default") == first


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("digits-cnn",), CATALOGUE))
def test_seeds_change_weights_and_inputs(name: str) -> None:
    built, again, other = (build(name, **NARROW[name], seed=seed) for seed in (0, 0, 1))
    for a, b in zip(built.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(built.module.parameters(), other.module.parameters(), strict=True)
    )
    assert not torch.equal(built.make_inputs(1)[0], built.make_inputs(2)[0])


@pytest.mark.parametrize("name", slow_but(("resnet18", "digits-mlp"), CATALOGUE))
def test_inputs_and_outputs_are_named_finite_and_in_eval_mode(name: str) -> None:
    built = build(name, **NARROW[name], batch=2)
    entry = CATALOGUE[name]
    assert not any(module.training for module in built.module.modules())
    assert built.input_names == tuple(declared.name for declared in entry.inputs)
    for declared, given in zip(entry.inputs, built.example_inputs, strict=True):
        assert given.shape[0] == 2
        assert given.dim() == len(declared.shape)
        assert given.dtype is {"f32": torch.float32, "i64": torch.int64}[declared.dtype]
    results = outputs(built)
    assert len(results) == len(built.output_names)
    assert all(bool(torch.isfinite(result).all()) for result in results)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CATALOGUE)
def test_outputs_depend_on_the_inputs(name: str) -> None:
    # Errors are scaled by this difference, so it may not be small beside the outputs.
    built = build(name, **NARROW[name])
    for first, second in zip(outputs(built), outputs(built, built.make_inputs(5)), strict=True):
        assert float((first - second).abs().max()) > 0.05 * float(first.abs().max())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CATALOGUE)
def test_no_weight_is_zero_or_one_everywhere(name: str) -> None:
    for key, weight in build(name, **NARROW[name]).module.named_parameters():
        assert weight.unique().numel() > 1, key
        assert not bool((weight == 0).any()), key


@pytest.mark.parametrize("name", ["resnet50", "resnet18", "mobilenet-v2", "digits-cnn"])
def test_batch_norm_statistics_are_those_of_data(name: str) -> None:
    built = build(name, **NARROW[name])
    norms = [m for m in built.module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    for norm in norms:
        assert norm.running_mean is not None and norm.running_var is not None
        assert norm.running_mean.unique().numel() > 1
        assert float(norm.running_mean.abs().max()) > 0.01
        assert bool((norm.running_var > 0).all())
        assert float((norm.running_var - 1).abs().max()) > 0.01


def test_calibrated_batch_norms_normalise() -> None:
    # With other statistics than the data's, activations drift from layer to layer.
    built = build("resnet18", width=0.25, image=64)
    seen: list[torch.Tensor] = []
    for module in built.module.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_hook(lambda norm, _, y: seen.append(y / norm.weight.mean()))
    outputs(built, build("resnet18", width=0.25, image=64, batch=8).make_inputs(3))
    assert len(seen) == 20
    assert all(0.5 < float(result.std()) < 2 for result in seen)


@pytest.mark.parametrize(("name", "least"), [("digits-cnn", 0.9), ("digits-mlp", 0.85)])
def test_digits_are_recognised(name: str, least: float) -> None:
    built = build(name)
    images, classes = digits()
    unseen = images[TRAINING_IMAGES:].reshape(-1, *built.example_inputs[0].shape[1:])
    right = outputs(built, (unseen,))[0].argmax(1) == classes[TRAINING_IMAGES:]
    assert float(right.float().mean()) > least


@pytest.mark.slow
def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    images, classes = digits()
    expected = load_digits()
    np.testing.assert_array_equal(images.numpy() * 16, expected.data)
    np.testing.assert_array_equal(classes.numpy(), expected.target)


@pytest.mark.parametrize("name", ["gpt2", "llama-4l"])
def test_no_token_of_a_decoder_sees_the_next(name: str) -> None:
    built = build(name, **NARROW[name])
    (ids,) = built.make_inputs(1)
    changed = ids.clone()
    changed[:, 20] = (ids[:, 20] + 1) % 100
    first, second = outputs(built, (ids,))[0], outputs(built, (changed,))[0]
    torch.testing.assert_close(first[:, :20], second[:, :20])
    assert float((first[:, 20:] - second[:, 20:]).abs().amax((0, 2)).min()) > 1e-3


def test_a_decode_step_continues_gpt2() -> None:
    # The cache that 31 tokens leave behind, then one token: the logits of 32 tokens at once.
    sizes = dict(NARROW["gpt2-decode"])
    step = build("gpt2-decode", **sizes)
    whole = build("gpt2", sequence=sizes.pop("past") + 1, **sizes)
    (ids,) = whole.make_inputs(1)
    with torch.no_grad():
        network = whole.module.network
        layers = network(input_ids=ids[:, :-1], use_cache=True).past_key_values.layers
        keys = torch.stack([layer.keys for layer in layers], dim=1)
        values = torch.stack([layer.values for layer in layers], dim=1)
    logits, new_keys, new_values = outputs(step, (ids[:, -1:], keys, values))
    torch.testing.assert_close(logits, outputs(whole, (ids,))[0][:, -1:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(new_keys[:, :, :, :-1], keys)
    torch.testing.assert_close(new_values[:, :, :, :-1], values)


def test_bert_padding_does_not_reach_the_kept_positions() -> None:
    built = build("bert-base", **NARROW["bert-base"])
    ids, mask, types = built.make_inputs(1)
    kept = int(mask.sum())
    assert 0 < kept < mask.shape[1]
    changed = torch.where(mask == 1, ids, 17)
    first = outputs(built, (ids, mask, types))[0][:, :kept]
    second = outputs(built, (changed, mask, types))[0][:, :kept]
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("name", [n for n in CATALOGUE if "attention" in CATALOGUE[n].sizes])
def test_attention_spellings_agree(name: str) -> None:
    sdpa = build(name, **NARROW[name])
    eager = build(name, **NARROW[name], attention="eager")
    for first, second in zip(outputs(sdpa), outputs(eager), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "sizes", "says"),
    [
        ("resnet51", {}, "unknown sample model 'resnet51'; choose one of resnet50, resnet18, "),
        ("resnet50", {"sequence": 3}, "resnet50: unknown size 'sequence'; choose one of width, "),
        ("resnet50", {"width": 0.0}, "width 0.0 is out of range; pass a number from 0.01 to 4"),
        ("resnet50", {"depth": 0}, "depth 0 is out of range; pass a number from 1 to 200"),
        ("resnet50", {"image": 31}, "image 31 is out of range; pass a number from 32 to 1024"),
        ("bert-base", {"batch": 0}, "batch 0 is out of range; pass a number from 1 to 4096"),
        ("bert-base", {"sequence": 513}, "513 is out of range; pass a number from 1 to 512"),
        ("gpt2-decode", {"past": 0}, "past 0 is out of range; pass a number from 1 to 8192"),
        ("bert-base", {"attention": "flash"}, "unknown attention 'flash'; choose one of sdpa, eag"),
    ],
)
def test_bad_sizes_are_named(name: str, sizes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        build(name, **sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_figures_of_the_catalogue(name: str) -> None:
    # torch's counter does not know the CPU's fused attention: count its products spelled out.
    spelled = {"attention": "eager"} if "attention" in CATALOGUE[name].sizes else {}
    entry, built = CATALOGUE[name], build(name, **spelled)
    assert sum(weight.numel() for weight in built.module.parameters()) == entry.parameters
    assert tuple(tuple(x.shape) for x in built.example_inputs) == tuple(
        declared.shape for declared in entry.inputs
    )
    with FlopCounterMode(display=False) as counter:
        outputs(built)
    assert counter.get_total_flops() == entry.flops


def test_published_parameter_counts() -> None:
    # torchvision's documentation (resnet, mobilenet, vit) and the checkpoints bert-base-uncased
    # without its heads and gpt2 (its published 124M, the head being the embedding).
    published = {
        "resnet18": 11_689_512,
        "resnet50": 25_557_032,
        "mobilenet-v2": 3_504_872,
        "bert-base": 109_482_240,
        "vit-b16": 86_567_656,
        "gpt2": 124_439_808,
    }
    assert {name: CATALOGUE[name].parameters for name in published} == published


def test_mobilenet_is_that_of_transformers() -> None:
    # Its weights, in order, in the library's implementation: the same function.
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    built = build("mobilenet-v2", image=64)
    config = MobileNetV2Config(
        tf_padding=False, layer_norm_eps=1e-5, num_labels=1000, image_size=64
    )
    theirs = MobileNetV2ForImageClassification(config).eval()
    ours = built.module.state_dict().values()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours, strict=True)))
    with torch.no_grad():
        expected = theirs(*built.example_inputs).logits
    torch.testing.assert_close(outputs(built)[0], expected)


def test_mobilenets_parameters_are_those_of_torchvision() -> None:
    torchvision = pytest.importorskip("torchvision", reason="the layout is compared with its model")
    theirs = torchvision.models.mobilenet_v2()
    ours = build("mobilenet-v2").module
    assert [p.shape for p in ours.parameters()] == [p.shape for p in theirs.parameters()]


def test_relu6_of_mobilenet_limits_some_values() -> None:
    built = build("mobilenet-v2", image=64)
    limited: list[bool] = []
    for module in built.module.modules():
        if isinstance(module, torch.nn.ReLU6):
            module.register_forward_hook(
                lambda _m, _x, y: limited.append(bool((y == 6).any() and (y == 0).any()))
            )
    outputs(built)
    assert len(limited) == 35 and all(limited)


def test_seeded_numbers_have_not_changed() -> None:
    from sample_models import seeded

    values = torch.cat(
        [
            seeded.uniform("a", 0, (999,), 1.0),
            seeded.bell("b", 1, (999,)),
            seeded.integers("c", 2, (999,), -5, 1 << 20).float(),
        ]
    )
    assert hashlib.sha256(values.numpy().tobytes()).hexdigest() == (
        "6e7d4f239274293727a7b7d1025d4058d19aacdb223294a422bc6e05d0b0935f"
    )


def test_seeded_numbers_have_the_stated_moments() -> None:
    from sample_models import seeded

    for values, deviation in (
        (seeded.uniform("a", 0, (200_000,), 0.02), 0.02),
        (seeded.bell("b", 0, (200_000,)), 1.0),
    ):
        assert abs(float(values.mean())) < 0.01 * deviation
        assert abs(float(values.std()) / deviation - 1) < 0.01
    drawn = seeded.integers("c", 0, (20_000,), 3, 13)
    assert drawn.unique().tolist() == list(range(3, 13))
    assert int(torch.bincount(drawn)[3:].min()) > 1800
