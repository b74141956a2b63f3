"""The phases of a training step and what is the gradient of what, against the flow of data and
against what single passes did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from core_compiler.ir import Op, Value
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.target import ALLOC, INPUT, LAUNCH, OUTPUT
from core_compiler.passes.outline_kernels import is_exchange
from core_compiler.training.config import Training
from core_compiler.training.graph.derivation import Derivation, carriers
from core_compiler.training.graph.phases import (
    BACKWARD,
    BEFORE,
    EXCHANGE,
    FORWARD,
    LOSS,
    OPTIMIZER,
    PHASES,
    RECOMPUTED,
    Phases,
    members,
)
from core_compiler.training.graph.roles import Roles

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="the model is written in torch")

LAST = "bufferize"


@dataclass
class Followed:
    """A step compiled up to ``LAST``, with what is known of it after the last stage."""

    stages: list
    facts: dict
    phases: Phases
    derivation: Derivation

    def stage(self, name: str):
        return next(s for s in self.stages if s.name == name)

    def ops(self, stage) -> list[Op]:
        return list(stage.module.main.body.ops)


def follow(model, batch, **training) -> Followed:
    import core_compiler as cc

    step = cc.compile(model, batch, training=Training(**training), finish=False)
    made = step.compilation
    while made.step().name != LAST:
        pass
    phases = Phases()
    derivation = Derivation(phases)
    phases.begin(made.stages[0].module)
    for stage in made.stages[1:]:
        phases.advance(stage.name, stage.rewrites, stage.module)
        derivation.advance(stage.name, stage.rewrites, stage.module)
    return Followed(list(made.stages), dict(made.facts), phases, derivation)


def digits():
    from sample_models.digits import DigitsCnn

    torch.manual_seed(0)
    return DigitsCnn(4, 3), (torch.randn(8, 1, 8, 8), torch.randint(0, 10, (8,)))


@pytest.fixture(scope="module")
def plain() -> Followed:
    model, batch = digits()
    return follow(model, batch, optimizer="adamw", clip_norm=1.0)


@pytest.fixture(scope="module")
def shards() -> Followed:
    model, batch = digits()
    return follow(model, batch, shards=2, recompute=0.5)


@pytest.fixture(scope="module")
def half() -> Followed:
    """Scaled, narrow, with f32 forms computed again."""
    torch.manual_seed(0)
    layers = [m for _ in range(2) for m in (torch.nn.Linear(16, 16), torch.nn.LayerNorm(16))]
    x = np.zeros((8, 16), np.float32)
    return follow(torch.nn.Sequential(*layers), (x, x), loss="mse", precision="f16")


def leading_to(ops: list[Op], values) -> set[Op]:
    """The ops that ``values`` depend on."""
    maker = {v: op for op in ops for v in op.results}
    found: set[Op] = set()
    work = [maker[v] for v in values if v in maker]
    while work:
        op = work.pop()
        if op not in found:
            found.add(op)
            work += [maker[v] for v in op.uses() if v in maker]
    return found


def outputs(stage, *roles: str) -> list[Value]:
    rows = zip(Roles.of(stage.module.main).results, stage.module.main.outputs, strict=True)
    return [value for (role, _), value in rows if role in roles]


# -- phases ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_import_has_the_model_and_the_loss(plain):
    first = plain.stages[0]
    base_phase = {op: plain.phases.base_phase(op) for op in plain.ops(first)}
    assert set(base_phase.values()) == {FORWARD, LOSS}
    of_model = [op for op in base_phase if op.origin is not None and op.origin.nodes()]
    assert of_model and all(base_phase[op] == FORWARD for op in of_model)
    (loss,) = outputs(first, "loss")
    (maker,) = [op for op in base_phase if loss in op.results]
    assert base_phase[maker] == LOSS


@pytest.mark.slow
@pytest.mark.parametrize("which", ["plain", "shards", "half"])
def test_forward_is_what_the_loss_and_the_models_state_depend_on(which, request):
    """After ``differentiate``, by the flow of data alone: gradients are what nothing of that
    needs."""
    found = request.getfixturevalue(which)
    stage = found.stage("differentiate")
    ops = found.ops(stage)
    needed = leading_to(ops, outputs(stage, "loss", "next"))
    gradients = leading_to(ops, outputs(stage, "gradient")) - needed
    # What is differentiated may be the loss times a factor: nothing but gradients needs that.
    before = {v for op in plain_before(found) for v in op.results}
    assert {found.phases.base_phase(op) for op in needed} <= {FORWARD, LOSS}
    for op in gradients:
        wanted = LOSS if not before.isdisjoint(op.results) else BACKWARD
        assert found.phases.base_phase(op) == wanted, op


def plain_before(found: Followed) -> list[Op]:
    index = found.stage("differentiate").index
    return found.ops(found.stages[index - 1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("which", "name", "phase"),
    [
        ("plain", "clip_gradients", OPTIMIZER),
        ("plain", "apply_optimizer", OPTIMIZER),
        ("half", "unscale_gradients", OPTIMIZER),
        ("half", "guard_update", OPTIMIZER),
        ("half", "scale_loss", LOSS),
    ],
)
def test_what_a_pass_adds_has_its_phase(which, name, phase, request):
    found = request.getfixturevalue(which)
    stage = found.stage(name)
    before = set(found.ops(found.stages[stage.index - 1]))
    added = [op for op in found.ops(stage) if op not in before]
    assert added and {found.phases.base_phase(op) for op in added} == {phase}


def edges(stage) -> Iterator[tuple[Op, Op]]:
    """Producer and consumer, members of groups and launches themselves."""
    maker: dict[Value, Op] = {}
    for op in stage.module.main.body.ops:
        inner = members(op)
        if inner != (op,):
            block = op.regions[0]
            maker.update(
                (a, maker[v])
                for a, v in zip(block.arguments, op.operands, strict=False)
                if v in maker
            )
        for one in inner:
            yield from ((maker[v], one) for v in one.operands if v in maker)
            maker.update((v, one) for v in one.results)
        if inner != (op,):
            made = op.results or op.operands[len(op.operands) - op.get("writes", 0) :]
            maker.update(
                (v, maker[o]) for v, o in zip(made, block.outputs, strict=True) if o in maker
            )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("which", ["plain", "shards", "half"])
def test_no_phase_reads_what_a_later_one_makes(which, request):
    found = request.getfixturevalue(which)
    rank = {FORWARD: 0, LOSS: 1, RECOMPUTED: 2, BACKWARD: 3, OPTIMIZER: 4}
    for stage in found.stages:
        for source, target in edges(stage):
            first, then = found.phases.base_phase(source), found.phases.base_phase(target)
            if source.kind in CONSTANTS or not first or not then:
                continue
            later = {then} if then != LOSS else {FORWARD, LOSS}
            if then == FORWARD:  # a model may read its loss (statistics of it), not its gradient
                later = {FORWARD, LOSS}
            assert first in later or rank[first] <= rank[then], (stage.name, source, target)


@pytest.mark.parametrize("which", ["plain", "shards", "half"])
def test_every_op_that_computes_has_a_phase(which, request):
    found = request.getfixturevalue(which)
    for stage in found.stages:
        for op in found.ops(stage):
            phase_counts = found.phases.phase_counts(op)
            assert set(phase_counts) <= set(PHASES)
            if op.kind not in (INPUT, OUTPUT, ALLOC, *CONSTANTS, "target.copy"):
                assert phase_counts, (stage.name, op)
            if op.kind == LAUNCH:
                real = [m for m in members(op) if m.kind not in CONSTANTS]
                assert sum(phase_counts.values()) == len(real)


def test_kernels_of_two_phases_say_so(plain):
    """A kernel that normalises and also makes a mask for the backward pass is of both."""
    launches = [op for op in plain.ops(plain.stages[-1]) if op.kind == LAUNCH]
    mixes = [set(plain.phases.phase_counts(op)) for op in launches]
    assert {FORWARD, BACKWARD} in mixes and {BACKWARD, OPTIMIZER} in mixes and {FORWARD} in mixes
    for op, phase_counts in zip(launches, mixes, strict=True):
        assert plain.phases.phase(op) == max(phase_counts, key=PHASES.index)


def test_recomputed_launches_are_those_that_the_pass_added(shards):
    stage = shards.stage("recompute")
    plan = shards.facts["recompute"].plan
    before = set(shards.ops(shards.stages[stage.index - 1]))
    again = [
        op
        for op in shards.ops(stage)
        if set(shards.phases.phase_counts(op)) == {RECOMPUTED} and op.kind == LAUNCH
    ]
    assert len(again) == len(plan.again) > 0
    assert not before.intersection(again)
    kernels = [op["kernel"] for op in before if op.kind == LAUNCH]
    for op in again:
        (original,) = shards.phases.parents[op]
        assert original in before and op["kernel"] == original["kernel"] in kernels
        assert set(shards.phases.phase_counts(original)) & BEFORE


def test_widened_values_are_recomputed(half):
    stage = half.stage("recompute_widened")
    before = {v for op in half.ops(half.stages[stage.index - 1]) for v in op.results}
    fresh = [op for op in half.ops(stage) if before.isdisjoint(op.results)]
    assert fresh and {half.phases.base_phase(op) for op in fresh} == {RECOMPUTED}


def test_exchanges_are_what_shards_do_together(shards):
    last = shards.stages[-1]
    launches = [op for op in shards.ops(last) if op.kind == LAUNCH]
    together = {op for op in launches if EXCHANGE in shards.phases.phase_counts(op)}
    assert together == {op for op in launches if is_exchange(op)}
    held = Roles.of(last.module.main).numbers("parameter")
    after = shards.stage("apply_optimizer")
    gradients = [
        op
        for op in shards.ops(after)
        if op.kind == "core.all_reduce" and shards.phases.base_phase(op) == BACKWARD
    ]
    assert len(gradients) >= len(held)


# -- what is the gradient of what -----------------------------------------------------------------


@pytest.mark.parametrize("which", ["plain", "shards", "half"])
def test_gradients_are_of_the_op_that_the_rewrite_names(which, request):
    found = request.getfixturevalue(which)
    stage = found.stage("differentiate")
    rewrites = [r for r in stage.rewrites if r.rule.startswith("gradient of ") and r.new]
    gradients = found.derivation.gradients
    assert len(gradients) == len(rewrites) > 3
    by_values = {op.results[0]: of for of, ops in gradients.items() for op in ops}
    for rewrite in rewrites:
        of = {by_values[op.results[0]] for op in rewrite.new}
        assert [op.kind for op in of] == [rewrite.rule.removeprefix("gradient of ")]
        (one,) = of
        assert rewrite.new[0].origin.parents == (one.origin,)


def test_each_parameter_has_the_op_that_makes_its_gradient(plain):
    stage = plain.stage("differentiate")
    rows = zip(Roles.of(stage.module.main).results, stage.module.main.outputs, strict=True)
    made = {of: value for (role, of), value in rows if role == "gradient"}
    found = {of: op for op, of in plain.derivation.parameter_of.items()}
    assert found.keys() == made.keys() == set(Roles.of(stage.module.main).numbers("parameter"))
    assert all(made[of] in op.results for of, op in found.items())


def test_the_gradient_of_a_convolution_in_the_kernels(plain):
    """Both ways, by the node of the model that all of them come from."""
    last = plain.stages[-1]
    derivation = plain.derivation
    table = carriers(derivation, plain.ops(last))
    convolutions = [op for op in derivation.gradients if op.kind == "core.conv"]
    assert len(convolutions) == 3
    for conv in convolutions:
        (node,) = conv.origin.nodes()
        forward = [op for op in table[conv] if "conv" in str(op.get("kernel"))]
        assert forward and all(node in op.origin.nodes() for op in forward)
        for gradient in derivation.gradients[conv]:
            for launch in table[gradient]:
                assert node in launch.origin.nodes()
                assert derivation.gradient_of[gradient] is conv
                assert gradient in derivation.roots(launch)
        weight = [
            op
            for g in derivation.gradients[conv]
            if g in derivation.parameter_of
            for op in table[g]
        ]
        assert any("conv_weight_gradient" in str(op.get("kernel")) for op in weight)


def test_updates_are_of_the_parameter_whose_next_value_they_make(plain):
    """Against the results of the step: what the next value of a parameter needs beyond its
    gradient, and no other parameter's next value needs, updates it."""
    stage = plain.stage("apply_optimizer")
    ops = plain.ops(stage)
    rows = zip(Roles.of(stage.module.main).results, stage.module.main.outputs, strict=True)
    roles = Roles.of(stage.module.main)
    parameters = roles.numbers("parameter")
    needs = {
        of: leading_to(ops, [value])
        for (role, of), value in rows
        if role == "next" and of in parameters
    }
    for of, needed in needs.items():
        others = set().union(*(n for other, n in needs.items() if other != of))
        own = [
            op
            for op in needed - others
            if plain.phases.base_phase(op) == OPTIMIZER and op.kind not in CONSTANTS
        ]
        assert own and all(plain.derivation.updates(op) == (of,) for op in own)
    rate = [
        op
        for op in ops
        if plain.phases.base_phase(op) == OPTIMIZER and not plain.derivation.updates(op)
    ]
    assert rate, "the numbers of the iteration are no parameter's"
