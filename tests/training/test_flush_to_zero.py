"""A thread that flushes subnormal numbers to zero: compiling and training are refused with the
remedy, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.driver import compilation
from core_compiler.support.errors import UserError
from core_compiler.training.fit import fit
from tests.passes.programs import program
from workbench.commands.cli import main


@contextmanager
def flushing() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def refused():
    return pytest.raises(UserError, match=r"subnormal.*torch\.set_flush_denormal\(False\)")


def module():
    """A product of two constants that is subnormal, which a pass folds."""
    return program(
        lambda b, x: b.add(x, b.mul(b.constant(2.0**-100, "f32"), b.constant(2.0**-40, "f32"))),
        "f32",
    )


def test_a_compile_is_refused_before_the_import_and_before_every_pass():
    with flushing():
        with refused():
            compilation.start(module())
        with refused():
            cc.compile(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    made = compilation.start(module())
    made.step()
    with flushing(), refused():
        made.finish()
    done = len(made.stages)
    assert done >= 2
    assert made.finish() is made and len(made.stages) > done  # goes on where it stood
    (found,) = made(np.float32(0))
    assert found == np.float32(2.0**-140) and found != 0


@pytest.mark.slow
def test_a_run_is_refused_and_the_one_before_it_kept(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((4, 3)).astype(np.float32), rng.integers(0, 2, 4)
    step = cc.compile(torch.nn.Linear(3, 2), tuple(a[:2] for a in data), training=cc.Training())
    how = {"batch": 2, "folder": tmp_path / "run", "receipts": "state"}
    fit(step, data, iterations=1, **how)
    digest = step.digest
    files = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with flushing():
        with refused():
            fit(step, data, iterations=2, resume=True, **how)
        with refused():
            step(*(a[:2] for a in data))  # what a person's own loop calls
    assert (step.digest, step.iteration) == (digest, 1)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == files
    fit(step, data, iterations=2, resume=True, **how)
    assert step.iteration == 2


def test_the_commands_say_it_in_one_line(capsys, tmp_path):
    with flushing():
        for words in (["compile", "digits-mlp"], ["train", "digits-mlp", "--iterations", "1"]):
            assert main(words) == 3
            err = capsys.readouterr().err
            assert "torch.set_flush_denormal(False)" in err and err.count("\n") == 1
