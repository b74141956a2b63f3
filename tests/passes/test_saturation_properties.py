"""Equality saturation on random programs and on the sample models: bits, costs, limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import Checker
from core_compiler.hardware.costs import CostModel
from core_compiler.ir import Module
from core_compiler.passes.base import PassContext
from core_compiler.passes.saturation import Saturate
from core_compiler.passes.saturation.prices import total
from core_compiler.pipelines.pipeline import meaning
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import STEPS, inputs, programs
from tests.sample_models.narrow import NARROW
from tests.slow import slow_but
from workbench.model import models
from workbench.model.spec import read_spec

pytest.importorskip("egglog", reason="egglog is not installed (extra: egglog)")

#: Steps that moves are about, more often than others: what is moved, computed with and merged.
MOVING = tuple(
    step
    for step in STEPS
    if step.__name__
    in (
        "transpose",
        "reshape",
        "slice",
        "broadcast",
        "binary",
        "unary",
        "twice",
        "with_number",
        "choose",
    )
)


def saturate(module: Module, pass_: Saturate):
    context = PassContext()
    after = pass_.run(module, context)
    specs.assert_valid(after)
    return after, context


def assert_exact(module: Module, after: Module, context: PassContext) -> None:
    """Each rewrite keeps the bits of its results, and so does the whole, whatever the inputs."""
    for record in Checker(module, inputs(module, special=True)).stage(
        context.rewrites, True, module, after
    ):
        assert record.verdict == "bitwise", (record.rewrite.note, record.note)
    for special in (False, True):
        arrays = inputs(module, 1, special)
        old, new = specs.outputs(module, arrays), specs.outputs(after, arrays)
        assert all(same_bits(a, b) for a, b in zip(old, new, strict=True))


def cost(module: Module) -> int:
    return total(specs.live(module).main.body.ops, CostModel())


@settings(max_examples=examples(60))
@given(programs(MOVING, most=14))
def test_exact_rules_keep_every_bit(module):
    after, context = saturate(module, Saturate())
    assert_exact(module, after, context)
    (figures,) = context.facts["saturation"]
    assert figures["cost"] == (cost(module), cost(after))
    assert cost(after) < cost(module) if context.rewrites else after is module
    assert all(op.origin is not None and op.origin.is_explained() for op in after.main.body.ops)


@settings(max_examples=examples(25))
@given(programs(most=14))
def test_exact_rules_keep_every_bit_of_any_program(module):
    after, context = saturate(module, Saturate())
    assert_exact(module, after, context)


@settings(max_examples=examples(30))
@given(programs(MOVING, most=10), st.integers(1, 30), st.integers(1, 4), st.data())
def test_whatever_ends_it_the_bits_are_kept(module, nodes, iterations, data):
    pass_ = Saturate(nodes=nodes, iterations=iterations)
    _, rewrites = specs.apply(pass_, module)
    limit = data.draw(st.integers(0, len(rewrites)))
    context = PassContext()
    context.budget.left = limit
    after = pass_.run(module, context)
    specs.assert_valid(after)
    assert len(context.rewrites) == limit
    assert_exact(module, after, context)


@settings(max_examples=examples(40))
@given(programs(most=12))
def test_tolerant_rules_keep_what_they_state(module):
    after, context = saturate(module, Saturate(rules="tolerant"))
    for record in Checker(module, inputs(module)).stage(context.rewrites, False, module, after):
        assert record.verdict in ("bitwise", "within"), (record.rewrite.note, record.note)


# -- sample models ---------------------------------------------------------------------------------

QUICK = ("digits-mlp", "digits-cnn", "gpt2-decode")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", slow_but(QUICK, NARROW))
def test_sample_models_keep_every_bit(name):
    """As imported, and after the meaning half: each rewrite bitwise, and so is the result."""
    model = models.load(read_spec(name, "torch", **NARROW[name]), cache=False)
    module = model.imported.module
    for source in (module, by_meaning_half(module)):
        after, context = saturate(source, Saturate())
        records = Checker(source, model.inputs).stage(context.rewrites, True, source, after)
        assert [r.note for r in records if r.verdict != "bitwise"] == []
        (figures,) = (f for f in context.facts["saturation"] if f["function"] == "main")
        assert figures["stopped"] == "saturated"
        assert figures["cost"] == (cost(source), cost(after))
        old, new = specs.outputs(source, model.inputs), specs.outputs(after, model.inputs)
        assert all(same_bits(a, b) for a, b in zip(old, new, strict=True))


def by_meaning_half(module: Module) -> Module:
    for pass_ in meaning():
        module, _ = specs.apply(pass_, module)
    return module
