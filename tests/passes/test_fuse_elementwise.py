"""Fuse elementwise: ops on equal shapes share one loop nest."""

from __future__ import annotations

from tests.passes import specs


def test_a_chain_becomes_one_group():
    made = specs.reach(
        "fuse_elementwise", lambda b, x, y: b.exp(b.mul(b.add(x, y), y)), *["3x4xf32"] * 2
    )
    assert specs.kinds(made.module) == ["add", "mul", "exp"]
    stage = made.step()
    assert set(specs.rules_fired(stage.rewrites)) == {"elementwise ops share one loop nest"}
    assert specs.kinds(made.module) == ["group(add mul exp)"]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)


def test_a_value_that_is_a_result_too_is_a_second_result_of_the_group():
    def build(b, x, y):
        total = b.add(x, y)
        return total, b.exp(total)

    made = specs.reach("fuse_elementwise", build, *["3x4xf32"] * 2)
    made.step()
    assert specs.kinds(made.module) == ["group(add exp)"]
    assert len(made.module.main.body.ops[0].results) == 2


def test_ops_on_other_shapes_stay_apart():
    def build(b, x, y):
        return b.exp(x), b.exp(y)

    made = specs.reach("fuse_elementwise", build, "3x4xf32", "5xf32")
    assert not made.step().changed


def quantised(b, x, w):
    product = b.matmul(x, w)
    made = b.cast(b.round(b.mul(product, b.scalar_like(0.1, product))), dtype="i8")
    return b.pad(made, b.constant(0, "i8"), low=(1, 1), high=(1, 1), interior=(0, 0))


def test_what_follows_a_product_is_its_epilogue_and_not_part_of_padding():
    made = specs.reach("fuse_elementwise", quantised, "8x9xf32", "9x16xf32")
    made.step()
    assert specs.kinds(made.module)[-1] == "group(constant pad)"
    made.finish()
    assert [k.name for k in made.executable.program.launches] == ["matmul_mul_round", "pad"]


def test_padding_of_other_values_joins_them():
    def build(b, x):
        return b.pad(b.exp(x), b.constant(0.0, "f32"), low=(1, 1), high=(1, 1), interior=(0, 0))

    made = specs.reach("fuse_elementwise", build, "8x9xf32")
    made.step()
    assert specs.kinds(made.module) == ["group(exp constant pad)"]


def test_what_turns_an_image_is_no_part_of_its_padding():
    """Elements would be moved one at a time, with divisions, in place of tiles and of rows."""

    def build(b, x, w):
        bytes_ = b.quantize(x, b.constant(0.1, "f32"), b.constant(130, "ui8"), dtype="ui8")
        border = b.constant(130, "ui8")
        image = b.pad(bytes_, border, low=(0, 0, 1, 1), high=(0, 0, 1, 1), interior=(0,) * 4)
        window = {"strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilations": (1, 1)}
        return b.conv(b.cast(image, dtype="i32"), b.cast(w, dtype="i32"), **window)

    made = specs.reach("fuse_elementwise", build, "1x8x6x6xf32", "4x8x3x3xi8")
    stage = made.step()
    groups = [kind for kind in specs.kinds(made.module) if kind.startswith("group(")]
    assert not [kind for kind in groups if "div" in kind and "pad" in kind]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)
