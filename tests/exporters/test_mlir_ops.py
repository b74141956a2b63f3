"""Every op alone in each dialect: accepted by MLIR, and run by IREE as our reference says.

Integers and what only moves, compares or chooses are compared bit for bit.  IREE sums in another
order, and its functions are its own: floats may differ by ``CLOSE`` of the largest result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from core_compiler.ir import dtype
from core_compiler.ops import REGISTRY, definition, evaluate
from core_compiler.support.errors import UserError
from tests.exporters import corners
from tests.exporters.iree import (
    Loaded,
    compile_file,
    differing,
    of_samples,
    passed,
    refusal,
    rounds_integers_to_bf16,
    text_of,
)
from tests.ops.samples import SAMPLES as SHARED
from tests.ops.samples import Sample
from tests.ops.samples.base import sample as made_sample
from tests.ops.samples.base import values
from tests.slow import slow_but

DIALECTS = ("linalg", "tosa")


def _further() -> list[Sample]:
    """What the ops' own samples leave out and a dialect says in a way of its own."""
    plain = {"strides": (1, 1), "low": (1, 0), "high": (1, 2), "dilations": (1, 1)}
    steps = {"strides": (2, 2), "low": (1, 1), "high": (1, 1), "dilations": (2, 1)}
    row = {"strides": (2,), "low": (1,), "high": (0,), "dilations": (1,)}
    cube = {"strides": (1, 2, 1), "low": (0, 1, 1), "high": (1, 0, 1), "dilations": (1, 1, 1)}
    rows = [
        ("bitcast", "sign", [values((3, 4), "i32", -9, 9)], {"dtype": "ui32"}),
        ("iota", "long", [], {"shape": (2, 500), "dtype": "f32", "axis": 1}),
        ("conv", "row", [values((2, 4, 9)), values((6, 2, 3))], {**row, "groups": 2}),
        ("conv", "cube", [values((1, 4, 3, 5, 4)), values((4, 2, 2, 3, 2))], {**cube, "groups": 2}),
        ("max_pool", "cube", [values((1, 2, 4, 5, 4))], {**cube, "window": (2, 2, 3)}),
        (
            "max_pool",
            "padding-alone",
            [values((1, 2, 3, 3))],
            {
                "window": (1, 2),
                "strides": (1, 1),
                "low": (2, 0),
                "high": (1, 3),
                "dilations": (1, 1),
            },
        ),
        ("avg_pool", "gaps", [values((1, 2, 7, 6))], {**steps, "window": (2, 3)}),
        (
            "avg_pool",
            "gaps-counted",
            [values((1, 2, 7, 6))],
            {**steps, "window": (2, 3), "count_padding": True},
        ),
    ]
    for name, low, high in (("ui8", 0, 255), ("i16", -99, 99), ("i32", -99, 99), ("ui32", 0, 9)):
        x, w = values((1, 4, 5, 6), name, low, high, "x"), values((6, 2, 3, 2), name, low, high)
        rows += [
            ("conv", "", [x, w], {**steps, "groups": 2}),
            ("conv", "whole", [x, values((3, 4, 2, 2), name, low, high)], plain),
            ("max_pool", "", [x], {**plain, "window": (2, 3)}),
        ]
    return [
        made_sample(kind, *operands, oracle=None, label=f"further-{label}", **attributes)
        for kind, label, operands, attributes in rows
    ]


SAMPLES = [*SHARED, *_further()]
CLOSE = {"f64": 4e-12, "f32": 8e-6, "f16": 4e-3, "bf16": 3.2e-2}

#: Ops of floats that round once, or not at all: equal values, signs of zeros included.
_EXACT_FAMILIES = ("shape", "indexing", "sorting", "control")
_EXACT = frozenset({
    "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "add", "sub", "mul", "div", "max",
    "min", "rem", "mod", "select", "cast", "bitcast", "reduce_max", "reduce_min", "argmax",
    "argmin", "cummax", "cummin", "max_pool", "relu", "clamp", "one_hot", "random_uniform",
})  # fmt: skip
#: Of these, what TOSA composes with roundings of its own.
_NOT_IN_TOSA = frozenset({"div"})


def tolerance(sample: Sample, dialect: str) -> float:
    """What results of a sample may differ by, of the largest."""
    name = sample.kind.removeprefix("core.")
    kind = sample.op().results[0].type.dtype
    joined = sample.attributes.get("mode", "set") in ("add", "mul")
    exact = name in _EXACT or (definition(sample.kind).family in _EXACT_FAMILIES and not joined)
    if exact and not (dialect == "tosa" and name in _NOT_IN_TOSA):
        return 0.0
    return CLOSE.get(kind.name, 0.0)


def reason(sample: Sample, dialect: str) -> str:
    """Why the dialect has no word for a sample; "" where it has one."""
    try:
        text_of(of_samples([sample]), dialect)
    except UserError as problem:
        return problem.what
    return ""


