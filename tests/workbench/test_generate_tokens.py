"""``workbench run MODEL --tokens N``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from core_compiler.driver.generate import Parts, Sampling, generate
from core_compiler.support.errors import UserError
from workbench.commands.cli import main
from workbench.model import peers

SMALL = ("--width", "0.1", "--depth", "2")


def answer(capsys, *words: str) -> tuple[int, dict]:
    code = main(["run", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_decode_step_generates_what_torch_does(capsys) -> None:
    code, data = answer(
        capsys,
        "gpt2-decode",
        *SMALL,
        "--size",
        "past=40",
        "--tokens",
        "12",
        "--against",
        "torch",
        "--tolerance",
        "1e-4",
    )
    assert code == 0 and data["verdict"] == "within"
    assert len(data["tokens"]) == 12 and data["same_choice"] == data["choices"] == 12
    assert [each["how"] for each in data["rebinds"]] == ["compiled"] * 2 + ["family"] * 9
    assert data["tokens_per_second"] > 0 and data["peer_tokens_per_second"] > 0


def test_a_decoder_without_caches_sees_all_tokens_again(capsys) -> None:
    code, data = answer(
        capsys,
        "gpt2",
        *SMALL,
        "--size",
        "sequence=20",
        "--batch",
        "2",
        "--tokens",
        "6",
        "--against",
        "torch",
        "--tolerance",
        "1e-4",
    )
    assert code == 0 and all(len(row) == 2 for row in data["tokens"])
    assert data["same_choice"] == 12


def test_wrong_logits_are_told(capsys) -> None:
    code, data = answer(
        capsys, "gpt2-decode", *SMALL, "--tokens", "3", "--against", "torch", "--tolerance", "0"
    )
    assert code == 1 and data["verdict"] == "differs"


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "within"), (1.001, "differs")])
def test_without_a_tolerance_it_is_judged(scale, verdict, capsys, monkeypatch) -> None:
    made = peers.torch_function

    def other(*given, **options):
        call = made(*given, **options)
        return lambda *arrays: tuple(np.float32(scale) * result for result in call(*arrays))

    monkeypatch.setattr(peers, "torch_function", other)
    code, data = answer(capsys, "gpt2-decode", *SMALL, "--tokens", "3", "--against", "torch")
    assert (code, data["verdict"]) == (int(verdict == "differs"), verdict)


def test_draws_are_the_same_for_the_same_seed(capsys) -> None:
    words = ("gpt2-decode", *SMALL, "--tokens", "8", "--temperature", "3", "--top", "30")
    first, again = (answer(capsys, *words)[1]["tokens"] for _ in range(2))
    other = answer(capsys, *words, "--sampling-seed", "1")[1]["tokens"]
    assert first == again != other


def test_it_is_recorded(capsys, tmp_path: Path) -> None:
    path = tmp_path / "generated.run"
    code, _ = answer(capsys, "gpt2-decode", *SMALL, "--tokens", "2", "-o", str(path))
    assert code == 0 and path.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("digits-mlp", "--tokens", "3"), "no sequence that grows"),
        (("gpt2-decode", *SMALL, "--tokens", "0"), "expected 1 or more"),
        (("gpt2-decode", *SMALL, "--tokens", "2", "--temperature", "-1"), "temperature"),
        (("gpt2-decode", *SMALL, "--tokens", "2", "--against", "jax"), "choose torch"),
        (("digits-mlp", "--sampling-seed", "7"), "add --tokens N"),
    ],
)
def test_bad_requests_say_what_to_do(words, message, capsys) -> None:
    assert main(["run", *words]) == 2
    assert message in capsys.readouterr().err


# -- sampling and parts ----------------------------------------------------------------------------


def test_draws_have_the_probabilities_of_the_logits() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    sampling = Sampling(1.0, 0, 11)
    counts = np.bincount([sampling.choose(logits, n) for n in range(4000)], minlength=4) / 4000
    assert np.abs(counts - [0.5, 0.3, 0.15, 0.05]).max() < 0.03  # five standard deviations
    top = Sampling(1.0, 2, 11)
    counts = np.bincount([top.choose(logits, n) for n in range(4000)], minlength=4) / 4000
    assert np.abs(counts - [0.625, 0.375, 0, 0]).max() < 0.04
    assert Sampling().choose(np.array([1, 3, 3], np.float32), 0) == 1  # the first of the largest


def test_the_names_of_exported_language_models_are_known() -> None:
    ids, mask = np.zeros((1, 1), np.int64), np.ones((1, 5), np.int64)
    cache = np.zeros((1, 2, 4, 8), np.float32)
    inputs = (
        "input_ids",
        "attention_mask",
        "position_ids",
        "past_key_values.0.key",
        "past_key_values.0.value",
    )
    outputs = ("logits", "present.0.key", "present.0.value")
    found = Parts.of(inputs, outputs, [ids, mask, ids + 4, cache, cache])
    assert (found.ids, found.mask, found.positions) == (0, 1, 2)
    assert found.caches == {3: 1, 4: 2}
    calls = []

    def call(ids, mask, positions, key, value):
        calls.append((ids.shape, mask.shape[1], int(positions[0, 0]), key.shape[2]))
        grown = np.concatenate([key, key[:, :, :1]], 2)
        return np.eye(6, dtype=np.float32)[[len(calls)]][None], grown, grown

    made = list(generate(call, found, [ids, mask, ids + 4, cache, cache], 3))
    assert [token.ids for token in made] == [(1,), (2,), (3,)]
    assert calls == [((1, 1), 5, 4, 4), ((1, 1), 6, 5, 5), ((1, 1), 7, 6, 6)]


def test_an_input_that_is_neither_ids_nor_a_cache_is_named() -> None:
    with pytest.raises(UserError, match="input x is neither"):
        Parts.of(("ids", "x"), ("logits",), [np.zeros((1, 1), np.int64), np.zeros(3, np.float32)])
    with pytest.raises(UserError, match="no input is token ids"):
        Parts.of(("x",), ("y",), [np.zeros((1, 1), np.float32)])
