"""From one version of ONNX to another: valid there, and the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from core_compiler.ir.origin import Origin
from core_compiler.onnx_level.dialect import SINCE, domain_and_type, newest, version_of
from core_compiler.onnx_level.passes.convert_version import ConvertVersion
from core_compiler.onnx_level.read import read
from core_compiler.onnx_level.write import write
from core_compiler.passes.base import PassContext
from core_compiler.support.errors import UserError
from tests.frontends.onnx_models import F, I, model_of
from tests.onnx_level.suite import (
    a_case_each,
    applied,
    differ,
    evaluable,
    invalid,
    models,
    run,
)


def _judge(names, *versions: int) -> tuple[int, int]:
    """How many cases were converted through ``versions`` (and are right), how many refused."""
    right = refused = 0
    for name, module, given, want in evaluable(names):
        if version_of(module) < 7:
            continue
        try:
            made = applied(module, *map(ConvertVersion, versions))
        except UserError as problem:
            if "not supported by version" not in problem.what:
                raise
            refused += 1
            continue
        assert version_of(made) == versions[-1]
        assert not invalid(made, models()[name][1]), f"{name}: {invalid(made, models()[name][1])}"
        assert not differ(want, run(made, given)), name
        right += 1
    return right, refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("versions", "at_least"),
    [pytest.param((17, 28), 130, marks=pytest.mark.slow), ((10,), 75)],
    ids=str,
)
def test_a_case_of_every_op(versions: tuple[int, ...], at_least: int) -> None:
    """What is not converted is refused with the reason; nothing is converted wrongly."""
    right, _ = _judge(a_case_each(), *versions)
    assert right >= at_least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("versions", "at_least"), [((17,), 1290), ((17, 28), 1250), ((13,), 800), ((10,), 650)], ids=str
)
def test_the_whole_suite(versions: tuple[int, ...], at_least: int) -> None:
    right, _ = _judge(list(models()), *versions)
    assert right >= at_least


def _one(
    kind: str, inputs: dict, outputs: int = 1, opset: int = 18, **attributes
) -> onnx.ModelProto:
    """A node whose first input is the model's, the others constants."""
    first, *rest = inputs
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, list(inputs), names, **attributes)
    held = [numpy_helper.from_array(inputs[n], n) for n in rest]
    kind_ = helper.np_dtype_to_tensor_dtype(inputs[first].dtype)
    return model_of(
        [node],
        [(first, kind_, inputs[first].shape)],
        [(n, kind_, None) for n in names],
        held,
        opset=opset,
    )


X = np.random.default_rng(0).standard_normal((2, 6, 4, 4)).astype(np.float32)
_i = lambda *numbers: np.array(numbers, np.int64)  # noqa: E731
_f = lambda *numbers: np.array(numbers, np.float32)  # noqa: E731
#: What has another form in another version: the model, the version, and what it says there.
ROWS = {
    "reduction": (_one("ReduceMean", {"x": X, "axes": _i(1, -1)}), 17, {"axes": (1, -1)}),
    "reduction of all": (_one("ReduceMax", {"x": X}, keepdims=0), 13, {"keepdims": 0}),
    **{f"{name} of no axes": (
        _one(f"Reduce{name}", {"x": X, "axes": _i()}, noop_with_empty_axes=1), 17, {})
       for name in ("L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Mean")},
    "squeeze": (_one("Squeeze", {"x": X[:1], "axes": _i(0)}, opset=13), 11, {"axes": (0,)}),
    "axes counted from the end": (
        _one("Unsqueeze", {"x": X, "axes": _i(-1)}, opset=13), 10, {"axes": (4,)}),
    "split": (_one("Split", {"x": X}, 3, axis=1, num_outputs=3), 17, {"axis": 1}),
    "split to attributes": (
        _one("Split", {"x": X, "s": _i(1, 5)}, 2, opset=13, axis=1), 11, {"split": (1, 5)}),
    "clip": (_one("Clip", {"x": X, "lo": np.float32(-1), "hi": np.float32(1)}), 10,
             {"min": -1.0, "max": 1.0}),
    "pad of chosen axes": (
        _one("Pad", {"x": X, "p": _i(1, 2), "v": np.float32(0), "a": _i(-1)}), 17, {}),
    "pad": (_one("Pad", {"x": X, "p": _i(0, 0, 1, 1, 0, 0, 2, 2)}, opset=13), 10,
            {"pads": (0, 0, 1, 1, 0, 0, 2, 2)}),
    "slice": (_one("Slice", {"x": X, "s": _i(1), "e": _i(3), "a": _i(2)}), 9,
              {"starts": (1,), "ends": (3,), "axes": (2,)}),
    "softmax of an inner axis": (_one("Softmax", {"x": X}, opset=13, axis=1), 11, {"axis": 3}),
    "softmax up": (_one("Softmax", {"x": X}, opset=11, axis=2), 13, {"axis": 1}),
    "resize of chosen axes": (
        _one("Resize", {"x": X, "r": _f(), "s": _f(2, 2)}, axes=[2, 3]), 17, {}),
    "upsample": (_one("Upsample", {"x": X, "s": _f(1, 1, 2, 2)}, opset=9, mode="nearest"), 13,
                 {"mode": "nearest", "nearest_mode": "floor",
                  "coordinate_transformation_mode": "asymmetric"}),
    "shrinking": (_one("Resize", {"x": X, "s": _f(1, 1, 0.7, 0.3)}, opset=10), 13,
                  {"nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"}),
    "group norm": (_one("GroupNormalization", {"x": X, "s": _f(1, 2), "b": _f(3, 4)}, opset=18,
                        num_groups=2), 21, {"num_groups": 2}),
    "region of interest": (_one("RoiAlign", {"x": X, "r": np.ones((1, 4), np.float32), "b": _i(0)},
                                opset=10), 16,
                           {"coordinate_transformation_mode": "output_half_pixel"}),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_said_in_another_version(row: str) -> None:
    """The node's attributes there; the checker and the numbers agree."""
    model, to, attributes = ROWS[row]
    module = read(model)
    made = applied(module, ConvertVersion(to))
    assert not invalid(made, model)
    kinds = {domain_and_type(op)[1] for op in made.main.body.ops}
    said = [op for op in made.main.body.ops if set(attributes) <= set(op.attributes)]
    assert any(all(op[n] == v for n, v in attributes.items()) for op in said), kinds
    given = [
        np.random.default_rng(1).standard_normal(v.type.shape).astype(np.float32)
        for v in module.main.arguments
    ]
    assert not differ(run(module, given), run(made, given))


def test_only_ops_whose_definition_changed_change() -> None:
    """From 18 to 17 a Relu is the same op; a reduction is another."""
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("ReduceSum", ["h", "a"], ["s"]),
        helper.make_node("ReduceMax", ["s", "a"], ["y"]),
    ]
    module = read(
        model_of(
            nodes,
            [("x", F, (2, 3))],
            [("y", F, None)],
            [numpy_helper.from_array(_i(0), "a")],
            opset=18,
        )
    )
    context = PassContext()
    made = ConvertVersion(17).run(module, context)
    assert [r.rule for r in context.rewrites if "=>" in r.rule] == ["ReduceMax 18 => 13"]
    old = {domain_and_type(op)[1]: op for op in module.main.body.ops}
    new = {domain_and_type(op)[1]: op for op in made.main.body.ops}
    assert new["Relu"][SINCE] == old["Relu"][SINCE] == 14
    assert isinstance(new["ReduceMax"].origin, Origin)
    assert new["ReduceMax"].origin.nodes()[0].name


