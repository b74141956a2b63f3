"""Advice on training steps: what is offered is carried out, by the command that it gives."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.record.reader import Buffer
from core_compiler.runtime.memory import show_bytes
from core_compiler.training.config import Training
from workbench.advice import advise
from workbench.advice.memory import live
from workbench.queries.run import Run


@pytest.mark.slow
def test_a_training_step_holds_less_where_that_lowers_its_peak(tmp_path, command):
    """As the advice offers it, in a compile of its own: the pass that the step was made without."""
    torch = pytest.importorskip("torch", reason="the network is written in torch")
    layers = [each for _ in "abcd" for each in (torch.nn.Linear(32, 32), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 10))
    given = np.ones((512, 32), np.float32), np.zeros(512, np.int64)
    step = cc.compile(model, given, training=Training(optimizer="sgd"), finish=False)
    made = step.compilation
    while made.next is not None and made.next.label != "generate_code":
        made.step()
    run = Run(made.record(tmp_path / "step.run"))
    (found,) = [each for each in advise(run) if each.hazard == "sets the peak"]
    offer = found.tries[0]
    said = re.search(r"at once need ([\d.]+ KiB) instead of ([\d.]+ KiB)", offer.sentence)
    assert said is not None and "Training(recompute=" in offer.sentence
    assert offer.words == "recompute inserted after order_launches" and not offer.reason
    again = tmp_path / "again.run"
    *words, _ = shlex.split(offer.command.replace("\\\n", ""))[1:]  # but the file it writes
    assert command(*words, again)[0] == 0
    tried = Run(again)
    assert any(s.pass_name == "recompute" and s.changed for s in tried.stages())
    assert [show_bytes(live(planned(r))[0]) for r in (tried, run)] == [said[1], said[2]]
    run.close()
    tried.close()


def planned(run: Run) -> list[Buffer]:
    return [b for b in run.buffers() if b.tier == "dram"]
