"""What is read from SASS, on a listing whose figures were counted by hand and on a real kernel."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.cuda_kernels import COLUMNS, Row, kernels, table
from core_compiler.codegen.cuda.listing import Mix, inner_loop, mix
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.targets.cuda import CUDA
from tests.passes.programs import program

LISTING = """\
.text.kernel:
        /*0000*/                   LDG.E.64 R2, desc[UR6][R40.64] ;
        /*0010*/              @!P1 BRA `(.L_x_3) ;
.L_x_0:
        /*0020*/                   LDG.E.CONSTANT R4, desc[UR6][R40.64] ;
.L_x_1:
        /*0030*/                   LDS.128 R40, [R40] ;
        /*0040*/                   FFMA R9, R40.reuse, R44, R9 ;
        /*0050*/              @!UP0 FFMA R9, R40.reuse, R44, R9 ;
        /*0060*/               @P6 BRA `(.L_x_1) ;
.L_x_2:
        /*0070*/                   FFMA.FTZ R9, R40.reuse, R44, R9 ;
        /*0080*/               @P6 BRA `(.L_x_2) ;
        /*0090*/               @P5 BRA `(.L_x_0) ;
.L_x_3:
        /*00a0*/                   STG.E.128 desc[UR6][R4.64], R8 ;
        /*00b0*/                   EXIT ;
.L_x_4:
        /*00c0*/                   BRA `(.L_x_4);
        /*00d0*/                   NOP;
"""


def test_instructions_are_counted_by_kind():
    assert mix(LISTING) == Mix(instructions=13, fmas=3, shared=1, load_bits=64)
    assert mix("") == Mix(0, 0, 0, 0)


def test_the_inner_loop_is_the_one_with_the_most_products():
    found = inner_loop(LISTING)
    assert found.splitlines()[0] == ".L_x_1:"
    assert mix(found) == Mix(instructions=4, fmas=2, shared=1, load_bits=0)
    assert inner_loop(LISTING.replace("FFMA", "FADD")) == ""


def test_a_row_of_the_table():
    facts = {
        "threads": 64,
        "registers": 30,
        "shared": 512,
        "spilled": 0,
        "stack": 0,
        "occupancy": 0.25,
    }
    head, line, row = table([Row("product", 3, facts, LISTING)])
    assert row == "| `product` | 3 | 64 | 30 | 512 | 0 | 25 | 23 | 50 | 2.0 | 64 |"
    assert head.count("|") == line.count("|") == row.count("|") == len(COLUMNS) + 1


@pytest.mark.slow
def test_the_kernels_of_a_model():
    """Equal kernels are one row; vectors are loaded at once."""
    module = program(
        lambda b, x, y: [b.add(x, y), b.reduce_sum(b.add(x, x), axes=(1,))],
        "64x64xf32",
        "64x64xf32",
    )
    made = compilation.start(module, CUDA(), Options(target={"architecture": "sm_90"})).finish()
    twice = dict(made.facts["compiled"])
    twice |= {f"{name}_again": compiled for name, compiled in made.facts["compiled"].items()}
    rows = kernels(SimpleNamespace(facts={**made.facts, "compiled": twice}))
    assert len(rows) == len(made.facts["compiled"])
    assert sum(r.launches for r in rows) == len(made.facts["program"][0].launches)
    (sums,) = [r for r in rows if "reduce" not in r.name]
    assert mix(sums.sass).load_bits == 128
