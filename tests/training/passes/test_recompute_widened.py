"""Recompute wide values: gradients read copies that are made again from what is stored narrow."""

from __future__ import annotations

import pytest

from core_compiler.training.passes.recompute_widened import RecomputeWidened
from tests.passes import specs
from tests.training.passes.steps import step

ARGUMENTS = ("batch x: 4x64xf16", "parameter w: 4x64xf32")
RESULTS = ("loss", "gradient w")
RULE = "read what is stored narrow"


def centred(b, narrow, half):
    """The f32 form of a narrow value, less a number."""
    wide = b.cast(narrow, dtype="f32")
    return b.sub(wide, b.expand(half, wide.type.shape))


def total(b, x):
    return b.reduce_sum(x, axes=(0, 1))


def kept(b, x, w):
    """A gradient that reads a wide value of the forward pass."""
    value = centred(b, b.exp(x), b.constant(0.5, "f32"))
    return total(b, b.mul(value, w)), b.tanh(value)


def test_a_gradient_reads_a_copy_of_the_chain_from_the_narrow_value():
    before = step(kept, ARGUMENTS, RESULTS)
    after, rewrites = specs.apply(RecomputeWidened(), before)
    assert specs.rules_fired(rewrites) == [RULE]

    def wanted(b, x, w):
        narrow, half = b.exp(x), b.constant(0.5, "f32")
        loss = total(b, b.mul(centred(b, narrow, half), w))
        return loss, b.tanh(centred(b, narrow, half))

    specs.assert_same_program(after, step(wanted, ARGUMENTS, RESULTS))


def test_all_gradients_share_one_copy_and_what_it_is_made_of():
    def often(b, x, w):
        loss, slope = kept(b, x, w)
        value = next(op for op in b.ops if op.kind == "core.sub")
        return loss, b.mul(b.add(slope, b.neg(value.result)), value.operands[1])

    after, rewrites = specs.apply(RecomputeWidened(), step(often, ARGUMENTS, RESULTS))
    assert specs.rules_fired(rewrites) == [RULE] * 3
    first, second = [op for op in after.main.body.ops if op.kind == "core.sub"]
    users = after.main.body.users()
    assert [op.kind for op in users[first.result]] == ["core.mul"]
    assert [op.kind for op in users[second.result]] == ["core.tanh", "core.neg"]
    assert [op.kind for op in users[first.operands[1]]] == ["core.sub"]
    assert [op.kind for op in users[second.operands[1]]] == ["core.sub", "core.mul"]


def shifted(b, x, w):
    """As a normalisation computes it; the gradient reads the wide form less its maximum."""
    wide = b.cast(b.exp(x), dtype="f32")
    most = b.neg(b.reduce_max(wide, axes=(1,)))
    value = b.add(wide, b.broadcast(most, shape=wide.type.shape, dims=(0,)))
    return total(b, b.mul(value, w)), b.tanh(value)


def test_a_statistic_that_is_small_is_kept_and_read():
    after, rewrites = specs.apply(RecomputeWidened(), step(shifted, ARGUMENTS, RESULTS))
    assert specs.rules_fired(rewrites) == [RULE]
    kinds = [op.kind for op in after.main.body.ops]
    counts = {kind: kinds.count(f"core.{kind}") for kind in ("reduce_max", "neg", "broadcast")}
    assert counts == {"reduce_max": 1, "neg": 1, "broadcast": 2}
    loss, gradient = [op for op in after.main.body.ops if op.kind == "core.add"]
    makers = after.main.body.producers()
    of_loss, of_gradient = (makers[op.operands[1]].operands for op in (loss, gradient))
    assert of_loss == of_gradient  # the statistic
    assert makers[gradient.operands[0]].operands == makers[loss.operands[0]].operands  # the narrow


def of_wide(b, x, w):
    value = b.exp(w)
    return total(b, b.mul(value, w)), b.tanh(value)


def of_product(b, x, w):
    wide = b.cast(b.exp(x), dtype="f32")
    value = b.matmul(wide, b.transpose(wide, permutation=(1, 0)))
    return b.add(total(b, value), total(b, w)), b.mul(w, b.expand(total(b, b.tanh(value)), (4, 64)))


def of_narrow(b, x, w):
    narrow = b.exp(x)
    loss = total(b, b.mul(b.cast(narrow, dtype="f32"), w))
    return loss, b.cast(b.tanh(narrow), dtype="f32")


def of_backward(b, x, w):
    """The wide value is made after the loss, for the gradient alone."""
    return total(b, b.mul(w, w)), b.tanh(centred(b, b.exp(x), b.constant(0.5, "f32")))


@pytest.mark.parametrize(
    ("build", "arguments"),
    [
        (of_wide, ARGUMENTS),  # nothing of it is narrow
        (of_product, ARGUMENTS),  # a product is not computed twice
        (of_narrow, ARGUMENTS),  # it is narrow already
        (of_backward, ARGUMENTS),  # it is not kept
        (shifted, ("batch x: 4x8xf16", "parameter w: 4x8xf32")),  # the statistic is not that small
    ],
)
def test_other_values_are_read_as_they_are(build, arguments):
    before = step(build, arguments, RESULTS)
    after, rewrites = specs.apply(RecomputeWidened(), before)
    assert after is before and not rewrites


@pytest.mark.parametrize("build", [kept, shifted])
def test_every_result_keeps_its_bits(build):
    before = step(build, ARGUMENTS, RESULTS)
    after, rewrites = specs.apply(RecomputeWidened(), before)
    assert rewrites
    specs.assert_same_results(before, after)
    assert [r.verdict for r in specs.check(before, after, rewrites, exact=True)] == ["bitwise"]
