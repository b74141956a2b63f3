"""The lint of PTX and SASS: kernels that are wrong, made by NVIDIA's own assembler, are caught."""

from __future__ import annotations

import pytest

from core_compiler.codegen.cuda import toolchain
from core_compiler.codegen.cuda.listing import ptx_lines, sass_lines
from core_compiler.codegen.cuda.source import generate
from core_compiler.lowering.lower import lower_group
from core_compiler.scheduling.schedules import gpu
from tests.cuda.helpers import CAPABILITIES
from tests.cuda.lint import complaints, complaints_about
from tests.kernels.kernel_helpers import group, normal
from tests.slow import slow_but

#: Four numbers are read and two written; ``{}``: what is computed, from source line 10 on.
PTX = """.version 8.7
.target sm_90
.address_size 64
.visible .entry kernel(
    .param .u64 argument_0
)
{
    .reg .f32 %f<9>;
    .reg .b64 %rd<3>;
    .loc 1 5 0
    ld.param.u64 %rd1, [argument_0];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.f32 %f1, [%rd2];
    ld.global.f32 %f2, [%rd2+4];
    ld.global.f32 %f3, [%rd2+8];
    ld.global.f32 %f4, [%rd2+12];
CODE
    .loc 1 90 0
    st.global.f32 [%rd2], %f6;
    st.global.f32 [%rd2+4], %f8;
    ret;
}
.file 1 "source.py"
"""
MUL, ADD = "mul.rn.f32 %f5, %f1, %f2;", "add.rn.f32 %f6, %f5, %f3;"
FMA, OTHER = "fma.rn.f32 %f6, %f1, %f2, %f3;", "fma.rn.f32 %f8, %f6, %f4, %f1;"


def written(*lines: str, line: int = 10) -> str:
    """A kernel whose lines of code are of successive source lines, or all of ``line`` 10."""
    placed = [f"    .loc 1 {line or 10 + n} 0\n    {text}" for n, text in enumerate(lines)]
    return PTX.replace("CODE", "\n".join(placed))


def machine(ptx: str):
    """Its SASS, with the rows of source lines."""
    cubin = toolchain.assemble(ptx, "sm_90").cubin
    return sass_lines(toolchain.disassemble(cubin))


def seen(meant: str, made: str) -> list[str]:
    """What is said where the PTX ``meant`` became the machine code of ``made``."""
    sass, places = machine(made)
    return complaints(meant, sass, (ptx_lines(meant), places))


def contracted(*lines: str) -> list[str]:
    """The same lines, free to be contracted."""
    return [text.replace(".rn", "") if text[:3] in ("mul", "add") else text for text in lines]


@pytest.mark.parametrize("line", [0, 10], ids=["a line each", "one line"])
def test_what_ptxas_makes_of_rounded_operations_is_right(line):
    ptx = written(MUL, ADD, OTHER, line=line)
    assert seen(ptx, ptx) == []


@pytest.mark.slow
def test_a_contracted_product_is_caught_beside_an_honest_fma():
    """ptxas itself contracts what does not say rn."""
    free = written(*contracted(MUL, ADD, OTHER), line=0)
    assert machine(free)[0].count("FFMA") == 2
    told = seen(written(MUL, ADD, OTHER, line=0), free)
    assert any("FFMA: the PTX of source line" in text for text in told)
    assert "SASS of source line 10 has no FMUL, its PTX has" in told
    told = complaints(free)
    assert [text.split(": ")[-1] for text in told] == ["not rounded to nearest by name"] * 2


def test_a_contracted_product_is_caught_on_the_line_of_an_fma():
    told = seen(written(MUL, ADD, OTHER), written(*contracted(MUL, ADD, OTHER)))
    assert told == [
        f"SASS of source line 10 has no {name}, its PTX has" for name in ("FADD", "FMUL")
    ]


def test_an_fma_that_is_taken_apart_is_caught():
    told = seen(written(FMA, OTHER, line=0), written(MUL, ADD, OTHER, line=0))
    assert any("FMUL: the PTX of source line 10 has none" in text for text in told)
    assert "SASS of source line 10 has no FFMA, its PTX has" in told


def test_without_lines_the_whole_kernel_is_compared():
    sass, _ = machine(written(*contracted(MUL, ADD)))
    told = complaints(written(MUL, ADD), sass)
    assert "FFMA: the PTX of the kernel has none" in told[0]
    assert told[1:] == [
        f"SASS of the kernel has no {name}, its PTX has" for name in ("FADD", "FMUL")
    ]


def test_approximations_and_flushing_are_caught_in_both():
    bad = ("mul.rn.ftz.f32 %f5, %f1, %f2;", "ex2.approx.ftz.f32 %f6, %f5;", OTHER)
    good = written(MUL, "fma.rn.f32 %f6, %f5, %f5, %f5;", OTHER, line=0)
    told = " | ".join(seen(good, written(*bad, line=0)))
    assert "FMUL.FTZ: FTZ" in told
    assert "MUFU.EX2: an approximation" in told
    assert len(complaints(written(*bad))) == 2


def test_unordered_sums_are_caught():
    atomic = "atom.global.add.f32 %f7, [%rd2], %f6;"
    told = seen(written(FMA, OTHER), written(FMA, OTHER, atomic))
    assert len(told) == 1
    assert "has no order" in told[0]
    assert len(complaints(written(FMA, OTHER, atomic))) == 1
    assert (
        "tensor cores"
        in complaints(
            written(FMA), "/*0010*/ HMMA.1688.F32 R4, R2, R3, R4 ;\n/*0020*/ FFMA R1, R2, R3, R4 ;"
        )[0]
    )


#: Divisions and roots, whose machine code has further products and sums, loops that are unrolled,
#: f64 and functions of the contract.
HONEST = {
    "division": lambda b, x, y: b.div(b.sqrt(x), y),
    "softmax": lambda b, x, y: b.softmax(b.mul(x, y), axis=1),
    "sin": lambda b, x, y: b.add(b.mul(b.sin(x), y), x),
    "pow": lambda b, x, y: b.pow(x, y),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("division", "sin"), HONEST))
def test_honest_kernels_are_not_complained_about(name):
    from core_compiler.codegen.cuda.compile import compile_source

    lowered = lower_group(group(HONEST[name], normal(5, 70), normal(5, 70)))
    source = generate(gpu.schedule(lowered.function, [lowered.sizes]).function)
    for capability in CAPABILITIES:
        assert complaints_about(compile_source(source, capability)) == []
