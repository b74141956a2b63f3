"""The plain loops of kernels: what they leave out is seen where nothing of it is interpreted."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.lowering.emission import Emitter

torch = pytest.importorskip("torch", reason="the models are torch's")


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 6)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.slow)])
def test_a_launch_that_is_too_short_for_its_result_fails(target, monkeypatch):
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    right = cc.compile(Layers().eval(), (x,), target=target, check=True)
    assert not [r for each in right.checks.values() for r in each if r.verdict == "failed"]
    write = Emitter.write

    def short(emitter):
        function, given = write(emitter)
        return function, tuple((kind, 3 if (kind, n) == ("size", 4) else n) for kind, n in given)

    monkeypatch.setattr(Emitter, "write", short)
    found = cc.compile(Layers().eval(), (x,), target=target, check=True)
    said = [r.note for each in found.checks.values() for r in each if r.verdict == "failed"]
    assert any("its loops write" in note for note in said), said


def test_an_element_that_is_never_written_fails(monkeypatch):
    """The store of the first element goes to the second, which the loop overwrites."""
    from core_compiler.driver import compilation
    from core_compiler.driver.compilation import Options
    from core_compiler.lowering import custom
    from tests.passes.programs import inputs, program

    module = program(lambda b, x: b.cumsum(x, axis=0, exclusive=True), "5xf32")
    line = "put(start, kb.index(0))"
    source = inspect.getsource(custom._scan)
    assert source.count(line) == 1
    wrong = dict(vars(custom))
    exec(source.replace(line, "put(start, kb.index(1))"), wrong)
    monkeypatch.setattr(custom, "_scan", wrong["_scan"])
    made = compilation.start(module, "cpu", Options(check=True), inputs(module)).finish()
    said = [r.note for each in made.checks.values() for r in each if r.verdict == "failed"]
    assert said and said[0].endswith("do not write element 0"), said
    assert made.finding is not None and made.finding.pass_label == "outline_kernels"


def test_a_seed_is_read_in_full(monkeypatch):
    """A model's own seed has few bits."""
    from core_compiler.driver import compilation
    from core_compiler.driver.compilation import Options
    from core_compiler.lowering import custom
    from tests.passes.programs import program

    module = program(lambda b, s: b.random_uniform(s, shape=(6,), stream=0), "ui64")
    seed = [np.array(7, np.uint64)]

    def failed():
        made = compilation.start(module, "cpu", Options(check=True), seed).finish()
        return [r.note for each in made.checks.values() for r in each if r.verdict == "failed"]

    assert not failed()
    line = 'kb.shr(seed, kb.number(32, "ui64"))'
    source = inspect.getsource(custom.random)
    assert source.count(line) == 1
    wrong = dict(vars(custom))
    exec(source.replace(line, 'kb.shr(seed, kb.number(33, "ui64"))'), wrong)
    monkeypatch.setattr(custom, "random", wrong["random"])
    assert any("seed" in note for note in failed())
