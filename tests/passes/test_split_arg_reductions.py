"""Split arg reductions: the position of an extreme by its value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.numerics.reference.digest import same_bits
from core_compiler.pipelines.pipeline import PipelineEdit
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import program


def reduced(kind: str, axis: int = 1):
    return lambda b, x: getattr(b, kind)(x, axis=axis, dtype="i64")


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_a_long_row_is_reduced_twice(kind: str) -> None:
    made = specs.reach("split_arg_reductions", reduced(kind), "3x80xf32")
    stage = made.step()
    assert specs.rules_fired(stage.rewrites) == ["an arg reduction by its value"]
    found = specs.kinds(made.module)
    assert kind not in found
    assert f"reduce_{kind.removeprefix('arg')}" in found and "reduce_min" in found


def test_others_stay() -> None:
    for kind, axis in (("3x40xf32", 1), ("80x3xf32", 0)):
        made = specs.reach("split_arg_reductions", reduced("argmax", axis), kind)
        made.step()
        assert "argmax" in specs.kinds(made.module)


#: Few values, so that rows have ties, zeros of both signs, infinities and NaN.
VALUES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.5]


@settings(max_examples=examples(25), deadline=None)
@given(
    kind=st.sampled_from(["argmax", "argmin"]),
    dtype=st.sampled_from(["f32", "f64", "bf16", "f16", "i32", "ui8"]),
    row=st.integers(64, 150),
    picks=st.lists(st.integers(0, 7), min_size=1, max_size=40),
)
def test_the_position_is_that_of_the_first(kind, dtype, row, picks) -> None:
    module = program(reduced(kind), f"2x{row}x{dtype}")
    wanted = module.main.arguments[0].type.dtype
    values = np.resize(np.array([VALUES[i] for i in picks]), (2, row))
    if not wanted.is_float:
        values = np.nan_to_num(values, nan=2, posinf=7, neginf=-7)
    with np.errstate(all="ignore"):
        x = values.astype(wanted.numpy)
    found = []
    for skip in ((), ("split_arg_reductions",)):
        edit = PipelineEdit(skip=skip)
        made = compilation.start(module, "cpu", Options(edit=edit, check=not skip), (x,)).finish()
        assert not [r for rs in made.checks.values() for r in rs if r.verdict == "failed"]
        found.append(made(x)[0])
    assert same_bits(*found)
    if wanted.name in ("f32", "f64", "i32"):
        assert np.array_equal(found[0], getattr(np, kind)(x, axis=1))
