"""Plan memory: offsets for temporaries, so that those in use together do not meet."""

from __future__ import annotations

import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Compilation, Options
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import UserError
from tests.passes.programs import program


def products(b, x, w):
    for _ in range(4):
        x = b.matmul(x, w)
    return x


def planned(edit: PipelineEdit = PipelineEdit()) -> Compilation:
    module = program(products, *["4x4xf32"] * 2)
    return compilation.start(module, "cpu", Options(edit=edit)).finish()


def allocations(made: Compilation):
    return [op for op in made.module.main.body.ops if op.kind == "target.alloc"]


def test_buffers_take_turns_and_the_result_is_the_callers():
    *temporaries, result = allocations(planned())
    assert [op.get("offset") for op in temporaries] == [0, 64, 0]
    assert result["output"] == 0 and "offset" not in result.attributes
    assert {op["size"] for op in temporaries} == {64}


def test_the_plan_reports_its_peak_and_the_bound_below():
    plan = planned().facts["plan"]
    assert plan.peak == plan.lower_bound == 128


def test_buffers_in_use_at_the_same_step_do_not_overlap():
    temporaries = allocations(planned())[:-1]
    for a in temporaries:
        for b in temporaries:
            meet = a is not b and a["start"] < b["end"] and b["start"] < a["end"]
            apart = a["offset"] + a["size"] <= b["offset"] or b["offset"] + b["size"] <= a["offset"]
            assert apart or not meet


def test_another_alignment_is_refused():
    with pytest.raises(UserError, match="alignment of 48 bytes"):
        planned(PipelineEdit(options={"plan_memory": {"alignment": "48"}}))
