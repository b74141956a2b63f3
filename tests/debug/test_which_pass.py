"""Which pass changed the bits: runs whose pipelines differ in ways that are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the network is written in torch")

import core_compiler as cc  # noqa: E402
from core_compiler.debug.which_pass import which_pass  # noqa: E402
from core_compiler.ops.builder import Builder  # noqa: E402
from core_compiler.passes.base import Pass  # noqa: E402
from core_compiler.pipelines.pipeline import PipelineEdit  # noqa: E402
from core_compiler.support.errors import UserError  # noqa: E402
from core_compiler.training.audit.replay import Run  # noqa: E402
from core_compiler.training.config import Training  # noqa: E402
from core_compiler.training.fit import fit  # noqa: E402
from core_compiler.training.run.plan import Plan  # noqa: E402

ITERATIONS, BATCH = 3, 4
SKIPPED = PipelineEdit(skip=("recompose",), repeat=("canonicalise",))


class Norms(torch.nn.Module):
    """Two norms written out, which recompose makes ops of other bits of."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(24, 24)
        self.second = torch.nn.Linear(24, 24)
        self.last = torch.nn.Linear(24, 3)

    def forward(self, x):
        for layer in (self.first, self.second):
            x = layer(x)
            x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        return self.last(x)


@dataclass(frozen=True)
class OneOverSqrt(Pass):
    """1 / sqrt(x) where the model says rsqrt(x): two roundings for one."""

    exact = False

    def run(self, module, context):
        def edit(rewriter):
            for op in rewriter.ops:
                if op.kind == "core.rsqrt":
                    b = Builder(module.weights, op.origin)
                    x = op.operands[0]
                    found = b.div(b.expand(b.scalar_like(1.0, x), x.type.shape), b.sqrt(x))
                    rewriter.replace(
                        op, b.ops, {op.result: found}, rule="1 / sqrt(x)", tolerance=1e-6
                    )

        return context.rewrite(module, edit)


class Lab:
    """Runs in folders, by what is changed about their pipelines."""

    def __init__(self, folder: Path):
        self.folder = folder
        rng = np.random.default_rng(5)
        self.data = (
            rng.standard_normal((12, 24)).astype(np.float32),
            rng.integers(0, 3, 12),
        )
        torch.manual_seed(0)
        self.model = Norms()
        self.compiled = 0

    def opened(self, edit: PipelineEdit):
        self.compiled += 1
        step = cc.compile(
            self.model,
            tuple(a[:BATCH] for a in self.data),
            edit=edit,
            training=Training(optimizer="adamw", keep_gradients=True),
        )
        return step, self.data

    def run(self, name: str, edit: PipelineEdit = PipelineEdit(), what=None) -> Run:
        folder = self.folder / name
        if not folder.exists():
            step, data = self.opened(edit)
            fit(
                step,
                data,
                iterations=ITERATIONS,
                batch=BATCH,
                seed=3,
                folder=folder,
                every=1,
                receipts="gradients",
            )
        plan = Plan(ITERATIONS, BATCH, 3, folder, 1)
        return Run(folder, plan, self.opened, edit, what or {"batch": BATCH})


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    return Lab(tmp_path_factory.mktemp("runs"))


def _line(text: str) -> int:
    """The line of this file that has ``text``."""
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(i for i, line in enumerate(lines) if text in line)


@pytest.mark.slow
def test_a_skipped_pass_is_named_with_the_rewrite(lab: Lab):
    found = which_pass(lab.run("plain"), lab.run("skipped", SKIPPED))
    assert found is not None
    assert (found.pass_label, found.how) == ("recompose", ("runs", "skipped"))
    assert found.iteration == 1
    assert "rms_norm" in found.rule
    assert found.origin.endswith(f":{_line('torch.rsqrt((x * x)')}")
    assert found.op.startswith("core.mul#")
    assert found.numbers[0] != found.numbers[1]
    assert found.ulps >= 1
    again = which_pass(lab.run("skipped", SKIPPED), lab.run("plain"))
    assert again is not None
    assert (again.how, again.number, again.rule) == (found.how[::-1], found.number, found.rule)
    assert (again.value, again.numbers) == (found.value, found.numbers[::-1])


@pytest.mark.slow
def test_a_pass_is_inserted_repeated_and_limited_together(lab: Lab):
    """What is said of an inserted pass goes with it; a repeated pass is one in the edit."""
    own = PipelineEdit(
        skip=("recompose",),
        insert=(("after:canonicalise", OneOverSqrt()),),
        limits={"one_over_sqrt": 1, "canonicalise": 3},
        repeat=("canonicalise",),
    )
    found = which_pass(lab.run("plain"), lab.run("own limited", own))
    assert found is not None
    assert found.pass_label in ("recompose", "one_over_sqrt")
    again = which_pass(lab.run("own limited", own), lab.run("skipped", SKIPPED))
    assert again is not None
    assert (again.pass_label, again.number, again.total) == ("one_over_sqrt", 1, 1)


@pytest.mark.slow
def test_two_limits_of_one_pass_part_in_a_rewrite_between_them(lab: Lab):
    whole = which_pass(lab.run("plain"), lab.run("skipped", SKIPPED))
    assert whole is not None
    limited = lab.run("limited", PipelineEdit(limits={"recompose": whole.number}))
    found = which_pass(limited, lab.run("plain"))
    assert found is not None
    assert found.how == ("stops after 1 rewrite", "runs")
    assert whole.number == 1
    assert whole.number < found.number <= found.total
    assert "rms_norm" in found.rule  # the second norm's


@pytest.mark.slow
def test_of_several_changes_the_one_that_does_it_is_named(lab: Lab):
    skip = ("recompose", "eliminate_common_subexpressions#1", "fold_constants")
    own = PipelineEdit(skip=skip, insert=(("after:canonicalise", OneOverSqrt()),))
    found = which_pass(lab.run("own", own), lab.run("skipped", SKIPPED))
    assert found is not None
    assert (found.pass_label, found.rule) == ("one_over_sqrt", "1 / sqrt(x)")
    assert found.how == ("inserted after canonicalise", "is absent")
    assert found.op == "core.rsqrt#1"
    assert found.total == 2


@pytest.mark.slow
def test_pipelines_of_the_same_bits_part_nowhere(lab: Lab):
    quick = PipelineEdit(skip=("eliminate_common_subexpressions#1",))
    runs = lab.run("plain"), lab.run("quick", quick)
    before = lab.compiled
    assert which_pass(*runs) is None
    assert lab.compiled == before  # receipts say it


@pytest.mark.slow
def test_other_configurations_are_refused(lab: Lab):
    with pytest.raises(UserError, match="different configurations: batch 4 and 8"):
        which_pass(lab.run("plain"), lab.run("plain", what={"batch": 8}))
