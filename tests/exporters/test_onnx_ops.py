"""Every op of the registry, exported alone: the checker takes it, onnxruntime computes what our
reference does, and our importer reads it back."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.exporters.onnx import OLDEST, OPSET, export
from core_compiler.frontends.onnx import import_proto
from core_compiler.ir import Value, dtype, tensor
from core_compiler.ops import REGISTRY, Builder, evaluate, evaluate_block
from core_compiler.support.errors import UserError
from tests.exporters.onnx_runs import alike, exported, in_reference, in_runtime, module_of, named
from tests.ops.samples import SAMPLES, Sample
from tests.ops.test_special_values import CASES
from tests.slow import slow_but

#: Ops of ONNX that onnxruntime's CPU has no kernel for in a dtype: its reference computes them.
WITHOUT_KERNEL = {
    "f64": {
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Conv", "ConvTranspose",
        "Cosh", "Elu", "Erf", "HardSigmoid", "LeakyRelu", "Sinh", "Softplus", "Softsign", "Tan",
    },
    "ui64": {"ReduceMax", "ReduceMin"},
    "i4": {"Pad", "Reshape", "Transpose"},
    "f8E5M2": {"Pad"},
    "f4E2M1FN": {"Cast"},
}  # fmt: skip
#: onnx's reference computes Erf in f32, whatever it is given.
IN_F32 = ("Erf",)
#: onnx's reference takes no groups together with dilations.
BEYOND_THE_REFERENCE = "conv_transpose-(1,4,4)(4,2,3)-f64-f64"

NO_GENERATOR = "ONNX specifies no random number generator"
NO_DTYPE = "is not an ONNX dtype"
#: Samples that cannot be exported at the newest opset, and why.
FACTORS = ("householder", "reflect", "eigh", "orthogonal_columns", "qr", "svd")
REFUSED = {
    "random_bits": NO_GENERATOR,
    "random_uniform": NO_GENERATOR,
    "random_normal": NO_GENERATOR,
    **dict.fromkeys(FACTORS, "ONNX specifies no orthogonal factors of matrices"),
    "cast-to-f8E4M3-f32": NO_DTYPE,
    "cast-to-f8E4M3B11FNUZ-f32": NO_DTYPE,
    "cast-to-f8E3M4-f32": NO_DTYPE,
}
#: What the oldest opset lacks beside that, in integers: op or op and label -> what it says.
THE_OLDEST_LACKS = {
    "and": "opset 17 has no BitwiseAnd",
    "reduce_and": "opset 17 has no BitwiseAnd",
    "or": "opset 17 has no BitwiseOr",
    "reduce_or": "opset 17 has no BitwiseOr",
    "xor": "opset 17 has no BitwiseXor",
    "bitcast": "opset 17 has no BitCast",
    "table-i16": "opset 17 has no BitwiseAnd",
    "integer_softmax": "opset 17 has no BitwiseAnd",
    "integer_normalize": "opset 17 has no BitwiseAnd",
    "scatter_along-max": "has no reduction max",
    "scatter_along-min": "has no reduction min",
    "scatter_nd-max": "has no reduction max",
    "scatter_nd-min": "has no reduction min",
}
#: Dtypes that a fast run takes; all others run with the slow tests.
FAST = {"f32", "bf16", "i64", "i8", "i1"}


def first_of_each(samples) -> list[Sample]:
    """A sample for each op and operand dtypes."""
    found: dict[tuple, Sample] = {}
    for sample in samples:
        found.setdefault((sample.kind, *(a.dtype for a in sample.operands)), sample)
    return list(found.values())


def dtypes_of(sample: Sample) -> set[str]:
    """The dtypes of operands and results."""
    made = (v.type.dtype.name for v in sample.op().results)
    return {*(dtype(a.dtype).name for a in sample.operands), *made}


def marked(samples) -> list:
    """The first sample of each op and dtypes is fast, where the dtypes are."""
    fast = {id(s) for s in first_of_each(samples) if dtypes_of(s) <= FAST}
    return [
        pytest.param(s, id=str(s), marks=[] if id(s) in fast else pytest.mark.slow) for s in samples
    ]


def slack_of(sample: Sample) -> float:
    """What only moves, chooses or converts numbers is computed exactly."""
    return 0.0 if sample.exact else sample.slack


def why_refused(sample: Sample, opset: int) -> str:
    """What the export says against a sample; "" where it is exported."""
    module = module_of(sample.op())
    try:
        export(module, **named(module), opset=opset, guards=True)
    except UserError as error:
        return str(error)
    return ""


def expected_refusal(sample: Sample) -> str:
    name = str(sample)
    return next((why for start, why in REFUSED.items() if name.startswith(start)), "")


EXPORTED = [s for s in SAMPLES if not expected_refusal(s)]


@pytest.mark.slow
def test_what_cannot_be_exported_is_this():
    for sample in SAMPLES:
        expected, found = expected_refusal(sample), why_refused(sample, OPSET)
        assert bool(expected) == bool(found), (str(sample), found)
        assert expected in found
    assert {s.kind for s in EXPORTED} == set(REGISTRY) - {f"core.{n}" for n in REFUSED}


@pytest.mark.slow
def test_what_the_oldest_opset_lacks_is_this():
    for sample in EXPORTED:
        found, name, kinds = why_refused(sample, OLDEST), str(sample), dtypes_of(sample)
        if any(k.startswith(("f8", "f4", "i4")) for k in kinds):
            assert " requires opset " in found, name
            continue
        op, _, rest = name.partition("-")
        expected = THE_OLDEST_LACKS.get(f"{op}-{rest.partition('-')[0]}")
        if kinds != {"i1"}:
            expected = expected or THE_OLDEST_LACKS.get(op)
        assert bool(expected) == bool(found) and (expected or "") in found, (name, found)


def computed(model, sample: Sample) -> tuple[list[np.ndarray], float] | None:
    """(results, slack of their tolerance): of onnxruntime, else of onnx's reference; None where
    that cannot do it either."""
    try:
        return in_runtime(model, sample.operands), slack_of(sample)
    except Exception as error:
        missing = str(error)
    lacks = [op for kind in dtypes_of(sample) for op in WITHOUT_KERNEL.get(kind, ())]
    assert any(f" {op}(" in missing for op in lacks), missing
    if str(sample) == BEYOND_THE_REFERENCE:
        return None
    narrow = any(node.op_type in IN_F32 for node in model.graph.node)
    return in_reference(model, sample.operands), 1e6 if narrow else slack_of(sample)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("sample", marked(EXPORTED))
def test_runs_and_comes_back(sample: Sample):
    op = sample.op()
    model = exported(module_of(op))
    wanted = evaluate(op, sample.operands)
    found = computed(model, sample)
    if found is not None:
        alike(found[0], wanted, found[1])
    back = import_proto(model).module
    with np.errstate(all="ignore"):
        again = evaluate_block(back.main.body, list(sample.operands), back.weights)
    alike(again, wanted, slack_of(sample))


@pytest.mark.slow
@pytest.mark.parametrize("opset", slow_but((OLDEST,), (OLDEST, 18, 20, 21, 22, 23, 24, 25)))
def test_runs_at_older_opsets(opset: int):
    """In f32 and integers, what the opset has."""
    for sample in first_of_each(EXPORTED):
        if not dtypes_of(sample) <= {"f32", "i32", "i64", "i1"} or why_refused(sample, opset):
            continue
        op = sample.op()
        model = exported(module_of(op), opset)
        assert model.opset_import[0].version == opset
        wanted = evaluate(op, sample.operands)
        alike(in_runtime(model, sample.operands), wanted, slack_of(sample))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("opset", [OLDEST, OPSET])
@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)])
def test_corners_of_the_contract_are_kept(case, opset: int):
    """By onnxruntime and by onnx's reference; only the sign of a zero is theirs."""
    kind, operands, attributes, wanted = case
    if opset == OLDEST and str(attributes.get("dtype", "")).startswith("f8"):
        pytest.skip("opset 17 has no floats of 8 bits")
    builder = Builder()
    builder.op(f"core.{kind}", [Value(tensor(a.shape, a.dtype)) for a in operands], **attributes)
    model = exported(module_of(builder.ops[-1]), opset)
    for run in (in_runtime, in_reference):
        alike(run(model, operands), [wanted])
