"""Predicted times of real kernels: against times recorded on an H200, and against counted work."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks import gpu_predictions
from benchmarks.gpu_predictions import RECORDINGS, rows
from core_compiler.codegen.cuda.predict import CompiledLaunches
from core_compiler.codegen.cuda.sass import parse
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.hardware.machine import shipped
from core_compiler.hardware.prediction import GPUModel
from core_compiler.ir.target import LAUNCH, Launch
from core_compiler.record.reader import Recording
from core_compiler.support.errors import UserError
from tests.passes.programs import program

MODEL = GPUModel.of(shipped("h200"))


@cache
def predicted(name: str) -> tuple:
    return tuple(rows(RECORDINGS / f"{name}.run", MODEL))


@pytest.mark.parametrize("name", ["digits-cnn", "resnet50", "vit-b16"])
def test_models_take_about_as_long_as_they_did(name):
    """The error of a whole model is at most 10 % (docs/cuda.md); of a launch, a factor of 2."""
    found = predicted(name)
    measured, made = (
        sum(row.launches * us for row, us in zip(found, times, strict=True))
        for times in ([r.measured_us for r in found], [r.predicted_us for r in found])
    )
    assert made / measured == pytest.approx(1.0, abs=0.1)
    assert all(0.5 < row.ratio < 2 for row in found)
    spread = gpu_predictions.spread([row.ratio for row in found])
    assert 0.9 < spread["geometric_mean"] < 1.1 and spread["geometric_deviation"] < 1.35


def test_the_rows_of_a_small_model():
    shown = [
        (row.kernel, row.launches, round(row.predicted_us, 1), row.bound, row.note)
        for row in predicted("digits-mlp")
    ]
    assert shown == GOLDEN


GOLDEN = [
    ("matmul_add_mul_erf", 1, 6.7, "launch latency", ""),
    ("matmul_add_mul_erf", 1, 9.0, "dependent latency", ""),
    ("matmul_add", 1, 7.5, "launch latency", ""),
]


def kernel(recording: Recording, name: str) -> tuple[CompiledLaunches, list[Launch], list[int]]:
    module = recording.module(recording.stage_count() - 1)
    (each,) = (k for k in recording.kernels() if k.name == name)
    compiled = CompiledLaunches.of(
        module.functions[name],
        recording.kernel_text(each.id, "assembly"),
        each.assembly_map,
        [(line, recording.op(op)) for line, op in each.line_map],
        each.facts,
    )
    launches = [
        Launch.of(op)
        for op in module.main.body.ops
        if op.kind == LAUNCH and Launch.of(op).kernel == name
    ]
    return compiled, launches, each.facts["work_items"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("bert-base", "matmul_add"),  # tiles in shared memory, unrolled by two
        ("gpt2-decode", "matmul_add_3"),  # a thread an element, unrolled by 16, 8 and 4
        ("resnet18", "conv_add_max_2"),  # a nest of six loops
    ],
)
def test_the_counted_fmas_are_those_of_the_op(model, name):
    """m n k of a product, whose sizes the tiles divide: the loops of the SASS run as often as they
    must, whatever was unrolled."""
    with Recording.open(RECORDINGS / f"{model}.run") as recording:
        compiled, launches, blocks = kernel(recording, name)
        flops = {t.op: t.flops for t in recording.timings()}
        launch, count = launches[0], blocks[0]
        work, note = compiled._work(MODEL, launch.sizes, 2, frozenset())
        wanted = flops[recording.op_id(launch.op)] / 2
    warps = compiled.facts["threads"] // 32 * count
    assert note == "" and work.instructions["fp32"] * 32 * warps == pytest.approx(wanted, rel=0.02)


def test_loops_are_found_with_their_nesting():
    with Recording.open(RECORDINGS / "resnet18.run") as recording:
        compiled, _, _ = kernel(recording, "conv_add_max_2")
    depth, region = 0, compiled.sass
    while region.loops():
        depth, region = depth + 1, max(region.loops(), key=lambda loop: len(loop.every()))
    assert depth == 6, "chunks of channels, blocks of them, two taps, slabs, channels"
    assert not [i for i in compiled.sass.every() if i.opcode in ("NOP", "CALL")]


def test_registers_of_wide_and_guarded_instructions():
    listing = """\
.L_x_0:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64+0x10] ;
        /*0010*/              @!P0 IMAD.WIDE.U32 R8, R0, 0x4, R2 ;
        /*0020*/                   IADD3 R10, P1, R4, R8, RZ ;
        /*0030*/                   STG.E.64 desc[UR4][R2.64], R6 ;
        /*0040*/                   ISETP.GE.U32.AND P0, PT, R10, R4, PT ;
        /*0050*/              @!P0 BRA `(.L_x_0) ;
        /*0060*/                   EXIT ;
"""
    region = parse(listing)
    (loop,) = region.loops()
    load, wide, add, store, test, _ = loop.every()
    assert load.writes == ("R4", "R5", "R6", "R7") and load.bits == 128
    assert set(load.reads) == {"UR4", "R2", "R3"}
    assert wide.writes == ("R8", "R9") and {"P0", "R0", "R8"} <= set(wide.reads)
    assert add.writes == ("R10", "P1") and set(add.reads) == {"R4", "R8"}
    assert store.writes == () and {"R6", "R7"} <= set(store.reads)
    assert test.writes[0] == "P0" and {"R10", "R4"} <= set(test.reads)
    assert [i.opcode for i in region.instructions()] == ["EXIT"]


# -- in a compile ----------------------------------------------------------------------------------


def compiled_for(**options):
    module = program(lambda b, x, y: b.add(x, y), "7x33xf32", "7x33xf32")
    return compilation.start(module, "cuda", Options(target=options)).finish()


def test_a_compile_records_what_it_predicts(tmp_path):
    made = compiled_for()
    (found,) = made.predicted.values()
    assert found.bound_by == "launch latency" and 4.0 < found.us < 6.0
    with Recording.open(made.record(tmp_path / "sum.run")) as recording:
        (kernel,) = recording.kernels()
    assert kernel.facts["predictions"] == [found.to_json()]
    assert np.isclose(kernel.facts["predictions"][0]["us"], found.us, atol=1e-3)


def test_the_option_machine_chooses_the_architecture_and_the_figures():
    made = compiled_for(machine="a100")
    (compiled,) = made.facts["compiled"].values()
    assert '"sm_80"' in compiled.text("facts.json")
    (found,) = made.predicted.values()
    assert found.us != next(iter(compiled_for().predicted.values())).us
    with pytest.raises(UserError, match="unknown machine 'v100'; choose one of h200, h100"):
        compiled_for(machine="v100")
