"""Fold batch norm into the weights of a convolution."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.passes.fold_batch_norm import RULES, FoldBatchNorm
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.rules import explain
from tests.passes import specs
from tests.passes.programs import program

IMAGE = "2x3x5x5xf32"


def normalised(shifted: bool = False, constant: bool = True, axis: int = 1, dims=(1,), twice=False):
    random = np.random.default_rng(3)

    def build(b, x, *free):
        data = random.standard_normal((4, 3, 3, 3)).astype(np.float32)
        w = b.constant(data) if constant else free[0]
        y = conv = b.conv(x, w, strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=1)
        if shifted:
            size = tuple(y.type.shape[d] for d in dims)
            shift = b.constant(random.standard_normal(size).astype(np.float32))
            y = b.add(y, b.broadcast(shift, shape=y.type.shape, dims=dims))
        channels = y.type.shape[axis]
        numbers = [b.constant(random.uniform(0.5, 2, channels).astype(np.float32)) for _ in "sbmv"]
        y = b.batch_norm(y, *numbers, axis=axis, epsilon=1e-5)
        return (y, conv) if twice else y

    return build


@pytest.mark.parametrize(("shifted", "rule"), [(False, RULES[0]), (True, RULES[1])])
def test_batch_norm_goes_into_the_weights(shifted, rule):
    before = program(normalised(shifted), IMAGE)
    after, rewrites = specs.apply(FoldBatchNorm(), before)
    assert specs.rules_fired(rewrites) == [rule.name]
    folded, _ = specs.apply(FoldConstants(), after)
    kinds = [op.kind for op in specs.live(folded).main.body.ops if op.kind != "core.constant"]
    assert kinds == ["core.conv", "core.broadcast", "core.add"]
    (record,) = specs.check(before, after, rewrites, exact=False)
    assert record.verdict == "within" and 0 < record.worst_error <= rule.tolerance


@pytest.mark.parametrize(
    ("rule", "build", "types", "reason"),
    [
        (0, normalised(constant=False), (IMAGE, "4x3x3x3xf32"), "operand w is not a constant"),
        (0, normalised(axis=3), (IMAGE,), "the attributes or types of this core.batch_norm"),
        (0, normalised(twice=True), (IMAGE,), "the result of this core.conv has other uses"),
        (1, normalised(True, dims=(3,)), (IMAGE,), "the addend is not one number per channel"),
    ],
)
def test_batch_norm_stays_with_a_reason(rule, build, types, reason):
    before = program(build, *types)
    assert reason in explain(RULES, before, specs.root_of(before))[rule][1]
    assert specs.apply(FoldBatchNorm(), before)[0] is before


def test_without_an_addend_the_second_rule_refuses():
    before = program(normalised(), IMAGE)
    answers = [answer for _, answer, _ in explain(RULES, before, specs.root_of(before))]
    assert answers == ["fires here", "found core.conv where the rule expects core.add"]


def test_grouped_convolutions_fold_too():
    def build(b, x):
        data = np.random.default_rng(1).standard_normal((4, 1, 3, 3)).astype(np.float32)
        y = b.conv(
            x, b.constant(data), strides=(2, 2), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=4
        )
        numbers = [b.constant(np.linspace(0.5, 2, 4, dtype=np.float32)) for _ in "sbmv"]
        return b.batch_norm(y, *numbers, axis=1, epsilon=1e-3)

    before = program(build, "1x4x6x6xf32")
    after, rewrites = specs.apply(FoldBatchNorm(), before)
    assert len(rewrites) == 1
    specs.check(before, after, rewrites, exact=False)
