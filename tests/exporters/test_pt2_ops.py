"""Every op of the registry as an exported program: PyTorch computes what our reference does, and
our importer reads it back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core_compiler.exporters.pt2 import export
from core_compiler.frontends.pytorch.importer import import_exported
from core_compiler.ir import Value, dtype, tensor
from core_compiler.ops import REGISTRY, Builder, TypeRuleError, evaluate, evaluate_block
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.exporters import corners
from tests.exporters.onnx_runs import alike, module_of, named
from tests.exporters.pt2_runs import agrees, exported, in_torch
from tests.exporters.test_onnx_ops import FACTORS, dtypes_of, marked, slack_of
from tests.exporters.test_onnx_properties import (
    FULL,
    INTEGERS,
    SEEDS,
    SHAPES,
    few,
    last_tensor_stage,
    positions,
    whole,
    windows,
)
from tests.exporters.test_onnx_properties import module_of as module_from
from tests.ops.samples import SAMPLES, Sample
from tests.ops.test_special_values import CASES
from tests.passes.programs import inputs, programs

FEW = settings(max_examples=examples(40))

#: Dtypes without tensors in torch, and ops on ui64 without a kernel.
NO_TENSORS = ("i4", "f8E4M3", "f8E4M3B11FNUZ", "f8E3M4", "f4E2M1FN")
NO_KERNEL = (
    "div",
    "max",
    "min",
    "rem",
    "mod",
    "lt",
    "le",
    "gt",
    "ge",
    "shr",
    "pow",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
)
#: Ops that are not exported, and why.
REFUSED = {
    **dict.fromkeys(FACTORS, "torch leaves the signs of orthogonal factors open"),
    "if": "branches and loops are not exported",
    "while": "branches and loops are not exported",
}


def expected_refusal(sample: Sample) -> str:
    """What the export says against a sample; "" where it is exported."""
    op, kinds = sample.kind.removeprefix("core."), dtypes_of(sample)
    if kinds & set(NO_TENSORS):
        return "torch has no tensors of "
    if op in REFUSED:
        return REFUSED[op]
    return "torch has no kernel for ui64" if op in NO_KERNEL and "ui64" in kinds else ""


EXPORTED = [s for s in SAMPLES if not expected_refusal(s)]


@pytest.mark.slow
def test_what_cannot_be_exported_is_this():
    for sample in SAMPLES:
        expected = expected_refusal(sample)
        module = module_of(sample.op())
        if not expected:
            export(module, **named(module))
            continue
        with pytest.raises(UserError, match=expected):
            export(module, **named(module))
    assert {s.kind for s in EXPORTED} == set(REGISTRY) - {f"core.{n}" for n in REFUSED}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("sample", marked(EXPORTED))
def test_torch_computes_the_same(sample: Sample):
    op = sample.op()
    program = exported(module_of(op))
    alike(in_torch(program, sample.operands), evaluate(op, sample.operands), slack_of(sample))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("sample", marked(EXPORTED))
def test_comes_back(sample: Sample):
    op = sample.op()
    back = import_exported(exported(module_of(op))).module
    with np.errstate(all="ignore"):
        again = evaluate_block(back.main.body, list(sample.operands), back.weights)
    alike(again, evaluate(op, sample.operands), slack_of(sample))


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)])
def test_corners_of_the_contract_are_kept(case):
    kind, operands, attributes, wanted = case
    builder = Builder()
    builder.op(f"core.{kind}", [Value(tensor(a.shape, a.dtype)) for a in operands], **attributes)
    alike(in_torch(exported(module_of(builder.ops[-1])), operands), [wanted])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f32", "bf16", *(n for n in corners.INTEGERS if n != "ui64")])
def test_more_corners_are_kept(name: str):
    """Whatever integers divide, shift by and point at; numbers that no integer holds.

    Torch's own remainder of floats is NaN where the quotient overflows.
    """
    for sample in corners.integers(name) if name in corners.INTEGERS else corners.floats(name):
        if name in corners.INTEGERS or sample.kind not in ("core.rem", "core.mod"):
            agrees(module_of(sample.op()), sample.operands)


def same(build, *arrays: np.ndarray) -> None:
    """A module built from arrays of these types, exported and run on them."""
    agrees(module_from(build, *arrays), arrays)


@FEW
@given(st.data(), SHAPES, st.sampled_from(("f32", "bf16", "i1", "ui16", "f8E5M2")), SEEDS)
def test_pads_and_boxes(data, shape, name, seed):
    def draw(low: int, high: int) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in shape]

    x = whole("i64", shape, seed, 0, 1).astype(dtype(name).numpy)
    options = {"low": draw(-4, 4), "high": draw(-4, 4), "interior": draw(0, 2)}
    try:
        module = module_from(lambda b, v: b.pad(v, b.constant(1, name), **options), x)
    except TypeRuleError:  # cropped to less than nothing
        assume(False)
    agrees(module, [x])
    sizes = tuple(data.draw(st.integers(0, n)) for n in shape)
    starts = [whole("ui32", (), seed + i) for i in range(len(shape))]
    same(lambda b, v, *s: b.dynamic_slice(v, *s, sizes=sizes), x, *starts)


@FEW
@given(
    st.data(),
    FULL.filter(len),
    st.sampled_from(INTEGERS),
    SEEDS,
    st.sampled_from(("set", "add", "mul", "max", "min")),
)
def test_gathers_clamp_and_scatters_drop(data, shape, name, seed, mode):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = few(shape, seed, -2.0, 1.0, 2.0)
    same(lambda b, v, i: b.take(v, i, axis=axis), x, positions(name, (3,), seed))
    box = [data.draw(st.integers(1, n)) for n in shape]
    box[axis] = data.draw(st.integers(1, 5))
    places, updates = positions(name, box, seed), few(box, seed + 1, 1.0, 2.0, -2.0)
    same(lambda b, v, i: b.take_along(v, i, axis=axis), x, places)
    same(lambda b, v, i, u: b.scatter_along(v, i, u, axis=axis, mode=mode), x, places, updates)
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(0, len(shape) - batch))
    same(
        lambda b, v, i: b.gather_nd(v, i, batch_dims=batch),
        x,
        positions(name, (*shape[:batch], 3, depth), seed),
    )
    same(
        lambda b, v, i, u: b.scatter_nd(v, i, u, mode=mode),
        x,
        positions(name, (3, depth), seed),
        few((3, *shape[depth:]), seed + 2, 1.0, 2.0, -2.0),
    )


@FEW
@given(windows(-2), st.sampled_from(("conv", "conv_transpose", "pools")), st.data(), SEEDS)
def test_windows(case, kind, data, seed):
    spatial, window, strides, low, high, dilations = case
    groups = data.draw(st.integers(1, 2))
    name = data.draw(st.sampled_from(("f32", "i8")))
    x = whole("i64", (2, 2 * groups, *spatial), seed, -9, 9).astype(dtype(name).numpy)
    options = {"strides": strides, "low": low, "high": high, "dilations": dilations}
    shape = (2 * groups, 3, *window) if kind == "conv_transpose" else (3 * groups, 2, *window)
    w = whole("i64", shape, seed + 1, -9, 9).astype(dtype(name).numpy)

    def build(b, v, u):
        if kind == "conv":
            return b.conv(v, u, groups=groups, **options)
        if kind == "conv_transpose":
            return b.conv_transpose(v, u, groups=groups, output_padding=(0,) * len(low), **options)
        largest = b.max_pool(v, window=window, **options)
        if name == "i8":
            return largest
        counted = data.draw(st.booleans())
        return largest, b.avg_pool(v, window=window, count_padding=counted, **options)

    try:
        module = module_from(build, x, w)
    except TypeRuleError:  # pools take no crops; a window may be larger than the image
        assume(False)
    agrees(module, [x, w])


@settings(max_examples=examples(40))
@given(programs(), st.booleans())
def test_programs_at_the_first_and_the_last_tensor_stage(module, last):
    agrees(last_tensor_stage(module) if last else module, inputs(module))