def test_an_op_that_is_too_new_becomes_its_definition() -> None:
    model = _one("Gelu", {"x": X}, opset=20)
    made = applied(read(model), ConvertVersion(17))
    kinds = {domain_and_type(op)[1] for op in made.main.body.ops}
    assert "Gelu" not in kinds
    assert "Erf" in kinds
    given = [X]
    assert not differ(run(read(model), given), run(made, given))


def test_all_that_has_no_word_is_said_at_once_with_its_place() -> None:
    nodes = [
        helper.make_node("BitwiseNot", ["x"], ["h"], name="first"),
        helper.make_node("BitwiseNot", ["h"], ["i"], name="second"),
        helper.make_node("ReduceMax", ["i", "a"], ["y"], name="third"),
    ]
    module = read(model_of(nodes, [("x", I, (2,)), ("a", I, (1,))], [("y", I, None)], opset=18))
    with pytest.raises(UserError) as said:
        applied(module, ConvertVersion(17))
    assert said.value.what == (
        "3 nodes not supported by version 17: BitwiseNot (the op does not exist in that "
        "version; model.onnx:1, model.onnx:2); ReduceMax (axes must be constant, but is computed; "
        "model.onnx:3)"
    )


@pytest.mark.parametrize("kind", ["Max", "Mean", "Min", "Sum"])
def test_before_version_8_inputs_of_several_shapes_have_no_word(kind: str) -> None:
    wide = _one(kind, {"x": X, "c": _f(0.5)}, opset=13)
    with pytest.raises(UserError, match="its inputs may have different shapes"):
        applied(read(wide), ConvertVersion(7))
    made = applied(read(_one(kind, {"x": X, "c": X}, opset=13)), ConvertVersion(7))
    assert [op[SINCE] for op in made.main.body.ops if domain_and_type(op)[1] == kind] == [6]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (_one("Pad", {"x": X, "p": _i(*[1] * 8)}, opset=19, mode="wrap"), "mode is wrap"),
        (
            _one("ScatterND", {"x": X, "i": _i([0]), "u": X[:1]}, reduction="max"),
            "reduction is max",
        ),
        (
            _one(
                "ScatterElements",
                {"x": X, "i": np.zeros_like(X, np.int64), "u": X},
                reduction="min",
            ),
            "reduction is min",
        ),
        (
            _one(
                "Resize",
                {"x": X, "r": _f(), "s": _f(1, 1, 2, 2)},
                opset=19,
                mode="linear",
                coordinate_transformation_mode="half_pixel_symmetric",
            ),
            "is half_pixel_symmetric",
        ),
    ],
)
def test_a_value_that_an_attribute_has_only_since_has_no_word(model, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        applied(read(model), ConvertVersion(17))


def test_two_types_where_a_version_takes_one_have_no_word() -> None:
    model = _one("Pow", {"x": X, "p": np.array(2.0)}, opset=13)
    with pytest.raises(UserError, match=r"its input Y is tensor\(double\), but others of this"):
        applied(read(model), ConvertVersion(10))


@pytest.mark.parametrize("to", [1, 6, newest() + 1])
def test_a_version_that_nobody_writes(to: int) -> None:
    with pytest.raises(UserError, match=f"choose 7 to {newest()}"):
        applied(read(_one("Relu", {"x": X})), ConvertVersion(to))


def test_the_file_says_the_version_and_a_format_that_has_it() -> None:
    model = _one("Relu", {"x": X})
    model.ir_version = 8
    made = write(applied(read(model), ConvertVersion(newest())))
    assert made.opset_import[0].version == newest()
    assert made.ir_version >= helper.find_min_ir_version_for([helper.make_opsetid("", newest())])
