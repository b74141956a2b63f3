"""Lower composites: what no target op stands for becomes its declared decomposition."""

from __future__ import annotations

from tests.passes import specs


def test_a_composite_becomes_its_parts():
    made = specs.reach("lower_composites", lambda b, x: b.softsign(x), "3xf32")
    stage = made.step()
    assert specs.rules_fired(stage.rewrites) == ["decompose core.softsign"]
    assert specs.kinds(made.module) == ["broadcast", "abs", "add", "div"]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)


def test_primitive_ops_stay():
    made = specs.reach("lower_composites", lambda b, x: b.exp(x), "3xf32")
    assert not made.step().changed
