"""Choose layouts: which axis lies innermost in memory."""

from __future__ import annotations

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Compilation, Options
from core_compiler.pipelines.pipeline import PipelineEdit
from tests.passes import specs
from tests.passes.programs import program


def convolved(b, x, w):
    return b.relu(b.conv(x, w, strides=(1, 1), low=(0, 0), high=(0, 0), dilations=(1, 1)))


IMAGE, WEIGHT = "1x3x6x6xf32", "4x3x3x3xf32"


def orders(made: Compilation) -> dict[str, tuple[int, ...] | None]:
    """The memory order of each op's result, by the op's name."""
    return {
        op.kind.split(".")[1]: op.result.type.order
        for op in made.module.main.body.ops
        if op.results and op.kind != "core.constant"
    }


def test_a_convolution_lies_channels_last():
    made = specs.reach("choose_layouts", convolved, IMAGE, WEIGHT)
    stage = made.step()
    assert specs.rules_fired(stage.rewrites) == [
        "operands laid out for their product",
        "convolutions and pools channels-last",
    ]
    assert specs.kinds(made.module) == ["reshape", "conv", "max"]
    # The result of the model keeps the order that the caller reads.
    assert orders(made) == {"reshape": (2, 3, 1, 0), "conv": (0, 2, 3, 1), "max": None}


def test_channels_last_is_an_option():
    edit = PipelineEdit(options={"choose_layouts": {"channels_last": "false"}})
    made = compilation.start(program(convolved, IMAGE, WEIGHT), "cpu", Options(edit=edit)).finish()
    (stage,) = [s for s in made.stages if s.name == "choose_layouts"]
    assert "convolutions and pools channels-last" not in specs.rules_fired(stage.rewrites)


def test_a_transpose_becomes_another_way_to_read_its_operand():
    made = specs.reach(
        "choose_layouts", lambda b, x: b.exp(b.transpose(x, permutation=(1, 0))), "3x4xf32"
    )
    assert specs.rules_fired(made.step().rewrites) == ["transpose as a free view"]
    assert orders(made) == {"transpose": (1, 0), "exp": None}


def test_without_anything_to_lay_out_nothing_changes():
    made = specs.reach("choose_layouts", lambda b, x, y: b.add(x, y), "3x4xf32", "3x4xf32")
    assert not made.step().changed


def padded(b, x, w):
    wide = b.pad(x, b.constant(3, "ui8"), low=(0, 0, 1, 1), high=(0, 0, 1, 1), interior=(0,) * 4)
    image, weight = (b.cast(v, dtype="i32") for v in (wide, w))
    window = {"strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilations": (1, 1)}
    return b.conv(image, weight, **window)


def test_images_are_turned_before_they_are_padded():
    made = specs.reach("choose_layouts", padded, "1x8x6x6xui8", "4x8x3x3xi8")
    made.step()
    assert specs.kinds(made.module)[:2] == ["reshape", "pad"]
    assert orders(made)["reshape"] == (2, 3, 1, 0)  # one image: the place of its axis is free
    assert orders(made)["pad"] == (0, 2, 3, 1)


def test_padding_keeps_the_layout_of_what_it_pads():
    def build(b, x, v, w):
        made = convolved(b, x, v)
        pads = {"low": (0, 0, 1, 1), "high": (0, 0, 1, 1), "interior": (0,) * 4}
        wide = b.pad(made, b.constant(7.0, "f32"), **pads)
        window = {"strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilations": (1, 1)}
        return b.conv(wide, w, groups=4, **window)

    made = specs.reach("choose_layouts", build, IMAGE, WEIGHT, "4x1x3x3xf32")
    made.step()
    assert orders(made)["pad"] == (0, 2, 3, 1)


def test_the_channels_of_a_depthwise_convolution_of_bytes_stay_where_they_are():
    def build(b, x, w):
        image, weight = (b.cast(v, dtype="i32") for v in (x, w))
        window = {"strides": (1, 1), "low": (1, 1), "high": (1, 1), "dilations": (1, 1)}
        return b.conv(image, weight, groups=8, **window)

    made = specs.reach("choose_layouts", build, "1x8x6x6xui8", "8x1x3x3xi8")
    made.step()
    assert specs.kinds(made.module)[0] != "reshape"


SWAPPED = "a transposed product has its operands swapped"


def test_a_product_that_is_only_transposed_has_its_operands_swapped():
    def build(b, x, dy):
        made = b.contract(x, dy, batch_a=(), batch_b=(), contract_a=(0,), contract_b=(0,))
        return b.exp(b.transpose(made, permutation=(1, 0)))

    made = specs.reach("choose_layouts", build, "5x3xf32", "5x4xf32")
    stage = made.step()
    assert SWAPPED in specs.rules_fired(stage.rewrites)
    assert specs.kinds(made.module) == ["contract", "exp"]
    specs.check(stage.before, stage.module, stage.rewrites, exact=True, special=True)


def test_a_transpose_of_the_batch_is_no_swap():
    def build(b, x, dy):
        made = b.contract(x, dy, batch_a=(0,), batch_b=(0,), contract_a=(1,), contract_b=(1,))
        return (
            b.exp(b.transpose(made, permutation=(0, 2, 1))),
            b.exp(b.transpose(b.exp(made), permutation=(2, 0, 1))),
        )

    made = specs.reach("choose_layouts", build, "2x5x3xf32", "2x5x4xf32")
    stage = made.step()
    assert SWAPPED not in specs.rules_fired(stage.rewrites)  # the product has another use
    specs.check(stage.before, stage.module, stage.rewrites, exact=True)
