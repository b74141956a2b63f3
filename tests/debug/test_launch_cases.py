"""Kernels that are wrong for numbers that no example has: the checks of kernels find them."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from core_compiler.codegen import expressions, source
from core_compiler.debug.flips import flip
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.lowering import reduction_nests
from tests.debug import wrong_compilers as wrong
from tests.passes.programs import program

RIGHT_TEXT, RIGHT_IDENTITY = expressions.number_text, reduction_nests.identity


def _infinite_is_finite(name, operands, lane, code, suffix):
    text = RIGHT_TEXT(name, operands, lane, code, suffix)
    return text.replace("lt_", "le_", 1) if name == "is_finite" else text


def _size_without_sign(name, operands, lane, code, suffix):
    return operands[0] if name == "abs" else RIGHT_TEXT(name, operands, lane, code, suffix)


def _not_the_lowest(kb, kind, dtype):
    return kb.number(-1e30, dtype) if kind == "max" else RIGHT_IDENTITY(kb, kind, dtype)


def _never_negative(kb, kind, dtype):
    return (
        kb.number(kind == "min", dtype)
        if kind in ("max", "min")
        else (RIGHT_IDENTITY(kb, kind, dtype))
    )


@pytest.mark.parametrize(
    ("place", "wrong", "build", "text", "stage", "numbers"),
    [
        (
            (source, "number_text"),
            _infinite_is_finite,
            lambda b, x: b.cast(b.is_finite(x), dtype=x.type.dtype),
            "6x37xf32",
            "generate_code",
            "NaN, infinities and other special values among the floats",
        ),
        (
            (source, "number_text"),
            _size_without_sign,
            lambda b, x: b.abs(x),
            "6x37xi32",
            "generate_code",
            "integers of all sizes",
        ),
        (
            (reduction_nests, "identity"),
            _not_the_lowest,
            lambda b, x: b.reduce_max(x, axes=(1,)),
            "6x37xf32",
            "schedule_kernels",
            "nearly all floats -inf",
        ),
        (
            (reduction_nests, "identity"),
            _never_negative,
            lambda b, x: b.reduce_max(x, axes=(1,)),
            "6x37xi32",
            "schedule_kernels",
            "integers near the minimum",
        ),
        (
            (reduction_nests, "identity"),
            _never_negative,
            lambda b, x: b.reduce_min(x, axes=(1,)),
            "6x37xi8",
            "schedule_kernels",
            "integers near the maximum",
        ),
    ],
    ids=["infinite", "negative", "lowest", "below zero", "above one"],
)
def test_a_kernel_that_is_wrong_for_special_numbers_is_found(
    monkeypatch, place, wrong: Callable, build: Callable, text: str, stage: str, numbers: str
):
    module = program(build, text)
    shape, dtype = module.main.arguments[0].type.shape, module.main.arguments[0].type.dtype.numpy
    given = [np.ones(shape, dtype)]

    def failed() -> list[tuple[str, str]]:
        made = compilation.start(module, "cpu", Options(check=True), given).finish()
        return [
            (s.name, r.note)
            for s in made.stages
            for r in made.checks.get(s.index, ())
            if r.verdict == "failed"
        ]

    assert not failed()
    monkeypatch.setattr(*place, wrong)
    ((name, note),) = failed()
    assert name == stage and numbers in note


@pytest.mark.parametrize("dtype", ["f8E5M2", "f8E4M3FN", "bf16"])
def test_tensors_of_narrow_floats_are_checked_in_memory(dtype):
    """NumPy's own views take no array of f8e5m2."""
    module = program(
        lambda b, x: b.cast(b.transpose(x, permutation=(1, 0)), dtype=dtype), "3x4xf32"
    )
    given = [np.ones((3, 4), np.float32)]
    made = compilation.start(module, "cpu", Options(check=True), given).finish()
    records = [r for found in made.checks.values() for r in found]
    assert records and all(r.verdict == "bitwise" for r in records)


def test_a_sum_of_which_only_a_truth_value_is_seen_is_held_to_its_bits():
    """Of a loop's condition: a sum in another order is as much below what it is compared with, save
    where it is beside it."""
    module = program(lambda b, x, most: b.lt(b.reduce_sum(x, axes=(0,)), most), "3000xf32", "f32")
    given = [np.linspace(0, 1, 3000, dtype=np.float32), np.array(1e6, np.float32)]
    with wrong.schedule():
        made = compilation.start(module, "cpu", Options(check=True), given).finish()
    found = {
        s.name: [r.note for r in made.checks.get(s.index, ()) if r.verdict == "failed"]
        for s in made.stages
    }
    assert "unroll(k) changed the bits" in " ".join(found["schedule_kernels"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (3, 5)])
def test_an_answer_changes_between_two_neighbours(dtype, shape):
    limit = dtype(0.3)
    array = np.full(shape, 2, dtype)
    below, above = flip(lambda a: bool(a.max() > limit), array)
    assert below.max() <= limit < above.max()
    assert below.dtype == above.dtype == array.dtype
    step = np.spacing(limit.astype(np.float64) if dtype is np.float64 else limit)
    assert float(above.max()) - float(below.max()) <= 2 * float(step)


def test_an_answer_that_never_changes_has_no_neighbours():
    assert flip(lambda a: 1, np.ones(3, np.float32)) is None


def test_parts_of_sums_of_many_sizes_are_of_one_launch():
    """A sum that is tried on fewer terms has fewer chunks too: none begins behind its end."""

    def build(b, *given):
        sums = [b.reshape(b.reduce_sum(b.mul(x, x), axes=(0,)), shape=(1,)) for x in given]
        return b.reduce_sum(b.concat(*sums, axis=0), axes=(0,))

    sizes = (8000, 61, 67, 71, 73)
    module = program(build, *(f"{n}xf32" for n in sizes))
    random = np.random.default_rng(0)
    given = [random.standard_normal(n).astype(np.float32) for n in sizes]
    made = compilation.start(module, "cpu", Options(check=True), given).finish()
    assert not [r.note for rs in made.checks.values() for r in rs if r.verdict == "failed"]
