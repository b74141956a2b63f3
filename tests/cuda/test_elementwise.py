"""Every scalar function as a CUDA kernel: its PTX gives the reference's bits."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from core_compiler.codegen.cuda.compile import compile_source
from core_compiler.codegen.cuda.source import generate
from core_compiler.lowering.lower import lower_group
from core_compiler.ops.rules import F32, F64
from core_compiler.scheduling.schedules import gpu
from tests.cuda.helpers import CAPABILITIES, on_gpu
from tests.cuda.lint import complaints, complaints_about
from tests.kernels.kernel_helpers import (
    assert_same_bits,
    group,
    integers,
    interpreted,
    normal,
    reference,
)
from tests.slow import slow_but

UNARY = """
    exp exp2 expm1 log log2 log10 log1p sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh
    asinh acosh atanh erf erfc sigmoid abs neg sign floor ceil round trunc is_nan is_inf is_finite
"""
BINARY = "add sub mul div max min pow atan2 lt eq ne"
#: One of each way to compute: the others have the long run.
QUICK = (
    "exp",
    "log",
    "rsqrt",
    "sin",
    "erf",
    "tanh",
    "neg",
    "round",
    "is_nan",
    "sub",
    "div",
    "max",
    "pow",
    "lt",
)
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0, 200, -200, 1e-40, -1e-40, 1, 0.5, -1, 3e38]


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Two blocks of threads and a rest; special values meet one another."""
    x, y = normal(3, 181), 3 * normal(3, 181, seed=1)
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL), np.float32).reshape(2, -1)
    x.flat[: pairs.shape[1]], y.flat[: pairs.shape[1]] = pairs
    return x, y


@pytest.mark.sampled(27)
@pytest.mark.parametrize("name", slow_but(QUICK, [*UNARY.split(), *BINARY.split()]))
def test_a_scalar_function_gives_the_references_bits(name):
    x, y = inputs()
    given = (x, y) if name in BINARY.split() else (x,)
    op = group(lambda b, *values: getattr(b, name)(*values), *given)
    wanted = reference(op, given)
    for capability in CAPABILITIES:
        made, ptx = on_gpu(op, given, capability)
        assert_same_bits(made, wanted, f"{name} for {capability}")
        assert complaints(ptx) == []


LARGE = [1e6, -1e10, 1e22, -1e200, 1e300]


def doubles() -> tuple[np.ndarray, np.ndarray]:
    x, y = (a.astype(np.float64) for a in inputs())
    x.flat[-len(LARGE) :] = LARGE
    return x, y


def _same_bits(name: str, given, capability) -> None:
    op = group(lambda b, *values: getattr(b, name)(*values), *given)
    made, ptx = on_gpu(op, given, capability)
    assert_same_bits(made, reference(op, given), f"{name} for {capability}")
    assert complaints(ptx) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rem", "mod"])
def test_remainders_are_computed_by_loops(name):
    x, y = inputs()
    _same_bits(name, (x, y), (9, 0))
    _same_bits(name, doubles(), (9, 0))


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_integer_powers_wrap(kind):
    low = 0 if kind is np.uint8 else -6
    _same_bits(
        "pow", (integers(low, 7, (70,), kind), integers(max(low, -2), 40, (70,), kind)), (9, 0)
    )


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_integers(kind):
    """Arithmetic, division by zero, shifts beyond the width, comparisons."""
    dtype = np.dtype(kind)
    info = np.iinfo(dtype)
    x = np.random.default_rng(5).integers(info.min, info.max, 90, dtype, endpoint=True)
    y = np.concatenate([integers(0, 2 * info.bits, (40,), dtype), x[:50][::-1]])
    x[:3], y[-3:] = (info.min, info.max, 0), 0

    def build(b, x, y):
        same = [
            getattr(b, n)(x, y) for n in ("add", "sub", "mul", "div", "rem", "max", "min", "xor")
        ]
        return [*same, b.shl(x, y), b.shr(x, y), b.cast(b.lt(x, y), dtype="i32"), b.bitnot(x)]

    op = group(build, x, y)
    made, _ = on_gpu(op, (x, y), (9, 0))
    assert_same_bits(made, reference(op, (x, y)), kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_integers_of_floats_saturate_and_nan_gives_0(kind):
    """Where either side has 64 bits the machine's own conversion makes another number of NaN."""
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 1e30, -1e30, 300.5, -2.5], kind)
    dtypes = [f"{sign}{bits}" for sign in ("i", "ui") for bits in (8, 16, 32, 64)]
    op = group(lambda b, x: [b.cast(x, dtype=name) for name in dtypes], x)
    made, ptx = on_gpu(op, (x,), (9, 0))
    assert re.search(r"cvt\.rzi\.s64", ptx) and not any(m[:2].any() for m in made)
    assert_same_bits(made, reference(op, (x,)), str(kind))


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
@pytest.mark.parametrize("name", [*UNARY.split(), *BINARY.split()])
def test_a_function_of_f64_gives_the_references_bits(name, capability):
    x, y = doubles()
    _same_bits(name, (x, y) if name in BINARY.split() else (x,), capability)