#: What TOSA has no word for, by what is missing: the ops that say so, all of the dtype (None).
NO_WORD = {
    "f64 not supported": None,
    "i4 not supported": None,
    "i4 and f64 not supported": {"cast"},
    "f8E4M3FNUZ not supported": {"cast"},
    "f8E5M2FNUZ not supported": {"cast"},
    "f8E4M3 not supported": {"cast"},
    "f8E4M3B11FNUZ not supported": {"cast"},
    "f8E3M4 not supported": {"cast"},
    "f4E2M1FN not supported": {"cast"},
    "tensors without elements not supported": {"reduce_sum", "reduce_prod", "matmul"},
    "the bits of floats": {"bitcast"},
}
#: Orthogonal factors of matrices, which no dialect has.
FACTORS = frozenset({"householder", "reflect", "eigh", "orthogonal_columns", "qr", "svd"})

#: What IREE 3.13 does not lower for this CPU: functions without a vector form or a library.
CANNOT = {
    "linalg": {
        *(f"{name}-f64" for name in (
            "acos", "asin", "atan", "atan2", "cbrt", "cos", "erf", "log2", "mod", "rem", "sin",
            "tan", "tanh",
        )),
        *(f"{name}-{kind}" for name in ("erfc", "log10") for kind in ("f64", "f32", "f16", "bf16")),
        "gelu-gelu-f64-f64", "gelu-approximatetanh-f64-f64", "mish-mish-f64-f64",
    },
    "tosa": {
        "cast-to-f16-f8E4M3FN", "cast-to-f16-f8E5M2", "take_along-smaller-f32-i64",
        "take_along-smaller-i64", "take_along-smaller-i1-i64", "cholesky-single-f32",
    },
}  # fmt: skip
#: Four bits and fewer, which its CPU backend stores in no buffer.
_TOO_NARROW = ("i2", "ui2", "i4", "ui4", "f4E2M1FN")


def runs(sample: Sample, dialect: str) -> bool:
    """Whether the sample can be run: said by the dialect, lowered and passed by IREE."""
    op = sample.op()
    kinds = [v.type.dtype for v in (*op.operands, *op.results)]
    if any(k.name in _TOO_NARROW for k in kinds) or not all(passed(k) for k in kinds[:1]):
        return False
    return (
        str(sample) not in CANNOT[dialect]
        and not reason(sample, dialect)
        and linked(sample, dialect)
    )


#: Integers that become bf16, as a dialect writes it (LLVM makes one conversion of the two).
_TO_BF16 = {
    "linalg": re.compile(r"[su]itofp(?s:.*)truncf .* to bf16"),
    "tosa": re.compile(r'"tosa\.cast"\(.*tensor<(?:\d+x)*i\d+>\) -> tensor<(?:\d+x)*bf16>'),
}


def linked(sample: Sample, dialect: str) -> bool:
    """Whether IREE finds what the sample calls on this processor."""
    if sample.op().results[0].type.dtype.name != "bf16":
        return True
    text = text_of(of_samples([sample]), dialect)
    return not _TO_BF16[dialect].search(text) or rounds_integers_to_bf16()


def problems(samples: Sequence[Sample], dialect: str, folder: Path) -> list[str]:
    """How IREE's results differ from the reference's, sample by sample."""
    module = of_samples(samples)
    path = folder / f"{dialect}.mlir"
    path.write_text(text_of(module, dialect))
    compiled, complaint = compile_file(path, dialect)
    assert compiled is not None, complaint
    load, found = Loaded(compiled), []
    for number, sample in enumerate(samples):
        function = module.functions[f"s{number}"]
        types = [v.type for v in function.outputs]
        got = load(f"s{number}", sample.operands, types)
        want = evaluate(sample.op(), sample.operands)
        for g, w in zip(got, want, strict=True):
            w, allowed = np.asarray(w).astype(g.dtype), tolerance(sample, dialect)
            if dialect == "tosa" and sample.kind == "core.quantize" and g.shape == w.shape:
                g, w = g.astype(np.float64), w.astype(np.float64)
                allowed = 1 / np.abs(w).max()  # a step: TOSA has no division
            differs = differing(g, w, allowed)
            if differs:
                found.append(f"{sample}: {differs}")
    return found


# -- what has a word -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_has_no_word(dialect):
    found: dict[str, set[str]] = {}
    for sample in SAMPLES:
        what = reason(sample, dialect)
        if what:
            missing = what.partition("(")[2].partition(";")[0]
            found.setdefault(missing, set()).add(sample.kind.removeprefix("core."))
    wanted = {"no translation": FACTORS, **(NO_WORD if dialect == "tosa" else {})}
    assert found.keys() == wanted.keys()
    for missing, kinds in wanted.items():
        assert kinds is None or found[missing] == kinds, missing


