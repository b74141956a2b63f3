"""Every op of the registry as NumPy: the file computes what our reference does."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import Value, dtype, tensor
from core_compiler.ops import REGISTRY, Builder, evaluate, evaluate_block
from tests.examples import examples
from tests.exporters import drawn
from tests.exporters.numpy_runs import computed
from tests.exporters.onnx_runs import alike, module_of
from tests.exporters.test_onnx_ops import marked, slack_of
from tests.exporters.test_onnx_properties import (
    BINARY,
    CORNERS,
    FLOATS,
    INTEGERS,
    SEEDS,
    few,
    last_tensor_stage,
    whole,
)
from tests.exporters.test_onnx_properties import module_of as module_from
from tests.ops.samples import SAMPLES, Sample
from tests.ops.test_special_values import CASES
from tests.passes.programs import inputs, programs

FEW = settings(max_examples=examples(40))


def same(build, *arrays: np.ndarray) -> None:
    """A module built from arrays of these types, exported and run on them."""
    check(module_from(build, *arrays), arrays)


def check(module, arrays) -> None:
    wanted = evaluate_block(module.main.body, list(arrays), module.weights)
    with tempfile.TemporaryDirectory() as folder:
        alike(computed(module, Path(folder), arrays), wanted)


def test_every_op_is_written():
    assert {s.kind for s in SAMPLES} == set(REGISTRY)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("sample", marked(SAMPLES))
def test_the_file_computes_the_same(sample: Sample, tmp_path: Path):
    op = sample.op()
    found = computed(module_of(op), tmp_path, sample.operands)
    alike(found, evaluate(op, sample.operands), slack_of(sample))


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:Degrees of freedom <= 0")
@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)])
def test_corners_of_the_contract_are_kept(case, tmp_path: Path):
    kind, operands, attributes, wanted = case
    builder = Builder()
    builder.op(f"core.{kind}", [Value(tensor(a.shape, a.dtype)) for a in operands], **attributes)
    alike(computed(module_of(builder.ops[-1]), tmp_path, operands), [wanted])


@FEW
@given(st.sampled_from(BINARY), st.sampled_from(INTEGERS), st.booleans(), SEEDS)
def test_integers(kind, name, constant, seed):
    """Two tensors, or one and a number."""
    method = f"{kind}_" if kind in ("and", "or") else kind
    a, b = whole(name, (100,), seed), whole(name, (100,), seed + 1)
    if constant:
        same(lambda c, x: getattr(c, method)(x, c.scalar_like(b[0].item(), x)), a)
        same(lambda c, x: getattr(c, method)(c.scalar_like(b[0].item(), x), x), a)
    else:
        same(lambda c, x, y: getattr(c, method)(x, y), a, b)


NARROW = (
    "bf16",
    "f16",
    "f8E4M3FN",
    "f8E4M3",
    "f8E3M4",
    "f8E4M3B11FNUZ",
    "f8E5M2FNUZ",
    "f4E2M1FN",
    "i4",
    "ui4",
    "i2",
    "ui2",
)


@FEW
@given(
    st.sampled_from((*NARROW, *INTEGERS, "f64", "f32")),
    st.sampled_from((*NARROW, *INTEGERS, "f64", "f32", "i1")),
    st.booleans(),
)
def test_casts(source, target, saturate):
    """Of numbers around the limits of integers; among narrow dtypes too."""
    kind = dtype(source)
    if kind.is_float:
        numbers = FLOATS if kind.bits > 4 else [0.0, -0.0, 0.5, -6, 3]
        with np.errstate(all="ignore"):
            x = np.array(numbers).astype(kind.numpy)
    else:
        x = np.arange(-8, 8).astype(np.int8).astype(kind.numpy)
    same(lambda b, v: b.cast(v, dtype=target, saturate=saturate), x)


def test_f64_is_rounded_once():
    """Beside the middle between two numbers of the narrow dtype, by less than f32 tells."""
    x = np.array([1.0625, 1 + 2**-8, 1.125, 3, 1e30, 1e-40, np.inf, np.nan, 0])
    x = np.stack([x, x * (1 + 2**-40), x * (1 - 2**-40), -x * (1 + 2**-40)])
    for name in ("bf16", "f8E4M3FN", "f8E5M2"):
        for saturate in (False, True):
            module = module_from(lambda b, v, n=name, s=saturate: b.cast(v, dtype=n, saturate=s), x)
            (wanted,) = evaluate_block(module.main.body, [x])
            with tempfile.TemporaryDirectory() as folder:
                alike(computed(module, Path(folder), [x]), [wanted], 0.0)


@FEW
@given(
    st.sampled_from(("argmax", "argmin", "sort", "argsort", "topk", "reduce_max", "reduce_min")),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from(("f32", "bf16")),
    SEEDS,
)
def test_nan_and_signed_zeros_have_their_places(kind, flag, axis, name, seed):
    x = few((3, 5, 4), seed, *(CORNERS if flag else CORNERS[:4])).astype(dtype(name).numpy)
    options = {
        "argmax": {"axis": axis},
        "argmin": {"axis": axis},
        "sort": {"axis": axis, "descending": flag},
        "argsort": {"axis": axis, "descending": flag},
        "topk": {"axis": axis, "k": 2, "largest": flag},
        "reduce_max": {"axes": (axis,)},
        "reduce_min": {"axes": (axis,)},
    }[kind]
    same(lambda b, v: b.op(f"core.{kind}", (v,), **options), x)


@FEW
@given(drawn.pads_and_boxes(("f32", "bf16", "i4", "i1")))
def test_pads_and_boxes(cases):
    for module, arrays in cases:
        check(module, arrays)


@FEW
@given(drawn.gathers_and_scatters())
def test_gathers_clamp_and_scatters_drop(cases):
    for module, arrays in cases:
        check(module, arrays)


@FEW
@given(drawn.sums_over_windows())
def test_windows(case):
    check(*case)


@settings(max_examples=examples(40))
@given(programs(), st.booleans())
def test_programs_at_the_first_and_the_last_tensor_stage(module, last):
    check(last_tensor_stage(module) if last else module, inputs(module))
