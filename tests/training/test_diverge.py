"""Receipts, verifying them, and the first difference of two runs, on differences that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.training.config import Training
from core_compiler.training.diverge import diverge
from core_compiler.training.fit import Plan, fit
from core_compiler.training.inject import Injection
from core_compiler.training.replay import Run
from tests.training.test_step import Pictures, _made, _pictures

ITERATIONS, BATCH = 6, 4


def _data():
    parts = [_pictures(i) for i in range(4)]
    return tuple(np.concatenate([np.asarray(p[i]) for p in parts]) for i in (0, 1))


class Lab:
    """One compiled step, and runs of it in folders."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.data = _data()
        batch = tuple(a[:BATCH] for a in self.data)
        self.step = cc.compile(
            _made(Pictures), batch, training=Training(optimizer="adamw", shards=2)
        )
        self.first = self.step.whole_state()
        self.plain = self.run("plain")

    def run(self, name: str, **how) -> Run:
        folder = self.folder / name
        self.step.load_state_dict(self.first)
        inject = how.pop("inject", None)
        how = {"receipts": "state", **how}
        fit(self.step, self.data, iterations=ITERATIONS, batch=BATCH, seed=3, folder=folder,
            every=2, inject=inject, **how)  # fmt: skip
        plan = Plan(
            ITERATIONS, BATCH, 3, folder, 2, inject=Injection.of(inject) if inject else None
        )
        return Run(folder, plan, lambda: (self._reset(), self.data))

    def _reset(self):
        self.step.load_state_dict(self.first)
        return self.step


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    return Lab(tmp_path_factory.mktemp("runs"))


#: What is injected: forward, statistics over shards, backward, the sum of gradients over shards,
#: the optimiser's slots and parameters.
INJECTED = (
    ("core.conv#1", 3), ("core.all_reduce#1", 2), ("core.conv#2", 5),
    ("core.conv_weight_gradient#1", 4), ("core.conv_weight_gradient#2", 1),
    ("core.conv_transpose#1", 6), ("core.all_reduce#-1", 2), ("parameter", 3), ("slot", 2),
)  # fmt: skip


def _op(lab: Lab, what: str) -> str:
    """An op of the step by what it is for."""
    names, probes = lab.step.names, lab.step.probes.probes
    seen = [names[p.number].op for p in probes]
    if what in ("parameter", "slot"):  # the last values that the optimiser writes
        written = [p for p in probes if p.ref.space == "output" and len(p.shape) == 4]
        return names[written[0 if what == "parameter" else -1].number].op
    kind, _, number = what.partition("#")
    of_kind = [op for op in seen if op.startswith(f"{kind}#")]
    return of_kind[-1] if number == "-1" else what


@pytest.mark.parametrize(("what", "iteration"), INJECTED)
def test_an_injected_rounding_is_found(lab: Lab, what, iteration):
    op = _op(lab, what)
    other = lab.run(f"{op}-{iteration}", inject=f"{op}:{iteration}")
    found = diverge(lab.plain, other)
    assert found is not None
    assert (found.op, found.iteration, found.ulps, found.count) == (op, iteration, 1, 1)
    assert found.numbers[0] != found.numbers[1]
    assert found.history
    assert found.lasting
    again = diverge(other, lab.plain)
    assert again is not None
    assert again.numbers == found.numbers[::-1]


def test_one_whose_effect_vanishes_is_no_lasting_difference(lab: Lab):
    """A rounding before a rectifier that lets nothing through."""
    probe = next(p for p in lab.step.probes.probes if lab.step.names[p.number].op == "core.conv#2")
    plain = lab.run("plain with ops", ops_every=1)
    x, y = (a[:BATCH] for a in lab.data)
    del x, y
    assert probe.shape[0] == BATCH // 2
    gone = None
    for element in range(probe.shape[1] * 4):
        run = lab.run(f"vanish-{element}", inject=f"core.conv#2:4:{element}", ops_every=1)
        found = diverge(plain, run)
        if found is not None and not found.lasting:
            gone = found
            break
    assert gone is not None
    assert (gone.op, gone.iteration, gone.ulps) == ("core.conv#2", 4, 1)