@pytest.mark.slow
@pytest.mark.parametrize("dialect", slow_but(("linalg",), DIALECTS))
def test_every_op_has_a_word(dialect):
    said = {s.kind for s in SAMPLES if not reason(s, dialect)}
    assert said == set(REGISTRY) - {f"core.{name}" for name in FACTORS}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_mlir_accepts_every_sample(dialect, tmp_path):
    samples = [s for s in SAMPLES if not reason(s, dialect)]
    path = tmp_path / "all.mlir"
    path.write_text(text_of(of_samples(samples), dialect))
    assert refusal(path) == ""


# -- what IREE makes of it -------------------------------------------------------------------------


#: What the fast run takes, one sample each: every kind of handler and composition.
FAST = (
    "add", "exp", "mod", "select", "cast", "bitcast", "constant", "iota", "broadcast", "slice",
    "pad", "concat", "dynamic_update_slice", "take", "gather_nd", "scatter_nd", "reduce_max",
    "argmax", "cumsum", "topk", "matmul", "contract", "conv", "conv_transpose", "max_pool",
    "avg_pool", "if", "while", "group", "softmax", "attention", "random_uniform",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dialect", slow_but(("linalg",), DIALECTS))
def test_a_sample_of_each_kind_runs_as_the_reference(dialect, tmp_path):
    chosen: dict[str, Sample] = {}
    for sample in sorted(SAMPLES, key=lambda s: not _is_f32(s)):
        name = sample.kind.removeprefix("core.")
        if name in FAST and name not in chosen and runs(sample, dialect):
            chosen[name] = sample
    assert set(chosen) == set(FAST)
    assert problems(list(chosen.values()), dialect, tmp_path) == []


def _is_f32(sample: Sample) -> bool:
    return not sample.operands or dtype(sample.operands[0].dtype).name == "f32"


FAMILIES = sorted({d.family for d in REGISTRY.values()})


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_sample_runs_as_the_reference(dialect, family, tmp_path):
    own = [s for s in SAMPLES if definition(s.kind).family == family]
    samples = [s for s in own if runs(s, dialect)]
    assert samples
    assert problems(samples, dialect, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "name"), [(d, name) for d in DIALECTS for name in sorted(CANNOT[d])]
)
def test_what_iree_does_not_lower(dialect, name, tmp_path):
    """The table above says no more than it must."""
    sample = next(s for s in SAMPLES if str(s) == name)
    path = tmp_path / "one.mlir"
    path.write_text(text_of(of_samples([sample]), dialect))
    assert refusal(path) == ""
    compiled, complaint = compile_file(path, dialect)
    assert compiled is None
    said = (
        "undefined symbol",
        "failed to legalize operation",
        "LLVM Translation failed",
        "expected rank",
    )
    assert any(words in complaint for words in said)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_convolutions_that_see_padding_alone_or_crop_beyond_the_image(dialect, tmp_path):
    made = [
        made_sample("conv", values((1, 2, 3)), values((3, 2, size)), oracle=None, label=f"{pads}",
                    strides=(stride,), low=(pads[0],), high=(pads[1],), dilations=(1,))
        for pads, size, stride in (((-5, 9), 2, 1), ((9, -5), 2, 1), ((-3, 4), 2, 1),
                                   ((1, -2), 2, 1), ((4, 4), 1, 12))
    ]  # fmt: skip
    assert [reason(s, dialect) for s in made] == [""] * len(made)
    assert problems(made, dialect, tmp_path) == []


# -- corners ---------------------------------------------------------------------------------------


def _corners(made: Sequence[Sample], dialect: str) -> list[Sample]:
    return [s for s in made if not reason(s, dialect) and linked(s, dialect)]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_corners_of_a_float_and_an_integer(dialect, tmp_path):
    """Zeros, infinities, NaN and ties; the ends of i8; positions far out of range."""
    few = ("round", "max", "sign", "cast", "argmin", "sort", "max_pool", "div", "mod", "shl",
           "pow", "take", "scatter_nd", "dynamic_slice")  # fmt: skip
    made = [
        s
        for s in (*corners.floats("f32"), *corners.integers("i8"))
        if s.kind.removeprefix("core.") in few
    ]
    assert problems(_corners(made, dialect), dialect, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f32", "f16", "bf16", *corners.INTEGERS])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_corners(dialect, name, tmp_path):
    made = corners.integers(name) if name in corners.INTEGERS else corners.floats(name)
    assert problems(_corners(made, dialect), dialect, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_equal_zeros_the_first_is_chosen(dialect, tmp_path):
    cases = ("argmax-[-0.0,0.0]-f32", "argmin-[0.0,-0.0]-f32")
    chosen = [s for s in corners.floats("f32") if str(s) in cases]
    assert len(chosen) == 2 and problems(chosen, dialect, tmp_path) == []


def test_iree_starts_a_maximum_at_the_lowest_finite_number(tmp_path):
    """TOSA's maximum of -infinity alone is -infinity; if IREE's is, this can go."""
    row = np.full((1, 2), -np.inf, np.float32)
    sample = Sample("core.reduce_max", (row,), None, {"axes": (1,)})
    (found,) = problems([sample], "tosa", tmp_path)
    assert "-3.4028" in found