@pytest.mark.slow
def test_a_function_rounded_correctly_gives_the_references_bits():
    """What the pass ``round_correctly`` makes of functions of f32: f64 between two casts."""
    x, _ = inputs()
    names = ("exp", "erf", "log1p")

    def build(b, x):
        return [b.cast(getattr(b, n)(b.cast(x, dtype=F64)), dtype=F32) for n in names]

    op = group(build, x)
    wanted = reference(op, (x,))
    narrow = reference(group(lambda b, x: [getattr(b, n)(x) for n in names], x), (x,))
    assert all(a.tobytes() != b.tobytes() for a, b in zip(wanted, narrow, strict=True))
    for capability in CAPABILITIES:
        made, ptx = on_gpu(op, (x,), capability)
        assert_same_bits(made, wanted, str(capability))
        assert complaints(ptx) == []


def test_every_schedule_step_keeps_the_bits():
    x, y = inputs()
    op = group(lambda b, x, y: b.mul(b.exp(x), y), x, y)
    wanted = reference(op, (x, y))
    for step in gpu.schedule(lower_group(op).function).steps:
        assert_same_bits(interpreted(op, (x, y), step.function), wanted, step.name)


@pytest.mark.parametrize("size", [3, 4, 1027])
def test_four_elements_in_a_row_are_one_access(size):
    x, y = normal(size), normal(size, seed=1)
    op = group(lambda b, x, y: b.mul(b.exp(x), y), x, y)
    for capability in CAPABILITIES:
        made, ptx = on_gpu(op, (x, y), capability)
        assert_same_bits(made, reference(op, (x, y)), str(capability))
        assert len(re.findall(r"ld\.global\.v4\.[bf]32", ptx)) == 2
        assert len(re.findall(r"st\.global\.v4\.[bf]32", ptx)) == 1


@pytest.mark.slow
def test_machine_code_has_no_fma_that_the_ptx_has_not():
    x, y = inputs()
    op = group(lambda b, x, y: b.add(b.mul(x, y), y), x, y)
    source = generate(gpu.schedule(lower_group(op).function).function)
    lines = source.text.splitlines()
    for capability in CAPABILITIES:
        made = compile_source(source, capability)
        assert complaints_about(made) == []
        assert "FMUL" in made.assembly and "FADD" in made.assembly
        assert made.facts["spilled"] == made.facts["stack"] == 0
        shown = {lines[line - 1].strip() for _, line in made.intermediate_lines}
        assert any("mul_f32" in line for line in shown)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_narrow_floats_are_computed_in_f32_and_rounded(dtype):
    x, y = (a.ravel().astype(dtype) for a in inputs())
    op = group(lambda b, x, y: b.mul(b.exp(x), y), x, y)
    made, _ = on_gpu(op, (x, y), (9, 0))
    assert_same_bits(made, reference(op, (x, y)), str(dtype))
