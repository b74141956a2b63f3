"""Fuse epilogues: what follows a product is done on its output tile."""

from __future__ import annotations

from tests.passes import specs


def layer(b, x, w, v):
    shape = (x.type.shape[0], w.type.shape[1])
    return b.relu(b.add(b.matmul(x, w), b.broadcast(v, shape=shape, dims=(1,))))


def test_bias_and_activation_go_into_the_product():
    made = specs.reach("fuse_epilogues", layer, "3x4xf32", "4x5xf32", "5xf32")
    assert specs.kinds(made.module) == ["matmul", "group(broadcast add max)"]
    stage = made.step()
    assert specs.rules_fired(stage.rewrites) == ["epilogue on the output tile"]
    assert specs.kinds(made.module) == ["group(matmul broadcast add max)"]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)


def test_a_sum_over_the_product_is_no_epilogue():
    made = specs.reach(
        "fuse_epilogues",
        lambda b, x, w: b.reduce_sum(b.matmul(x, w), axes=(0,)),
        "3x4xf32",
        "4x5xf32",
    )
    assert not made.step().changed
