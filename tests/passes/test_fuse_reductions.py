"""Fuse reductions: a reduction with what makes its terms, reductions of the same rows together."""

from __future__ import annotations

from tests.passes import specs


def test_terms_are_computed_where_they_are_added_up():
    made = specs.reach(
        "fuse_reductions", lambda b, x: b.reduce_sum(b.mul(x, x), axes=(1,)), "3x4xf32"
    )
    assert specs.kinds(made.module) == ["mul", "reduce_sum"]
    stage = made.step()
    assert specs.rules_fired(stage.rewrites) == ["reductions over the same rows share one kernel"]
    assert specs.kinds(made.module) == ["group(mul reduce_sum)"]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)


def test_a_softmax_is_one_group():
    made = specs.reach("fuse_reductions", lambda b, x: b.softmax(x, axis=1), "3x4xf32")
    made.step()
    (group,) = specs.kinds(made.module)
    assert group.startswith("group(") and "reduce_max" in group and "reduce_sum" in group


def test_reductions_over_other_axes_stay_apart():
    def build(b, x):
        return b.reduce_sum(x, axes=(1,)), b.reduce_max(x, axes=(0,))

    made = specs.reach("fuse_reductions", build, "3x4xf32")
    assert not made.step().changed


def test_sums_over_images_are_no_rows_of_the_images():
    """The last sums of a batch's statistics read few numbers; what uses them is as large as the
    batch, and would be computed in columns of a few channels."""

    def build(b, sums, x):
        total = b.reduce_sum(sums, axes=(0,))
        return b.sub(x, b.broadcast(total, shape=(8, 16, 32, 32), dims=(1,)))

    made = specs.reach("fuse_reductions", build, "8x16xf32", "8x16x32x32xf32")
    assert not made.step().changed
    small = specs.reach(
        "fuse_reductions",
        lambda b, sums, x: b.sub(
            x, b.broadcast(b.reduce_sum(sums, axes=(0,)), shape=(8, 16), dims=(1,))
        ),
        "8x16xf32",
        "8x16xf32",
    )
    assert small.step().changed
