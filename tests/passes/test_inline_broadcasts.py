"""Inline broadcasts: what reads a broadcast reads its operand instead."""

from __future__ import annotations

from tests.passes import specs


def added(b, x, v):
    return b.add(x, b.broadcast(v, shape=x.type.shape, dims=(1,)))


def test_a_broadcast_goes_into_its_reader():
    made = specs.reach("inline_broadcasts", added, "3x4xf32", "4xf32")
    assert specs.kinds(made.module) == ["broadcast", "add"]
    stage = made.step()
    assert specs.rules_fired(stage.rewrites) == [
        "index through the broadcast",
        "core.broadcast is read in place now",
    ]
    assert specs.kinds(made.module) == ["group(broadcast add)"]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)


def test_a_broadcast_that_is_a_result_stays_beside_its_reader():
    def build(b, x, v):
        wide = b.broadcast(v, shape=x.type.shape, dims=(1,))
        return wide, b.add(x, wide)

    made = specs.reach("inline_broadcasts", build, "3x4xf32", "4xf32")
    made.step()
    assert sorted(specs.kinds(made.module)) == ["broadcast", "group(broadcast add)"]


def test_a_program_without_broadcasts_stays_as_it_is():
    made = specs.reach("inline_broadcasts", lambda b, x: b.exp(x), "3x4xf32")
    assert not made.step().changed
