"""Every op of the registry as an exported program: PyTorch computes what our reference does, and
our importer reads it back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.exporters.pt2 import export
from core_compiler.frontends.pytorch.importer import import_exported
from core_compiler.ir import Value, tensor
from core_compiler.ops import REGISTRY, Builder, evaluate, evaluate_block
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.exporters import corners, drawn
from tests.exporters.onnx_runs import alike, module_of, named
from tests.exporters.pt2_runs import agrees, exported, in_torch
from tests.exporters.test_onnx_ops import FACTORS, dtypes_of, marked, slack_of
from tests.exporters.test_onnx_properties import (
    last_tensor_stage,
)
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


@FEW
@given(drawn.pads_and_boxes(("f32", "bf16", "i1", "ui16", "f8E5M2")))
def test_pads_and_boxes(cases):
    for module, arrays in cases:
        agrees(module, arrays)


@FEW
@given(drawn.gathers_and_scatters())
def test_gathers_clamp_and_scatters_drop(cases):
    for module, arrays in cases:
        agrees(module, arrays)


@FEW
@given(drawn.sums_over_windows(("f32", "i8")))
def test_windows(case):
    agrees(*case)


@settings(max_examples=examples(40))
@given(programs(), st.booleans())
def test_programs_at_the_first_and_the_last_tensor_stage(module, last):
    agrees(last_tensor_stage(module) if last else module, inputs(module))
