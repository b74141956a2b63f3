"""Every kind of fault that ``--check`` finds is reduced to a program of a few ops, which fails as
the check said while the fault is there, and no longer without it."""

from __future__ import annotations

import contextlib
import io
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.debug import gradient_checks
from core_compiler.debug.bisect import bisect
from core_compiler.driver import compilation, reproducer
from core_compiler.driver.compilation import Compilation, Options
from core_compiler.driver.legality import levels
from core_compiler.ir import Module
from core_compiler.training.config import Training
from tests.debug import wrong_compilers as wrong
from tests.passes.programs import inputs, program
from workbench.model import failures, reducing


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    """Every gradient is looked at again, and reproducers run in this process, which is wrong."""
    monkeypatch.setattr(gradient_checks, "kept", lambda key: None)
    monkeypatch.setattr(gradient_checks, "keep", lambda key, error, note: None)
    monkeypatch.setattr(reproducer, "shows", lambda path: (alone(path)[0] == 1, alone(path)[1]))


def alone(path: Path) -> tuple[int, str]:
    """(exit code, output) of a reproducer."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    return int(ended.value.code), said.getvalue()


@dataclass(frozen=True)
class Shown:
    """The first failure that a checked compile tells, what it was reduced to, and (exit code,
    output) of the reproducer with the fault and without."""

    row: dict[str, Any]
    data: dict[str, Any]
    broken: tuple[int, str]
    mended: tuple[int, str]


def shown(start: Callable[[bool], Compilation], fault: Callable, folder: Path) -> Shown:
    """Plant ``fault``, check what ``start(check)`` begins, bisect and reduce it."""
    with fault():
        made = start(True)
        while made.next is not None and made.finding is None:
            made.step()
        row = failures.rows(made)[0]
        fresh = start(False)
        found = bisect(fresh, fresh.inputs, levels=levels(fresh.target))
        told = (found.pass_label, found.rewrite.rule if found.rewrite else None)
        assert told[0] == row["pass"] and told[1] in (None, row["rule"])
        suspect = reducing.suspect(
            [stage.module for stage in fresh.stages],
            fresh.steps,
            found.seen,
            "model",
            fresh.inputs,
            fresh.target,
            fresh.options,
            1e-3,
        )
        data, _ = reducing.reduce_and_write(suspect, folder, 60.0, lambda what, done, total: None)
        broken = alone(folder / "reproducer.py")
    return Shown(row, data, broken, alone(folder / "reproducer.py"))


def of_module(module: Module, arrays=None) -> Callable[[bool], Compilation]:
    arrays = inputs(module) if arrays is None else arrays
    return lambda check: compilation.start(module, "cpu", Options(check=check), arrays)


def chain() -> Module:
    """Two layers, the second of which reads the first twice: a value waits for a later launch."""
    random = np.random.default_rng(0)
    w, v = (random.standard_normal((6, 6)).astype(np.float32) for _ in range(2))

    def build(b, x):
        h = b.tanh(b.matmul(x, b.constant(w)))
        return b.matmul(b.mul(b.sigmoid(b.matmul(h, b.constant(v))), h), b.constant(w))

    return program(build, "5x6xf32")


def quotient() -> Module:
    return program(lambda b, x, y: b.neg(b.div(b.abs(x), b.add(b.mul(y, y), y))), *["3x8xf32"] * 2)


def sums() -> Module:
    def build(b, x):
        total = b.reduce_sum(b.mul(b.mul(x, x), x), axes=(1,))
        return b.div(total, b.add(b.mul(total, total), b.scalar_like(3.0, total)))

    return program(build, "40x200xf32")


def carried() -> Module:
    """A running sum, which is an argument and whose next value takes its memory."""
    module = program(
        lambda b, x, total: (b.tanh(b.add(x, s := b.add(total, b.exp(x)))), s), *["4x6xf32"] * 2
    )
    main = module.main
    return module.with_function(main.with_(attributes={**main.attributes, "aliases": ((1, 1),)}))


def numbers(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("module", "fault", "pass_", "rule", "ops"),
    [
        (chain, wrong.lowering, "decompose", "lower core.tanh", 1),
        (chain, wrong.unlogged, "canonicalise", "unlogged change", 1),
        (carried, wrong.state_not_written, "eliminate_dead_code", "unlogged change", 1),
        (chain, wrong.overlap, "plan_memory", "place a buffer", 3),
        (quotient, wrong.plain_loops, "outline_kernels", "outline a kernel", 1),
        (sums, wrong.schedule, "schedule_kernels", "unroll(k)", 1),
    ],
    ids=["lowering", "unlogged", "state", "memory", "loops", "schedule"],
)
def test_a_fault_of_a_pass(module, fault, pass_, rule, ops, tmp_path):
    module = module()
    arrays = numbers(*(v.type.shape for v in module.main.arguments))
    found = shown(of_module(module, arrays), fault, tmp_path)
    is_reduced(found, pass_, rule, ops)


def is_reduced(found: Shown, pass_: str, rule: str, ops: int) -> None:
    assert (found.row["pass"], found.row["rule"]) == (pass_, rule)
    assert found.data["pass"] == pass_
    assert found.data["ops_after"] <= ops
    assert found.data["what"].startswith(rule) or rule == "code"
    assert found.data["runs_alone"], found.data["says"]
    assert found.broken[0] == 1 and found.broken[1].startswith(f"FAILS: pass {pass_}, ")
    assert found.mended[0] == 0 and found.mended[1].startswith("gone: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "fault", "pass_", "rule"),
    [
        (sums, wrong.schedule_seen_late, "schedule_kernels", "unroll(k)"),
        pytest.param(sums, wrong.machine_code, "generate_code", "code", marks=pytest.mark.slow),
        pytest.param(sums, wrong.linked, "generate_code", "program", marks=pytest.mark.slow),
        (quotient, wrong.first_call, "generate_code", "program"),
        pytest.param(
            quotient, wrong.later_calls, "generate_code", "program", marks=pytest.mark.slow
        ),
    ],
    ids=["schedule seen late", "machine code", "linker", "first call", "later calls"],
)
def test_a_fault_that_only_machine_code_shows(module, fault, pass_, rule, tmp_path):
    module = module()
    arrays = numbers(*(v.type.shape for v in module.main.arguments))
    # Of few elements a product with the reciprocal may round as the quotient: an op then stays.
    ops = 2 if fault is wrong.machine_code else 1
    is_reduced(shown(of_module(module, arrays), fault, tmp_path), pass_, rule, ops)


@pytest.fixture(scope="module")
def step():
    """A training step of two layers: ``step(check)`` begins its compile."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

        def forward(self, x):
            h = self.first(x)
            return self.last(torch.tanh(h) + h)

    model = Model()
    batch = (numbers((5, 6))[0], np.array([0, 1, 2, 0, 1]))

    def start(check: bool) -> Compilation:
        made = cc.compile(
            model, batch, training=Training(loss="cross_entropy"), check=check, finish=False
        )
        return made.compilation

    return start


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("fault", "pass_", "rule", "ops"),
    [
        (wrong.gradient, "differentiate", "gradient of core.tanh", 2),
        (wrong.no_gradient, "differentiate", "gradient of core.tanh", 4),
        (wrong.update, "apply_optimizer", "update by SGD", 1),
        (wrong.parameter_not_written, "apply_optimizer", "update by SGD", 1),
    ],
    ids=["gradient", "no gradient", "update", "state"],
)
def test_a_fault_of_training(step, fault, pass_, rule, ops, tmp_path):
    is_reduced(shown(step, fault, tmp_path), pass_, rule, ops)
