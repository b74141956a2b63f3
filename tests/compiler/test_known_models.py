"""The compile workers of a model start with its import, unless it was compiled before."""

from __future__ import annotations

import pytest

import core_compiler as cc
from core_compiler import targets
from core_compiler.driver import known_models
from core_compiler.runtime.cache_folder import CacheFolder

torch = pytest.importorskip("torch")


@pytest.fixture
def started(monkeypatch, tmp_path):
    """The names of targets whose workers were started, with an empty cache of models."""
    names: list[str] = []
    models = CacheFolder(tmp_path)
    monkeypatch.setattr(known_models, "CacheFolder", lambda: models)
    monkeypatch.setattr(type(targets.target("cpu")), "prepare", lambda self: names.append("cpu"))
    return names


def test_workers_start_early_for_models_that_are_new(started):
    x = torch.ones(3, 4)
    cc.compile(torch.nn.ReLU(), (x,))
    assert started == ["cpu"]
    cc.compile(torch.nn.ReLU(), (x,))  # known
    cc.compile(torch.nn.Tanh(), (x,), finish=False)  # no kernel is needed yet
    assert started == ["cpu"]
    cc.compile(torch.nn.ReLU(), (torch.ones(5, 4),))
    assert started == ["cpu"] * 2


def test_layers_and_inputs_tell_models_apart():
    def key(*layers, shape=(1, 4), target="cpu"):
        return known_models.key_of(torch.nn.Sequential(*layers), [torch.ones(shape)], target)

    relu, tanh = torch.nn.ReLU(), torch.nn.Tanh()
    assert key(relu) == key(torch.nn.ReLU())
    others = [
        key(tanh),
        key(relu, torch.nn.ReLU()),
        key(relu, shape=(2, 4)),
        key(relu, target="npu"),
    ]
    assert len({key(relu), *others}) == 5
